"""Rules on specs whose plan has inputs: where they have nothing to say, and where they say what."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ledger.arithmetic.tracing import Graph, Trace, marked, number
from ledger.books.price_changes import PRICES
from ledger.books.traced import CHOICES, Guard, resized
from ledger.spec.places import Places
from ledger.spec.plan import Plan
from ledger.spec.rules.table import Rule, check_rules, parts_read

PlanAt = Callable[[Mapping[str, Any]], Plan]  # the plan of a setting's choices


@dataclass(frozen=True)
class Evaluation:
    """Conditions of a graph at values of its inputs; what was evaluated for one of them is kept for the others."""

    graph: Graph
    values: Mapping[str, Any]
    known: dict[int, Any] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def inputs(self) -> Mapping[str, Any]:
        """The values, with every price as the plan has it."""
        return {**self.values, **{price.path: 1.0 for price in PRICES}}

    def meets(self, conditions: Sequence[Guard]) -> bool:
        """Whether the values meet conditions."""
        return all(bool(number(self.graph, place, self.inputs, self.known)) == truth for place, truth in conditions)


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
        """The rule with what it says at these values."""
        if self.knows(at):
            return self
        values = at.values
        trace, plan = Trace(at.graph), plan_at(values)
        for name in self.choices:
            trace.take(name, values[name])
        inputs = {name: trace.input(name, value) for name, value in values.items() if name not in CHOICES}
        found = tuple(
            Finding(trace.conditions, marked(problem.message), marked(problem.help))
            for problem in check_rules((self.rule,), vars(resized(plan, inputs)), Places(plan.origins))
        )
        silent = self.silent if found else (*self.silent, trace.conditions)
        return replace(self, silent=silent, findings=(*self.findings, *found))

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
    first, *rest = (Evaluation(graph, values) for values in settings)
    found = [
        TracedRule(rule, tuple(name for name in changed if changed[name] & {*parts_read(rule)})).tried(plan_at, first)
        for rule in rules
    ]
    found = [rule for rule in found if rule.reads]
    for at in rest:
        found = [rule.tried(plan_at, at) for rule in found]
    return tuple(found)
