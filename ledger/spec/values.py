"""Types of single values: texts, choices, numbers, sizes, quantities with units."""

from __future__ import annotations

import math
import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from datetime import date
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

from ledger.spec.expressions import ExpressionError, evaluate
from ledger.spec.faults import (
    WORDS,
    Fault,
    Faults,
    StatedValue,
    fault_at,
    no_quantity,
    out_of_bounds,
    wrong_amount,
    wrong_choice,
    wrong_constant,
    wrong_form,
    wrong_type,
    yaml_text,
)
from ledger.spec.problems import Location
from ledger.spec.quantities import DIMENSIONS, QuantityError, parse, parse_any, write
from ledger.spec.reader import Node, as_node

Schema = dict[str, Any]
HAS_TYPE: Mapping[str, Callable[[object], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1,
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value),
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, tuple),
    "object": lambda value: isinstance(value, Mapping),
}
# Keywords of JSON Schema that bound a number, or how many letters or entries there are: what breaks one, and its words.
LIMITS: Mapping[str, tuple[Callable[[float, float], bool], str]] = {
    "minimum": (operator.lt, "at least"),
    "exclusiveMinimum": (operator.le, "above"),
    "maximum": (operator.gt, "at most"),
    "exclusiveMaximum": (operator.ge, "below"),
    **dict.fromkeys(("minLength", "minItems", "minProperties"), (operator.lt, "at least")),
    **dict.fromkeys(("maxLength", "maxItems", "maxProperties"), (operator.gt, "at most")),
}


class ValueType(ABC):
    """The type of a field: values of JSON's types `json`, any where there are none.

    `keywords` are JSON Schema's (or this language's own) for the attributes of the type.
    """

    json: ClassVar[tuple[str, ...]] = ()
    keywords: ClassVar[tuple[tuple[str, str], ...]] = ()

    @property
    def types(self) -> tuple[str, ...]:
        """The JSON types of its values; none: any."""
        return self.json

    @property
    def form(self) -> str:
        """The form of a value, in words that name it among alternatives."""
        return " or ".join(dict.fromkeys(WORDS[name] for name in self.types))

    @property
    def inner_keys(self) -> Collection[str]:
        """The keys that its values may have, of a mapping."""
        return ()

    def suits(self, value: object) -> bool:
        """Whether a value has one of the types."""
        return not self.types or any(HAS_TYPE[name](value) for name in self.types)

    def read(self, written: StatedValue, faults: Faults) -> Any:
        """The value as the plan has it; what is wrong with it is added to `faults`."""
        if self.suits(written.node.value):
            return self.value(written, faults)
        faults.append(wrong_type(written, self.types))
        return None

    @abstractmethod
    def value(self, written: StatedValue, faults: Faults) -> Any:
        """The plan's value of a node that has one of the types; what is wrong with it is added to `faults`."""

    @cached_property
    def bounds(self) -> Schema:
        """The bounds of its values, in keywords of a schema."""
        stated = {keyword: getattr(self, attribute) for attribute, keyword in self.keywords}
        return {key: value for key, value in stated.items() if value is not None and value is not False and value != ""}

    def bound_faults(self, written: StatedValue, size: float) -> list[Fault]:
        """The bounds that a number breaks: a value itself, or how many letters or entries it has."""
        broken = [key for key, limit in self.bounds.items() if key in LIMITS and LIMITS[key][0](size, limit)]
        fault = wrong_amount if isinstance(written.node.value, str | tuple | Mapping) else out_of_bounds
        return [fault(written, LIMITS[key][1], self.bounds[key]) for key in broken]

    @property
    def inners(self) -> tuple[ValueType, ...]:
        """The types of the values within a value."""
        stated = [getattr(self, row.name) for row in fields(self)]  # type: ignore[arg-type]  # all are dataclasses
        several = [entry for value in stated for entry in (value if isinstance(value, tuple) else (value,))]
        return tuple(entry for entry in several if isinstance(entry, ValueType))

    def plain(self, value: Any) -> Any:
        """A default as a spec would state it; None where none could."""
        faults: Faults = []
        again = None if value is None else self.read(StatedValue(as_node(value, Location(""))), faults)
        return None if faults or again != value else value

    def schema(self) -> Schema:
        """The JSON Schema of the type."""
        kinds = list(self.types)
        return ({"type": kinds[0] if len(kinds) == 1 else kinds} if kinds else {}) | self.bounds


NO_NAMES: Mapping[str, int] = {}
GREATEST_COUNT = 10**12  # of what is counted in whole numbers, where its field says no less
BARE = {"1": "", "parameters": " parameters"}  # dimensions whose values may be bare numbers, and the unit those have


