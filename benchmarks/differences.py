"""What differs between two records: integers and texts must be equal, floats within 1e-12 of each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

RELATIVE = 1e-12
Figures = Mapping[str, Any]


def exact(value: Any) -> Any:
    """A value as JSON can hold it: fractions as a text that says so, floats with all of their digits."""
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    if isinstance(value, Fraction):
        return value.numerator if value.denominator == 1 else f"{value.numerator}/{value.denominator}"
    if isinstance(value, Mapping):
        return {str(key): exact(item) for key, item in value.items()}
    return [exact(item) for item in value]


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every number and text of a nested value with its path."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from leaves(item, f"{path}[{place}]")
    else:
        yield path, value


def are_same(before: Any, after: Any) -> bool:
    """Whether two leaves agree; an integer that became a float does not."""
    if isinstance(before, float) and isinstance(after, float):
        return before == after or abs(before - after) <= RELATIVE * max(abs(before), abs(after))
    return type(before) is type(after) and bool(before == after)


def differences(before: Figures, after: Figures) -> Iterator[str]:
    """A line for each key that differs, is missing or is new."""
    old, new = dict(leaves(dict(before))), dict(leaves(dict(after)))
    for key, value in old.items():
        if key not in new:
            yield f"{key}: was {value!r}, is missing"
        elif not are_same(value, new[key]):
            yield f"{key}: was {value!r}, is {new[key]!r}{_distance(value, new[key])}"
    yield from (f"{key}: is new, {value!r}" for key, value in new.items() if key not in old)


def _distance(before: Any, after: Any) -> str:
    numbers = [value for value in (before, after) if isinstance(value, int | float) and not isinstance(value, bool)]
    return f" ({after / before - 1:+.3e})" if len(numbers) == 2 and before else ""
