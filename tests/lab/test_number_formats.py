"""Number formats as the lecture has them, against PyTorch's."""

from __future__ import annotations

import pytest
import torch

from ledger.course.answer import answers
from ledger.course.lecture import Answer, load_lecture
from tests.course.test_answers import LECTURE, value

TORCH = {
    "dt.fp32": "float32",
    "dt.fp16": "float16",
    "dt.bf16": "bfloat16",
    "dt.fp8_e4m3": "float8_e4m3fn",
    "dt.fp8_e5m2": "float8_e5m2",
    "dt.fp64": "float64",
}


@pytest.fixture(scope="module")
def answered() -> dict[str, Answer]:
    """The questions about number formats, answered once."""
    chapter = load_lecture(LECTURE.parent / "dtypes.yaml")
    return {answer.question.name: answer for answer in answers(chapter)}


@pytest.mark.parametrize("name", TORCH)
def test_number_formats_are_those_of_pytorch(answered: dict[str, Answer], name: str) -> None:
    """Range and size as torch.finfo states them, and 1e-8 as a tensor of that dtype holds it."""
    dtype = getattr(torch, TORCH[name])
    facts = torch.finfo(dtype)
    assert value(answered[name], "largest") == facts.max
    assert value(answered[name], "smallest_normal") == facts.tiny
    assert value(answered[name], "smallest") == facts.smallest_normal * facts.eps
    assert value(answered[name], "bytes") * 8 == facts.bits
    assert bool(value(answered[name], "holds_1e_8")) == bool(torch.tensor(1e-8).to(dtype).float() > 0)


def test_scales_of_blocks_are_pytorchs_powers_of_two(answered: dict[str, Answer]) -> None:
    """The largest and the smallest scale, and the bits of one, as torch.float8_e8m0fnu has them."""
    facts = torch.finfo(torch.float8_e8m0fnu)
    assert value(answered["dt.e8m0"], "largest") == facts.max
    assert value(answered["dt.e8m0"], "smallest") == facts.tiny
    assert value(answered["dt.e8m0"], "bytes") * 8 == facts.bits
