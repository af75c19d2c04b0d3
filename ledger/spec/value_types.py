"""What a type of values is: it reads what is written, says what is wrong with it, and prints its JSON Schema."""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from functools import cached_property
from typing import Any, ClassVar

from ledger.spec.faults import WORDS, Fault, Faults, Written, out_of_bounds, wrong_amount, wrong_type
from ledger.spec.problems import Location
from ledger.spec.reader import as_node

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
    **dict.fromkeys(("minLength", "minItems", "minProperties"), (operator.lt, "at least")),
    **dict.fromkeys(("maxLength", "maxItems", "maxProperties"), (operator.gt, "at most")),
}


class ValueType(ABC):
    """What a field may hold: values of JSON's types `json`, any where there are none.

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
        """What a value looks like, in words that name it among alternatives."""
        return " or ".join(dict.fromkeys(WORDS[name] for name in self.types))

    @property
    def inner_keys(self) -> Collection[str]:
        """The keys that its values may have, of a mapping."""
        return ()

    def suits(self, value: object) -> bool:
        """Whether a value has one of the types."""
        return not self.types or any(HAS_TYPE[name](value) for name in self.types)

    def read(self, written: Written, faults: Faults) -> Any:
        """The value as the plan has it; what is wrong with it is added to `faults`."""
        if self.suits(written.node.value):
            return self.value(written, faults)
        faults.append(wrong_type(written, self.types))
        return None

    @abstractmethod
    def value(self, written: Written, faults: Faults) -> Any:
        """The same of what has the type."""

    @cached_property
    def bounds(self) -> Schema:
        """What bounds its values, in keywords of a schema."""
        stated = {keyword: getattr(self, attribute) for attribute, keyword in self.keywords}
        return {key: value for key, value in stated.items() if value is not None and value is not False and value != ""}

    def beyond(self, written: Written, size: float) -> list[Fault]:
        """The bounds that a number breaks: a value itself, or how many letters or entries it has."""
        broken = [key for key, limit in self.bounds.items() if key in LIMITS and LIMITS[key][0](size, limit)]
        fault = wrong_amount if isinstance(written.node.value, str | tuple | Mapping) else out_of_bounds
        return [fault(written, LIMITS[key][1], self.bounds[key]) for key in broken]

    @property
    def inners(self) -> tuple[ValueType, ...]:
        """The types of what a value is made of."""
        stated = [getattr(self, one.name) for one in fields(self)]  # type: ignore[arg-type]  # all are dataclasses
        several = [entry for value in stated for entry in (value if isinstance(value, tuple) else (value,))]
        return tuple(entry for entry in several if isinstance(entry, ValueType))

    def plain(self, value: Any) -> Any:
        """A default as a spec would say it; None where it could not."""
        faults: Faults = []
        again = None if value is None else self.read(Written(as_node(value, Location(""))), faults)
        return None if faults or again != value else value

    def schema(self) -> Schema:
        """Its JSON Schema."""
        kinds = list(self.types)
        return ({"type": kinds[0] if len(kinds) == 1 else kinds} if kinds else {}) | self.bounds
