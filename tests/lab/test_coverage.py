"""The interval of an estimate: what sources that are left out give, and how often it holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.books import time as knowledge
from ledger.lab.score.__main__ import coverage
from ledger.lab.score.ablations import (
    RunRatio,
    by_knowledge,
    coverage_lines,
    covered,
    intervals,
    known_as,
    quantile,
    steps_missed,
)
from ledger.lab.score.library_runs import library_rows
from ledger.lab.score.predictions import predict_rows
from ledger.spec.library import default_library


def runs(source: str, stack: str, device: str, *ratios: float) -> list[RunRatio]:
    """Runs of one source."""
    return [RunRatio(source, stack, device, ratio) for ratio in ratios]


def test_what_is_known_of_a_run_is_what_other_sources_ran() -> None:
    """Its own source's runs say nothing: it counts as if it were the first one seen."""
    others = runs("a", "x", "h100", 1.0)
    assert known_as(RunRatio("b", "x", "h100", 1.0), others) == knowledge.MEASURED
    assert known_as(RunRatio("b", "x", "a100", 1.0), others) == knowledge.ELSEWHERE
    assert known_as(RunRatio("b", "y", "h100", 1.0), others) == knowledge.UNKNOWN


def test_a_source_weighs_as_much_as_another() -> None:
    """A hundred runs of one source are half of two sources."""
    assert quantile({"many": [1.0] * 100, "one": [2.0]}, 0.49) == 1.0
    assert quantile({"many": [1.0] * 100, "one": [2.0]}, 0.51) == 2.0


def test_a_source_is_judged_by_the_others() -> None:
    """Three sources agree, the fourth misses by half: within its own errors, outside of theirs."""
    some = [run for name in "abc" for run in runs(name, "x", "h100", 0.95, 1.0, 1.05)]
    odd = runs("d", "x", "h100", 1.5, 1.6)
    left_out = {row.source: row.left_out for row in covered([*some, *odd])}
    assert left_out == {"a": 3, "b": 3, "c": 3, "d": 0}


def test_less_is_never_known_better() -> None:
    """Software that nobody ran has no narrower interval than software that was scored."""
    known = [run for name in "abc" for run in runs(name, "x", "h100", 0.8, 1.3)]
    unknown = [run for name in "efg" for run in runs(name, name, "h100", 1.0)]
    found = intervals([*known, *unknown])
    assert found[knowledge.UNKNOWN].low <= found[knowledge.MEASURED].low
    assert found[knowledge.UNKNOWN].high >= found[knowledge.MEASURED].high
    assert by_knowledge([*known, *unknown])[knowledge.UNKNOWN].keys() == {"e", "f", "g"}


def test_without_runs_it_says_so() -> None:
    """A table of which nothing counts has no ends."""
    assert list(coverage_lines((), "step")) == ["step: no row has one that counts"]


@pytest.mark.parametrize("content", [None, "", "id,hardware\n"])
def test_a_table_that_cannot_be_read_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None
) -> None:
    """Missing, empty, or without the columns of a row: a message with its place, and exit code 2."""
    file = tmp_path / "runs.csv"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    with pytest.raises(SystemExit) as caught:
        coverage([str(file)])
    assert caught.value.code == 2
    assert "runs.csv" in capsys.readouterr().err


@pytest.fixture(scope="module")
def of_library() -> tuple[RunRatio, ...]:
    """The runs that the library carries."""
    return steps_missed(predict_rows(library_rows(), default_library()))


def test_the_interval_holds_most_runs_of_the_library(of_library: tuple[RunRatio, ...]) -> None:
    """As it is printed, and as sources that were left out give it."""
    rows = list(covered(of_library))
    for counts in ([row.printed for row in rows], [row.left_out for row in rows]):
        assert sum(counts) / sum(row.runs for row in rows) >= 0.75
    assert any("of runs lie within" in line for line in coverage_lines(of_library, "step"))


def test_stacks_say_where_they_were_scored(of_library: tuple[RunRatio, ...]) -> None:
    """Every stack and device of the library's scored runs."""
    from ledger.spec.load import load_stack

    for stack, device in sorted({(run.stack, run.device) for run in of_library}):
        assert device in load_stack(stack).scored_on, (stack, device)
