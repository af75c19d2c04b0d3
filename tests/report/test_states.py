"""The table of what persists beside the weights."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.report.views.memory import state_table
from ledger.report.views.parts import Report
from tests.model import plans

ALIGNED = plans.layer(
    {**plans.LLAMA, "d_model": 96}, attention={"heads": 6, "kv_heads": 3, "head_dim": 32}, mlp={"d_ff": 544}
)


@pytest.mark.parametrize(
    "parts",
    [
        {"optimizer": "muon"},
        {"optimizer": "came", "precision": "bf16-mixed"},
        {"optimizer": "adamw-8bit"},
        {"optimizer": "adafactor"},
    ],
)
def test_rows_sum_to_the_total(parts: dict[str, Any]) -> None:
    """Every byte of optimizer state is in one row."""
    compiled = plans.compiled(**parts)
    table = state_table(Report(compiled))
    assert table is not None
    assert sum(int(row[-1].sort) for row in table.rows) == compiled.totals["memory.static.optimizer"]


def test_each_rule_names_its_weights() -> None:
    """What is left to another rule is not said to be of every weight."""
    table = state_table(Report(plans.compiled(optimizer="muon")))
    assert table is not None
    assert [(row[0].text, row[1].text) for row in table.rows] == [
        ("momentum (Muon)", "matrices of layers"),
        ("first moment (AdamW)", "embedding and head, norms and biases"),
        ("second moment (AdamW)", "embedding and head, norms and biases"),
    ]


def test_quantised_copies_are_listed() -> None:
    """Copies of weights and buffers of delayed scaling persist too."""
    run = {"seq_len": 32, "micro_batch": 1, "global_batch": 1}
    table = state_table(Report(plans.compiled(model=ALIGNED, precision="fp8-delayed", run=run)))
    assert table is not None
    assert [row[0].text for row in table.rows][-2:] == ["quantised copies", "largest magnitudes"]


def test_nothing_persists_without_states() -> None:
    """Plain SGD has no row, so there is no table."""
    assert state_table(Report(plans.compiled(optimizer="sgd"))) is None
