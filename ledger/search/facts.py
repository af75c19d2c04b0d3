"""What the rules say of one structure at every value of its inputs: traced once, evaluated as arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

from ledger.arithmetic.tracing import Graph, Trace, Traced, evaluate

Facts = TypeVar("Facts")
Array = Any  # of numpy, or a plain number
MOST_TRACES = 512  # of one structure over one grid; more would say that the structure is none


class UnsettledError(Exception):
    """The rules take other ways at ever more values: no few structures cover the grid."""


def evaluated(grid: Mapping[str, Array], run: Callable[[Mapping[str, Any]], Facts], legal: Array = True) -> Facts:
    """What `run` says of inputs, over arrays of them that broadcast against each other.

    `run` is given the inputs of one setting as values of a trace, and returns dataclasses, mappings and tuples. It runs
    once for each way that it takes, at a setting where `legal` is true; elsewhere the result means nothing.
    """
    graph = Graph()
    shape = np.broadcast_shapes(*(np.shape(column) for column in grid.values()))
    left = np.broadcast_to(legal, shape).copy()
    if not left.any():
        left[...] = True
    found: list[tuple[Any, Any]] = []
    while left.any():
        if len(found) == MOST_TRACES:
            raise UnsettledError
        place = np.unravel_index(int(np.argmax(left)), shape)
        setting = {name: _plain(np.broadcast_to(column, shape)[place]) for name, column in grid.items()}
        trace = Trace(graph)
        result = run({name: trace.input(name, value) for name, value in setting.items()})
        leaves = list(_leaves(result))
        guards = trace.conditions
        with np.errstate(all="ignore"):
            values = evaluate(graph, [place for place, _ in guards] + [leaf.place for leaf in leaves], grid)
        covered: Array = True
        for value, (_, truth) in zip(values, guards, strict=False):
            covered = covered & (value.astype(bool) == truth)
        found.append((covered, _replaced(result, values[len(guards) :])))
        left &= ~np.broadcast_to(covered, shape)
    whole = found[-1][1]
    for covered, one in reversed(found[:-1]):
        whole = merged(covered, one, whole)
    settled: Facts = whole
    return each_array(settled, narrowed) if len(found) > 1 else settled


def narrowed(values: Array) -> Array:
    """An array over no more axes than its values depend on: one place of each of the others."""
    for axis in range(values.ndim):
        first = values.take([0], axis=axis)
        if values.shape[axis] > 1 and (values == first).all():
            values = first
    return values


def _replaced(result: Any, values: Sequence[Array]) -> Any:
    """The result with arrays in place of its traced values."""
    given = iter(values)
    return mapped(result, lambda _: next(given))


def _plain(value: Any) -> Any:
    """An integer where it is one: structures ask for whole numbers."""
    number = value.item()
    return int(number) if float(number).is_integer() else number


def mapped(value: Any, change: Callable[[Any], Any], what: type = Traced) -> Any:
    """The same dataclasses, mappings and tuples with every value of a type changed, in order."""
    if isinstance(value, what):
        return change(value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{one.name: mapped(getattr(value, one.name), change, what) for one in fields(value)})
    if isinstance(value, Mapping):
        return {key: mapped(one, change, what) for key, one in value.items()}
    return tuple(mapped(one, change, what) for one in value) if isinstance(value, tuple | list) else value


def each_array(value: Facts, change: Callable[[Array], Array]) -> Facts:
    """The same dataclasses, mappings and tuples with every array changed."""
    changed: Facts = mapped(value, change, np.ndarray)
    return changed


def _leaves(value: Any) -> Sequence[Traced]:
    found: list[Traced] = []

    def note(leaf: Traced) -> Traced:
        found.append(leaf)
        return leaf

    mapped(value, note)
    return found


def merged(condition: Array, yes: Any, no: Any) -> Any:
    """Two results of one form as one: each where the condition says. What only one of them has is 0 in the other."""
    if is_dataclass(yes) and not isinstance(yes, type) and type(yes) is type(no):
        pairs = ((one.name, getattr(yes, one.name), getattr(no, one.name)) for one in fields(yes))
        return replace(yes, **{name: merged(condition, a, b) for name, a, b in pairs})
    if isinstance(yes, Mapping) or isinstance(no, Mapping):
        one, other = (each if isinstance(each, Mapping) else {} for each in (yes, no))
        return {key: merged(condition, one.get(key, 0.0), other.get(key, 0.0)) for key in {**other, **one}}
    if isinstance(yes, tuple):
        if len(yes) != len(no):
            raise UnsettledError
        return tuple(merged(condition, one, other) for one, other in zip(yes, no, strict=True))
    if isinstance(yes, str) or yes is None:
        if yes != no:
            raise UnsettledError
        return yes
    if not all(isinstance(one, np.ndarray | np.generic | float | int | Fraction) for one in (yes, no)):
        raise UnsettledError
    return np.where(condition, yes, no)
