"""A plan whose sizes are the letters of the table of symbols: its totals as terms of one graph, and where that holds.

The compiler's rules run once with values of a trace. Sizes and degrees are inputs that go by their letters; what one
kernel or transfer takes is an input too, beside the form that prices it, so that a step is a sum of such forms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import sympy

from ledger.arithmetic.tracing import Graph, Trace, Traced
from ledger.arithmetic.values import Amount, largest_of
from ledger.books import kernels, totals
from ledger.books.assembly.stages import StageTime
from ledger.books.compiled import Compiled
from ledger.books.compiled_roles import CompiledRole, compile_roles
from ledger.books.counts import with_token_count
from ledger.books.evaluate import exact
from ledger.books.kernels import KernelCall
from ledger.books.memory.peak import by_moment, peak_of
from ledger.books.price_changes import PRICES, StepCalls, shares, step_calls
from ledger.books.prices import KernelWork
from ledger.books.resources import stock
from ledger.books.results import KernelTime
from ledger.books.time import StepTime, estimated, step_time
from ledger.model.dims import BY_NAME, LETTERS, symbol
from ledger.model.fsdp_units import weights_by_unit
from ledger.model.schedule import Role, roles, schedule
from ledger.spec.parallelism import AXES
from ledger.spec.plan import Accelerator, Group, Model, Plan

SECONDS = "seconds of "  # inputs of this name stand for what a kernel or transfer takes
SIZE = "size of "  # inputs of this name are sizes of the one kernel that a form prices
VALUE = "="
PARAMETER = "parameter "  # and these are the numbers of the form, as an accelerator's file has them
MODEL_SIZES = ("d_model", "vocab", "learned_positions", "token_types", "classes", "predictions")
LETTER_OF_FIELD = {"learned_positions": "positions"}  # fields of a model whose row of the table has another name
DERIVED = ("head_dim",)  # of latent attention: a sum of two letters
DEGREES = (*AXES, "replicate")
SIZES_OF_WORK = tuple(size_field.name for size_field in fields(KernelWork) if size_field.name not in ("kind", "dtype"))
HELD_BY_SERVICES = {
    "weights": ("memory.static.weights", "memory.weights"),
    "cache": ("memory.cache", "serve.cache.per_device"),
}


@dataclass(frozen=True)
class PricedCall:
    """What a kernel or transfer takes: a form over `sizes`, which are terms of its own plan, as a term of the graph.

    `accounts` are those that take as long; `parameters` the numbers of the form by the inputs that stand for them.
    """

    name: str
    seconds: Amount
    sizes: Mapping[str, Amount]
    parameters: Mapping[str, float]
    guards: Mapping[int, bool]
    accounts: tuple[str, ...] = ()


@dataclass(frozen=True)
class FilledMoment:
    """Bytes alive at one moment of one role's step, by category."""

    role: str
    title: str
    parts: Mapping[str, Amount]


@dataclass(frozen=True)
class LetteredTotals:
    """The totals of a plan as terms of a graph. `calls` are by the input that stands for their seconds.

    `counted` and `timed` are the guards of what is counted and held, and those of the step's time beyond them.
    `held_weights` are elements of weights that one device has of each layer of a kind, and of what stands around them.
    `in_flight`: micro-batches that devices hold, by the letter and the kind of device.
    """

    plan: Plan
    trace: Trace
    letters: Mapping[str, str]
    totals: Mapping[str, Amount]
    moments: tuple[FilledMoment, ...]
    step: StepTime | None
    stages: tuple[StageTime, ...]
    calls: Mapping[str, PricedCall]
    counted: Mapping[int, bool]
    timed: Mapping[int, bool]
    held_weights: tuple[tuple[str, Amount], ...] = ()
    in_flight: tuple[tuple[str, Amount], ...] = ()

    @property
    def graph(self) -> Graph:
        """The graph of all terms."""
        return self.trace.graph


@dataclass
class Lettering:
    """Letters as inputs of a trace: `paths` where a plan has each, `values` those that differ from the plan's own."""

    trace: Trace
    values: Mapping[str, int] = field(default_factory=dict)
    paths: dict[str, str] = field(default_factory=dict)

    def letter(self, name: str, value: Amount, path: str) -> Traced:
        """The input that goes by this letter."""
        self.paths[name] = path
        return self.trace.input(name, self.values.get(name, value))


