"""Types of values that questions have, and the figures that they ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ledger.model.dtypes import DTYPES
from ledger.spec.faults import Faults, Written
from ledger.spec.named_parts import LibraryName
from ledger.spec.problems import Location
from ledger.spec.structures import ListOf, Made, Row
from ledger.spec.values import Integer, KeyOf, Label, String


@dataclass(frozen=True)
class Expression:
    """An expression as written, and where."""

    text: str
    where: Location | None = None  # none of one that a form of questions is made of


@dataclass(frozen=True)
class Sought:
    """A figure that is asked for: its expression, its unit and title where they do not follow."""

    expression: Expression
    unit: str = ""
    title: str | None = None


@dataclass(frozen=True)
class ExpressionText(Label):
    """An expression over what a question names."""

    def value(self, written: Written, faults: Faults) -> Any:
        """The text with its place."""
        return Expression(str(super().value(written, faults)), written.node.where)


WORDS = Made(String(), lambda text: tuple(text.split()))
COUNT = Integer(1, 10**18)  # also as it is written with an exponent: 13e9
FORMAT = KeyOf(DTYPES)
ACCELERATOR, OPTIMIZER, PRECISION = (LibraryName(kind=kind) for kind in ("accelerator", "optimizer", "precision"))
TEXTS = ListOf(String())
PLAN = LibraryName(kind="plan")
A_PLAN = "A plan of the library, or a path relative to this file."
SET = Row("set", TEXTS, "`key=value`, as `--set` takes them.", "set")
