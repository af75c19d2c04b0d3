"""A plan whose sizes are inputs: what rules, memory and time say of it, as a graph, and where that holds.

The rules run once, at one setting of the inputs, with values of a trace. Which operations there are is decided at that
setting (an axis is split or it is not), and these decisions are the structure's guards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ledger.arithmetic.operations import Number
from ledger.arithmetic.tracing import Graph, Trace, holds, marked
from ledger.arithmetic.values import Amount, largest, pick
from ledger.books import calendar, totals
from ledger.books.compiled_roles import CompiledRole, compile_roles
from ledger.books.memory.peak import Peak, peak_of
from ledger.books.price_changes import PRICES, step_calls
from ledger.books.time import StepTime, step_time
from ledger.model.schedule import roles
from ledger.spec.places import Places
from ledger.spec.plan import Plan
from ledger.spec.rules.table import RULES, Rule, check_rules

# The inputs, by the part of a plan that has them.
INPUTS: Mapping[str, tuple[str, ...]] = {
    "run": ("micro_batch", "seq_len", "global_batch"),
    "parallelism": ("data", "tensor", "pipeline", "context", "expert"),
}
NAMES = tuple(name for names in INPUTS.values() for name in names)
STAGES = "pipeline"
Guard = tuple[int, bool]  # a condition of the graph, and the truth that it must have


@dataclass(frozen=True)
class Finding:
    """What a rule says where its conditions hold; numbers in its words are places of the graph."""

    conditions: tuple[Guard, ...]
    message: tuple[str | int, ...]
    help: tuple[str | int, ...]


@dataclass(frozen=True)
class TracedRule:
    """A rule of the spec: under which conditions it has nothing to say, and under which it says what.

    Conditions that nobody has tried are in neither.
    """

    rule: Rule
    silent: tuple[tuple[Guard, ...], ...] = ()
    findings: tuple[Finding, ...] = ()

    def knows(self, graph: Graph, values: Mapping[str, int]) -> bool:
        """Whether values of the inputs meet the conditions of something tried."""
        paths = (*self.silent, *(finding.conditions for finding in self.findings))
        return any(covers(graph, conditions, values) for conditions in paths)

    def tried(self, plan: Plan, graph: Graph, values: Mapping[str, int]) -> TracedRule:
        """The rule with what it says at these values."""
        if self.knows(graph, values):
            return self
        trace = Trace(graph)
        sized = resized(plan, {name: trace.input(name, values[name]) for name in NAMES})
        found = tuple(
            Finding(trace.conditions, marked(problem.message), marked(problem.help))
            for problem in check_rules((self.rule,), vars(sized), Places(plan.origins))
        )
        silent = self.silent if found else (*self.silent, trace.conditions)
        return replace(self, silent=silent, findings=(*self.findings, *found))

    @property
    def reads(self) -> bool:
        """Whether any input can change what it says."""
        return any(self.silent) or bool(self.findings)


def setting(plan: Plan) -> dict[str, int]:
    """The plan's own values of the inputs."""
    return {name: getattr(getattr(plan, part), name) for part, names in INPUTS.items() for name in names}


def resized(plan: Plan, values: Mapping[str, Amount]) -> Plan:
    """The plan with other values of the inputs, on as many devices as they ask for."""
    parts = {
        part: replace(getattr(plan, part), **{name: values[name] for name in names if name in values})
        for part, names in INPUTS.items()
    }
    mesh = parts["parallelism"]
    devices = mesh.data * mesh.replica
    return replace(plan, **parts, cluster=replace(plan.cluster, devices=devices))


def with_inputs(plan: Plan, trace: Trace, values: Mapping[str, int]) -> Plan:
    """The plan whose sizes are inputs of a trace, at these values. Every number of stages is a structure of its own."""
    inputs = {name: trace.input(name, values[name]) for name in NAMES}
    return resized(plan, {**inputs, STAGES: int(inputs[STAGES])})


def with_prices(plan: Plan, trace: Trace) -> Plan:
    """The plan each of whose prices is multiplied by an input, which is 1."""
    for price in PRICES:
        plan = price.moved(plan, trace.input(price.path, 1.0))
    return plan


def traced_rules(plan: Plan, graph: Graph, settings: Iterable[Mapping[str, int]]) -> tuple[TracedRule, ...]:
    """The rules that read any input, with what they say at these settings; the first is one that breaks none."""
    first, *rest = settings
    found = [TracedRule(rule).tried(plan, graph, first) for rule in RULES]
    found = [rule for rule in found if rule.reads]
    for values in rest:
        found = [rule.tried(plan, graph, values) for rule in found]
    return tuple(found)


def covers(graph: Graph, conditions: Sequence[Guard], values: Mapping[str, int]) -> bool:
    """Whether values of the inputs meet conditions."""
    inputs: dict[str, Number] = {**values, **{price.path: 1.0 for price in PRICES}}
    return all(holds(graph, place, inputs) == truth for place, truth in conditions)


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


def structure(plan: Plan, graph: Graph, values: Mapping[str, int], *, every: bool = False) -> Structure:
    """The plan at legal values of its inputs, and wherever its operations are the same; `every` total, or few."""
    trace = Trace(graph)
    sized = with_prices(with_inputs(plan, trace, values), trace)
    books = compile_roles(sized, roles(sized))
    peaks = [peak_of(book) for book in books]
    table = step_calls(books)
    step = step_time(table.times(sized, table.rows(sized)), sized)
    found = (
        totals.totals(sized, books, peaks, step)
        if every
        else _few(sized, books, peaks, step, partial(calendar.checkpoint_bytes, plan))
    )
    fullest = largest(peaks, lambda peak: peak.bytes)
    titles = [point.title for book in books for point in book.line.points]
    starts = [sum(len(book.line.points) for book in books[:index]) for index in range(len(books))]
    moment = pick(fullest, [start + peak.moment for start, peak in zip(starts, peaks, strict=True)])
    return Structure(trace.conditions, found | {"devices": sized.cluster.devices}, moment, tuple(titles))


def _few(
    plan: Plan, books: Sequence[CompiledRole], peaks: Sequence[Peak], step: StepTime, checkpoint: calendar.Bytes
) -> dict[str, Amount]:
    """What moves where a reader moves a size: memory, the step with its band, and the run."""
    return {
        **dict(totals.memory(plan, books, peaks)),
        "time.step": step.estimate,
        "time.step.low": step.low,
        "time.step.high": step.high,
        "tokens_per_second": plan.run.global_batch * plan.run.seq_len / step.estimate,
        **dict(calendar.run(plan, step.estimate, checkpoint)),
        **dict(calendar.ends(plan, step, checkpoint)),
    }
