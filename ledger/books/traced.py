"""A plan whose sizes are inputs: what memory and time are, as a graph, and where that holds.

The rules run once, at one setting of the inputs, with values of a trace. Which operations there are is decided at that
setting (an axis is split or it is not), and these decisions are the structure's guards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ledger.arithmetic.tracing import Graph, Trace, marked, number
from ledger.arithmetic.values import Amount, largest, pick
from ledger.books import calendar, totals
from ledger.books.compiled_roles import CompiledRole, compile_roles
from ledger.books.memory.peak import Peak, peak_of
from ledger.books.price_changes import PRICES, step_calls
from ledger.books.time import step_time
from ledger.model.schedule import roles
from ledger.spec.headroom import headroom_bytes
from ledger.spec.paths import Places
from ledger.spec.plan import Plan
from ledger.spec.rules.table import Rule, check_rules, parts_read

Guard = tuple[int, bool]  # a condition of the graph, and the truth that it must have

# The inputs by the part of a plan that has them: sizes, which are whole, and amounts that a plan may state.
SIZES: Mapping[str, Mapping[str, str]] = {
    "run": {name: name for name in ("micro_batch", "seq_len", "global_batch")},
    "parallelism": {name: name for name in ("data", "tensor", "pipeline", "context", "expert", "zero")},
}
AMOUNTS: Mapping[str, Mapping[str, str]] = {
    "run": {"tokens": "tokens"},
    "price": {"price": "per_device_hour"},
    "operations": {
        name: name
        for name in ("failure_rate", "checkpoint_interval", "checkpoint_cost", "restart_time", "storage_bandwidth")
    },
}
NAMES = tuple(name for names in SIZES.values() for name in names)
PATHS: Mapping[str, str] = {
    name: f"{'assumptions.price' if part == 'price' else part}.{key}"
    for table in (SIZES, AMOUNTS)
    for part, keys in table.items()
    for name, key in keys.items()
}  # of each input, as specs write it
DEVICE = "accelerator"
CHOICES = ("recompute", DEVICE)  # inputs whose values are places among words; a plan is read for each
STAGES = "pipeline"


def setting(plan: Plan) -> dict[str, Any]:
    """The plan's own values of the inputs; of amounts those that it states as numbers (images are no tokens)."""
    stated = {
        name: getattr(_part(plan, part), key, None)
        for table in (SIZES, AMOUNTS)
        for part, keys in table.items()
        for name, key in keys.items()
    }
    left_out = {"tokens"} if plan.run.images else set()
    return {name: value for name, value in stated.items() if isinstance(value, int | float) and name not in left_out}


def _part(plan: Plan, name: str) -> Any:
    return plan.assumptions.price if name == "price" else getattr(plan, name)


def at_inputs(plan: Plan, values: Mapping[str, Amount]) -> Plan:
    """The plan with other values of the inputs, on as many devices as they ask for."""
    parts: dict[str, Any] = {}
    for table in (SIZES, AMOUNTS):
        for part, keys in table.items():
            moved = {key: values[name] for name, key in keys.items() if name in values}
            if moved:
                parts[part] = replace(parts.get(part, _part(plan, part)), **moved)
    if "price" in parts:
        parts["assumptions"] = replace(plan.assumptions, price=parts.pop("price"))
    mesh = parts.get("parallelism", plan.parallelism)
    devices = mesh.data * mesh.replica
    return replace(plan, **parts, cluster=replace(plan.cluster, devices=devices))


def with_inputs(plan: Plan, trace: Trace, values: Mapping[str, Any]) -> Plan:
    """The plan whose sizes and amounts are inputs of a trace, at these values.

    Every number of stages and every level of ZeRO is a structure of its own.
    """
    inputs = {name: trace.input(name, value) for name, value in values.items() if name not in CHOICES}
    return at_inputs(plan, {**inputs, **{name: int(inputs[name]) for name in (STAGES, "zero")}})


def with_prices(plan: Plan, trace: Trace) -> Plan:
    """The plan each of whose prices is multiplied by an input, which is 1."""
    for price in PRICES:
        plan = price.moved(plan, trace.input(price.path, 1.0))
    return plan


@dataclass(frozen=True)
class Structure:
    """A plan's totals at any setting that meets the guards: values of a trace, or plain numbers.

    `moment` is the place of the fullest one among the titles of `moments`. `step` also follows its prices, which are
    inputs by the paths of PRICES.
    """

    guards: tuple[Guard, ...]
    totals: Mapping[str, Amount]
    moment: Amount
    moments: tuple[str, ...]


@dataclass(frozen=True)
class TracedBooks:
    """What the devices of a plan do and hold at any setting that meets the guards; no price of a device is in it."""

    plan: Plan
    trace: Trace
    guards: Mapping[int, bool]
    books: Sequence[CompiledRole]
    peaks: Sequence[Peak]


def traced_books(plan: Plan, graph: Graph, values: Mapping[str, Any]) -> TracedBooks:
    """The books of a plan at legal values of its inputs, and wherever its operations are the same."""
    trace = Trace(graph)
    for name in CHOICES:
        if name in values and name != DEVICE:
            trace.take(name, values[name])
    sized = with_inputs(plan, trace, values)
    books = compile_roles(sized, roles(sized))
    peaks = [peak_of(book) for book in books]
    return TracedBooks(plan, trace, dict(trace.guards), books, peaks)


def structure(plan: Plan, graph: Graph, values: Mapping[str, Any], *, every: bool = False) -> Structure:
    """The plan at legal values of its inputs, and wherever its operations are the same; `every` total, or few."""
    saved = calendar.saved_bytes(plan)
    return priced_structure(traced_books(plan, graph, values), plan, values, saved, every=every)