def lettered_totals(
    plan: Plan, *, graph: Graph | None = None, values: Mapping[str, int] | None = None, paces: bool = False
) -> LetteredTotals:
    """Every total of a plan that trains, in letters; `values`: those of letters of layers, if not as the plan.

    With `paces`, also how much each price counts for in the step.
    """
    plan = with_token_count(plan)
    trace = Trace(graph or Graph())
    lettering = Lettering(trace, values or {})
    sized, devices = lettered_plan(plan, lettering)
    books = compile_roles(sized, devices)
    peaks = [peak_of(book) for book in books]
    counted = dict(trace.guards)
    table = step_calls(books)
    forms = PricedForms(trace)
    rows = forms.rows(plan, sized, table)
    stages = table.times(sized, rows)
    step = step_time(stages, sized)
    figures = [totals.figures(sized, book, peak) for book, peak in zip(books, peaks, strict=True)]
    amounts = totals.totals(totals.counts(sized), totals.PlanFigures(sized, figures, step))
    if paces:
        faster: list[Amount] = []
        for price in PRICES:
            better = price.moved(sized, price.better_by)
            times = table.times(better, forms.rows(price.moved(plan, price.better_by), better, table))
            faster.append(estimated(times, better).estimate)
        amounts = {**amounts, **shares(step.estimate, faster)}
    calls = forms.calls
    timed = {place: truth for place, truth in trace.guards.items() if place not in counted}
    return LetteredTotals(
        plan, trace, lettering.paths, amounts, filled_moments(books), step, tuple(stages), calls, counted, timed,
        tuple(held_weights(books)), tuple(in_flight(devices)),
    )  # fmt: skip


def same_terms(left: LetteredTotals, right: LetteredTotals) -> bool:
    """Whether the totals and moments of two runs of the rules are the same terms of one graph."""
    first, second = (
        (
            {key: _place(amount) for key, amount in rules_run.totals.items()},
            [[_place(amount) for amount in moment.parts.values()] for moment in rules_run.moments],
        )
        for rules_run in (left, right)
    )
    return first == second


def _place(amount: Amount) -> object:
    return amount.place if isinstance(amount, Traced) else amount


def in_flight(devices: Sequence[Role]) -> Iterator[tuple[str, Amount]]:
    """Micro-batches that each kind of device holds, and those of each group of its layers where they differ."""
    for role in devices:
        kind = role.name.replace(".", "") if len(devices) > 1 else ""
        yield "_".join(word for word in (_sign("in_flight"), kind) if word), role.in_flight
        for place, amount in enumerate(role.flying):
            yield "_".join(word for word in (_sign("in_flight"), kind, str(place + 1)) if word), amount


def held_weights(books: Sequence[CompiledRole]) -> Iterator[tuple[str, Amount]]:
    """Elements of weights that a device has of one layer of each kind, by the name of its unit."""
    for book in books:
        for name, _, weights in weights_by_unit(book.program.units):
            elements = [book.program.sharding.held_elements("weights", weight) for weight in weights]
            yield name, book.value(sympy.Add(*elements))


def filled_moments(books: Sequence[CompiledRole]) -> tuple[FilledMoment, ...]:
    """Every candidate for the peak."""
    return tuple(
        FilledMoment(book.role.name, point.title, parts)
        for book in books
        for point, parts in zip(book.timeline.points, by_moment(book), strict=True)
    )


def lettered_service(compiled: Compiled) -> LetteredTotals:
    """Of a plan that serves, the totals that are sums of accounts: weights and the cache, of the fullest device.

    Rates follow from a steady state that is solved in numbers, which letters do not reach.
    """
    trace = Trace(Graph())
    signs = {symbol.name: symbol for symbol in compiled.symbols.values() if isinstance(symbol.value, int)}
    used: set[Any] = {sign for leaf in compiled.accounts for sign in leaf.expression.free_symbols}
    bound = {sign: trace.input(sign.name, signs[sign.name].value) for sign in used if sign.name in signs}
    amounts: dict[str, Amount] = {}
    value = exact(bound)
    for category, keys in HELD_BY_SERVICES.items():
        sums: list[Amount] = []
        for role in compiled.roles:
            leaves = [
                leaf
                for leaf in compiled.accounts
                if leaf.role == role.name and leaf.resource == stock(category)
                and all(sign in bound for sign in leaf.expression.free_symbols)
            ]  # fmt: skip
            sums.append(sum((value(leaf.expression) * leaf.times for leaf in leaves), 0))
        largest_sum = largest_of(sums, 0)
        sample = largest_sum.sample if isinstance(largest_sum, Traced) else largest_sum
        amounts.update({key: largest_sum for key in keys if compiled.totals.get(key) == sample})
    paths = {name: symbol.path for name, symbol in signs.items()}
    return LetteredTotals(compiled.plan, trace, paths, amounts, (), None, (), {}, {}, {})


# --- letters for sizes ---


