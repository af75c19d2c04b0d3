"""An input that is looked for: its values, in order or to choose from, and how each is put into a plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import exp, inf, log
from typing import Any

import sympy

from ledger.books.compiler import STATE, compile_plan
from ledger.books.results import Number
from ledger.books.what_if.conditions import Condition
from ledger.spec.load import Draft, read_with_overrides
from ledger.spec.overrides import assignments
from ledger.spec.paths import unit
from ledger.spec.plan import Plan
from ledger.spec.problems import Location, Problem, SpecError

Value = Any  # of an input, as a spec writes it: a number in base units, a word, a list, a mapping; None leaves it out
Settings = Mapping[str, object]  # inputs with their values, as `--set` takes them
REACH = 10**18  # beyond every size that a plan can state
FINE = 1e-9  # relative distance of real numbers that are told apart
NEXT_REAL = round(0.01 / FINE)  # one per cent further is one step beyond
SPAN = 40  # powers of two below and above the given real number that are searched


@dataclass(frozen=True)
class Unknown:
    """An input that is looked for, which is `plan_value` in the plan.

    Legal are `legal_values`, or what lies from `least` on in steps of `step`. Without a `step` it is a real number from
    `smallest` on. None is above `greatest`, for the reason `cap`. `settings` puts a value into a plan, with what
    follows from it. `sign` stands for it in formulas; `why` says what is legal. Of a `choice` all values are tried, in
    no order.
    """

    path: str
    plan_value: Value
    settings: Callable[[Any], Settings]
    why: str = ""
    legal_values: tuple[Value, ...] = ()
    step: int = 0
    least: int | None = None  # one step where not given
    smallest: float = 0.0
    greatest: float = inf
    cap: str = ""
    sign: sympy.Symbol | None = None
    choice: bool = False

    @property
    def unit(self) -> str:
        """The base unit of its values."""
        return unit(self.path)

    @property
    def real(self) -> bool:
        """Whether every positive number is legal; then ranks are steps of one part in 10**9."""
        return not self.legal_values and not self.step

    @property
    def first(self) -> int:
        """The smallest of values that go in steps."""
        return self.step if self.least is None else self.least

    def value(self, rank: int) -> Value:
        """The legal value of this rank, from 0."""
        if self.real:
            return min(self._lowest * exp(rank * FINE), self.greatest)
        return self.legal_values[rank] if self.legal_values else self.first + rank * self.step

    @property
    def _lowest(self) -> float:
        """The smallest real number that is ever tried."""
        return max(float(self.plan_value) * 2.0**-SPAN, self.smallest)

    @property
    def last(self) -> int:
        """The rank of the largest value that is ever tried."""
        if self.real:
            widest = self.rank(float(self.plan_value) * 2.0**SPAN)
            return widest if self.greatest == inf else min(widest, self.rank(self.greatest))
        return (
            len(self.legal_values) - 1
            if self.legal_values
            else (int(min(REACH, self.greatest)) - self.first) // self.step
        )

    def rank(self, value: float) -> int:
        """The rank of the largest legal value up to `value`, or that of the smallest."""
        if self.real:
            return max(int(log(value / self._lowest) / FINE), 0)
        if self.legal_values:
            return max(len([choice for choice in self.legal_values if choice <= value]) - 1, 0)
        below: int = (int(min(value, REACH)) - self.first) // self.step
        return max(below, 0)


def key_fault(path: str, message: str, help_text: str) -> SpecError:
    """An input that cannot be looked for."""
    where = Location(f"--for {path}", 1, len("--for ") + 1)
    return SpecError([Problem(where, message, help_text)], {where.file: where.file})


def stated_as(path: str, value: float, base: str) -> Settings:
    """A number as `--set` takes it, in its base unit and to its last digit."""
    return {path: value if base == "1" else f"{value!r} {base}"}


# --- A plan tried with other values of one input ---

BARE = "a bare model has state alone: memory is that of weights, master, gradients and optimizer, time the napkin's"


@dataclass(frozen=True)
class Trial:
    """`tried` holds the totals under each rank of the input's values; None where the value is refused.

    `fixed` are values of other inputs, which every candidate has.
    """

    plan: Plan
    unknown: Unknown
    fixed: Settings = field(default_factory=dict)
    tried: dict[int, Mapping[str, Number] | None] = field(default_factory=dict)
    drafts: dict[int, Draft] = field(default_factory=dict)

    def __call__(self, rank: int) -> Mapping[str, Number] | None:
        """The totals of the plan with the value of this rank."""
        if rank not in self.tried:
            candidate = self.draft(rank)
            try:
                self.tried[rank] = None if candidate.problems or candidate.plan is None else totals(candidate.plan)
            except SpecError as error:  # a product in a dtype that the device has no peak for
                self.drafts[rank] = replace(candidate, problems=error.problems, texts=error.sources)
                self.tried[rank] = None
        return self.tried[rank]

    def settings(self, rank: int) -> Settings:
        """What `--set` is to be given for the value of this rank, with what follows from it."""
        return {**self.fixed, **self.unknown.settings(self.unknown.value(rank))}

    def draft(self, rank: int) -> Draft:
        """The plan with the value of this rank, legal or not."""
        if rank not in self.drafts:
            self.drafts[rank] = with_settings(self.plan, self.settings(rank))
        return self.drafts[rank]

    def holds(self, condition: Condition, rank: int) -> bool:
        """Whether the value is legal and the condition holds of it."""
        amounts = self(rank)
        return amounts is not None and (condition.if_any or condition.key in amounts) and condition.holds(amounts)

    def slack(self, condition: Condition, rank: int) -> float | None:
        """How far the condition is from breaking; None for an illegal value, or one without the total."""
        amounts = self(rank)
        if amounts is None or not (condition.if_any or condition.key in amounts):
            return None
        return float(condition.slack(amounts))


def with_settings(plan: Plan, settings: Settings) -> Draft:
    """The plan with other values, as `--set` puts them into its spec."""
    return read_with_overrides(plan, assignments(settings))


def totals(plan: Plan) -> Mapping[str, Number]:
    """The totals of a plan, with the state as a whole; a bare model's memory and time are what is known of them."""
    amounts = compile_plan(plan).totals
    if plan.serve:
        return amounts
    state = sum(amounts[f"memory.static.{part}"] for part in STATE)
    if not plan.model.bare:
        return {**amounts, "memory.static": state}
    of_state = {"memory.static": state, "memory.peak": state, "memory.reserved": state}
    if "napkin.time.run" in amounts:
        of_state["time.run"] = amounts["napkin.time.run"]
    return {**amounts, **of_state}
