"""Tokens of a run as so many a parameter of its model: `20 a parameter`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fractions import Fraction

from ledger.spec.faults import Faults, StatedValue, no_quantity
from ledger.spec.quantities import QuantityError, split_number_and_unit
from ledger.spec.values import ValueType

UNIT = "a parameter"
# Hoffmann et al. 2022, arXiv 2203.15556, table 3: about 20 tokens for each parameter at the least loss of a budget.
EXAMPLE = f"20 {UNIT}"
MOST = 10**9  # tokens a parameter; beyond it nothing is trained
LEAST = Fraction(1, 1000)  # below it nothing is learned, and of a small model not one token is left
PATTERN = r"^\s*[0-9]+(_[0-9]+)*(\.[0-9]+)?([eE][-+]?[0-9]{1,3})?\s+a\s+parameter\s*$"
ALIKE = re.compile(r"(tokens?)?\s*(a|an|per|each|/|\*|x)?\s*(trained|trainable)?\s*param\w*", re.IGNORECASE)


@dataclass(frozen=True)
class TokensPerParameter:
    """So many tokens `each` parameter of the model; `parameters` are as many as it has, 0 before they are counted."""

    each: Fraction
    parameters: int = field(default=0, compare=False)

    @property
    def count(self) -> int:
        """Tokens in all, whole ones; ValueError before the parameters are counted."""
        if not self.parameters:
            raise ValueError(f"`{self}` is no number of tokens before the parameters of the model are counted")
        return int(self.each * self.parameters)

    def __str__(self) -> str:
        """The budget as a spec states it."""
        return f"{self.each.numerator if self.each.denominator == 1 else f'{float(self.each):.12g}'} {UNIT}"

    @property
    def product(self) -> str:
        """The factors of the tokens in all, as text."""
        return f"{self} × {self.parameters:,}"


@dataclass(frozen=True)
class PerParameter(ValueType):
    """`20 a parameter`: a number above zero, and the words."""

    json = ("string",)
    keywords = (("pattern", "pattern"),)
    pattern: str = PATTERN

    def value(self, written: StatedValue, faults: Faults) -> TokensPerParameter | None:
        """The number of tokens each parameter has."""
        try:
            return TokensPerParameter(parse_each(str(written.node.value)))
        except QuantityError as error:
            faults.append(no_quantity(written, error))
            return None

    @property
    def form(self) -> str:
        """The form of a value, as an example."""
        return f"`{EXAMPLE}`"

    def plain(self, value: object) -> str | None:
        """The number with its words."""
        return str(value) if isinstance(value, TokensPerParameter) else None


def parse_each(text: str) -> Fraction:
    """The number of `20 a parameter`; raises QuantityError, which knows other ways to write it."""
    number, unit = split_number_and_unit(text)
    unit = " ".join(unit.split())
    if unit != UNIT:
        raise _wrong_words(text, number, unit)
    if not number:
        raise QuantityError(f"`{text}` lacks the number of tokens", f"for example `{EXAMPLE}`", near=True)
    tokens = Fraction(number)
    if tokens <= 0:
        sign = "negative" if tokens < 0 else "zero"
        raise QuantityError(f"`{text}` is {sign}", f"a number of tokens is due, for example `{EXAMPLE}`", near=True)
    if tokens < LEAST:
        raise QuantityError(f"`{text}` is beyond reason", f"at least `{float(LEAST)} {UNIT}`", near=True)
    if tokens > MOST:
        raise QuantityError(f"`{text}` is beyond reason", f"at most `{MOST} {UNIT}`", near=True)
    return tokens


def _wrong_words(text: str, number: str, unit: str) -> QuantityError:
    if not ALIKE.fullmatch(unit):
        return QuantityError(f"`{text}` is no number of tokens a parameter", f"for example `{EXAMPLE}`")
    meant = f"{number.lstrip('-+') or 20} {UNIT}"
    return QuantityError(f"`{unit}` is no unit", f"did you mean `{meant}`?", near=True)
