"""A validated mapping, read by key in the type the plan wants. What the schema guarantees is not checked again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from ledger.spec.quantities import parse
from ledger.spec.reader import Node


@dataclass(frozen=True)
class View:
    """A mapping of a spec; every reader takes the default for a key that is not given."""

    node: Node

    def has(self, key: str) -> bool:
        """Whether the key is given."""
        return key in self.node.fields

    def inner(self, key: str) -> View:
        """The mapping at a key; an empty one where it is not given."""
        return View(self.node.fields.get(key, Node({}, self.node.where)))

    def each(self, key: str) -> Iterator[View]:
        """The mappings of a list."""
        return (View(item) for item in self.inner(key).node.items)

    def scalar(self, key: str) -> object:
        """The value, of `{value: ..., source: ...}` the value; None where the key is not given."""
        node = self.node.fields.get(key)
        if node is None:
            return None
        return node.fields["value"].value if "value" in node.fields else node.value

    def text(self, key: str, default: str = "") -> str:
        """A text."""
        value = self.scalar(key)
        return default if value is None else str(value)

    def words(self, key: str) -> tuple[str, ...]:
        """The texts of a list."""
        return tuple(str(item.value) for item in self.inner(key).node.items)

    def words_or_keys(self, key: str) -> tuple[str, ...]:
        """The texts of a list, or the keys of a mapping."""
        return self.words(key) or tuple(self.inner(key).node.fields)

    def flag(self, key: str) -> bool:
        """A truth value, false where not given."""
        return self.scalar(key) is True

    def size(self, key: str, default: int = 0) -> int:
        """A whole number."""
        value = self.scalar(key)
        return int(value) if isinstance(value, int | float) else default

    def maybe_size(self, key: str) -> int | None:
        """A whole number, or None where not given."""
        return self.size(key) if self.has(key) else None

    def number(self, key: str) -> float | None:
        """A bare number, or None where not given."""
        value = self.scalar(key)
        return float(value) if isinstance(value, int | float) else None

    def amount(self, key: str, base: str, default: float = 0.0) -> float:
        """A quantity in SI base units."""
        return float(self.exact(key, base)) if self.has(key) else default

    def maybe_amount(self, key: str, base: str) -> float | None:
        """A quantity in SI base units, or None where not given."""
        return self.amount(key, base) if self.has(key) else None

    def whole(self, key: str, base: str, default: int = 0) -> int:
        """A quantity that is a whole number of its base unit."""
        return int(self.exact(key, base)) if self.has(key) else default

    def exact(self, key: str, base: str) -> Fraction:
        """A quantity without rounding; 0 where not given."""
        value = self.scalar(key)
        if isinstance(value, str):
            return Fraction(parse(value, base))
        return Fraction(str(value)) if isinstance(value, int | float) else Fraction(0)
