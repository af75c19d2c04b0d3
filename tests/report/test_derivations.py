"""The evidence section: what PyTorch found of the plan, of its model, or that nobody asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from shlex import split

import pytest

import ledger
from ledger.books.compiled import Compiled
from ledger.evidence import verification as records
from ledger.evidence.verdicts import EXACT, HALF_PERCENT, ROUNDING, ComparedFigure, KnownDifference, unchecked
from ledger.evidence.verification import JudgeOrigin, Verification
from ledger.report import html
from ledger.report.views.evidence import derivations
from ledger.report.views.parts import Report
from ledger.spec.library import Library
from ledger.spec.load import load_plan

ORIGIN = JudgeOrigin("2.13.0", "5.23.0", "2026-01-01", "ledger verify plan.yaml")
VERDICTS = (
    ComparedFigure("parameters", "", 7, 7, EXACT),
    ComparedFigure("memory.static", "B", 1000, 1012, ROUNDING, causes=(KnownDifference("rounding", 12),)),
    ComparedFigure("memory.backward", "B", 1000, 1002, HALF_PERCENT),
    unchecked("comm", "nobody sends"),
)


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of records."""
    monkeypatch.setattr(records, "default_library", lambda: Library(tmp_path))
    folder = records.folder()
    folder.mkdir(parents=True)
    return folder


def test_a_plan_that_nobody_verified_says_so(compiled: Compiled, kept: Path) -> None:
    """No table, and the command that would make one."""
    found = derivations(Report(compiled))
    assert found.table is None
    assert found.sentence.startswith("No record in the library")
    assert found.command.startswith("ledger verify ")
    assert not list(kept.iterdir())


def test_the_command_names_the_file_that_was_read(kept: Path) -> None:
    """As it was typed, so that it can be typed again; a plan that came from no file goes by its name."""
    path = Path(__file__).parents[2] / "specs" / "gpt2.yaml"
    typed = ledger.compile(path)
    assert derivations(Report(typed)).command == f"ledger verify {path} --record"
    piped = ledger.compile(path.read_text(encoding="utf-8"))
    assert derivations(Report(piped)).command == f"ledger verify {piped.plan.name} --record"


@pytest.mark.parametrize("name", ["70b", "gpt2-eager", "mixtral-fused-gated", "llama-8b-lora", "llama-8b-pp-4-uneven"])
def test_commands_on_record_name_plans_that_load(name: str) -> None:
    """What a report prints runs: its spec is a plan of the library, and takes what stands behind --set."""
    (found,) = (one for one in records.every(records.folder()) if one.name == name)
    program, verb, spec, *rest = split(found.origin.command)
    assert (program, verb) == ("ledger", "verify")
    assert load_plan(spec, [text for flag, text in zip(rest[::2], rest[1::2], strict=True) if flag == "--set"])


def test_what_the_judge_was_asked_instead_is_told(compiled: Compiled, kept: Path) -> None:
    """Figures of another kernel than the plan's would else look like the plan's own, gigabytes apart."""
    plan = replace(compiled.plan, judged_digest="cd" * 32)
    asked = Verification(
        "own",
        "Own",
        plan.model.title,
        plan.judged_digest,
        "3 layers",
        VERDICTS,
        ORIGIN,
        judged_as=("kernels.optimizer = foreach",),
    )
    records.write(asked, kept)
    page = html.render(Report(replace(compiled, plan=plan)))
    assert "both of the plan with kernels.optimizer = foreach." in page


def test_the_plans_own_record_is_told_in_numbers(compiled: Compiled, kept: Path) -> None:
    """Two equal once rounding is taken away, one of 1002 bytes within half a percent, one open."""
    plan = replace(compiled.plan, judged_digest="ab" * 32)
    records.write(Verification("own", "Own", plan.model.title, plan.judged_digest, "3 layers", VERDICTS, ORIGIN), kept)
    found = derivations(Report(replace(compiled, plan=plan)))
    assert found.sentence.startswith("This plan's derivations were checked against PyTorch 2.13.0: 2 figures are equal")
    assert "; 1 within tolerance; 1 not checked." in found.sentence
    assert found.table is not None
    assert [row[5].status for row in found.table.rows] == ["pass", "pass", "pass", "warn"]
    assert found.table.rows[1][6].text == "rounding: 12\u202fB"


def test_another_plan_of_the_model_is_named_as_such(compiled: Compiled, kept: Path) -> None:
    """Derivations of one layout say something of another, but not everything."""
    other = Verification("other", "Other", compiled.plan.model.title, "cd" * 32, "3 layers", VERDICTS, ORIGIN)
    records.write(other, kept)
    assert derivations(Report(compiled)).sentence.startswith("Derivations of this model in another plan (other) were")


def test_an_earlier_state_of_the_plan_is_named_as_such(compiled: Compiled, kept: Path) -> None:
    """A plan or a part of it that changed since it was judged keeps its name, not its digest."""
    before = Verification(compiled.plan.name, "", compiled.plan.model.title, "cd" * 32, "3 layers", VERDICTS, ORIGIN)
    records.write(before, kept)
    assert derivations(Report(compiled)).sentence.startswith("Derivations of this plan in an earlier state were")


def test_a_disagreement_is_not_passed_over(compiled: Compiled, kept: Path) -> None:
    """A figure that differs is counted, and its row fails."""
    wrong = (ComparedFigure("flops.forward.matmul", "FLOP", 10, 11, EXACT),)
    records.write(Verification("x", "X", compiled.plan.model.title, "cd" * 32, "", wrong, ORIGIN), kept)
    found = derivations(Report(compiled))
    assert "1 disagree" in found.sentence
    assert found.table is not None
    assert found.table.rows[0][5].status == "fail"
