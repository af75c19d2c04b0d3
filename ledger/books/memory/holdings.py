"""Memory as a timeline: stocks with lifetimes over the moments of a step, and the peak as a maximum over them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import sympy

from ledger.books.bindings import model_sizes
from ledger.books.entries import Entry, Lifetime
from ledger.books.evaluate import Exact, Value
from ledger.books.memory import optimizer
from ledger.books.memory.gathering import small_weights
from ledger.books.memory.liveness import storages
from ledger.books.memory.moments import Moments
from ledger.books.memory.reduction_buffer import ReductionBuffer
from ledger.books.memory.steps import (
    BATCH,
    AllocationChoice,
    FullestStep,
    Running,
    categories,
    fullest_in_moment,
    fullest_operation,
    outlives_unit,
    scores,
)
from ledger.books.memory.timeline import (
    BACKWARD,
    FORWARD,
    OPTIMIZER,
    AliveCount,
    Moment,
    Timeline,
    always,
    post_stock,
    until_update,
)
from ledger.books.parameter_traffic import by_module
from ledger.books.resources import stock
from ledger.model import losses
from ledger.model.attention_cores import SharedResult
from ledger.model.causes import BRIDGE, ENDS, INPUT, LOSS, OUTPUT, Cause, Purpose
from ledger.model.collectives import Collective
from ledger.model.contraction import Grouped
from ledger.model.dims import symbol
from ledger.model.exchanges import copied_to_buckets, drains, fills_gradients, fuses, stays, waits
from ledger.model.formats import matrices, stored_bytes, stored_dtype, trained_dtype
from ledger.model.fsdp_units import weights_by_unit
from ledger.model.offloading import leaving, updates_on_host, weights_on_host
from ledger.model.operations import ONE, ZERO, differentiable
from ledger.model.program import Program
from ledger.model.quantised import OWN_MATRIX, SLOTS, STAYING, Quantised
from ledger.model.schedule import schedule
from ledger.model.tensors import BUFFER, REMEMBERED, SHARED, CeilDiv, Tensor, product, sized
from ledger.model.unit import Unit
from ledger.model.units import compute_precision
from ledger.spec.plan import Plan

OF_LAYERS = (STAYING, BUFFER, REMEMBERED, SHARED)  # roles of what stands by itself below
CATEGORIES = ("weights", "master", "gradients", "optimizer", "activations", "logits", "workspace", "unsharded")


def fullest_by_moment(program: Program, plan: Plan, value: Value, line: Timeline) -> Iterator[FullestStep]:
    """Of each moment at which a unit runs, the step with most bytes alive."""
    moments = Moments(program, plan, line)
    of_unit: dict[tuple[str, str], tuple[Running, ...]] = {}
    for point in moments.points:
        key = point.phase, point.unit
        if key not in of_unit:
            of_unit[key] = tuple(fullest_operation(stretch, value) for stretch in moments.stretches(point))
        yield fullest_in_moment(line.points.index(point), tuple(moments.steps(point, of_unit[key])), value)


def stocks_of_fullest_step(fullest_step: FullestStep) -> Iterator[Entry]:
    """The stocks that exist only while a unit runs, at its fullest step."""
    step, moment = fullest_step.steps[fullest_step.place], fullest_step.moment
    for item in step.allocations:
        if isinstance(item, AllocationChoice):
            raise TypeError(f"which step of {step.name} is the fullest is not known")
        why = f"{item.why}; fullest while {step.name}"
        yield Entry(item.cause, stock(item.category), Lifetime(moment, moment), item.amount, item.times, why)


def lasting_stocks(program: Program, plan: Plan, value: Value, line: Timeline) -> Iterator[Entry]:
    """The stocks that are there whatever the sizes are: all but what exists only while one unit runs.

    `value` tells which weight's update holds most, and which weights are too small to be cut into blocks.
    """
    yield from of_weights(program, plan, line, value)
    yield from of_layers(program, plan, line)
    yield from of_gradients(Moments(program, plan, line))


def of_weights(program: Program, plan: Plan, line: Timeline, value: Value) -> Iterator[Entry]:
    """Stocks of weights: they themselves, their optimizer states, and what the update holds."""
    yield from _stored_weights(program, plan, line)
    if plan.stack.workspace and not plan.model.bare:
        why, amount = "what matmuls keep for themselves", sympy.Integer(plan.stack.workspace)
        yield Entry(Cause("", "matmul workspace"), stock("workspace"), line.all_moments, amount, ONE, why)
        if plan.stack.streams and any(isinstance(op, Grouped) for unit in program.units for op in unit.forward):
            count = sympy.Integer(plan.stack.streams)
            yield Entry(Cause("", "workspaces of experts"), stock("workspace"), line.all_moments, amount, count, why)
    if by_module(plan):
        yield from small_weights(program, plan, line, value)
    yield from optimizer.optimizer_states(program, plan, line.all_moments, value)
    yield from optimizer.update(program, plan, line.last, value)


def of_layers(program: Program, plan: Plan, line: Timeline) -> Iterator[Entry]:
    """Stocks that the passes of layers leave: inputs, what is saved for backward or put off."""
    yield from _step_inputs(program, line)
    yield from autocast_copies(program, plan, line)
    yield from quantised_copies(program, line)
    yield from _lasting_buffers(program, line)
    yield from shared_results(program, line)
    yield from _layer_tables(program, line)
    for unit in program.units:
        if unit.forward:
            yield from _saved_tensors(unit, line, plan)
            yield from _rebuilt_segments(unit, line)
    yield from delayed_operands(program, plan, line)


def of_gradients(moments: Moments) -> Iterator[Entry]:
    """Stocks of gradients, and what stays from set to set of weights that are held split."""
    yield from gradients(moments)
    if moments.gathering:
        yield from moments.gathering.lasting()


def _stored_weights(program: Program, plan: Plan, line: Timeline) -> Iterator[Entry]:
    """Weights, alive all the time; those of the host are here only while they are gathered, their scales always."""
    sharding, hosted = program.sharding, weights_on_host(plan)
    for name, count, weights in weights_by_unit(program.units):
        for weight in weights:
            why = "held rows of FSDP" if sharding.splits("weights") else "a weight's size is a product of dims"
            amount = stored_bytes(plan.precision, weight, sharding, on_host=hosted)
            yield Entry(Cause(name, weight.name), stock("weights"), line.all_moments, amount, count, why)


def _lasting_buffers(program: Program, line: Timeline) -> Iterator[Entry]:
    """Buffers that transfers fill in every micro-batch, and that last."""
    for unit in program.units:
        filled = {op.output.name: op.output for op in unit.forward if isinstance(op, Collective) and op.buffered}
        for tensor in filled.values():
            cause = Cause(unit.name, tensor.name, state="buffer")
            yield Entry(cause, stock("workspace"), line.all_moments, tensor.bytes(), unit.count, "a buffer that lasts")


def _layer_tables(program: Program, line: Timeline) -> Iterator[Entry]:
    """Tables that each layer keeps for itself, and what it keeps of its last pass."""
    for unit in program.units:
        inputs = (t for op in unit.forward for t in op.inputs if t.role == BUFFER)
        results = (t for op in unit.forward for t in op.outputs if t.role == REMEMBERED)
        for tensor in {t.name: t for t in (*inputs, *results)}.values():
            cause = Cause(unit.name, tensor.name)
            yield Entry(cause, stock("activations"), line.all_moments, tensor.bytes(), unit.count, "kept by each layer")


def _step_inputs(program: Program, line: Timeline) -> Iterator[Entry]:
    """The batch lives as long as the step, tables of positions as long as layers run or wait for backward.

    What backward reads neither itself nor to rebuild (a mask that is added to scores) is there in forward alone.
    """
    why = "input of the step, or shared by layers"
    inputs = (t for unit in program.units for op in unit.forward for t in op.inputs)
    again = {t.name for unit in program.units for op in (*unit.saving.again, *unit.backward) for t in op.inputs}
    for tensor in {t.name: t for t in inputs if outlives_unit(t) and t.role not in OF_LAYERS}.values():
        waits = _layers_run if tensor.name in again else _in_phases(_layers_run, FORWARD)
        alive = always(ONE) if tensor.name in BATCH else waits
        yield from post_stock(line, Cause("", tensor.name), "activations", tensor.bytes(), alive, why)


def _layers_run(point: Moment) -> sympy.Expr:
    return ZERO if point.phase == OPTIMIZER or point.unit == INPUT else ONE


def _in_phases(alive: AliveCount, *phases: str) -> AliveCount:
    """As many as are `alive` in these phases, and none in others."""
    return lambda point: alive(point) if point.phase in phases else ZERO


def _saved_tensors(unit: Unit, line: Timeline, plan: Plan) -> Iterator[Entry]:
    """What backward needs of each layer, for this micro-batch and for those still in flight.

    The share of the layer that runs is counted with the step it runs in, so here are the layers that wait.
    """
    category, why = categories(unit), "saved for backward: each storage once"
    other_layers, offloaded = _other_micro_batches(unit, plan), leaving(unit)
    for tensor in unit.saving.saved:
        if tensor.name in BATCH:  # an input of the step, of which there is one for each micro-batch
            flying = until_update(other_layers)
            cause = Cause("", tensor.name, state="in_flight")
            yield from post_stock(line, cause, "activations", tensor.bytes(), flying, "micro-batches in flight")
        flying = line.flying(unit, other_layers)
        if tensor.role == REMEMBERED:  # of this micro-batch it is what the layer keeps
            cause, amount = Cause(unit.name, tensor.name, state="in_flight"), tensor.bytes()
            yield from post_stock(line, cause, category(tensor), amount, flying, "micro-batches in flight")
        if outlives_unit(tensor):
            continue
        if tensor in offloaded:
            moving = "on its way to the host beside the next layer, or back before its own backward"
            cause = Cause(unit.name, tensor.name, state="moving")
            yield from post_stock(line, cause, category(tensor), tensor.bytes(), on_the_way(unit), moving)
            continue
        tensor_category, amount = category(tensor), tensor.bytes()
        yield from post_stock(line, Cause(unit.name, tensor.name), tensor_category, amount, line.saved(unit), why)
        cause = Cause(unit.name, tensor.name, state="in_flight")
        yield from post_stock(line, cause, tensor_category, amount, flying, "micro-batches in flight")


def on_the_way(unit: Unit) -> AliveCount:
    """The one layer of a unit whose copies go on while its neighbour runs."""
    return lambda point: ONE if point.surroundings.moving == unit.name else ZERO


def _rebuilt_segments(unit: Unit, line: Timeline) -> Iterator[Entry]:
    """The further layers of a segment, which are rebuilt together with the one that runs backward."""

    def together(point: Moment) -> sympy.Expr:
        return unit.saving.further_layers if (point.phase, point.unit) == (BACKWARD, unit.name) else ZERO

    category = categories(unit)
    for tensor in {t.storage: t for t in (*unit.saving.saved, *unit.saving.rebuilt)}.values():
        if not outlives_unit(tensor):
            cause = Cause(unit.name, tensor.name, state="beside")
            yield from post_stock(line, cause, category(tensor), tensor.bytes(), together, "rebuilt with its segment")


def _other_micro_batches(unit: Unit, plan: Plan) -> sympy.Expr:
    """Micro-batches in flight beside the current one, times the layers that hold each.

    The backward pass of the output and of what predicts further tokens follows at once, unless all of forward comes
    first. The input belongs to one chunk of layers, which has at most its even share of the chunks in flight, rounded
    up.
    """
    if unit.name in (OUTPUT, LOSS, losses.UNIT) and not schedule(plan.parallelism).keeps_output:
        return ZERO
    if unit.name == INPUT:
        return CeilDiv(symbol("in_flight") * symbol("chunks"), symbol("chunks")) - 1
    return (symbol("in_flight", unit.suffix) - 1) * unit.count


# --- casts that torch.autocast remembers ---

WHY = "torch.autocast keeps the cast of a weight until forward is over, though nothing saves it for backward"


def autocast_copies(program: Program, plan: Plan, line: Timeline) -> Iterator[Entry]:
    """Casts in layers that forward has left behind: of biases, and of all weights where layers are recomputed.

    A compiled layer casts inside its own graph, which autocast does not see.
    """
    if not compute_precision(plan).autocast or plan.stack.compiled:
        return
    for unit in program.units:
        saved = {tensor.storage for tensor in unit.saving.saved}
        casts = (tensor for operation in unit.forward for tensor in operation.outputs if tensor.role == "cast")
        for tensor in {tensor.storage: tensor for tensor in casts if tensor.storage not in saved}.values():
            cause = Cause(unit.name, tensor.name, state="remembered")
            alive = _in_phases(line.saved(unit), FORWARD)
            yield from post_stock(line, cause, "activations", tensor.bytes(), alive, WHY)


# --- results that layers of other units read, and sums of their gradients ---


def shared_results(program: Program, line: Timeline) -> Iterator[Entry]:
    """Each result that layers of other units read, and the sum of its gradients, while its maker does not run."""
    for unit in program.units:
        for operation in unit.written:
            if isinstance(operation, SharedResult):
                yield from _SharedResult(program, unit, operation.output).entries(line)


@dataclass(frozen=True)
class _SharedResult:
    """A tensor that its `maker` gives to layers of other units."""

    program: Program
    maker: Unit
    tensor: Tensor

    def entries(self, line: Timeline) -> Iterator[Entry]:
        """The result, and the sum of the gradients that layers have given so far."""
        cause, amount = Cause(self.maker.name, self.tensor.name), self.tensor.bytes()
        yield from post_stock(
            line, cause, "activations", amount, self.is_live, "read by layers of other units, held once"
        )
        if differentiable(self.tensor):
            gradient = self.tensor.gradient
            cause, why = Cause(self.maker.name, gradient.name), "gradients of the layers that read it, added up"
            yield from post_stock(line, cause, "workspace", gradient.bytes(), self.gradients_summed, why)

    @cached_property
    def readers(self) -> frozenset[str]:
        """The units whose layers read it."""
        units = (unit for unit in self.program.units if unit is not self.maker)
        storage = self.tensor.storage
        return frozenset(u.name for u in units if any(t.storage == storage for op in u.written for t in op.inputs))

    @cached_property
    def is_read_backward(self) -> bool:
        """Whether backward reads it, to find gradients or to rebuild what did."""
        readers = [unit for unit in self.program.units if unit.name in self.readers]
        saved = {tensor.storage for unit in readers for tensor in unit.saving.saved}
        again = {tensor.storage for unit in readers for op in unit.saving.again for tensor in op.inputs}
        return self.tensor.storage in saved | again

    def is_live(self, point: Moment) -> sympy.Expr:
        """Forward from its maker on, while callers hold it; where backward reads it, until the first layer is over."""
        if point.phase == OPTIMIZER or point.unit == self.maker.name:
            return ZERO
        if point.phase == FORWARD:
            is_read = self.is_read_backward or BRIDGE in (self.maker.name, point.unit) or point.unit in self.readers
            return ONE if is_read and point.passed_layers[self.maker.name] != ZERO else ZERO
        return ONE if self.is_read_backward and point.passed_layers[self.maker.name] == ZERO else ZERO

    def gradients_summed(self, point: Moment) -> sympy.Expr:
        """Backward, once a layer has given a gradient, until the maker has read their sum."""
        if point.phase != BACKWARD or point.unit == self.maker.name or point.passed_layers[self.maker.name] != ZERO:
            return ZERO
        return ONE if any(point.passed_layers[reader] != ZERO for reader in self.readers) else ZERO


# --- operands of weight gradients that a schedule puts off ---


def delayed_operands(program: Program, plan: Plan, line: Timeline) -> Iterator[Entry]:
    """Inputs and output gradients of the contractions whose weight gradients come later, each storage once."""
    if not schedule(plan.parallelism).delays:
        return
    why = "operands of weight gradients that are put off"
    for unit in program.units:
        # an end belongs to one chunk, and what waits while that one runs is of that chunk alone
        layers = symbol("chunks") if unit.name in ENDS else unit.count
        for tensor in operands(unit):
            cause = Cause(unit.name, tensor.name, state="waiting")
            category = "logits" if scores(tensor) else "activations"
            count = until_update(layers * symbol("waiting"))
            yield from post_stock(line, cause, category, tensor.bytes(), count, why)


def operands(unit: Unit) -> tuple[Tensor, ...]:
    """What the weight gradients of a unit read; of what is gathered again for them, the share it is gathered from.

    A gradient that somebody holds is not added to in place: each value that a storage has had is a tensor of its own.
    """
    storage_of = storages(unit)
    share = {step.output.name: step.inputs[0] for step in unit.backward if step.purpose is Purpose.GATHERED_AGAIN}
    written: Counter[str] = Counter()
    tensors: dict[tuple[str, int], Tensor] = {}
    for step in unit.backward:
        if step.purpose is Purpose.WEIGHT_GRADIENT:
            for tensor in (share.get(read.name, read) for read in step.inputs):
                tensors.setdefault((storage_of(tensor), written[storage_of(tensor)]), tensor)
        written.update(storage_of(tensor) for tensor in step.outputs)
    return tuple(tensor for tensor in tensors.values() if not outlives_unit(tensor))


# --- quantised copies of weights, and scales ---

PER_SLOT = 2  # the scale, and its inverse, beside the history


def quantised_copies(program: Program, line: Timeline) -> Iterator[Entry]:
    """Quantised copies of weights, and scales, which every layer keeps all the time."""
    weights = stock("weights")
    for unit in program.units:
        copies = {t.name: t for op in unit.forward for t in op.outputs if t.role == STAYING}
        for tensor in copies.values():
            why = "a quantised copy of a weight, which the next micro-batch finds"
            cause = Cause(unit.name, tensor.name, purpose=Purpose.QUANTISED_WEIGHT)
            yield Entry(cause, weights, line.all_moments, tensor.bytes(), unit.count, why)
        for operation in unit.forward:
            if isinstance(operation, Quantised) and operation.recipe and operation.recipe.history:
                slots = sized("fp32", sympy.Integer(SLOTS * (operation.recipe.history + PER_SLOT)))
                why = "largest magnitudes and scales of delayed scaling (Transformer Engine, pytorch/fp8.py)"
                cause = Cause(unit.name, operation.name, state="amax")
                yield Entry(cause, weights, line.all_moments, slots, unit.count, why)


# --- gradients that wait for the rest of backward, the next micro-batch, the update ---


def gradients(moments: Moments) -> Iterator[Entry]:
    """Gradients of every trained weight, once each."""
    seen: set[str] = set()
    for unit in reversed(moments.program.units):
        for weight in unit.weights:
            if weight.frozen or (unit.name in ENDS and weight.name in seen):  # tied
                continue
            seen.add(weight.name)
            yield from _weight_gradients(moments, unit, weight)
    if moments.plan.stack.dummy_gradients:
        yield from _dummy_gradients(moments)
    yield from ReductionBuffer(moments.program, moments.plan, moments.timeline).entries()


def _dummy_gradients(moments: Moments) -> Iterator[Entry]:
    """What autograd is given in place of gradients that matmuls have added already: one tensor of each shape.

    Transformer Engine's get_dummy_wgrad (module/base.py) keeps them for good. Products of one input are one module's,
    whose weight is all of theirs.
    """
    seen: set[tuple[sympy.Expr, sympy.Expr]] = set()
    sizes, units = tuple(model_sizes(moments.plan.model).items()), moments.program.units
    shared = {weight.gradient.name: weight for unit in units for weight in unit.weights if not weight.frozen}
    for unit in units:
        weights_of_unit = {weight.gradient.name: weight for weight in unit.weights if not weight.frozen}
        weights = {**shared, **weights_of_unit}  # a module of further tokens also multiplies by weights of the head
        modules: dict[tuple[str, sympy.Expr], sympy.Expr] = {}
        for operation in unit.backward:
            if operation.adds_to:
                source, weight = operation.inputs[0], weights[operation.output.name]
                alike = matrices(weight)
                read = product(*(weight.local(dim) for dim in weight.dims if dim in source.dims)) / alike
                product_alone = operation.forward if operation.forward in OWN_MATRIX else ""
                key = f"{source.name}{product_alone}", read
                modules[key] = modules.get(key, ZERO) + weight.elements() / alike
        for (name, read), elements in modules.items():
            shape = _at_sizes(elements, sizes), _at_sizes(read, sizes)
            if shape not in seen:
                seen.add(shape)
                amount, cause = sized(trained_dtype(moments.plan), elements), Cause(unit.name, name, state="dummy")
                why = "stands for the gradient that a matmul has added, and is never freed"
                yield from post_stock(moments.timeline, cause, "gradients", amount, always(ONE), why)


@lru_cache(maxsize=1 << 12)
def _at_sizes(amount: sympy.Expr, sizes: tuple[tuple[sympy.Symbol, Exact], ...]) -> sympy.Expr:
    """A formula at a model's sizes, in the letters of the layout."""
    return amount.subs(sizes)


