"""Bytes that autograd keeps: the compiler's against those that PyTorch packs, to the byte, no tolerance.

Every precision meets every kernel in `make test`, and so do every two kernels, each family once; all of them in
`make test-long`.
"""

from __future__ import annotations

import pytest

from tests.lab.saved_cases import Case, cases, expert_cases, packed, predicted, together
from tests.sampling import covering, sampled


@pytest.mark.parametrize("case", sampled(cases(), together, str))
def test_saved_bytes(case: Case) -> None:
    """A layer, and the whole model with both ends, save exactly what PyTorch packs on fake cuda tensors."""
    compiled = case.compiled()
    assert predicted(compiled) == packed(compiled)


@pytest.mark.parametrize("case", sampled(expert_cases(), together, str))
def test_saved_bytes_with_experts(case: Case) -> None:
    """So do layers of experts: every index, score and row that autograd packs, and no choice that has no gradient."""
    compiled = case.compiled()
    assert predicted(compiled) == packed(compiled)


def test_every_two_choices_meet() -> None:
    """Families, and kernels with precisions and each other: the short grid has what the full one has, in a tenth."""
    every = list(cases())
    few = covering(every, together)
    assert set().union(*map(together, few)) == set().union(*map(together, every))
    assert len(few) < len(every) / 10
