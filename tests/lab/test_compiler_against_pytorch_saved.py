"""Bytes that autograd keeps: the compiler's against those that PyTorch packs, to the byte, no tolerance."""

from __future__ import annotations

import pytest

from tests.lab.saved_cases import Case, cases, expert_cases, packed, predicted


@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_saved_bytes(case: Case) -> None:
    """A layer, and the whole model with both ends, save exactly what PyTorch packs on fake cuda tensors."""
    compiled = case.compiled()
    assert predicted(compiled) == packed(compiled)


@pytest.mark.parametrize("case", list(expert_cases()), ids=str)
def test_saved_bytes_with_experts(case: Case) -> None:
    """So do layers of experts: every index, score and row that autograd packs, and no choice that has no gradient."""
    compiled = case.compiled()
    assert predicted(compiled) == packed(compiled)
