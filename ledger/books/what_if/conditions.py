"""Conditions on totals as users write them: `memory.peak <= 80 GB`, `time.step > +5%`, `fits`."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from operator import eq, ge, gt, le, lt, ne

from ledger.books.names import no_total
from ledger.books.results import EXCESS, UNANSWERED, UNANSWERED_AT_MOST, Number
from ledger.numbers import DAY, with_unit
from ledger.spec.expectations import value
from ledger.spec.plan import Plan
from ledger.spec.problems import Location, Problem, SpecError
from ledger.spec.quantities import QuantityError, parse_any
from ledger.units import unit_of

FITS = "fits"
RELATIONS: Mapping[str, Callable[[Fraction, Fraction], bool]] = {
    "<=": le,
    ">=": ge,
    "==": eq,
    "!=": ne,
    "<": lt,
    ">": gt,
}
WRITTEN = re.compile(r"\s*([A-Za-z_][\w.]*)\s*(<=|>=|==|!=|<|>)\s*(\S.*)")


@dataclass(frozen=True)
class Condition:
    """A total against `limit` in its base unit, or as a share of another amount where `relative`; as typed in `text`.

    `against` names the total that is the limit where the text says none (`fits`); `if_any`: it holds where totals lack
    its key.
    """

    text: str
    key: str
    relation: str
    limit: Fraction
    relative: bool = False
    against: str = ""
    if_any: bool = False

    def bound(self, totals: Mapping[str, Number]) -> Fraction:
        """The limit of the condition under these totals."""
        return Fraction(totals[self.against]) if self.against else self.limit

    def holds(self, totals: Mapping[str, Number]) -> bool:
        """Whether the condition holds of these totals; KeyError where they lack its key."""
        if self.if_any and self.key not in totals:
            return True
        return RELATIONS[self.relation](Fraction(totals[self.key]), self.bound(totals))

    def slack(self, totals: Mapping[str, Number]) -> Fraction:
        """How far the total may still grow, or fall, before the condition breaks; negative where it is broken."""
        room = self.bound(totals) - Fraction(totals.get(self.key, 0) if self.if_any else totals[self.key])
        return room if self.relation in {"<", "<="} else -room


def condition(text: str, known: Collection[str], plan: Plan | None = None, *, changes: bool = False) -> Condition:
    """The condition that a text states about one of the `known` totals; raises SpecError with the place in the text.

    Where it is on `changes`, a limit in per cent is relative to the old value. `plan`: the one whose totals are known.
    """
    if text.strip() == FITS:
        return Condition(text.strip(), "memory.reserved", "<=", Fraction(0), against="memory.capacity")
    match = WRITTEN.fullmatch(text.rstrip())
    if match is None:
        raise fault(
            text, 1, f"`{text}` is no condition", "for example `memory.peak <= 80 GB`, `time.run < 30 d`, `fits`"
        )
    key, relation, limit = match.groups()
    if key not in known:
        raise fault(text, match.start(1) + 1, *no_total(plan, key, known))
    relative = changes and limit.endswith("%")
    try:
        amount = parse_any(limit)[0] if relative else quantity(key, limit)
    except QuantityError as error:
        raise fault(text, match.start(3) + 1, error.message, error.help) from error
    if unit_of(key) == "%" and not limit.endswith("%") and abs(amount) > 1:
        message = f"`{limit}` is {with_unit(amount, '%')}, and `{key}` is a share"
        raise fault(text, match.start(3) + 1, message, f"`{limit} %`, or a number from 0 to 1")
    return Condition(text.strip(), key, relation, amount, relative)


def host_conditions(plan: Plan) -> tuple[Condition, ...]:
    """What `fits` asks beside a device's memory: room on the host, of a plan that keeps anything there."""
    if plan.host is None or not (plan.parallelism.offload or plan.optimizer.pages):
        return ()
    text = f"memory.host <= {with_unit(plan.host.memory, 'B')}"
    return (Condition(text, "memory.host", "<=", Fraction(plan.host.memory), if_any=True),)


def served_conditions(plan: Plan) -> tuple[Condition, ...]:
    """What `fits` asks of a plan that serves: that its engine takes what is in flight, and answers what arrives."""
    if plan.serve is None:
        return ()
    at_once = Condition(f"{EXCESS} <= 0", EXCESS, "<=", Fraction(0))
    if plan.serve.arrival_rate is None:
        return (at_once,)
    return at_once, Condition(
        f"{UNANSWERED} <= {with_unit(UNANSWERED_AT_MOST, '%')}", UNANSWERED, "<=", Fraction(UNANSWERED_AT_MOST)
    )


def check_consistent(conditions: Sequence[Condition]) -> None:
    """Raises SpecError where two conditions on one total cannot both hold, whatever the plan."""
    for index, later in enumerate(conditions):
        for earlier in conditions[:index]:
            if later.key == earlier.key and not later.against and not earlier.against and _exclude(later, earlier):
                help_text = "leave one of them out"
                raise fault(later.text, 1, f"`{later.text}` contradicts `{earlier.text}`: no value is both", help_text)


def _exclude(first: Condition, second: Condition) -> bool:
    """Whether no amount meets both limits: of those that could, one is at a limit or beside it."""
    limits = {first.limit, second.limit}
    between = {(first.limit + second.limit) / 2, min(limits) - 1, max(limits) + 1}
    pairs = [(RELATIONS[condition.relation], condition.limit) for condition in (first, second)]
    return not any(all(relation(amount, limit) for relation, limit in pairs) for amount in limits | between)


def quantity(key: str, text: str) -> Fraction:
    """The value of a total in its base unit; raises QuantityError. Zero needs no unit, days may be written as times."""
    number, base = parse_any(text)
    if number == 0 and base == "1":
        return number
    if base == "s" and key == "napkin.days":
        return number / DAY
    return value(key, text)


def fault(text: str, column: int, message: str, help_text: str = "") -> SpecError:
    """Something wrong in a text of the command line."""
    return SpecError([Problem(Location(text, 1, column), message, help_text)], {text: text})
