"""What a score says below its table: nothing that was predicted or left out goes without a word."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ledger.cli.score import sentences
from ledger.evidence.tables import read_table
from ledger.lab.score.contract import published
from ledger.lab.score.predictions import predict_rows
from ledger.lab.score.rows import Score, ScoreRow
from ledger.spec.library import default_library
from tests.lab.published_rows import TORCHTITAN, written

GOOD = ScoreRow("a-1", "A", "a", step=1.1, measured_step=1.0, counts_time=True)
OPEN = ScoreRow("b-1", "B", "b", step=1.5, measured_step=1.0, uncounted="graded B (`score_time`)")
WIDER = ScoreRow("c-1", "C", "c", step=0.9, measured_step=1.0, uncounted="graded B (`score_time`)")
HELD = ScoreRow("d-1", "D", "d", memory=2e9, measured_memory=2e9, counts_memory=True, unpriced="the limit is secret")
LEFT = ScoreRow("e-1", "E", "e", skipped="not published: layers, hidden")
MORE = replace(LEFT, id="e-2", skipped="not published: vocab")
OTHER = replace(LEFT, id="e-3", skipped="kind `lora` is not compiled; `pretrain` is")
ROWS = (GOOD, OPEN, WIDER, HELD, LEFT, MORE, OTHER)


def said(rows: tuple[ScoreRow, ...] = ROWS) -> list[str]:
    """The lines of these rows."""
    return list(sentences(Score(rows)))


def test_rows_in_no_sum_have_a_line_of_their_own() -> None:
    """+50 % and -10 % of two sources: 30 % absolute, +20 % signed, beside the one row that counts."""
    found = said()
    assert found[0].startswith("step time: 1 row, each source weighing the same, mean absolute error 10.0%")
    (line,) = (line for line in found if line.startswith("in no sum: 2 rows graded B"))
    assert "mean absolute error 30.0%, mean signed error +20.0%" in line
    assert "--rows" in line


def test_each_source_weighs_the_same_in_what_is_left_out() -> None:
    """Three rows of one source weigh no more than one of another."""
    many = (*(replace(OPEN, id=f"b-{number}") for number in range(3)), WIDER)
    (found,) = Score(many).uncounted.values()
    assert found.rows == 4
    assert found.absolute == pytest.approx((0.5 + 0.1) / 2)


def test_a_source_without_a_row_in_a_sum_says_why() -> None:
    """Its rows are counted by reason; one whose memory counts needs no word."""
    found = said()
    assert "b: nothing of its 1 row is in a sum: 1 graded B (`score_time`)" in found
    assert "e: nothing of its 3 rows is in a sum: 2 not published, 1 kind `lora` is not compiled" in found
    assert not any(line.startswith(("a:", "d:")) for line in found)


def test_a_missing_step_has_its_reason() -> None:
    """A peak without a step is said, in a line and in JSON."""
    assert "1 row with a peak and no step: the limit is secret" in said()
    rows = {row["id"]: row for row in published(Score(ROWS))["rows"]}
    assert (rows["d-1"]["predicted_step_s"], rows["d-1"]["unpriced"]) == (None, "the limit is secret")
    assert rows["a-1"]["unpriced"] is rows["a-1"]["uncounted"] is None


def test_skipped_rows_are_counted_by_reason() -> None:
    """The last line; without any, it is the count alone."""
    assert said()[-1].startswith(
        "3 of 7 rows skipped: 2 not published, 1 kind `lora` is not compiled; --rows or --json"
    )
    assert said((GOOD,))[-1] == "0 of 1 row skipped"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, ""),
        ({"score_time": "B"}, "graded B (`score_time`)"),
        ({"score_time": ""}, "without a grade (`score_time`)"),
        ({"kind": "sft"}, ""),
    ],
)
def test_why_a_row_does_not_count(tmp_path: Path, changes: dict[str, str], why: str) -> None:
    """A row counts exactly where nothing stands against it."""
    graded = {**TORCHTITAN, "score_time": "A", **changes}
    (found,) = predict_rows(read_table(written(tmp_path, graded), ("id",)), default_library())
    assert (found.uncounted, found.counts_time) == (why, not why)
