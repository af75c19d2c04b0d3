"""What a plan serves, and what follows from its stack where it does not say."""

from __future__ import annotations

import pytest

from ledger.spec.load import load_plan
from ledger.spec.problems import SpecError


@pytest.mark.parametrize(
    ("settings", "chunk"),
    [
        (("stack=vllm-2025",), 8192),  # its max_num_batched_tokens
        (("stack=serving",), 2048),
        (("stack=vllm-2025", "serve.chunk=1024 tokens"), 1024),
    ],
)
def test_a_step_takes_what_the_engine_takes_where_nothing_is_said(settings: tuple[str, ...], chunk: int) -> None:
    """A stated chunk wins; else the engine's own limit on a step, else a common one."""
    plan = load_plan("serve-70b", settings)
    assert plan.serve is not None
    assert plan.serve.chunk == chunk


def test_a_step_takes_some_tokens() -> None:
    """None at all would leave prompts unread."""
    with pytest.raises(SpecError, match=r"serve\.chunk"):
        load_plan("serve-70b", ("serve.chunk=0 tokens",))
