"""What Python has no operator for, over numbers, arrays and values of a trace alike; no rule asks which it has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from ledger.arithmetic.operations import OPERATIONS
from ledger.arithmetic.tracing import Traced, apply, over_arrays

Amount = Any  # an int, a Fraction, a float, an array of numpy's, or a value of a trace: what rules compute with
Item = TypeVar("Item")


def _compute(name: str, *operands: Amount) -> Amount:
    """An operation of numbers at once, of arrays element by element, of values of a trace as a term of its graph."""
    for operand in operands:
        if isinstance(operand, Traced):
            return apply(name, *operands)
        if is_array(operand):
            return over_arrays(name, operands)
    return OPERATIONS[name].exact(*operands)


def is_array(amount: Amount) -> bool:
    """Whether it is an array of numpy's, told by its type's name alone: where there is none, numpy is not loaded."""
    return type(amount).__name__ == "ndarray"


def is_plain(amount: Amount) -> bool:
    """Whether it is a number: what is asked of it is known."""
    return not (isinstance(amount, Traced) or is_array(amount))


def minimum(first: Amount, *others: Amount) -> Amount:
    """The smallest of the amounts: a number, an array, or a term of a trace, as they are."""
    for other in others:
        first = _compute("minimum", first, other)
    return first


def maximum(first: Amount, *others: Amount) -> Amount:
    """The largest of the amounts: a number, an array, or a term of a trace, as they are."""
    for other in others:
        first = _compute("maximum", first, other)
    return first


def largest_of(values: Iterable[Amount], default: Amount = 0.0) -> Amount:
    """The largest of any number of values; `default` of none."""
    amounts = tuple(values)
    return maximum(*amounts) if amounts else default


def smallest_of(values: Iterable[Amount], default: Amount = 0) -> Amount:
    """The smallest of any number of values; `default` of none."""
    amounts = tuple(values)
    return minimum(*amounts) if amounts else default


def divide(above: Amount, below: Amount) -> Amount:
    """The quotient, an exact one of exact numbers."""
    if isinstance(below, int) and below == 1:
        return above
    return _compute("divide", above, below)


def ceil_divide(rows: Amount, shards: Amount) -> Amount:
    """Rows of the largest share."""
    return _compute("ceil_divide", rows, shards)


def next_power_of_two(number: Amount) -> Amount:
    """The smallest power of two that is not below a whole number of at least 1."""
    return _compute("next_power_of_two", number)


def share(part: Amount, of: Amount) -> Amount:
    """A part over its whole; of nothing, 0."""
    return _compute("share", part, of)


def power(base: Amount, exponent: Amount) -> Amount:
    """A number to a power."""
    return _compute("power", base, exponent)


def square_root(value: Amount) -> Amount:
    """The square root, a float."""
    return _compute("square_root", value)


def logarithm(value: Amount) -> Amount:
    """The natural logarithm, a float."""
    return _compute("logarithm", value)


def truncate(value: Amount) -> Amount:
    """The whole number of a value that is not negative."""
    return value if isinstance(value, int) else _compute("truncate", value)


def floor(value: Amount) -> Amount:
    """The largest whole number that is not above a value."""
    return value if isinstance(value, int) else _compute("floor", value)


def real(value: Amount) -> Amount:
    """The amount as a float: from here on it need not be exact."""
    if is_array(value):
        return value.astype(float)
    return value if isinstance(value, Traced) else float(value)


def both(left: Amount, right: Amount) -> Amount:
    """Whether both conditions hold."""
    if isinstance(left, bool):
        return right if left else False
    if isinstance(right, bool):
        return left if right else False
    return _compute("both", left, right)


def where(condition: Amount, yes: Amount, no: Amount) -> Amount:
    """One of two values; both are computed, so neither may divide by a zero that the condition is about."""
    if isinstance(condition, Traced) or is_array(condition):
        return yes if yes is no else _compute("where", condition, yes, no)
    return yes if condition else no


def largest(items: Sequence[Item], key: Callable[[Item], Amount], margin: float = 0.0) -> Amount:
    """The place of the first item whose key is largest, for `pick`; within a share of `margin` keys are equal."""
    place: Amount = 0
    best = key(items[0])
    for index in range(1, len(items)):
        value = key(items[index])
        better = value > (best * (1 + margin) if margin else best)
        place, best = where(better, index, place), where(better, value, best)
    return place


def pick(place: Amount, values: Sequence[Amount]) -> Amount:
    """The value at a place that `largest` found."""
    if is_plain(place):
        return values[place]
    picked = values[0]
    for index in range(1, len(values)):
        picked = where(place == index, values[index], picked)
    return picked


def parts_of(place: Amount, items: Sequence[Item], parts: Callable[[Item], Mapping[str, Amount]]) -> dict[str, Amount]:
    """The parts, by name, of the item at a place that `largest` found; one that an item lacks is 0."""
    if is_plain(place):
        return dict(parts(items[place]))
    all_parts = [parts(item) for item in items]
    names = dict.fromkeys(name for item_parts in all_parts for name in item_parts)
    return {name: pick(place, [item_parts.get(name, 0.0) for item_parts in all_parts]) for name in names}


def of_item(place: Amount, items: Sequence[Item], value: Callable[[Item], Amount]) -> Amount:
    """A value of the item at a place that `largest` found."""
    return value(items[place]) if is_plain(place) else pick(place, [value(item) for item in items])
