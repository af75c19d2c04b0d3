"""Tables in the width of a terminal."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ledger
from ledger.cli.show import COLUMNS
from ledger.cli.tables import print_table
from ledger.report.diff import diff
from ledger.report.diff_views import as_text
from ledger.report.fitted_columns import aligned, broken, pieces
from tests.sampling import law

WORDS = re.compile(r"[A-Za-z]+")


def printed(
    columns: tuple[str, ...],
    rows: list[tuple[str, ...]],
    right: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> list[str]:
    """The lines of a table on a terminal of 80 columns."""
    monkeypatch.setattr("ledger.cli.tables.terminal_width", lambda: 80)
    print_table(columns, rows, right)
    return capsys.readouterr().out.splitlines()


def test_account_names_are_never_broken_inside_a_word(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In 80 columns, of every account of a plan: its words can be read, searched for, and typed again."""
    accounts = ledger.compile("deepseek-v3").accounts[::20]
    rows = [
        (
            one.account,
            one.role,
            one.when,
            one.resource.name,
            str(one.times),
            f"{one.amount} {one.unit}",
            one.formula[:60],
        )
        for one in accounts
    ]
    lines = printed(COLUMNS, rows, ("times",), capsys, monkeypatch)
    assert max(map(len, lines)) <= 80
    words = {word for one in accounts for word in WORDS.findall(one.account)}
    column = max(len(line.split("  ")[0]) for line in lines)
    shown = [word for line in lines[1:] for word in WORDS.findall(line[:column])]
    assert set(shown) <= words


def test_totals_of_a_difference_stay_whole() -> None:
    """The name of a total is in one line in 80 columns, where there is room beside it, and no table is wider."""
    found = diff(ledger.compile("8b"), ledger.compile("8b", ["run.micro_batch=2", "run.global_batch=128"]))
    text = as_text(found, 80)
    _, *blocks = text.strip().split("\n\n")
    tables = "\n".join(blocks[: len(blocks) - len(found.notes)])
    assert max(map(len, tables.splitlines())) <= 80
    for key in ("memory.reserved", "time.step", "decode.time_per_token"):
        assert re.search(rf"^{re.escape(key)} ", tables, re.MULTILINE)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("decoder/attention/q.weight_gradient", ["decoder/", "attention/", "q.", "weight_", "gradient"]),
        ("275 GFLOP", ["275 ", "GFLOP"]),
        ("1.10", ["1.10"]),
        ("2*B*S", ["2*", "B*", "S"]),
        ("forward/input..optimizer", ["forward/", "input..", "optimizer"]),
    ],
)
def test_lines_end_where_parts_meet(text: str, parts: list[str]) -> None:
    """After what joins two words; a number has no joint."""
    assert pieces(text) == parts


@law(st.text("ab/._ 1*", max_size=60), st.integers(1, 30), few=50, many=500)
def test_nothing_is_lost_where_a_cell_breaks(text: str, room: int) -> None:
    """Every letter stands in one of the lines, each of which fits."""
    lines = broken(text, room)
    assert all(len(line) <= room for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


@given(st.lists(st.tuples(*[st.text("ab/ ", max_size=30)] * 3), min_size=1, max_size=4))
def test_a_table_keeps_to_its_width(rows: list[tuple[str, ...]]) -> None:
    """As long as no word is longer than there is room for."""
    assert all(len(line) <= 110 for lines in aligned([("a", "b", "c"), *rows], (), 110) for line in lines)