def priced_structure(
    traced: TracedBooks, plan: Plan, values: Mapping[str, Any], saved: calendar.Bytes, *, every: bool = False
) -> Structure:
    """The books at the prices of a plan that differs from theirs in its device alone; `saved`: a checkpoint's bytes."""
    trace, books, peaks = traced.trace, traced.books, traced.peaks
    trace.guards = dict(traced.guards)
    if DEVICE in values:
        trace.take(DEVICE, values[DEVICE])
    sized = with_prices(with_inputs(plan, trace, values), trace)
    table = step_calls(books)
    step = step_time(table.times(sized, table.rows(sized)), sized)
    stages = [totals.figures(sized, book, peak) for book, peak in zip(books, peaks, strict=True)]
    figures = totals.PlanFigures(sized, stages, step)
    amounts = totals.totals(totals.counts(sized), figures) if every else _reader_totals(figures, saved)
    fullest = largest(peaks, lambda peak: peak.bytes)
    titles = [point.title for book in books for point in book.timeline.points]
    starts = [sum(len(book.timeline.points) for book in books[:index]) for index in range(len(books))]
    moment = pick(fullest, [start + peak.moment for start, peak in zip(starts, peaks, strict=True)])
    return Structure(trace.conditions, amounts | {"devices": sized.cluster.devices}, moment, tuple(titles))


def _reader_totals(figures: totals.StepFigures, checkpoint: calendar.Bytes) -> dict[str, Amount]:
    """What moves where a reader moves a size: memory, the step with its band, and the run."""
    plan, step, stages = figures.plan, figures.time, figures.stages
    of_run = dict(calendar.run(plan, step.estimate, checkpoint))
    share = calendar.share(plan, checkpoint, of_run.get("time.run")) if plan.operations.loses else None
    return {
        **dict(totals.states(stages)),
        **dict(totals.categories(stages)),
        **dict(totals.memory(plan, stages)),
        **dict(totals.caches(plan)),
        "time.step": step.estimate,
        "time.step.low": step.low,
        "time.step.high": step.high,
        "tokens_per_second": plan.run.global_batch * plan.run.seq_len / step.estimate,
        **of_run,
        **dict(calendar.ends(plan, step, checkpoint)),
        **({"share": share} if share is not None else {}),
        "headroom": headroom_bytes(plan.assumptions.headroom, plan.accelerator.memory),
    }


# --- rules on specs whose plan has inputs ---

PlanAt = Callable[[Mapping[str, Any]], Plan]  # the plan of a setting's choices


@dataclass(frozen=True)
class Evaluation:
    """Conditions of a graph at values of its inputs; what was evaluated for one of them is kept for the others."""

    graph: Graph
    values: Mapping[str, Any]
    cache: dict[int, Any] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def inputs(self) -> Mapping[str, Any]:
        """The values, with every price as the plan has it."""
        return {**self.values, **{price.path: 1.0 for price in PRICES}}

    def meets(self, conditions: Sequence[Guard]) -> bool:
        """Whether the values meet conditions."""
        return all(bool(number(self.graph, place, self.inputs, self.cache)) == truth for place, truth in conditions)


@dataclass(frozen=True)
class Finding:
    """What a rule says where its conditions hold; numbers in its words are places of the graph."""

    conditions: tuple[Guard, ...]
    message: tuple[str | int, ...]
    help: tuple[str | int, ...]


@dataclass(frozen=True)
class TracedRule:
    """A rule of the spec: under which conditions it has nothing to say, and under which it says what.

    Conditions that nobody has tried are in neither. `choices` are those that change a part which the rule reads.
    """

    rule: Rule
    choices: tuple[str, ...]
    silent: tuple[tuple[Guard, ...], ...] = ()
    findings: tuple[Finding, ...] = ()

    def knows(self, at: Evaluation) -> bool:
        """Whether values of the inputs meet the conditions of something tried."""
        paths = (*self.silent, *(finding.conditions for finding in self.findings))
        return any(map(at.meets, paths))

    def tried(self, plan_at: PlanAt, at: Evaluation) -> TracedRule:
        """The rule with what it says at these values of the inputs."""
        if self.knows(at):
            return self
        values = at.values
        trace, plan = Trace(at.graph), plan_at(values)
        for name in self.choices:
            trace.take(name, values[name])
        inputs = {name: trace.input(name, value) for name, value in values.items() if name not in CHOICES}
        findings = tuple(
            Finding(trace.conditions, marked(problem.message), marked(problem.help))
            for problem in check_rules((self.rule,), vars(at_inputs(plan, inputs)), Places(plan.origins))
        )
        silent = self.silent if findings else (*self.silent, trace.conditions)
        return replace(self, silent=silent, findings=(*self.findings, *findings))

    @property
    def reads(self) -> bool:
        """Whether any input can change what it says."""
        return any(self.silent) or bool(self.findings)


def traced_rules(
    rules: Iterable[Rule],
    plan_at: PlanAt,
    graph: Graph,
    settings: Iterable[Mapping[str, Any]],
    changed: Mapping[str, frozenset[str]],
) -> tuple[TracedRule, ...]:
    """The rules that read any input, with what they say at these settings; the first is that of the plan.

    `changed`: by each choice, the parts of a plan that another value of it changes.
    """
    first, *further = (Evaluation(graph, values) for values in settings)
    traced = [
        TracedRule(rule, tuple(name for name in changed if changed[name] & {*parts_read(rule)})).tried(plan_at, first)
        for rule in rules
    ]
    traced = [rule for rule in traced if rule.reads]
    for at in further:
        traced = [rule.tried(plan_at, at) for rule in traced]
    return tuple(traced)
