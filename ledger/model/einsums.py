"""Einsums, rearrangements and reductions as questions write them, and the cheapest order of several operands."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

Names = tuple[str, ...]
Sizes = Mapping[str, int | str]
WORD = re.compile(r"\s*(->|[(),]|\.\.\.|[A-Za-z_][A-Za-z0-9_]*|\S)")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
EXAMPLE = "write operands, `->` and the result, a name for each dim: `m k, k n -> m n`"
MOST_OPERANDS = 6
REST = "..."


class EinsumError(ValueError):
    """A text is no einsum, or a size is missing; `help` says what to write."""

    def __init__(self, message: str, help_text: str = EXAMPLE) -> None:
        super().__init__(message)
        self.message, self.help = message, help_text


@dataclass(frozen=True)
class Term:
    """The dims of a tensor in order; each is one name, or several in parentheses that are merged into it."""

    dims: tuple[Names, ...]

    @property
    def names(self) -> Names:
        """The names of all dims, those of merged dims apart."""
        return tuple(name for dim in self.dims for name in dim)


@dataclass(frozen=True)
class Einsum:
    """Operands and a result over named dims."""

    operands: tuple[Term, ...]
    result: Term

    @property
    def names(self) -> Names:
        """Every name once, in the order in which they appear."""
        return tuple(dict.fromkeys(name for term in (*self.operands, self.result) for name in term.names))

    @property
    def summed(self) -> Names:
        """Names that the result lacks."""
        return tuple(name for name in self.names if name not in self.result.names)


def parse(text: str, rest: str = "") -> Einsum:
    """The einsum of a text; `...` stands for the names in `rest`. Raises EinsumError."""
    sides = text.split("->")
    if len(sides) != 2:
        raise EinsumError(f"`{text}` has {'no' if len(sides) == 1 else 'more than one'} `->`")
    operands = tuple(_term(part, rest) for part in sides[0].split(","))
    if len(operands) > MOST_OPERANDS:
        raise EinsumError(f"`{text}` has {len(operands)} operands", f"at most {MOST_OPERANDS}")
    einsum = Einsum(operands, _term(sides[1], rest))
    for name in einsum.result.names:
        if all(name not in term.names for term in operands):
            raise EinsumError(f"`{name}` is in the result and in no operand")
    if len(operands) > 1 and any(len(dim) > 1 for term in (*operands, einsum.result) for dim in term.dims):
        raise EinsumError(f"`{text}` merges dims", "split or merge them in a step of their own: `rearrange:`")
    return einsum


def _term(text: str, rest: str) -> Term:
    dims: list[Names] = []
    merged: list[str] | None = None
    for word in WORD.findall(text):
        if word == "(" and merged is None:
            merged = []
        elif word == ")" and merged is not None:
            dims.append(tuple(merged))
            merged = None
        elif word == REST and merged is None:
            if not rest:
                raise EinsumError("`...` stands for no dims", 'say for which in `sizes`: `"...": batch seq`')
            dims += ((name,) for name in rest.split())
        elif NAME.fullmatch(word):
            dims.append((word,)) if merged is None else merged.append(word)
        else:
            raise EinsumError(f"`{word}` in `{text.strip()}` is no name of a dim")
    if merged is not None:
        raise EinsumError(f"`{text.strip()}` has a parenthesis that does not end")
    names = [name for dim in dims for name in dim]
    for name in names:
        if names.count(name) > 1:
            raise EinsumError(f"`{name}` stands twice in `{text.strip()}`", "give each dim of a tensor its own name")
    return Term(tuple(dims))


def root(name: str, sizes: Sizes) -> str:
    """The dim whose number a dim has; raises EinsumError where no number is stated."""
    seen = [name]
    while isinstance(size := sizes.get(seen[-1]), str):
        if size in seen:
            raise EinsumError(f"`{name}` has the size of itself", f"state a number: `{name}: 4`")
        seen.append(size)
    if size is None:
        raise EinsumError(f"`{seen[-1]}` has no size", f"state it in `sizes`: `{seen[-1]}: 4`")
    return seen[-1]


def rest_of(sizes: Sizes) -> str:
    """The names that `...` stands for."""
    return str(sizes.get(REST, ""))


# --- order of contraction ---

Pair = tuple[int, int]
Order = tuple[Pair, ...]  # which two are joined, of those that are left; the result goes to the end


def orders(count: int) -> Iterator[Order]:
    """Every way to join operands two by two."""
    if count < 2:
        yield ()
        return
    for pair in combinations(range(count), 2):
        yield from ((pair, *later) for later in orders(count - 1))


def pairwise(einsum: Einsum, order: Order) -> Iterator[tuple[Pair, Names, Names, Names]]:
    """The products of an order: which two operands, their dims, and those of the result."""
    remaining = [term.names for term in einsum.operands]
    for first, second in order:
        a, b = remaining[first], remaining[second]
        unjoined = [names for at, names in enumerate(remaining) if at not in (first, second)]
        needed = {*einsum.result.names, *(name for names in unjoined for name in names)}
        result = tuple(name for name in dict.fromkeys((*a, *b)) if name in needed)
        yield (first, second), a, b, result if unjoined else einsum.result.names
        remaining = [*unjoined, result]


def joined(names: Names, partner: Names, result: Names) -> Names:
    """The dims of an operand that reach its product: those that it has alone are summed before."""
    return tuple(dim for dim in names if dim in partner or dim in result)


def cost(einsum: Einsum, order: Order, sizes: Mapping[str, int]) -> int:
    """FLOPs of an order: 2 for each point of a product, 1 where it sums nothing, and those of sums before it."""

    def points(names: Iterable[str]) -> int:
        return math.prod(sizes[name] for name in names)

    flops = 0
    for _, a, b, result in pairwise(einsum, order):
        left, right = joined(a, b, result), joined(b, a, result)
        dims = {*left, *right}
        flops += (1 if dims <= {*result} else 2) * points(dims)
        flops += sum(points(names) for names, part in ((a, left), (b, right)) if part != names)
    return flops


def best_order(einsum: Einsum, sizes: Mapping[str, int]) -> Order:
    """The order with fewest FLOPs."""
    return min(orders(len(einsum.operands)), key=lambda order: cost(einsum, order, sizes))


def spaced(names: Sequence[str]) -> str:
    """Names of dims as an einsum has them, with spaces between."""
    return " ".join(names)
