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

    def windows(self, places: Any, tap: Any) -> Any:
        """The number of windows of `tap` places over `places`, padded alike at both ends."""
        return (places + 2 * self.padding - self.dilation * (tap - 1) - 1) // self.stride + 1

    def fits(self, places: int, over: int, tap: int) -> bool:
        """Whether `over` windows are those of padding alike at both ends."""
        return over > 0 and self.windows(places, tap) == over

    def is_causal(self, places: int, over: int, tap: int) -> bool:
        """Whether the last window ends where the dim does, so that zeros stand before it alone."""
        return 0 < self.padding == self.stride * (over - 1) + self.dilation * (tap - 1) + 1 - places


def without_inner_spaces(einsum: str) -> str:
    """The text without spaces inside of parentheses: `(2*h + r)` is one index."""
    return re.sub(r"\([^()]*\)", lambda match: match[0].replace(" ", ""), einsum)


@lru_cache(maxsize=4096)
def window(index: str) -> Window | None:
    """The window that an index of a term is, as `(2*h+r-1)`; None for the name of a dim."""
    match = WINDOW.fullmatch(index)
    if match is None:
        return None
    stride, over, dilation, tap, padding = match.groups()
    return Window(over, tap, int(stride or 1), int(dilation or 1), int(padding or 0))


def has_windows(einsum: str) -> bool:
    """Whether an index of the text adds two dims."""
    return re.search(r"\([^()]*\+", einsum) is not None


def names(term: Term) -> Term:
    """The dims of a term, both dims of a window among them."""
    pairs = ((index, window(index)) for index in term)
    return tuple(name for index, span in pairs for name in ((span.over, span.tap) if span else (index,)))


@lru_cache(maxsize=4096)
def terms(einsum: str) -> tuple[Term, Term, Term]:
    """The indices of both operands and of the result."""
    operands, out = without_inner_spaces(einsum).split("->")
    first, second = operands.split(",")
    return tuple(first.split()), tuple(second.split()), tuple(out.split())


@lru_cache(maxsize=4096)
def sides(pattern: str) -> tuple[Term, Term]:
    """The indices of the one operand of a reduction, and those of its result."""
    operand, out = without_inner_spaces(pattern).split("->")
    return tuple(operand.split()), tuple(out.split())


def parse_reduction(pattern: str) -> tuple[Term, Term] | None:
    """The sides of a reduction; None where the text is no reduction of one operand over named dims."""
    term = rf" *(?:{NAME}|{WINDOW.pattern})(?: +(?:{NAME}|{WINDOW.pattern}))* *"
    return sides(pattern) if re.fullmatch(rf"{term}->{term}", without_inner_spaces(pattern)) else None


def parse_einsum(einsum: str) -> tuple[Term, Term, Term] | None:
    """The terms of an einsum; None where the text is no einsum of two operands over named dims."""
    index = rf"(?:{NAME}|{WINDOW.pattern})"
    term = rf" *{index}(?: +{index})* *"
    return terms(einsum) if re.fullmatch(rf"{term},{term}->{term}", without_inner_spaces(einsum)) else None


@dataclass(frozen=True)
class ConvolutionRoles:
    """The role of each dim of a convolution, as PyTorch has them: images (batch groups*channels places), filters.

    `batch` is in the operand and the result alone, `groups` in all three terms, `channels` are summed over, `filters`
    are those of the weight in the result.
    """

    batch: str
    groups: Term
    channels: Term
    filters: Term
    windows: tuple[Window, ...]

    @property
    def operand(self) -> Term:
        """The order of dims in which PyTorch reads the operand: a window as its text."""
        return (self.batch, *self.groups, *self.channels)

    @property
    def filter(self) -> Term:
        """The order of dims in which PyTorch has the weight."""
        return (*self.groups, *self.filters, *self.channels, *(span.tap for span in self.windows))

    @property
    def result(self) -> Term:
        """The order of dims in which PyTorch writes the result."""
        return (self.batch, *self.groups, *self.filters, *(span.over for span in self.windows))


def without_padding(einsum: str) -> str:
    """The einsum of an operand that has its zeros already."""
    return re.sub(rf"({NAME})-\d+\)", r"\1)", without_inner_spaces(einsum))


@lru_cache(maxsize=4096)
def roles(einsum: str) -> ConvolutionRoles | None:
    """The roles of a convolution's dims; None where the text is none that PyTorch has."""
    first, second, out = terms(einsum)
    spans = tuple(span for index in first if (span := window(index)))
    plain = tuple(index for index in first if window(index) is None)
    batch = [name for name in plain if name in out and name not in second]
    groups = tuple(name for name in second if name in plain and name in out)
    channels = tuple(name for name in second if name in plain and name not in out)
    taps = {axis.tap for axis in spans}
    filters = tuple(name for name in second if name not in plain and name not in taps)
    if len(batch) != 1:
        return None
    convolution = ConvolutionRoles(batch[0], groups, channels, filters, spans)
    pairs = ((plain, convolution.operand), (second, convolution.filter), (out, convolution.result))
    is_complete = all(set(named) == set(expected) for named, expected in pairs)
    return convolution if is_complete and taps <= {*second} and len(out) == len(convolution.result) else None
