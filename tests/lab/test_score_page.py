"""The page of a score: what it shows, and that nothing in it comes from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

from ledger.lab.score.page import page, skip_reasons
from ledger.lab.score.rows import Score, ScoreRow
from ledger.report.charts.measured import MeasuredPoint, parity_chart

GOOD = ScoreRow("near", "Somebody", "a", step=1.02, measured_step=1.0, counts_time=True)
BAD = ScoreRow(
    "far", "Somebody", "a", step=0.5, measured_step=1.0, counts_time=True, assumed=("interleave not stated: 1",)
)
HELD = ScoreRow("held", "Another", "b", memory=11e9, measured_memory=10e9, counts_memory=True)
LEFT = ScoreRow("left", "Another", "b", skipped="no accelerator is named `X1`")
UNCOUNTED = ScoreRow("open", "Another", "b", step=3.0, measured_step=1.0)
ROWS = (GOOD, BAD, HELD, LEFT, UNCOUNTED)


def rendered(rows: tuple[ScoreRow, ...] = ROWS) -> str:
    """The page of these rows."""
    return page(Score(rows), Path("my runs.csv"))


def test_the_worst_row_comes_first_with_its_command() -> None:
    """What is off most is what a reader wants to explain; rows that do not count are not blamed."""
    shown = rendered()
    rows = shown[shown.index("Worst rows") :]
    assert rows.index("far") < rows.index("held") < rows.index("near")
    assert "open" not in re.findall(r'<th scope="row"[^>]*><code>(\w+)', rows)
    assert "interleave not stated: 1" in rows
    assert "ledger score &#39;my runs.csv&#39; --explain RUN" in rows


def test_errors_by_source_and_overall_are_signed_and_absolute() -> None:
    """+2 and -50 %: 26 % absolute, -24 % signed; each source weighs the same."""
    shown = rendered().replace("\u202f", " ")
    text = re.sub(r"<[^>]+>", "", shown)
    assert "step time, mean absolute error 26.0 % of 2 rows, each source weighing the same; signed −24.0 %" in text
    assert "peak memory, mean absolute error 10.0 % of 1 rows, each source weighing the same" in text


def test_skipped_rows_are_counted_by_reason() -> None:
    """A reason that many rows share is said once."""
    assert skip_reasons([LEFT, LEFT]) == [("no accelerator is named `X1`", 2)]
    assert "no accelerator is named <code>X1</code>" in rendered()


def test_the_page_needs_no_network() -> None:
    """Its policy allows its own style and script and nothing else; names of rows are text."""
    shown = rendered((ScoreRow("<b>x</b>", "S", "s", step=1.0, measured_step=2.0, counts_time=True),))
    assert "default-src 'none'" in shown.replace("&#39;", "'")
    assert not re.search(r'(?:src|href)="(?:https?:)?//', shown)
    assert "<b>x</b>" not in shown
    assert "&lt;b&gt;x&lt;/b&gt;" in shown


def test_points_on_the_line_are_equal() -> None:
    """A run predicted right lies where both axes have its value; one predicted half lies below."""
    drawn = parity_chart([MeasuredPoint("right", 2.0, 2.0), MeasuredPoint("half", 4.0, 2.0)], "s", "title", 640.0)
    (x1, y1), (x2, y2) = [(float(x), float(y)) for x, y in re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', drawn)]
    assert y1 == y2  # both are predicted at 2 s
    assert x2 > x1
    assert "predicted −50" in drawn


def test_a_row_is_as_bad_as_its_worse_error() -> None:
    """Time and memory count alike, where they count at all."""
    assert round(BAD.worst_error, 12) == 0.5
    assert UNCOUNTED.worst_error == 0
