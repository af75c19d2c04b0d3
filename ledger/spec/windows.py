"""Products as texts: the indices of both operands and of the result, a dim by name or a window over one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

NAME = "[a-z][a-z0-9_]*"
WINDOW = re.compile(rf"\((?:(\d+)\*)?({NAME})\+(?:(\d+)\*)?({NAME})(?:-(\d+))?\)")
Term = tuple[str, ...]


@dataclass(frozen=True)
class Window:
    """A dim that is read at place `stride * over + dilation * tap - padding`; beyond its ends there are zeros.

    `over` counts the results, `tap` the places within the window of one.
    """

    over: str
    tap: str
    stride: int = 1
    dilation: int = 1
    padding: int = 0

    def least(self, over: Any, tap: Any) -> Any:
        """The smallest size that `over` windows of `tap` places read to its end, padded alike at both ends.

        Of numbers a number, of symbols an expression.
        """
        return self.stride * (over - 1) + self.dilation * (tap - 1) + 1 - 2 * self.padding


def squeezed(einsum: str) -> str:
    """The text without spaces inside of parentheses: `(2*h + r)` is one index."""
    return re.sub(r"\([^()]*\)", lambda found: found[0].replace(" ", ""), einsum)


@lru_cache(maxsize=4096)
def window(index: str) -> Window | None:
    """The window that an index of a term is, as `(2*h+r-1)`; None for the name of a dim."""
    found = WINDOW.fullmatch(index)
    if found is None:
        return None
    stride, over, dilation, tap, padding = found.groups()
    return Window(over, tap, int(stride or 1), int(dilation or 1), int(padding or 0))


def has_windows(einsum: str) -> bool:
    """Whether an index of the text adds two dims."""
    return re.search(r"\([^()]*\+", einsum) is not None


def names(term: Term) -> Term:
    """The dims of a term; of a window both that it is made of."""
    found = ((index, window(index)) for index in term)
    return tuple(name for index, over in found for name in ((over.over, over.tap) if over else (index,)))


@lru_cache(maxsize=4096)
def terms(einsum: str) -> tuple[Term, Term, Term]:
    """The indices of both operands and of the result."""
    operands, out = squeezed(einsum).split("->")
    first, second = operands.split(",")
    return tuple(first.split()), tuple(second.split()), tuple(out.split())


def parsed(einsum: str) -> tuple[Term, Term, Term] | None:
    """The same; None where the text is no einsum of two operands over named dims."""
    index = rf"(?:{NAME}|{WINDOW.pattern})"
    term = rf" *{index}(?: +{index})* *"
    return terms(einsum) if re.fullmatch(rf"{term},{term}->{term}", squeezed(einsum)) else None
