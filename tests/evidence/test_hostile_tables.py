"""Cells of a table of runs: names are one line of plain text, other cells lose what a terminal would obey."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.evidence.tables import read_table
from ledger.spec.problems import SpecError


def table(folder: Path, *cells: str) -> Path:
    """A table with a row of these cells: an id, a note."""
    path = folder / "runs.csv"
    quoted = ",".join(f'"{cell}"' for cell in cells)
    path.write_bytes(f"id,note\n{quoted}\n".encode())
    return path


@pytest.mark.parametrize("mark", ["\n", "\r", "\t", "\x1b]0;title\x07", "\x9b2J", "\u2028", "\u202e", "\u200f"])
def test_a_name_holds_nothing_that_is_not_printed(mark: str, tmp_path: Path) -> None:
    """Refused at its cell; it would begin a line of its own, or move the cursor, wherever it is printed."""
    with pytest.raises(SpecError) as caught:
        read_table(table(tmp_path, f"a{mark}::error::b", "note"), ("id",))
    (problem,) = caught.value.problems
    assert problem.message == "a control character or a line break in `id`"
    assert (problem.where.line, problem.where.column) == (2, 1)


@pytest.mark.parametrize("mark", ["\n", "\r\n", "\t", "\x1b[2J", "\x9b2J", "\u2028", "\u202e"])
def test_other_cells_are_one_printable_line(mark: str, tmp_path: Path) -> None:
    """A note may have several lines; what is printed of it has one, without a sequence that a terminal obeys."""
    (row,) = read_table(table(tmp_path, "a", f"one{mark}two"), ("id",))
    assert row.text("note").isprintable()
    assert row.text("note").startswith("one ")
    assert row.cells["note"].text == row.text("note")
