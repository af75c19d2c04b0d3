"""Rules traced into a graph: values that remember how they were computed, and the conditions that were asked of them.

A trace runs the rules at one setting of its inputs. Where Python asks for the truth of a condition, or for a whole
number, the answer is that of this setting, and the condition is kept as a guard: the graph holds for every setting that
meets its guards, and says so of itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from ledger.arithmetic.operations import OPERATIONS, WHOLE, Number

INPUT, CONSTANT = "input", "constant"
OPENS, CLOSES = "\ue000", "\ue001"  # around the place of a value in a text; no text has these characters
Term = tuple[Any, ...]  # an operation and the places of its operands; or "input" and a name, "constant" and a number


@dataclass
class Graph:
    """Terms in the order in which they were first asked for, equal ones once: operands come before their results."""

    terms: list[Term] = field(default_factory=list)
    places: dict[Term, int] = field(default_factory=dict)

    def place(self, term: Term) -> int:
        """The place of a term among `terms`, to which it is added where it is new."""
        place = self.places.get(term)
        if place is None:
            place = self.places[term] = len(self.terms)
            self.terms.append(term)
        return place


@dataclass
class Trace:
    """One run of the rules: `guards` are the conditions that it took for granted, by their place, with their truth.

    `setting` are the values of the inputs; `samples` those of other terms at this setting, as far as anybody asked.
    """

    graph: Graph
    guards: dict[int, bool] = field(default_factory=dict)
    setting: dict[str, Number] = field(default_factory=dict)
    samples: dict[int, Any] = field(default_factory=dict)
    results: dict[Term, Traced] = field(default_factory=dict)
    constants: dict[Term, int] = field(default_factory=dict)

    def input(self, name: str, sample: Number) -> Traced:
        """An input whose value at this setting is `sample`."""
        self.setting[name] = sample
        return Traced(self, self.graph.place((INPUT, name)))

    def take(self, name: str, value: Number) -> None:
        """Takes for granted that an input has this value."""
        self.guards[self.graph.place(("equal", self.graph.place((INPUT, name)), self.constant(value)))] = True

    @property
    def conditions(self) -> tuple[tuple[int, bool], ...]:
        """The guards that were met until now."""
        return tuple(self.guards.items())

    def result(self, term: Term) -> Traced:
        """The traced value of a term."""
        value = self.results.get(term)
        if value is None:
            value = self.results[term] = Traced(self, self.graph.place(term))
        return value

    def constant(self, value: Number) -> int:
        """The place of a plain number."""
        key = (CONSTANT, type(value).__name__, value)
        place = self.constants.get(key)
        if place is None:
            place = self.constants[key] = self.graph.place(key)
        return place


class Traced:
    """A value of a trace: its place in the graph, and what it is at the trace's own setting."""

    __slots__ = ("place", "trace")

    def __init__(self, trace: Trace, place: int) -> None:
        self.trace = trace
        self.place = place

    @property
    def sample(self) -> Any:
        """The number that this value is at the setting of its trace."""
        return number(self.trace.graph, self.place, self.trace.setting, self.trace.samples)

    # --- what Python asks of it: answered at this setting, and guarded ---

    def __bool__(self) -> bool:
        truth = bool(self.sample)
        if self.trace.graph.terms[self.place][0] != CONSTANT:
            self.trace.guards[self.place] = truth
        return truth

    def __index__(self) -> int:
        if self.sample != int(self.sample):
            raise ValueError(f"not a whole number: {self.sample}")
        bool(self == int(self.sample))
        return int(self.sample)

    __int__ = __index__

    def __hash__(self) -> int:
        return hash((id(self.trace), self.place))  # sympy and others keep results by their arguments

    def __repr__(self) -> str:
        return f"<{self.sample} at {self.place}>"

    def __str__(self) -> str:
        """A mark in place of the number, which `marked` finds: what is said of a value holds for any setting."""
        return f"{OPENS}{self.place}{CLOSES}"

    def __format__(self, form: str) -> str:
        return format(self.sample, form) if form else str(self)

    # --- arithmetic ---

    def _with_operand(self, name: str, other: Any) -> Traced:
        """The result of an operation of this value and a second one."""
        trace = self.trace
        place = other.place if type(other) is Traced else trace.constant(other)
        return trace.result((name, self.place, place))

    def _after_number(self, name: str, other: Any) -> Traced:
        """The result of an operation of a plain number and this value."""
        return self.trace.result((name, self.trace.constant(other), self.place))

    def __add__(self, other: Any) -> Any:
        return self if _is_plain_number(other, 0) else self._with_operand("add", other)

    def __radd__(self, other: Any) -> Any:
        return self if other == 0 else self._after_number("add", other)

    def __sub__(self, other: Any) -> Any:
        return self if _is_plain_number(other, 0) else self._with_operand("subtract", other)

    def __rsub__(self, other: Any) -> Any:
        return self._after_number("subtract", other)

    def __neg__(self) -> Any:
        return self._after_number("subtract", 0)

    def __mul__(self, other: Any) -> Any:
        if type(other) is not Traced:
            if other == 1:
                return self
            if other == 0:
                return 0
        return self._with_operand("multiply", other)

    def __rmul__(self, other: Any) -> Any:
        if not is_number(other):
            return NotImplemented  # a list is repeated a whole number of times
        if other == 1:
            return self
        return 0 if other == 0 else self._after_number("multiply", other)

    def __truediv__(self, other: Any) -> Any:
        return self._with_operand("true_divide", other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._after_number("true_divide", other)

    def __floordiv__(self, other: Any) -> Any:
        return self if _is_plain_number(other, 1) else self._with_operand("floor_divide", other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._after_number("floor_divide", other)

    def __mod__(self, other: Any) -> Any:
        return self._with_operand("modulo", other)

    def __rmod__(self, other: Any) -> Any:
        return self._after_number("modulo", other)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __pow__(self, other: int) -> Any:
        return self._with_operand("power", other)

    def __abs__(self) -> Any:
        return self.trace.result(("absolute", self.place))

    # --- conditions ---

    def __lt__(self, other: Any) -> Any:
        return self._with_operand("less", other)

    def __le__(self, other: Any) -> Any:
        return self._with_operand("less_equal", other)

    def __gt__(self, other: Any) -> Any:
        return other < self if type(other) is Traced else self._after_number("less", other)

    def __ge__(self, other: Any) -> Any:
        return other <= self if type(other) is Traced else self._after_number("less_equal", other)

    def __eq__(self, other: object) -> Any:
        if isinstance(other, Traced):
            if other.trace is not self.trace:
                return False  # of another run of the rules, which is at another setting
            if other.place == self.place:
                return True
        return self._with_operand("equal", other) if is_number(other) else NotImplemented

    def __ne__(self, other: object) -> Any:
        equal = self == other
        return equal if equal is NotImplemented else apply("not", equal) if isinstance(equal, Traced) else not equal


def _is_plain_number(value: object, number: int) -> bool:
    """Whether a value is this very number, and no value of a trace that may be it."""
    return not isinstance(value, Traced) and value == number


def is_number(value: object) -> bool:
    """Whether the arithmetic can hold it: a number or a value of a trace."""
    return type(value) is Traced or isinstance(value, (int, float, Fraction))


def apply(name: str, *operands: Any) -> Traced:
    """The result of an operation of which at least one operand is a value of a trace."""
    trace: Trace | None = None
    for operand in operands:
        if type(operand) is Traced:
            trace = operand.trace
            break
    if trace is None:
        raise TypeError(f"{name} of plain numbers is no term of a graph")
    places = [operand.place if type(operand) is Traced else trace.constant(operand) for operand in operands]
    return trace.result((name, *places))


def marked(text: str) -> tuple[str | int, ...]:
    """A text that says something of traced values: its pieces, and between them the places of the values."""
    first, *parts = text.split(OPENS)
    pieces: list[str | int] = [first]
    for part in parts:
        place, _, after = part.partition(CLOSES)
        pieces += [int(place), after]
    return tuple(piece for piece in pieces if piece != "")


def needed(graph: Graph, roots: Iterable[int]) -> list[int]:
    """The places of all terms that these are made of, operands first."""
    waiting, places = list(roots), set[int]()
    while waiting:
        place = waiting.pop()
        if place not in places:
            places.add(place)
            name, *operands = graph.terms[place]
            if name not in (INPUT, CONSTANT):
                waiting.extend(operands)
    return sorted(places)


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
    if name == "next_power_of_two":
        half, exponent = np.frexp(operands[0])  # number = half x 2**exponent, with half from 0.5 to below 1
        return np.ldexp(1.0, exponent - (half == 0.5))  # of a power of two itself, half is 0.5
    if name == "truncate":
        return np.floor(operands[0] + WHOLE)
    if name == "share":
        return np.where(operands[1] == 0, 0.0, operands[0] / np.where(operands[1] == 0, 1.0, operands[1]))
    return getattr(np, OPERATIONS[name].array)(*operands)


def holds(graph: Graph, place: int, inputs: Mapping[str, Number]) -> bool:
    """Whether a condition is true at numbers of its inputs."""
    return bool(number(graph, place, inputs, {}))


def number(graph: Graph, place: int, inputs: Mapping[str, Number], values: dict[int, Any]) -> Any:
    """The number of a term at numbers of its inputs; `values` keeps what was evaluated for it."""
    waiting = [place]
    while waiting:
        name, *operands = graph.terms[waiting[-1]]
        if waiting[-1] in values:
            waiting.pop()
        elif name == INPUT:
            values[waiting.pop()] = inputs[operands[0]]
        elif name == CONSTANT:
            values[waiting.pop()] = operands[1]
        elif missing := [operand for operand in operands if operand not in values]:
            waiting += missing
        else:
            values[waiting.pop()] = OPERATIONS[name].exact(*(values[operand] for operand in operands))
    return values[place]
