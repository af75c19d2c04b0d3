"""Named causes of differences from PyTorch, against sums worked out here."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.lab.verification.causes import causes, frequencies
from tests.model import plans


@pytest.mark.parametrize(
    ("overrides", "moment", "name", "amount"),
    [
        ({"run": {"micro_batch": 2}}, "forward/output", "parts of several sequences, which are copied", 2 * 8 * 8),
        (
            {"run": {"micro_batch": 2}},
            "backward/output",
            "parts of several sequences, which are copied",
            2 * 8 * 2 * 96,
        ),
        ({"run": {"micro_batch": 1}}, "backward/output", "parts of several sequences, which are copied", 0),
        ({"run": {"micro_batch": 2}}, "forward/output", "scalars of the loss", 4 * (3 + 1)),
        (
            {"kernels": {"loss": "fused_linear", "loss_chunks": 3}},
            "forward/output",
            "the loss of each token",
            4 * 2 * 24,
        ),
        (
            {"kernels": {"loss": "chunked", "loss_chunks": 5}},  # of 5 tokens, the last of 4
            "forward/output",
            "parts of several sequences, which are copied",
            2 * 8 * 5,
        ),
        ({"kernels": {"loss": "chunked", "loss_chunks": 7}}, "forward/output", "scalars of the loss", 4 * (6 + 1)),
        ({"recompute": {"components": ["mlp"]}}, "after forward", "positions and rotary frequencies", 0),
        ({"recompute": {"components": ["attention"]}}, "after forward", "positions and rotary frequencies", 8 * 24),
    ],
)
def test_causes_of_a_loss_in_parts(overrides: dict[str, Any], moment: str, name: str, amount: int) -> None:
    """Parts of 8 of 24 tokens, of two sequences or one; positions beyond the two lists of frequencies."""
    given = {"kernels": {"loss": "chunked", "loss_chunks": 3}, "precision": "bf16-true", **overrides}
    run = {"seq_len": 24, "micro_batch": 2, "global_batch": 2, **given.pop("run", {})}
    plan = plans.compiled(model={**plans.LLAMA, "d_model": 96}, run=run, **given).plan
    named = {cause.name: cause.amount for cause in causes(plan, moment)}
    lists = frequencies(plan.model) if name.startswith("positions") else 0
    assert named[name] - lists == amount
