"""Types of single values: each reads what is written, says what is wrong with it, and prints its JSON Schema."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar

from ledger.spec.expressions import ExpressionError, evaluate
from ledger.spec.findings import (
    Findings,
    Written,
    malformed,
    no_quantity,
    out_of_bounds,
    told,
    wrong_amount,
    wrong_choice,
    wrong_constant,
    wrong_type,
)
from ledger.spec.problems import Location
from ledger.spec.quantities import DIMENSIONS, QuantityError, parse, parse_any, write
from ledger.spec.reader import Node

Schema = dict[str, Any]
NO_NAMES: Mapping[str, int] = {}
HAS_TYPE: Mapping[str, Callable[[object], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1,
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, tuple),
    "object": lambda value: isinstance(value, Mapping),
}
BARE = {"1": "", "parameters": " parameters"}  # dimensions whose values may be bare numbers, and the unit those have


class ValueType(ABC):
    """What a field may hold, as JSON names its types; nothing is said of the type where there are none."""

    @property
    def types(self) -> tuple[str, ...]:
        """The JSON types of its values; none: any."""
        return ()

    def suits(self, value: object) -> bool:
        """Whether a value has one of the types."""
        return not self.types or any(HAS_TYPE[name](value) for name in self.types)

    def read(self, written: Written, findings: Findings) -> Any:
        """The value as the plan has it; what is wrong with it is added to `findings`."""
        if self.suits(written.node.value):
            return self.value(written, findings)
        findings.append(wrong_type(written, self.types))
        return None

    @abstractmethod
    def value(self, written: Written, findings: Findings) -> Any:
        """The same of what has the type."""

    @property
    def inners(self) -> tuple[ValueType, ...]:
        """The types of what a value is made of."""
        return ()

    def plain(self, value: Any) -> Any:  # noqa: ARG002 - most values are no defaults
        """A default as a spec would say it; None where it could not."""
        return None

    @abstractmethod
    def schema(self) -> Schema:
        """Its JSON Schema."""


class Scalar(ValueType):
    """A value of one JSON type or a few, which all have the same schema keywords."""

    json: ClassVar[tuple[str, ...]] = ()

    @property
    def types(self) -> tuple[str, ...]:
        """The JSON types of its values."""
        return self.json

    def schema(self) -> Schema:
        """The type, and what bounds it."""
        kinds = list(self.types)
        return ({"type": kinds[0] if len(kinds) == 1 else kinds} if kinds else {}) | self.bounds()

    def bounds(self) -> Schema:
        """What bounds the values, in the keywords of JSON Schema."""
        return {}

    def plain(self, value: Any) -> Any:
        """The value itself, if it is one that may be written."""
        findings: Findings = []
        read = self.read(Written(Node(value, Location(""))), findings)
        return None if findings or read != value else value


@dataclass(frozen=True)
class Text(Scalar):
    """A text of `least` to `most` letters that has the form `pattern`."""

    json: ClassVar[tuple[str, ...]] = ("string",)
    least: int = 0
    most: int | None = None
    pattern: str = ""

    def value(self, written: Written, findings: Findings) -> str:
        """The text."""
        text = str(written.node.value)
        if len(text) < self.least:
            findings.append(wrong_amount(written, "at least", self.least))
        if self.most is not None and len(text) > self.most:
            findings.append(wrong_amount(written, "at most", self.most))
        if self.pattern and not re.search(self.pattern, text):
            findings.append(malformed(written, text, self.pattern))
        return text

    def bounds(self) -> Schema:
        """Its lengths and its form."""
        return given(minLength=self.least or None, maxLength=self.most, pattern=self.pattern or None)


@dataclass(frozen=True)
class Label(Scalar):
    """A text, which may look like a number."""

    json: ClassVar[tuple[str, ...]] = ("string", "number")

    def value(self, written: Written, findings: Findings) -> str:  # noqa: ARG002 - every one is right
        """The text."""
        return str(written.node.value)


@dataclass(frozen=True)
class Anything(Scalar):
    """A value of these JSON types, whatever it holds; of any type where none are named."""

    kinds: tuple[str, ...] = ()

    @property
    def types(self) -> tuple[str, ...]:
        """The types that are named."""
        return self.kinds

    def value(self, written: Written, findings: Findings) -> object:  # noqa: ARG002 - every one is right
        """The value without places."""
        return written.node.plain()


@dataclass(frozen=True)
class Flag(Scalar):
    """True or false."""

    json: ClassVar[tuple[str, ...]] = ("boolean",)

    def value(self, written: Written, findings: Findings) -> bool:  # noqa: ARG002 - either is right
        """The truth value."""
        return written.node.value is True


@dataclass(frozen=True)
class Choice(Scalar):
    """One of a few values; `means` has those that the plan has in other words."""

    options: tuple[object, ...]
    means: Mapping[object, object] = field(default_factory=dict)

    def __init__(self, *options: object, means: Mapping[object, object] | None = None) -> None:
        object.__setattr__(self, "options", options)
        object.__setattr__(self, "means", means or {})

    def suits(self, value: object) -> bool:
        """Whether a value has the type of one of them."""
        return any(type(value) is type(option) for option in self.options)

    @property
    def types(self) -> tuple[str, ...]:
        """The types of the values there are."""
        kinds = (next(name for name in HAS_TYPE if HAS_TYPE[name](option)) for option in self.options)
        return tuple(dict.fromkeys(kinds))

    def read(self, written: Written, findings: Findings) -> Any:
        """The chosen value; one of another type is no choice either."""
        return self.value(written, findings)

    def value(self, written: Written, findings: Findings) -> Any:
        """The chosen value, as the plan has it."""
        value = written.node.value
        for option in self.options:
            if option == value and isinstance(option, bool) == isinstance(value, bool):
                return self.means.get(option, option)
        findings.append(wrong_choice(written, self.options))
        return None

    def plain(self, value: Any) -> Any:
        """The option that means it, under its own name if it has one."""
        meant = [option for option in self.options if self.means.get(option, option) == value]
        return next((option for option in meant if option not in self.means), meant[0] if meant else None)

    def schema(self) -> Schema:
        """The values."""
        return {"enum": list(self.options)}


@dataclass(frozen=True)
class Constant(ValueType):
    """One text and nothing else."""

    text: str

    def value(self, written: Written, findings: Findings) -> str:
        """The text."""
        if written.node.value != self.text:
            findings.append(wrong_constant(written, self.text))
        return self.text

    def schema(self) -> Schema:
        """The text."""
        return {"const": self.text}


@dataclass(frozen=True)
class Whole(Scalar):
    """A whole number of at least `least` and at most `most`."""

    json: ClassVar[tuple[str, ...]] = ("integer",)
    least: int | None = None
    most: int | None = None

    def value(self, written: Written, findings: Findings) -> int:
        """The number."""
        number: Any = written.node.value
        if self.least is not None and number < self.least:
            findings.append(out_of_bounds(written, "at least", self.least))
        if self.most is not None and number > self.most:
            findings.append(out_of_bounds(written, "at most", self.most))
        return int(number)

    def bounds(self) -> Schema:
        """Its least and its greatest value."""
        return given(minimum=self.least, maximum=self.most)


@dataclass(frozen=True)
class Size(Whole):
    """A whole number, or an expression over sizes: `4 * d_model` (those that name others are evaluated before)."""

    json: ClassVar[tuple[str, ...]] = ("integer", "string")
    least: int | None = 1
    most: int | None = 10**12

    def value(self, written: Written, findings: Findings) -> int:
        """The number."""
        text = written.node.value
        if not isinstance(text, str):
            return super().value(written, findings)
        try:
            number = evaluate(text, NO_NAMES.__getitem__)
        except ExpressionError as error:
            findings.append(told(written, f": {error.message}", error.help))
            return 0
        return super().value(Written(Node(number, written.node.where), written.path, written.meaning), findings)


def degree() -> Size:
    """A number of devices."""
    return Size(1, 10**7)


@dataclass(frozen=True)
class Number(Scalar):
    """A bare number above `above` and at most `most`."""

    json: ClassVar[tuple[str, ...]] = ("number",)
    above: float | None = None
    most: float | None = None

    def value(self, written: Written, findings: Findings) -> float:
        """The number."""
        number: Any = written.node.value
        if self.above is not None and number <= self.above:
            findings.append(out_of_bounds(written, "above", self.above))
        if self.most is not None and number > self.most:
            findings.append(out_of_bounds(written, "at most", self.most))
        return float(number)

    def bounds(self) -> Schema:
        """What it lies between."""
        return given(exclusiveMinimum=self.above, maximum=self.most)


@dataclass(frozen=True)
class Amount(Scalar):
    """A quantity with a unit of the dimension whose base is `unit`, above zero unless `zero` or `signed`.

    `greatest`: in the base unit. `exact`: a fraction, not the nearest floating-point number. `least`: of bare numbers.
    """

    json: ClassVar[tuple[str, ...]] = ("string", "number")
    unit: str
    zero: bool = False
    signed: bool = False
    greatest: int | None = None
    exact: bool = False
    least: int | None = None

    def value(self, written: Written, findings: Findings) -> float | Fraction:
        """The value in the base unit: whole numbers of bytes, tokens and parameters."""
        value: Any = written.node.value
        if self.least is not None and not isinstance(value, str) and value < self.least:
            findings.append(out_of_bounds(written, "at least", self.least))
        try:
            amount = self.parsed(value)
        except QuantityError as error:
            findings.append(no_quantity(written, error))
            return 0
        return Fraction(amount) if self.exact else int(amount) if DIMENSIONS[self.unit].whole else float(amount)

    def parsed(self, value: str | float) -> int | Fraction:
        """The exact value; raises QuantityError."""
        number = parse(value if isinstance(value, str) else f"{value}{BARE.get(self.unit, '')}", self.unit)
        if number <= 0 and not self.signed and not (number == 0 and self.zero):
            due = DIMENSIONS[self.unit]
            what = "negative" if number < 0 else "zero"
            raise QuantityError(f"`{value}` is {what}", f"{due.noun} is due, for example {due.example}")
        if self.greatest is not None and number > self.greatest:
            raise QuantityError(f"`{value}` is beyond reason", f"at most {write(self.greatest, self.unit)}")
        return number

    def plain(self, value: Any) -> Any:
        """The amount with its unit."""
        if value is None:
            return None
        bare = int(value) if value == int(value) else float(value)
        said = bare if self.unit == "1" else write(value, self.unit)
        findings: Findings = []
        self.read(Written(Node(said, Location(""))), findings)
        return None if findings else said

    def bounds(self) -> Schema:
        """Its unit, and its bounds, in keywords of this language's own."""
        own = given(zero=self.zero or None, signed=self.signed or None, greatest=self.greatest, minimum=self.least)
        return {"quantity": self.unit, **own}


@dataclass(frozen=True)
class Constants(Scalar):
    """A number, or a quantity of any dimension, in its base unit; which one is due, the form of a price says."""

    json: ClassVar[tuple[str, ...]] = ("number", "string")

    def value(self, written: Written, findings: Findings) -> float:  # noqa: ARG002 - the form finds what is wrong
        """The value in the base unit of its dimension; 0 of what has none."""
        try:
            return float(parse_any(str(written.node.value))[0])
        except QuantityError:
            return 0.0


def given(**bounds: object) -> Schema:
    """Those keywords that say something."""
    return {key: value for key, value in bounds.items() if value is not None}
