"""Bytes that autograd keeps: the compiler's against those that PyTorch packs, to the byte, no tolerance.

Every two choices (a family, a precision, a kernel) meet in `make test`, and all of them in `make test-long`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from tests.lab.saved_cases import Case, cases, expert_cases, packed, pairs, pairwise, predicted


def marked(grid: Iterable[Case]) -> Iterator[Any]:
    """The cases, those marked `long` whose pairs of choices all stand in the others."""
    every = list(grid)
    few = pairwise(every)
    yield from (pytest.param(case, marks=() if case in few else pytest.mark.long, id=str(case)) for case in every)


@pytest.mark.parametrize("case", list(marked(cases())))
def test_saved_bytes(case: Case) -> None:
    """A layer, and the whole model with both ends, save exactly what PyTorch packs on fake cuda tensors."""
    compiled = case.compiled()
    assert predicted(compiled) == packed(compiled)


@pytest.mark.parametrize("case", list(marked(expert_cases())))
def test_saved_bytes_with_experts(case: Case) -> None:
    """So do layers of experts: every index, score and row that autograd packs, and no choice that has no gradient."""
    compiled = case.compiled()
    assert predicted(compiled) == packed(compiled)


def test_every_two_choices_meet() -> None:
    """The short grid makes together whatever two choices the full one makes together, in a third of the cases."""
    every = list(cases())
    few = pairwise(every)
    assert set().union(*map(pairs, few)) == set().union(*map(pairs, every))
    assert len(few) < len(every) / 3
