"""Which cases of a grid stay in `make test`: few, that have together every choice that any case has.

The others are marked `long`. What a choice is, a test says; where it does not, each value of each parameter is one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy

LAWS = settings(
    deadline=None,
    derandomize=True,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
T = TypeVar("T")
Choices = Callable[[Any], Collection[Hashable]]


def values(case: Sequence[Any]) -> frozenset[Hashable]:
    """Every value that a case has, with the place where it stands."""
    return frozenset((place, str(value)) for place, value in enumerate(case))


def covering(cases: Iterable[T], choices: Choices) -> list[T]:
    """Few of the cases, that make together every choice that any case makes.

    Each in turn is the one with the most choices that are still missing, the first of several.
    """
    left = [(case, frozenset(choices(case))) for case in cases]
    missing = frozenset[Hashable]().union(*(made for _, made in left))
    few = []
    while missing:
        best = max(range(len(left)), key=lambda place: len(left[place][1] & missing))
        case, made = left.pop(best)
        few.append(case)
        missing -= made
    return few


def sampled(cases: Iterable[Any], choices: Choices = values, name: Callable[[Any], str] | None = None) -> list[Any]:
    """Parameters of a test: the cases, those marked `long` whose choices all stand in the others.

    A case is one parameter where `name` is given, and else a row of them.
    """
    every = list(cases)
    few = {id(case) for case in covering(every, choices)}
    return [parameter(case, name, long=id(case) not in few) for case in every]


def parameter(case: Any, name: Callable[[Any], str] | None = None, *, long: bool) -> Any:
    """One case as pytest takes it."""
    marks = [pytest.mark.long] if long else []
    if name:
        return pytest.param(case, marks=marks, id=name(case))
    return pytest.param(*case, marks=marks, id="-".join(map(str, case)))


def law(*drawn: SearchStrategy[Any], few: int, many: int) -> Callable[[Callable[..., None]], Callable[[int], None]]:
    """A test of something that always holds: on a few drawn examples, and on many in a test that is `long`."""

    def decorate(test: Callable[..., None]) -> Callable[[int], None]:
        def holds(examples: int) -> None:
            settings(LAWS, max_examples=examples)(given(*drawn)(test))()

        holds.__name__, holds.__doc__, holds.__module__ = test.__name__, test.__doc__, test.__module__
        counts = [pytest.param(few, id="few"), pytest.param(many, id="many", marks=pytest.mark.long)]
        return pytest.mark.parametrize("examples", counts)(holds)

    return decorate