@dataclass(frozen=True)
class String(ValueType):
    """A text of `least` to `most` letters that has the form `pattern`."""

    json = ("string",)
    keywords = (("least", "minLength"), ("most", "maxLength"), ("pattern", "pattern"))
    least: int | None = None
    most: int | None = None
    pattern: str = ""

    def value(self, written: StatedValue, faults: Faults) -> str:
        """The text, within its length and of its form."""
        text = str(written.node.value)
        faults += self.bound_faults(written, len(text))
        if self.pattern and not re.search(self.pattern, text):
            faults.append(wrong_form(written, text, self.pattern))
        return text


MONTH_AND_DAY = "-(0[1-9]|1[0-2])(-(0[1-9]|[12][0-9]|3[01]))?"
DAY = f"^(19|20)[0-9]{{2}}{MONTH_AND_DAY}$"
YEAR = f"^(19|20)[0-9]{{2}}({MONTH_AND_DAY})?$"  # or a year alone


@dataclass(frozen=True)
class Date(String):
    """A day of the calendar, or a month; with the pattern `YEAR` also a year."""

    pattern: str = DAY

    def value(self, written: StatedValue, faults: Faults) -> str:
        """The date as it is written."""
        text = super().value(written, faults)
        if re.search(self.pattern, text):
            try:
                date.fromisoformat(f"{text}-01-01"[: len("2026-01-01")])
            except ValueError:
                faults.append(fault_at(written, f": the calendar has no {text}", written.meaning))
        return text


@dataclass(frozen=True)
class Label(ValueType):
    """A text, which may look like a number."""

    json = ("string", "number")

    def value(self, written: StatedValue, faults: Faults) -> str:  # noqa: ARG002 - every one is right
        """The value as a text."""
        return str(written.node.value)


@dataclass(frozen=True)
class Anything(ValueType):
    """A value of these JSON types, whatever it holds; of any type where none are named."""

    kinds: tuple[str, ...] = ()

    @property
    def types(self) -> tuple[str, ...]:
        """The types that are named."""
        return self.kinds

    def value(self, written: StatedValue, faults: Faults) -> object:  # noqa: ARG002 - every one is right
        """The value without places."""
        return written.node.plain()


@dataclass(frozen=True)
class Flag(ValueType):
    """A truth value: true or false."""

    json = ("boolean",)

    def value(self, written: StatedValue, faults: Faults) -> bool:  # noqa: ARG002 - either is right
        """Whether the value is true."""
        return written.node.value is True


@dataclass(frozen=True)
class Choice(ValueType):
    """One of a few values; `means` has those that the plan has in other words."""

    options: tuple[object, ...]
    means: Mapping[object, object] = field(default_factory=dict)

    def __init__(self, *options: object, means: Mapping[object, object] | None = None) -> None:
        object.__setattr__(self, "options", options)
        object.__setattr__(self, "means", means or {})

    @property
    def types(self) -> tuple[str, ...]:
        """The types of the values there are."""
        kinds = (next(name for name in HAS_TYPE if HAS_TYPE[name](option)) for option in self.options)
        return tuple(dict.fromkeys(kinds))

    def read(self, written: StatedValue, faults: Faults) -> Any:
        """The chosen value; one of another type is no choice either."""
        return self.value(written, faults)

    def value(self, written: StatedValue, faults: Faults) -> Any:
        """The chosen value, as the plan has it."""
        value = written.node.value
        for option in self.options:
            if option == value and isinstance(option, bool) == isinstance(value, bool):
                return self.means.get(option, option)
        faults.append(wrong_choice(written, self.options))
        return None

    @property
    def form(self) -> str:
        """The options by name."""
        return ", ".join(f"`{yaml_text(option)}`" for option in self.options)

    def plain(self, value: Any) -> Any:
        """The option that means it, under its own name if it has one."""
        meant = [option for option in self.options if self.means.get(option, option) == value]
        return next((option for option in meant if option not in self.means), meant[0] if meant else None)

    def schema(self) -> Schema:
        """The schema that lists the options."""
        return {"enum": list(self.options)}


class KeyOf(Choice):
    """A key of a table, whichever rows that has by now."""

    table: Mapping[str, object]

    def __init__(self, table: Mapping[str, object]) -> None:
        object.__setattr__(self, "table", table)
        object.__setattr__(self, "means", {})

    @property
    def options(self) -> tuple[str, ...]:
        """The keys of the table."""
        return tuple(self.table)


@dataclass(frozen=True)
class Constant(ValueType):
    """One text and nothing else."""

    keywords = (("text", "const"),)
    text: str

    def value(self, written: StatedValue, faults: Faults) -> str:
        """The one text there is."""
        if written.node.value != self.text:
            faults.append(wrong_constant(written, self.text))
        return self.text


@dataclass(frozen=True)
class Integer(ValueType):
    """A whole number of at least `least` and at most `most`."""

    json: ClassVar[tuple[str, ...]] = ("integer",)
    keywords = (("least", "minimum"), ("most", "maximum"))
    least: int = 0
    most: int = GREATEST_COUNT

    @property
    def interval(self) -> tuple[int, int]:
        """The least and the greatest value."""
        return self.least, self.most

    def value(self, written: StatedValue, faults: Faults) -> int:
        """The whole number, within its bounds."""
        number: Any = written.node.value
        faults += self.bound_faults(written, number)
        return int(number)


