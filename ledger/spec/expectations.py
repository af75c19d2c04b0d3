"""`expect:` lines: which dimension each total has, and the assertions as values in SI base units."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from ledger.spec.faults import Fault, Faults, StatedValue
from ledger.spec.problems import Problem
from ledger.spec.quantities import DIMENSIONS, QuantityError, parse, parse_any
from ledger.spec.reader import Node
from ledger.spec.structures import SOURCED, Fields, ListOf, Row, quantity
from ledger.spec.values import Label, Schema, ValueType
from ledger.units import spelt

DUE = ("B", "s", "USD", "J")  # units without which a number says nothing
LARGEST = 10**36  # of any total: FLOPs of a run
TOLERANCE = Row(
    "tolerance", quantity("1", greatest=1, zero=True), "Relative: `1 %`. Exact where not given.", "tolerance"
)
BESIDE = (TOLERANCE, SOURCED)
LINE = Fields(BESIDE, least=1, further_fields=Label())


@dataclass(frozen=True)
class Expectation:
    """An assertion in the input: total `key` equals `value` within the relative `tolerance`.

    `of_model`: a model's file makes it, of the model as it is without what a plan adds to it.
    """

    key: str
    value: float
    tolerance: float = 0.0
    source: str = ""
    of_model: bool = False


@dataclass(frozen=True)
class Assertion(ValueType):
    """A line that asserts the values of one total, or of several."""

    json = ("object",)

    def value(self, written: StatedValue, faults: Faults) -> tuple[Expectation, ...]:
        """The assertions of a line; a line without totals, a missing unit, and a unit of something else are faults."""
        stated = LINE.values(written, faults)
        asserted = {key: node for key, node in written.node.fields.items() if key not in LINE.by_key}
        if written.node.fields and not asserted:
            problem = Problem(written.node.where, "the line asserts nothing", "for example `memory.peak: 60 GB`")
            faults.append(Fault(written.path, problem))
        source = written.node.fields.get(SOURCED.key)
        return tuple(
            Expectation(key, exact, stated.get("tolerance", 0.0), str(source.value) if source else "")
            for key, node in asserted.items()
            if (exact := _asserted_value(written.inner(key, node), key, faults)) is not None
        )

    def schema(self) -> Schema:
        """A mapping with totals of any name."""
        return LINE.schema()


EXPECT = Row(
    "expect",
    ListOf(Assertion()),
    "Assertions: a total and its value, `{memory.peak: 60 GB, tolerance: 1 %, source: ...}`.",
)


def _asserted_value(written: StatedValue, key: str, faults: Faults) -> float | None:
    """The value of a total; types are left to the fields of the line."""
    amount: Any = written.node.value
    if not isinstance(amount, str | int | float) or isinstance(amount, bool):
        return None
    try:
        exact = value(key, amount)
    except QuantityError as error:
        faults.append(Fault(written.path, Problem(written.node.where, f"`{key}`: {error.message}", error.help)))
        return None
    return int(exact) if exact.denominator == 1 else float(exact)


def value(key: str, amount: object) -> Fraction:
    """The asserted value of a total in its base unit; raises QuantityError."""
    unit = spelt(key)
    if unit in DUE:
        return Fraction(parse(str(amount), unit))
    number, base = parse_any(str(amount))
    if base not in {"1", unit}:
        raise QuantityError(f"`{amount}` is {DIMENSIONS[base].noun}, which `{key}` is not", "write a bare number")
    if abs(number) > LARGEST:
        raise QuantityError(f"`{amount}` is more than any total of a plan", "at most 1e36")
    return number


def expectations(root: Node) -> tuple[Expectation, ...]:
    """The plan's assertions, then its model's (what a base of the model asserts holds for that base alone)."""
    model = root.fields.get("model")
    plan_lines = _read_lines(root.fields.get("expect"))
    if model is None or "expect" not in model.fields:
        return tuple(plan_lines)
    return (*plan_lines, *(replace(expectation, of_model=True) for expectation in _read_lines(model.fields["expect"])))


def _read_lines(node: Node | None) -> Iterator[Expectation]:
    lines = () if node is None else EXPECT.type.read(StatedValue(node), [])
    return (expectation for line in lines for expectation in line)