def lettered_plan(plan: Plan, letters: Lettering) -> tuple[Plan, tuple[Role, ...]]:
    """The plan with inputs of a trace for its sizes, and the roles of its devices with letters for their layers."""
    degrees: dict[str, Any] = {
        axis: letters.letter(_sign(axis), getattr(plan.parallelism, axis), BY_NAME[axis].path) for axis in DEGREES
    }
    mesh = replace(plan.parallelism, **degrees)
    model = lettered_model(plan.model, letters)
    length = lettered_length(plan, letters)
    batch: Any = letters.letter(_sign("batch"), plan.run.micro_batch, BY_NAME["batch"].path)
    ends = schedule(plan.parallelism).pipeline_ends
    count = plan.run.global_batch // (plan.parallelism.data * plan.run.micro_batch * ends)
    steps = letters.letter(_sign("micro_batches"), count, BY_NAME["micro_batches"].path)
    run = replace(plan.run, micro_batch=batch, global_batch=steps * (batch * mesh.data) * ends, **length)
    sized = replace(plan, run=run, parallelism=mesh, model=model)
    sized = replace(sized, cluster=replace(plan.cluster, devices=mesh.data * mesh.replica))
    letters.trace.take(_sign("pipeline"), plan.parallelism.pipeline)  # of which the kinds of devices are made
    fixed = replace(sized, model=plan.model, parallelism=replace(mesh, pipeline=plan.parallelism.pipeline))
    chosen = tuple(
        replace(role, devices=len(role.stages) * divided)
        for role, divided in ((role, mesh.data * mesh.tensor * mesh.context) for role in roles(fixed))
    )
    return with_layers(plan, sized, chosen, letters)


def _sign(name: str, suffix: str = "") -> str:
    return str(symbol(name, suffix).name)


def lettered_length(plan: Plan, letters: Lettering) -> dict[str, Amount]:
    """Letters for the tokens of a sequence and of its source."""
    rows = {"seq_len": BY_NAME["seq"], **({"source_len": BY_NAME["source_seq"]} if plan.model.encoder_groups else {})}
    return {key: letters.letter(row.letter, getattr(plan.run, key), row.path) for key, row in rows.items()}


def lettered_model(model: Model, letters: Lettering) -> Model:
    """The model with letters for its sizes; its layers stay counted."""
    several = len(model.groups) > 1
    sizes: dict[str, Any] = {
        name: letters.letter(_sign(row.name), getattr(model, name), row.path)
        for name in MODEL_SIZES
        if (row := BY_NAME[LETTER_OF_FIELD.get(name, name)]) and getattr(model, name)
    }
    sizes["groups"] = tuple(lettered_group(group, group.name if several else "", letters) for group in model.groups)
    return replace(model, **sizes)


def lettered_group(group: Group, suffix: str, letters: Lettering) -> Group:
    """A group of layers with letters for the sizes of one of them."""
    parts: dict[str, Any] = {}
    for name in ("attention", "mlp"):
        part = getattr(group, name)
        stated = {size_field.name for size_field in fields(part)}
        sizes = {
            row.name: letters.letter(_sign(row.name, suffix), size, row.path.format(group=group.name))
            for row in LETTERS
            if row.part == name and row.name in stated and row.name not in DERIVED
            if isinstance(size := getattr(part, row.name), int) and size
        }
        parts[name] = replace(part, **sizes)
    attention = parts["attention"]
    if attention.expanded:
        parts["attention"] = replace(attention, head_dim=attention.nope_head_dim + attention.rope_head_dim)
    elif attention.head_dim:
        row = BY_NAME["head_dim"]
        wide = letters.letter(_sign(row.name, suffix), attention.head_dim, row.path.format(group=group.name))
        parts["attention"] = replace(attention, head_dim=wide)
    return replace(group, **parts)


