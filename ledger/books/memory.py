"""Memory as a timeline: stocks with lifetimes over the moments of a step, and the peak as a maximum over them.

Within a unit of equal layers the bytes alive are affine in the layer index, so the candidates for the peak are the
first and the last layer that backward visits, at that step of the layer where most is alive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import sympy

from ledger.books.entries import Entry, Lifetime, stock
from ledger.books.evaluate import Exact
from ledger.books.liveness import Alive
from ledger.books.passing import TOKENS, candidates, categories, category, standing
from ledger.model.dims import symbol
from ledger.model.operations import total
from ledger.model.optimizers import IMPLEMENTATIONS, OPTIMIZERS
from ledger.model.program import ENDS, INPUT, LOSS, OUTPUT, ROOT, Program, Unit, distinct, wrapped
from ledger.model.sharding import gathered
from ledger.model.tensors import CeilDiv, sized
from ledger.spec.plan import Plan

CATEGORIES = ("weights", "master", "gradients", "optimizer", "activations", "logits", "workspace", "unsharded")
ONE = sympy.Integer(1)
Value = Callable[[sympy.Expr], Exact]


@dataclass(frozen=True)
class Timeline:
    """The moments of a step in order, by name, with their titles for people."""

    names: tuple[str, ...]
    titles: Mapping[str, str]

    def span(self, first: str, last: str) -> Lifetime:
        """From one moment to another."""
        return Lifetime(self.names.index(first), self.names.index(last))

    def after(self, name: str) -> str:
        """The next moment."""
        return self.names[self.names.index(name) + 1]

    def before(self, name: str) -> str:
        """The moment before."""
        return self.names[self.names.index(name) - 1]

    @property
    def middle(self) -> str:
        """The last moment of the forward pass."""
        return [name for name in self.names if name.startswith("forward/")][-1]

    @property
    def whole(self) -> Lifetime:
        """All of the step."""
        return Lifetime(0, len(self.names) - 1)


def timeline(program: Program) -> Timeline:
    """Forward through the units, backward through them (first and last layer visited), then the optimizer."""
    names: list[str] = []
    titles: dict[str, str] = {}

    def add(name: str, title: str) -> None:
        names.append(name)
        titles[name] = title

    for unit in program.units:
        add(f"forward/{unit.name}", f"forward, {_end(unit, 'last layer of ')}")
    for unit in reversed(program.units):
        add(f"backward/{unit.name}", f"backward, {_end(unit, 'last layer of ')}")
        if unit.count != ONE:
            add(f"backward/{unit.name}/end", f"backward, first layer of {unit.name}")
    add("optimizer", "optimizer update")
    return Timeline(tuple(names), titles)


def _end(unit: Unit, layer: str) -> str:
    return f"{layer}{unit.name}" if unit.count != ONE else unit.name


# --- stocks -------------------------------------------------------------------------------------


def stocks(program: Program, plan: Plan, value: Value) -> Iterator[Entry]:
    """Every stock of one device. `value` picks, among the steps of a unit, the one with most bytes alive."""
    line = timeline(program)
    yield from lasting(program, plan)
    sizes: dict[tuple[str, str], Exact] = {}

    def filled(step: Alive) -> Exact:
        for tensor in step.tensors:
            if (tensor.name, tensor.dtype) not in sizes:
                sizes[tensor.name, tensor.dtype] = value(tensor.bytes())
        return sum(sizes[tensor.name, tensor.dtype] for tensor in step.tensors)

    for unit in program.units:
        sizes.clear()  # names are a unit's own
        for moment, steps in candidates(unit):
            yield from _passing(unit, line.span(moment, moment), max(steps, key=filled))


def lasting(program: Program, plan: Plan) -> Iterator[Entry]:
    """The stocks that are there whatever the sizes are: all but what exists only while one unit runs."""
    line = timeline(program)
    yield from _state(program, plan, line)
    yield from _update(program, plan, line)
    yield from _inputs(program, line)
    for unit in program.units:
        if unit.forward:
            yield from _saved(unit, line)
    yield from _gradients(program, plan, line)
    if program.sharding.splits("weights"):
        yield from _unsharded(program, plan, line)


def _state(program: Program, plan: Plan, line: Timeline) -> Iterator[Entry]:
    """Weights, their fp32 master copy, and what the optimizer keeps: alive all the time."""
    precision, sharding = plan.precision, program.sharding
    rule = OPTIMIZERS[plan.optimizer.name]
    for name, count, weights in wrapped(program.units):
        for weight in weights:
            account = f"{name}/{weight.name}"
            held = sharding.held("weights", weight)
            why = "held rows of FSDP" if sharding.splits("weights") else "a weight's size is a product of dims"
            yield Entry(account, stock("weights"), line.whole, sized(precision.weights, held), count, why)
            share = sharding.held("optimizer", weight)
            if precision.master:
                yield Entry(account, stock("master"), line.whole, sized(precision.master, share), count, "master copy")
            for state in rule.states:
                shape = (
                    share
                    if not state.factored
                    else state.elements(weight) / (sharding.degree(weight) if sharding.splits("optimizer") else 1)
                )
                why = f"{state.name} of {rule.name} ({rule.source})"
                amount = sized(precision.states, shape)
                yield Entry(f"{account}.{state.name}", stock("optimizer"), line.whole, amount, count, why)


def _update(program: Program, plan: Plan, line: Timeline) -> Iterator[Entry]:
    """Temporaries of the update: foreach makes one list as large as all weights, a loop two of the largest."""
    run = IMPLEMENTATIONS[plan.kernels.optimizer]
    if not OPTIMIZERS[plan.optimizer.name].states or not (run.whole or run.largest):
        return
    when = line.span("optimizer", "optimizer")
    share = program.sharding
    if run.whole:
        amount = run.whole * total(
            count * sized(plan.precision.states, share.held("optimizer", weight))
            for _, count, weights in wrapped(program.units)
            for weight in weights
        )
        why = "one foreach temporary of every weight"
    else:
        weight = max(distinct(program.units), key=lambda w: (len(w.dims), str(w.dims)))
        amount = run.largest * sized(plan.precision.states, share.held("optimizer", weight))
        why = "temporaries of the largest weight"
    yield Entry("optimizer/update.temporaries", stock("workspace"), when, amount, ONE, why)


def _inputs(program: Program, line: Timeline) -> Iterator[Entry]:
    """The batch lives as long as the step, tables of positions as long as its two passes."""
    inputs = (t for unit in program.units for op in unit.forward for t in op.inputs)
    for tensor in {t.name: t for t in inputs if standing(t)}.values():
        when = line.whole if tensor.name == TOKENS else line.span(line.names[0], line.before("optimizer"))
        yield Entry(
            tensor.name, stock("activations"), when, tensor.bytes(), ONE, "input of the step, or shared by layers"
        )


def _saved(unit: Unit, line: Timeline) -> Iterator[Entry]:
    """What backward needs of each layer, for this micro-batch and for those still in flight.

    A layer's own share is counted with the step it runs in, so here are the layers that wait.
    """
    held, why = stock(category(unit)), "saved for backward: each storage once"
    forward, back = f"forward/{unit.name}", f"backward/{unit.name}"
    others = _others(unit)
    for tensor in unit.kept.saved:
        account, amount = f"{unit.name}/{tensor.name}", tensor.bytes()
        if standing(tensor):
            continue
        if unit.count != ONE:
            yield Entry(account, held, line.span(forward, back), amount, unit.count - 1, why)
        begin, end = line.after(forward), line.before(back)
        if line.names.index(begin) <= line.names.index(end):
            yield Entry(f"{account}.first", held, line.span(begin, end), amount, ONE, why)
        whole = line.span(line.names[0], line.before("optimizer"))
        yield Entry(f"{account}.in_flight", held, whole, amount, others, "micro-batches in flight")


def _others(unit: Unit) -> sympy.Expr:
    """Micro-batches in flight beside the current one, times the layers that hold each.

    The output is computed when its backward pass follows at once. The input belongs to one chunk of layers, which has
    at most its even share of the chunks in flight, rounded up.
    """
    if unit.name in (OUTPUT, LOSS):
        return sympy.Integer(0)
    if unit.name == INPUT:
        return CeilDiv(symbol("in_flight") * symbol("chunks"), symbol("chunks")) - 1
    return (symbol("in_flight") - 1) * unit.count


def _passing(unit: Unit, when: Lifetime, step: Alive) -> Iterator[Entry]:
    """What exists only while the unit runs, at one of its steps."""
    held, why = categories(unit), f"alive while {step.step} runs"
    for tensor in step.tensors:
        if not standing(tensor):
            yield Entry(f"{unit.name}/{tensor.name}.now", stock(held(tensor)), when, tensor.bytes(), ONE, why)


def _gradients(program: Program, plan: Plan, line: Timeline) -> Iterator[Entry]:
    """Gradients that wait for the update: all the time where micro-batches accumulate, else from their layer on."""
    accumulates = plan.run.global_batch > plan.parallelism.data * plan.run.micro_batch
    seen: set[str] = set()
    for unit in program.units:
        back = f"backward/{unit.name}"
        for weight in unit.weights:
            if unit.name in ENDS and weight.name in seen:  # tied
                continue
            seen.add(weight.name)
            amount = sized(plan.precision.gradients, program.sharding.held("gradients", weight))
            account, held = f"{unit.name}/{weight.name}.gradient", stock("gradients")
            if accumulates:
                yield Entry(account, held, line.whole, amount, unit.count, "accumulated over micro-batches")
                continue
            if unit.count != ONE:
                when = line.span(back + "/end", "optimizer")
                yield Entry(account, held, when, amount, unit.count - 1, "waits for the update")
            begin = line.after(back + ("/end" if unit.count != ONE else ""))
            yield Entry(f"{account}.first", held, line.span(begin, "optimizer"), amount, ONE, "waits for the update")


def _unsharded(program: Program, plan: Plan, line: Timeline) -> Iterator[Entry]:
    """FSDP: the root whole in both passes, the running layer and the next one whole, one layer's gradient to reduce."""
    held = stock("unsharded")
    for name, count, weights in wrapped(program.units):
        whole = gathered(weights, program.sharding, plan.precision.compute)
        if name == ROOT:
            yield from _root(program, plan, line, whole)
            continue
        forward, back = f"forward/{name}", f"backward/{name}"
        summed = gathered(weights, program.sharding, plan.precision.reduction)
        for moment in (forward, back, f"{back}/end"):
            if moment in line.names:
                when = line.span(moment, moment)
                prefetch = 1 if moment.endswith("/end") else 2
                yield Entry(
                    f"{name}/weights.whole", held, when, whole, sympy.Integer(prefetch), "this layer and the next"
                )
        end = f"{back}/end" if count != ONE else back
        yield Entry(
            f"{name}/gradient.to_reduce", held, line.span(back, end), summed, ONE, "input of the reduce-scatter"
        )


def _root(program: Program, plan: Plan, line: Timeline, whole: sympy.Expr) -> Iterator[Entry]:
    """The root is freed for the loss alone. Gradients of its last weights wait, whole, for those of its first."""
    held = stock("unsharded")
    has_loss = any(unit.name == LOSS for unit in program.units)
    last = line.before("optimizer")
    first_pass = line.span(line.names[0], line.before(f"forward/{LOSS}") if has_loss else line.middle)
    second_pass = line.span(line.after(f"backward/{LOSS}") if has_loss else line.after(line.middle), last)
    for when in (first_pass, second_pass):
        yield Entry(f"{ROOT}/weights.whole", held, when, whole, ONE, "gathered for the whole pass")
    for unit in program.units:
        if unit.name == OUTPUT:
            waiting = gathered(unit.weights, program.sharding, plan.precision.compute)
            when = line.span(line.after(f"backward/{OUTPUT}"), last)
            if when.first <= when.last:
                yield Entry(
                    f"{ROOT}/gradient.whole", held, when, waiting, ONE, "waits for the gradient of the embedding"
                )