@dataclass(frozen=True)
class Size(Integer):
    """A whole number, or an expression over sizes: `4 * d_model` (those that name others are evaluated before)."""

    json = ("integer", "string")
    least: int = 1

    def value(self, written: StatedValue, faults: Faults) -> int:
        """The number, or the result of the expression."""
        text = written.node.value
        if not isinstance(text, str):
            return super().value(written, faults)
        try:
            number = evaluate(text, NO_NAMES.__getitem__)
        except ExpressionError as error:
            faults.append(fault_at(written, f": {error.message}", error.help))
            return 0
        return super().value(StatedValue(Node(number, written.node.where), written.path, written.meaning), faults)


def degree() -> Size:
    """A number of devices."""
    return Size(1, 10**7)


@dataclass(frozen=True)
class Number(ValueType):
    """A bare number of at least `least` and at most `most`."""

    json = ("number",)
    keywords = (("least", "minimum"), ("most", "maximum"))
    least: float
    most: float

    @property
    def interval(self) -> tuple[float, float]:
        """The least and the greatest value."""
        return self.least, self.most

    def value(self, written: StatedValue, faults: Faults) -> float:
        """The number, within its bounds."""
        number: Any = written.node.value
        faults += self.bound_faults(written, number)
        return float(number)


@dataclass(frozen=True)
class Quantity(ValueType):
    """A quantity with a unit of the dimension whose base is `unit`, above zero unless `zero` or `signed`.

    It lies within the range of its dimension, and between `least` and `greatest` in the base unit where these are
    given. `exact`: a fraction, not the nearest floating-point number. `measured`: no whole number of what is counted.
    """

    json = ("string", "number")
    keywords = (
        ("unit", "quantity"),
        ("zero", "zero"),
        ("signed", "signed"),
        ("greatest", "greatest"),
        ("least", "minimum"),
    )
    unit: str
    zero: bool = False
    signed: bool = False
    greatest: int | None = None
    exact: bool = False
    least: float | None = None
    measured: bool = False

    @property
    def interval(self) -> tuple[float, float]:
        """The least and the greatest value, in the base unit."""
        dimension = DIMENSIONS[self.unit]
        greatest = float(dimension.greatest) if self.greatest is None else self.greatest
        positive = float(dimension.smallest) if self.least is None else self.least
        return -greatest if self.signed else 0 if self.zero else positive, greatest

    def value(self, written: StatedValue, faults: Faults) -> float | Fraction:
        """The value in the base unit: whole numbers of bytes, tokens and parameters."""
        value: Any = written.node.value
        try:
            amount = self.parsed(value)
        except QuantityError as error:
            faults.append(no_quantity(written, error))
            return 0
        is_counted = DIMENSIONS[self.unit].is_counted and not self.measured
        return Fraction(amount) if self.exact else int(amount) if is_counted else float(amount)

    @property
    def form(self) -> str:
        """The dimension that it measures, with an example."""
        return f"{DIMENSIONS[self.unit].noun} (`{DIMENSIONS[self.unit].example.replace(' or ', '`, `')}`)"

    def parsed(self, value: str | float) -> int | Fraction:
        """The exact value; raises QuantityError."""
        text = value if isinstance(value, str) else f"{value}{BARE.get(self.unit, '')}"
        number = parse(text, self.unit, measured=self.measured)
        if number <= 0 and not self.signed and not (number == 0 and self.zero):
            due = DIMENSIONS[self.unit]
            sign = "negative" if number < 0 else "zero"
            raise QuantityError(f"`{value}` is {sign}", f"{due.noun} is due, for example {due.example}", near=True)
        if self.greatest is not None and not -self.greatest <= number <= self.greatest:
            raise QuantityError(f"`{value}` is beyond reason", f"at most {write(self.greatest, self.unit)}", near=True)
        if self.least is not None and number < Fraction(str(self.least)):
            raise QuantityError(f"`{value}` is too small", f"at least {write(self.least, self.unit)}", near=True)
        return number

    def plain(self, value: Any) -> Any:
        """The amount with its unit."""
        if value is None:
            return None
        bare = int(value) if value == int(value) else float(value)
        amount = bare if self.unit == "1" else write(value, self.unit)
        faults: Faults = []
        self.read(StatedValue(as_node(amount, Location(""))), faults)
        return None if faults else amount


@dataclass(frozen=True)
class Constants(ValueType):
    """A number, or a quantity of any dimension, in its base unit; which one is due, the form of a price says."""

    json = ("number", "string")

    def value(self, written: StatedValue, faults: Faults) -> float:  # noqa: ARG002 - the form finds what is wrong
        """The value in the base unit of its dimension; 0 of what has none."""
        try:
            return float(parse_any(str(written.node.value))[0])
        except QuantityError:
            return 0.0
