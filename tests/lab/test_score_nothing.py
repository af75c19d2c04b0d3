"""`ledger score`: how it ends where there is nothing to score."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ledger.cli import main
from ledger.cli.score import unscored
from ledger.lab.score.rows import Score, ScoreRow
from tests.lab.published_rows import TORCHTITAN, written


def score(*arguments: str) -> Result:
    """The verb."""
    return CliRunner().invoke(main, ["score", *arguments])


UNKNOWN = {**TORCHTITAN, "hardware": "TPU v9"}


def test_a_table_without_a_scored_row_fails(tmp_path: Path) -> None:
    """1, and one line that says why: whoever runs it in a script must not take silence for a good score."""
    path = written(tmp_path, UNKNOWN, {**UNKNOWN, "id": "other"})
    for options in ([], ["--json"], ["--out", str(tmp_path)]):
        result = score(str(path), *options)
        assert result.exit_code == 1
        (line,) = result.stderr.splitlines()
        assert line.startswith("no row is scored: 2 of 2: ")
        assert "TPU v9" in line


def test_a_row_that_is_scored_is_enough(tmp_path: Path) -> None:
    """0, whatever else the table holds."""
    result = score(str(written(tmp_path, {**UNKNOWN, "id": "other"}, TORCHTITAN)))
    assert (result.exit_code, result.stderr) == (0, "")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "no row is scored: there is none"),
        ([ScoreRow("a", "", "s")], "no row is scored: 1 of 1: nothing was measured"),
        (
            [ScoreRow("a", "", "s", skipped="old"), ScoreRow("b", "", "s", skipped="old"), ScoreRow("c", "", "s")],
            "no row is scored: 2 of 3: old, and 1 further reason; --rows prints each",
        ),
        ([ScoreRow("a", "", "s", step=2.0, measured_step=1.0)], ""),
        ([ScoreRow("a", "", "s", needed=2, capacity=1, seen_fits=True)], ""),
    ],
)
def test_the_most_frequent_reason_is_told(rows: list[ScoreRow], said: str) -> None:
    """Of many rows, what most of them lack."""
    assert unscored(Score(tuple(rows))) == said