def with_layers(plan: Plan, sized: Plan, chosen: Sequence[Role], letters: Lettering) -> tuple[Plan, tuple[Role, ...]]:
    """The plan and its roles with letters for the layers of a device, where each of its chunks has equally many."""
    ends = schedule(plan.parallelism).pipeline_ends
    several = len(plan.model.groups) > 1
    if plan.parallelism.interleave * ends > 1 and len({count for role in chosen for count in role.layers}) > 1:
        return sized, tuple(chosen)
    counted: list[dict[int, Any]] = []  # letters by the layers that they count
    for index, group in enumerate(plan.model.groups):
        suffix, counts = group.name if several else "", dict.fromkeys(role.layers[index] for role in chosen)
        named: dict[int, Traced] = {}
        for count in (count for count in counts if count):
            first = next(role.name for role in chosen if role.layers[index] == count)
            name = "_".join([_sign("layers", suffix), *([first.replace(".", "")] if len(counts) > 1 else [])])
            named[count] = letters.letter(name, count, BY_NAME["layers"].path.format(group=group.name))
        counted.append(named)
    devices = tuple(
        replace(role, layers=tuple(counted[index].get(count, 0) for index, count in enumerate(role.layers)))
        for role in chosen
    )
    groups = []
    for index, group in enumerate(sized.model.groups):
        layers: Amount = sum(role.layers[index] * len(role.stages) for role in devices)
        groups.append(replace(group, repeat=layers if ends == 1 else layers // ends))
    return replace(sized, model=replace(sized.model, groups=tuple(groups))), devices


# --- forms for seconds ---


class PricedForms:
    """Forms in the place of what calls take, each once: an input of the trace stands for the seconds of one."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.forms: dict[object, PricedCall] = {}
        self.accounts: dict[object, dict[str, None]] = {}

    def rows(self, plan: Plan, sized: Plan, table: StepCalls) -> tuple[tuple[KernelTime, ...], ...]:
        """Every call at the prices of a plan, whose sizes are letters in `sized`."""
        prices = PriceTrace(plan, Trace(self.trace.graph))
        return tuple(tuple(self.priced_call(call, sized, prices) for call in calls) for calls in table.calls)

    def priced_call(self, call: KernelCall, sized: Plan, prices: PriceTrace) -> KernelTime:
        """A call with an input for its seconds; one whose seconds are a number as it is."""
        row = kernels.price_call(call, sized)
        seconds: Amount = row.seconds
        if not isinstance(seconds, Traced):
            return row
        form = prices.form(call)
        key = form.name, _place(form.seconds), tuple((name, _place(size)) for name, size in form.sizes.items())
        self.forms.setdefault(key, form)
        self.accounts.setdefault(key, {})[f"{call.cause.account} ({call.when})"] = None
        stands: Any = self.trace.input(f"{SECONDS}{list(self.forms).index(key)}", seconds.sample)
        return replace(row, seconds=stands)

    @property
    def calls(self) -> dict[str, PricedCall]:
        """The forms by the inputs that stand for them."""
        return {
            f"{SECONDS}{place}": replace(form, accounts=tuple(self.accounts[key]))
            for place, (key, form) in enumerate(self.forms.items())
        }


class PriceTrace:
    """A plan whose prices are inputs of a trace of their own, beside its letters: what one call takes, as a form."""

    def __init__(self, plan: Plan, trace: Trace) -> None:
        self.trace = trace
        self.parameters: dict[str, float] = {}
        device = with_parameters(plan.accelerator, trace, self.parameters)
        self.plan = replace(plan, accelerator=device)
        self.sized = replace(lettered_plan(plan, Lettering(trace))[0], accelerator=device)

    def form(self, call: KernelCall) -> PricedCall:
        """What a call takes, over sizes of its own; transfers depend on degrees too."""
        trace, sizes = self.trace, dict[str, Traced]()
        trace.guards = {}
        trace.samples.clear()

        def size(name: str, amount: Amount) -> Amount:
            if not isinstance(amount, Traced):
                return amount
            sizes[name] = amount
            return trace.input(f"{SIZE}{name}", amount.sample)

        work = call.work and replace(
            call.work, **{name: size(name, getattr(call.work, name)) for name in SIZES_OF_WORK}
        )
        unsized = replace(call, work=work, payload=size("payload", call.payload))
        seconds = kernels.price_call(unsized, self.plan if work else self.sized).seconds
        return PricedCall(str(call.kind), seconds, sizes, self.parameters, dict(trace.guards))


def with_parameters(device: Accelerator, trace: Trace, parameters: dict[str, float]) -> Accelerator:
    """The device with inputs for the numbers that kernels and transfers are priced by, which `parameters` keeps."""

    def number(name: str, value: float) -> Amount:
        called = f"{PARAMETER}{name}{VALUE}{value!r}"  # another value is another number
        parameters[called] = value
        return trace.input(called, value)

    curves = tuple(
        replace(
            curve,
            parameters={name: number(f"{curve_name(curve)}:{name}", fit) for name, fit in curve.parameters.items()},
        )
        for curve in device.calibration
    )
    return replace(
        device,
        calibration=curves,
        peak={dtype: number(f"peak:{dtype}", rate) for dtype, rate in device.peak.items()},
        bandwidth=number("bandwidth", device.bandwidth),
        vector=number("vector", device.vector),
    )


def curve_name(curve: Any) -> str:
    """What tells one fitted price of a device from the others."""
    return f"{curve.what}/{curve.regime}/{curve.ranks}/{curve.head_dim}"
