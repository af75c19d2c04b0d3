"""An axis that splits feed-forward parts alone: what its devices hold, compute and send."""

from __future__ import annotations

import pytest

import ledger
from tests.model import plans

TOKENS, WIDTH, HIDDEN, LAYERS, PARTS = 3 * 37, 102, 272, 2, 4


def test_hidden_layers_are_split_and_the_rest_is_repeated() -> None:
    """A quarter of three matrices a layer, whole attention, and one sum of the stream each way in bf16."""
    mesh = {"data": 1, "hidden": PARTS}
    found = plans.compiled(cluster={"base": "h100-400g", "devices": PARTS}, parallelism=mesh).totals
    whole = plans.compiled().totals
    assert found["parameters"] == whole["parameters"]
    missing = LAYERS * 3 * WIDTH * HIDDEN * (PARTS - 1) // PARTS
    assert found["parameters.per_device"] == whole["parameters.per_device"] - missing
    assert found["comm.all_reduce.hidden.bytes"] == 2 * LAYERS * 2 * TOKENS * WIDTH
    assert found["comm.all_reduce.hidden.count"] == 2 * LAYERS


def test_hidden_layers_have_equal_parts() -> None:
    """Rules know the axis: 272 into 3 is refused."""
    with pytest.raises(ledger.SpecError, match=r"d_ff = 272 of `decoder` does not split over hidden = 3"):
        plans.compiled(cluster={"base": "h100-400g", "devices": 3}, parallelism={"data": 1, "hidden": 3})
