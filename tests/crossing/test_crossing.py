"""No verb dies of a plan of the library on a stack that may run it: a sample, and in `make test-long` every pair."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.crossing import crossing
from tests.crossing.__main__ import main
from tests.crossing.crossing import (
    FIRST,
    SAMPLED_SECONDS,
    VERBS,
    Cell,
    broken,
    covered,
    every_pair,
    faults_of_a_legal_plan,
    head,
    may_run,
    run,
    sample,
    seconds_of,
)
from tests.library_plans import PLANS, SERVING, SPECS

GPT2 = SPECS / "gpt2.yaml"
STACK = "pytorch-fsdp2-2025"


def _parameter(plan: Path, stack: str, *values: object) -> Any:
    """A case of a test, named by its plan and its stack."""
    name = "-".join((plan.stem, stack, *(value.verb for value in values if isinstance(value, Cell))))
    return pytest.param(*(values or (plan, stack)), id=name)


@pytest.mark.parametrize("cell", [_parameter(cell.plan, cell.stack, cell) for cell in sample()])
def test_a_verb_takes_a_plan_on_a_stack(cell: Cell, tmp_path: Path) -> None:
    """It ends with a code that the documents have, prints no traceback, and numbers that are finite.

    A plan that the stack does not run is refused, by `check` with the same.
    """
    outcome = run(cell, tmp_path)
    faults = faults_of_a_legal_plan(outcome)
    if faults and outcome.is_refused:
        outcome = run(Cell(cell.plan, cell.stack, FIRST), tmp_path)
        assert outcome.is_refused, faults
    else:
        assert faults == (), outcome.command


@pytest.mark.long
@pytest.mark.parametrize(("plan", "stack"), [_parameter(*pair) for pair in every_pair()])
def test_every_plan_goes_on_every_stack(plan: Path, stack: str, tmp_path: Path) -> None:
    """Each pair that the rules allow has all of its totals; of one that they refuse, `check` says why.

    `make crossing` runs all verbs of all pairs, which takes hours.
    """
    outcome = run(Cell(plan, stack, FIRST), tmp_path)
    assert outcome.faults == (), outcome.command
    if outcome.is_refused:
        assert outcome.message
        return
    assert may_run(plan, stack)
    outcome = run(Cell(plan, stack, "show"), tmp_path)
    assert faults_of_a_legal_plan(outcome) == (), outcome.command


def test_the_sample_is_the_same_each_time_and_has_every_verb_plan_and_stack() -> None:
    """Within its seconds; a longer one has every pair."""
    cells = sample()
    assert cells == sample.__wrapped__(SAMPLED_SECONDS)
    assert sum(map(seconds_of, cells)) <= SAMPLED_SECONDS
    assert {cell.verb for cell in cells} == set(VERBS)
    assert {cell.plan for cell in cells} == set(PLANS)
    assert {cell.stack for cell in cells} == {stack for _, stack in every_pair()}
    every = covered(sample.__wrapped__(10_000.0))
    assert all(some == all_of for some, all_of in every.values())
    assert all(0 < some < all_of for name, (some, all_of) in covered(cells).items() if " x " in name)
    assert not any(may_run(plan, "vllm-2025") for plan in PLANS if plan not in SERVING)


def _invented(monkeypatch: pytest.MonkeyPatch, code: int, stderr: str = "", error: BaseException | None = None) -> None:
    """Has every line end so."""

    def ends(line: crossing.Words) -> Result:
        return Result(CliRunner(), b"", stderr.encode(), stderr.encode(), None, code, error)

    monkeypatch.setattr(crossing, "invoke", ends)


def test_what_a_line_must_not_come_to_is_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A code that no document has, a traceback, an exception, a plan refused by a verb after `check` took it."""
    cell = Cell(GPT2, STACK, "show")
    _invented(monkeypatch, 70, "error: a mistake of ledger 0.1.0 itself: KeyError: 'a'")
    assert run(cell, tmp_path).faults == ("exit code 70: error: a mistake of ledger 0.1.0 itself: KeyError: 'a'",)
    _invented(monkeypatch, 1, error=KeyError("a"))
    assert run(cell, tmp_path).faults == ("KeyError: 'a'",)
    _invented(monkeypatch, 1, "Traceback (most recent call last):\nKeyError: 'a'")
    assert run(cell, tmp_path).faults == ("an error of the program itself is printed: KeyError: 'a'",)
    _invented(monkeypatch, 2, "a.yaml:1:1: no")
    outcome = run(cell, tmp_path)
    assert outcome.faults == ()
    assert faults_of_a_legal_plan(outcome) == ("exit code 2 of a plan that the stack runs: a.yaml:1:1: no",)
    assert faults_of_a_legal_plan(run(Cell(GPT2, STACK, "sweep"), tmp_path)) == ()


@pytest.mark.parametrize("verb", ["solve", "sweep"])
def test_a_search_of_a_plan_that_the_stack_does_not_run_is_refused(verb: str, tmp_path: Path) -> None:
    """By `check`, which says why; what to search for is not asked."""
    outcome = run(Cell(GPT2, "vllm-2025", verb), tmp_path)
    assert (outcome.line[0], outcome.is_refused, outcome.faults) == (FIRST, True, ())
    assert "is an engine that serves" in outcome.message


def test_numbers_that_are_none_and_files_that_are_missing_are_seen(tmp_path: Path) -> None:
    """In what `show --json` prints; and a report whose formats are not all there."""
    shown = b'{"totals": {"mfu": NaN, "time.step": 1.0, "spans": [1.0, Infinity]}}'
    result = Result(CliRunner(), shown, b"", shown, None, 0, None)
    found = list(broken(result, ("show", "gpt2", "--json"), tmp_path))
    assert found == ["totals.mfu is nan", "totals.spans.1 is inf"]
    (tmp_path / "gpt2.html").write_text("x", "utf-8")
    line = ("report", str(GPT2), "--format", "html,pdf")
    assert list(broken(result, line, tmp_path)) == ["gpt2.pdf is not written"]


def test_the_program_prints_a_table(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Cells by verb and plan, pairs that are refused by what is said, faults with their commands."""
    words = ("--plan", "gpt2", "--stack", STACK, "--stack", "vllm-2025", "--verb", "show")
    assert main([*words, "--out", str(tmp_path / "faults.txt")]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("1 plans x 2 of ")
    assert "2 pairs, of which 1 are refused; 3 cells" in printed
    assert "1  check      the stack STACK is an engine that serves, and this plan trains" in printed
    assert (tmp_path / "faults.txt").read_text("utf-8") == ""


def test_heads_of_messages_are_alike_where_the_details_differ() -> None:
    """Without the place, the stack, and what stands in quotes or brackets."""
    messages = (
        "specs/gpt2.yaml:3:7: `flash3` attention is not of a-stack (`kernels.attention`)",
        "specs/8b.yaml:30:1: `cudnn` attention is not of b-stack; try another",
    )
    assert len({head(message, f"{letter}-stack") for message, letter in zip(messages, "ab", strict=True)}) == 1


def test_a_fault_is_printed_with_its_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the exit code says so; the table counts it."""
    _invented(monkeypatch, 70, "error: a mistake of ledger itself")
    assert main(["--plan", "gpt2", "--stack", STACK, "--verb", "show"]) == 1
    printed = capsys.readouterr().out
    assert f"ledger show {GPT2} --set stack={STACK} --json\n    exit code 70" in printed
