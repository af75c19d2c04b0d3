"""Facts of one structure at every value of its inputs: the rules are traced once, and evaluated as arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

from ledger.arithmetic.tracing import Graph, Trace, Traced, evaluate

Facts = TypeVar("Facts")
Array = Any  # of numpy, or a plain number
Inputs = Mapping[str, Any]  # the sizes that facts depend on, by name
MOST_TRACES = 24  # of one structure over one grid that hold for few settings each, before settings are asked one by one
WORTH_TRACING = 4  # settings that a trace should hold for


def evaluate_facts(grid: Mapping[str, Array], run: Callable[[Inputs], Facts], legal: Array = True) -> Facts:
    """The result of `run` over arrays of its inputs that broadcast against each other.

    `run` is given the inputs of one setting as values of a trace, and returns dataclasses, mappings and tuples. It runs
    once for each path through its branches, at a setting where `legal` is true; elsewhere the result means nothing.
    Where hardly two settings take the same path, it runs at each setting with plain numbers.
    """
    graph = Graph()
    shape = np.broadcast_shapes(*(np.shape(column) for column in grid.values()))
    not_covered = np.broadcast_to(legal, shape).copy()
    if not not_covered.any():
        not_covered.flat[0] = True
    parts: list[tuple[Any, Any]] = []
    settings = int(np.count_nonzero(not_covered))
    while not_covered.any():
        place = np.unravel_index(int(np.argmax(not_covered)), shape)
        setting = {name: _plain(np.broadcast_to(column, shape)[place]) for name, column in grid.items()}
        if len(parts) >= MOST_TRACES and settings - np.count_nonzero(not_covered) < WORTH_TRACING * len(parts):
            mask = np.zeros(shape, bool)
            mask[place] = True
            parts.append((mask, run(setting)))
            not_covered[place] = False
            continue
        trace = Trace(graph)
        result = run({name: trace.input(name, value) for name, value in setting.items()})
        leaves = list(_leaves(result))
        guards = trace.conditions
        with np.errstate(all="ignore"):
            values = evaluate(graph, [place for place, _ in guards] + [leaf.place for leaf in leaves], grid)
        covered: Array = True
        for value, (_, truth) in zip(values, guards, strict=False):
            covered = covered & (value.astype(bool) == truth)
        parts.append((covered, _with_arrays(result, values[len(guards) :])))
        not_covered &= ~np.broadcast_to(covered, shape)
    combined = parts[-1][1]
    for covered, part in reversed(parts[:-1]):
        combined = merge_where(covered, part, combined)
    settled: Facts = combined
    return each_array(settled, drop_constant_axes) if len(parts) > 1 else settled


def drop_constant_axes(values: Array) -> Array:
    """An array over no more axes than its values depend on: one place of each of the others."""
    for axis in range(values.ndim):
        first = values.take([0], axis=axis)
        if values.shape[axis] > 1 and (values == first).all():
            values = first
    return values


def _with_arrays(result: Any, values: Sequence[Array]) -> Any:
    """The result with arrays in place of its traced values."""
    arrays = iter(values)
    return map_values(result, lambda _: next(arrays))


def _plain(value: Any) -> Any:
    """An integer where it is one: structures ask for whole numbers."""
    number = value.item()
    return int(number) if float(number).is_integer() else number


def map_values(value: Any, change: Callable[[Any], Any], kind: type = Traced) -> Any:
    """A copy of dataclasses, mappings and tuples with every value of a type changed, in order."""
    if isinstance(value, kind):
        return change(value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(
            value, **{part.name: map_values(getattr(value, part.name), change, kind) for part in fields(value)}
        )
    if isinstance(value, Mapping):
        return {key: map_values(part, change, kind) for key, part in value.items()}
    return tuple(map_values(part, change, kind) for part in value) if isinstance(value, tuple | list) else value


def each_array(value: Facts, change: Callable[[Array], Array]) -> Facts:
    """A copy of dataclasses, mappings and tuples with every array changed."""
    changed: Facts = map_values(value, change, np.ndarray)
    return changed


def _leaves(value: Any) -> Sequence[Traced]:
    leaves: list[Traced] = []

    def note(leaf: Traced) -> Traced:
        leaves.append(leaf)
        return leaf

    map_values(value, note)
    return leaves


def merge_where(condition: Array, yes: Any, no: Any) -> Any:
    """Two results of one form as one: each where the condition says. What only one of them has is 0 in the other."""
    return combine_results([yes, no], lambda values: np.where(condition, *values))


def combine_results(parts: Sequence[Any], combine: Callable[[Sequence[Array]], Array]) -> Any:
    """Results of one form as one, number by number; what some lack is 0 in them."""
    first = next(part for part in parts if not _is_nothing(part)) if not all(map(_is_nothing, parts)) else parts[0]
    if is_dataclass(first) and not isinstance(first, type):
        values_by_field = {
            part.name: [0.0 if _is_nothing(result) else getattr(result, part.name) for result in parts]
            for part in fields(first)
        }
        return replace(first, **{name: combine_results(values, combine) for name, values in values_by_field.items()})
    if isinstance(first, Mapping):
        keys = dict.fromkeys(key for part in parts if isinstance(part, Mapping) for key in part)
        return {
            key: combine_results([part.get(key, 0.0) if isinstance(part, Mapping) else 0.0 for part in parts], combine)
            for key in keys
        }
    if isinstance(first, tuple):
        length = max(len(part) for part in parts if isinstance(part, tuple))
        padded = [
            (*part, *(0.0,) * (length - len(part))) if isinstance(part, tuple) else (0.0,) * length for part in parts
        ]
        return tuple(combine_results(values, combine) for values in zip(*padded, strict=True))
    if isinstance(first, str) or first is None:
        return first
    return combine([float(value) if isinstance(value, Fraction) else value for value in parts])


def _is_nothing(value: Any) -> bool:
    """Whether it stands for what a result lacks."""
    return isinstance(value, float) and value == 0.0
