"""Rules traced into a graph: values that remember how they were computed, and the conditions that were asked of them.

A trace runs the rules at one setting of its inputs. Where Python asks for the truth of a condition, or for a whole
number, the answer is that of this setting, and the condition is kept as a guard: the graph holds for every setting that
meets its guards, and says so of itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ledger.arithmetic.operations import OPERATIONS, Number

INPUT, CONSTANT = "input", "constant"
Term = tuple[Any, ...]  # an operation and the places of its operands; or "input" and a name, "constant" and a number


@dataclass
class Graph:
    """Terms in the order in which they were first asked for, equal ones once: operands come before their results."""

    terms: list[Term] = field(default_factory=list)
    places: dict[Term, int] = field(default_factory=dict)

    def place(self, term: Term) -> int:
        """The place of a term."""
        found = self.places.get(term)
        if found is None:
            found = self.places[term] = len(self.terms)
            self.terms.append(term)
        return found


@dataclass
class Trace:
    """One run of the rules: `guards` are the conditions that it took for granted, with their truth, by `topic`."""

    graph: Graph
    guards: dict[tuple[str, int], bool] = field(default_factory=dict)
    topic: str = ""

    def input(self, name: str, sample: Number) -> Traced:
        """An input whose value at this setting is `sample`."""
        return Traced(self, self.graph.place((INPUT, name)), sample)

    @contextmanager
    def about(self, topic: str) -> Iterator[None]:
        """Guards that are taken for granted within are about this topic."""
        before, self.topic = self.topic, topic
        try:
            yield
        finally:
            self.topic = before

    def lift(self, value: Number | Traced) -> int:
        """The place of a value, which may be a plain number."""
        if isinstance(value, Traced):
            return value.place
        return self.graph.place((CONSTANT, type(value).__name__, value))


class Traced:
    """A value of a trace: its place in the graph, and what it is at the trace's own setting."""

    __slots__ = ("place", "sample", "trace")

    def __init__(self, trace: Trace, place: int, sample: Any) -> None:
        self.trace = trace
        self.place = place
        self.sample = sample

    # --- what Python asks of it: answered at this setting, and guarded ---

    def __bool__(self) -> bool:
        truth = bool(self.sample)
        if self.trace.graph.terms[self.place][0] != CONSTANT:
            self.trace.guards[self.trace.topic, self.place] = truth
        return truth

    def __index__(self) -> int:
        if self.sample != int(self.sample):
            raise ValueError(f"not a whole number: {self.sample}")
        bool(self == int(self.sample))
        return int(self.sample)

    __int__ = __index__

    def __hash__(self) -> int:
        return hash(self.place)

    def __repr__(self) -> str:
        return f"<{self.sample} at {self.place}>"

    def __format__(self, form: str) -> str:
        return format(self.sample, form)

    # --- arithmetic ---

    def __add__(self, other: Any) -> Any:
        return self if _plain(other, 0) else apply("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return self if _plain(other, 0) else apply("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return self if _plain(other, 0) else apply("subtract", self, other)

    def __rsub__(self, other: Any) -> Any:
        return apply("subtract", other, self)

    def __neg__(self) -> Any:
        return apply("subtract", 0, self)

    def __mul__(self, other: Any) -> Any:
        if _plain(other, 1):
            return self
        if _plain(other, 0):
            return 0
        return apply("multiply", self, other)

    def __rmul__(self, other: Any) -> Any:
        return self * other if _plain(other, 0) or _plain(other, 1) else apply("multiply", other, self)

    def __truediv__(self, other: Any) -> Any:
        return apply("true_divide", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return apply("true_divide", other, self)

    def __floordiv__(self, other: Any) -> Any:
        return self if _plain(other, 1) else apply("floor_divide", self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return apply("floor_divide", other, self)

    def __mod__(self, other: Any) -> Any:
        return apply("modulo", self, other)

    def __rmod__(self, other: Any) -> Any:
        return apply("modulo", other, self)

    def __pow__(self, other: int) -> Any:
        return apply("power", self, other)

    def __abs__(self) -> Any:
        return apply("absolute", self)

    # --- conditions ---

    def __lt__(self, other: Any) -> Any:
        return apply("less", self, other)

    def __le__(self, other: Any) -> Any:
        return apply("less_equal", self, other)

    def __gt__(self, other: Any) -> Any:
        return apply("less", other, self)

    def __ge__(self, other: Any) -> Any:
        return apply("less_equal", other, self)

    def __eq__(self, other: object) -> Any:
        if isinstance(other, Traced) and other.place == self.place:
            return True
        return apply("equal", self, other) if is_number(other) else NotImplemented

    def __ne__(self, other: object) -> Any:
        same = self == other
        return same if same is NotImplemented else apply("not", same) if isinstance(same, Traced) else not same


def _plain(value: object, number: int) -> bool:
    """Whether a value is this very number, and no value of a trace that may be it."""
    return not isinstance(value, Traced) and value == number


def is_number(value: object) -> bool:
    """Whether the arithmetic can hold it: a number or a value of a trace."""
    return isinstance(value, Number | Traced)


def apply(name: str, *operands: Any) -> Traced:
    """The result of an operation of which at least one operand is a value of a trace."""
    trace = next(operand.trace for operand in operands if isinstance(operand, Traced))
    graph = trace.graph
    place = graph.place((name, *map(trace.lift, operands)))
    samples = [operand.sample if isinstance(operand, Traced) else operand for operand in operands]
    return Traced(trace, place, OPERATIONS[name].exact(*samples))


def needed(graph: Graph, roots: Iterator[int] | list[int]) -> list[int]:
    """The places of all terms that these are made of, operands first."""
    waiting, found = list(roots), set[int]()
    while waiting:
        place = waiting.pop()
        if place not in found:
            found.add(place)
            name, *operands = graph.terms[place]
            if name not in (INPUT, CONSTANT):
                waiting.extend(operands)
    return sorted(found)


def evaluate(graph: Graph, roots: list[int], inputs: Mapping[str, Any]) -> list[Any]:
    """The values of terms over arrays of inputs (numpy), each over no more axes than it depends on."""
    import numpy as np

    values: dict[int, Any] = {}
    for place in needed(graph, roots):
        name, *operands = graph.terms[place]
        if name == INPUT:
            values[place] = np.asarray(inputs[operands[0]], dtype=np.float64)
        elif name == CONSTANT:
            values[place] = np.float64(operands[1])
        else:
            values[place] = over_arrays(name, [values[operand] for operand in operands])
    return [values[root] for root in roots]


def over_arrays(name: str, operands: Sequence[Any]) -> Any:
    """An operation of numpy's arrays, element by element; axes of length 1 broadcast."""
    import numpy as np

    if name == "ceil_divide":
        return np.ceil(operands[0] / operands[1])
    if name == "truncate":
        return np.floor(operands[0] + 1e-3)
    return getattr(np, OPERATIONS[name].array)(*operands)
