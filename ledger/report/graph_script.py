"""A traced graph as JavaScript: terms as assignments to one array of values, in blocks that structures share.

A term that several others read, or that is asked for, has a place of its own in the array; any other is written into
the one that reads it. Terms that the same structures need are one block, a function of the array.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from ledger.arithmetic.operations import CALL, OPERATIONS, PRODUCT, SUM
from ledger.arithmetic.tracing import CONSTANT, INPUT, Graph, needed

SAFE = 2**53  # integers beyond it are floats in JavaScript, as every number there is
ASSOCIATIVE = ("add", "multiply", "both")
LONGEST = 400  # characters of an expression, from which on a term has a place of its own


@dataclass(frozen=True)
class Script:
    """Blocks of JavaScript; `blocks_of` lists those of each structure, in order, `slots` the place of each term.

    `size` is that of the array: every input has a place, read or not.
    """

    blocks: tuple[str, ...]
    blocks_of: tuple[tuple[int, ...], ...]
    slots: Mapping[int, int]
    size: int


def script(graph: Graph, inputs: Sequence[str], roots: Sequence[Collection[int]]) -> Script:
    """The terms behind the roots of each structure; the first structure is evaluated before any other."""
    users: dict[int, list[int]] = {}
    for structure, asked in enumerate(roots):
        for place in needed(graph, list(asked)):
            users.setdefault(place, []).append(structure)
    writer = _Writer(graph, inputs, sorted(users), {place for asked in roots for place in asked})
    members: dict[tuple[int, ...], list[int]] = {}
    for place in writer.stored:
        mine = (0,) if 0 in users[place] else tuple(users[place])
        members.setdefault(mine, []).append(place)
    order = sorted(members, key=lambda mine: (mine != (0,), -len(mine), members[mine][0]))
    blocks = tuple("".join(writer.assignments(members[mine])) for mine in order)
    blocks_of = tuple(
        tuple(index for index, mine in enumerate(order) if structure in mine) for structure in range(len(roots))
    )
    return Script(blocks, blocks_of, writer.slots, len(inputs) + len(writer.stored))


class _Writer:
    """Writes terms, each after those that it reads."""

    def __init__(self, graph: Graph, inputs: Sequence[str], places: Sequence[int], roots: Collection[int]) -> None:
        self.terms = graph.terms
        uses = Counter(part for place in places if self._computed(place) for part in self.terms[place][1:])
        self.slots = {place: inputs.index(self.terms[place][1]) for place in places if self.terms[place][0] == INPUT}
        self.stored: list[int] = []
        self.written: dict[int, tuple[str, int]] = {}
        for place in places:
            name = self.terms[place][0]
            if name == INPUT:
                continue
            if name == CONSTANT:
                text = number(self.terms[place][2])
                self.written[place] = (text, CALL if text[0] != "-" and "/" not in text else SUM)
                if place not in roots:
                    continue
            elif uses[place] <= 1 and place not in roots:
                expression = self.expression(place)
                if len(expression[0]) < LONGEST:
                    self.written[place] = expression
                    continue
            self.stored.append(place)
            self.slots[place] = len(inputs) + len(self.stored) - 1

    def _computed(self, place: int) -> bool:
        return self.terms[place][0] not in (INPUT, CONSTANT)

    def assignments(self, places: Sequence[int]) -> Iterator[str]:
        """The terms with a place of their own."""
        for place in places:
            yield f"v[{self.slots[place]}]={self.expression(place)[0]};"

    def expression(self, place: int) -> tuple[str, int]:
        """A term as JavaScript, and how tightly it binds."""
        if not self._computed(place):
            return self.written[place]
        name, *operands = self.terms[place]
        operation, parts = OPERATIONS[name], [self.operand(operand) for operand in operands]
        if operation.script.startswith(("Math", "!")) or "**" in operation.script:
            enclosed = [text for text, _ in parts] if "(" in operation.script else [_enclosed(*part) for part in parts]
            if name in ("floor_divide", "ceil_divide"):
                enclosed = [_bound(*parts[0], PRODUCT), _bound(*parts[1], PRODUCT + 1)]
            elif name in ("truncate", "floor", "next_power_of_two"):
                enclosed = [_bound(*parts[0], SUM)]
            return operation.script.format(*enclosed), CALL
        if name == "where":
            condition, yes, no = parts
            return f"{_bound(*condition, 2)}?{_bound(*yes, 2)}:{_bound(*no, 1)}", operation.binds
        after = operation.binds if name in ASSOCIATIVE else operation.binds + 1
        return operation.script.format(_bound(*parts[0], operation.binds), _bound(*parts[1], after)), operation.binds

    def operand(self, place: int) -> tuple[str, int]:
        """A term where another one reads it."""
        if place in self.slots and (place not in self.written or self.terms[place][0] != CONSTANT):
            return f"v[{self.slots[place]}]", CALL
        return self.written[place]


def _bound(text: str, binds: int, least: int) -> str:
    return text if binds >= least else f"({text})"


def _enclosed(text: str, binds: int) -> str:
    return text if binds >= CALL else f"({text})"


def number(value: float | Fraction | bool) -> str:
    """A number that JavaScript reads as the same double that Python makes of it."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, Fraction):
        return f"{value.numerator}/{value.denominator}"
    if isinstance(value, int):
        return str(value) if abs(value) < SAFE else repr(float(value))
    return repr(value).replace("e-0", "e-").replace("e+", "e").removesuffix(".0")


def literal(data: object) -> str:
    """Data as it may stand inside a script of a page: JSON, in which no markup can end the script."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
