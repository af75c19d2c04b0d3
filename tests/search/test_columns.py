"""Cells of a table of layouts: text is text to a spreadsheet too, numbers are numbers."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.search.columns import columns_of

CELLS: tuple[tuple[Any, Any], ...] = (
    ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
    ("@SUM(1)", "'@SUM(1)"),
    ("+1+1", "'+1+1"),
    ("-1+cmd", "'-1+cmd"),
    ("\t=1", "'\t=1"),
    ("\r=1", "'\r=1"),
    ("h100-sxm", "h100-sxm"),
    ("-0.5", "-0.5"),
    ("+1e-3", "+1e-3"),
    (-0.5, "-0.5"),
    ([-1, "=x"], '[-1, "=x"]'),
    (None, None),
)


@pytest.mark.parametrize(("value", "cell"), CELLS)
def test_no_text_is_a_formula(value: Any, cell: Any) -> None:
    """Behind an apostrophe it is shown as it is, and computed by no program that opens the table."""
    columns = columns_of({"key": [value]}, ["key"], [], [])
    assert columns.cell("key", value) == cell


def test_whole_numbers_stay_numbers() -> None:
    """A column of them is one of integers, negative ones too."""
    columns = columns_of({"key": [-3, 2]}, ["key"], [], [])
    assert [columns.cell("key", value) for value in (-3, 2)] == [-3, 2]