def _weight_gradients(moments: Moments, unit: Unit, weight: Tensor) -> Iterator[Entry]:
    plan, line, cause = moments.plan, moments.timeline, Cause(unit.name, weight.gradient.name)
    alive, why = _gradients_alive(moments, unit)
    amount = sized(plan.precision.gradients, moments.program.sharding.held_elements("gradients", weight))
    leaves = drains(plan) and updates_on_host(plan)  # as soon as it is reduced
    if drains(plan) and plan.parallelism.zero == 1:
        share = sized(plan.precision.gradients, moments.program.sharding.held_elements("optimizer", weight))
        at_update = _in_phases(always(unit.count), OPTIMIZER)
        alive, share_cause = _in_phases(alive, FORWARD, BACKWARD), replace(cause, state="share")
        if not leaves:
            yield from post_stock(line, share_cause, "gradients", share, at_update, "of it, what is updated here")
    if not weights_on_host(plan) and not (leaves and plan.parallelism.zero == 2):
        yield from post_stock(line, cause, "gradients", amount, alive, why)
    whole_gradient = sized(stored_dtype(plan.precision, weight), weight.elements())
    if moments.adds and unit.name == OUTPUT and weight.name in _embedding_weights(moments):
        why = "the head's part of a tied weight's gradient, which waits for the embedding's"
        alive = _in_phases(line.through(unit.name), BACKWARD)
        if fuses(plan):  # it was added by the product, and autograd sums what stands for it with the embedding's
            why, alive = "the sum of a tied weight's gradients", _alive_while_summed
        yield from post_stock(line, replace(cause, state="part"), "gradients", whole_gradient, alive, why)
    if waits(plan):
        why = "of this micro-batch, until its backward is over"
        alive = _in_phases(line.through(unit.name), BACKWARD)
        yield from post_stock(line, replace(cause, state="fresh"), "gradients", whole_gradient, alive, why)
    if copied_to_buckets(plan):
        why = "buckets that are reduced: a second copy of all gradients"
        yield from post_stock(
            line, replace(cause, state="bucket"), "gradients", whole_gradient, always(unit.count), why
        )


def _embedding_weights(moments: Moments) -> frozenset[str]:
    """The weights of the input."""
    return frozenset(w.name for unit in moments.program.units if unit.name == INPUT for w in unit.weights)


def _gradients_alive(moments: Moments, unit: Unit) -> tuple[AliveCount, str]:
    """All the time where they stay or micro-batches add to them, else from their layer on.

    Where weights are held split, a set's gradients are there when the last of its layers is through, and the root's
    only when backward is over.
    """
    gathering = moments.gathering
    kept = "zeros after each update" if fills_gradients(moments.plan) else "a buffer of all gradients, which stays"
    if gathering and stays(moments.plan):
        return always(unit.count), kept
    if gathering and not (moments.several and not gathering.buffers.accumulates):
        return gathering.reduced(unit), "waits for the update"
    if moments.several:
        return always(unit.count), "accumulated over micro-batches"
    if stays(moments.plan):
        return always(unit.count), kept
    return moments.timeline.through(unit.name), "waits for the update"


def _alive_while_summed(point: Moment) -> sympy.Expr:
    return ONE if (point.phase, point.unit) == (BACKWARD, INPUT) else ZERO
