from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import ledger
from ledger.cli import main
from ledger.spec.problems import SpecError

SPEC = str(Path(__file__).resolve().parents[1] / "specs" / "gpt2.yaml")


def printed(*arguments: str) -> dict[str, object]:
    """What the command line prints as JSON."""
    found: dict[str, object] = json.loads(CliRunner().invoke(main, list(arguments), catch_exceptions=False).stdout)
    return found


def test_show_and_explain_return_what_the_command_line_prints() -> None:
    """The same verb gives the same object in both languages."""
    assert ledger.show(SPEC) == printed("show", SPEC, "--json")
    explained = ledger.explain(SPEC, "memory.peak")
    assert {"schema": "ledger-explain/1", **explained} == printed("explain", SPEC, "memory.peak", "--json")
    with pytest.raises(SpecError, match=r"no account or total 'memory\.peek'"):
        ledger.explain(SPEC, "memory.peek")


def test_diff_and_solve_take_overrides() -> None:
    """A smaller micro-batch is a difference; the one that fits is found."""
    assert ledger.diff(SPEC, SPEC).empty
    assert [change.path for change in ledger.diff(SPEC, SPEC, ["run.micro_batch=6"]).inputs] == ["run.micro_batch"]
    assert ledger.solve(SPEC, "run.seq_len", ["fits"]).value == 1024


def test_a_text_alone_is_one_text_and_a_path_may_be_a_path() -> None:
    """`"run.micro_batch=6"` is an override, not seventeen of a letter each; pathlib's paths serve as well as texts."""
    alone = ledger.show(Path(SPEC), "run.micro_batch=6")
    assert alone == ledger.show(SPEC, ["run.micro_batch=6"])
    assert ledger.solve(Path(SPEC), "run.seq_len", "fits").value == 1024
    assert ledger.check(Path(SPEC)) == ()


def test_check_returns_what_fails(tmp_path: Path) -> None:
    """Nothing for a plan that passes; the problems of a spec that is none."""
    assert ledger.check(SPEC) == ()
    assert [one.rule for one in ledger.check("70b", strict=True)] == ["mfu"]
    assert ledger.check(str(tmp_path / "missing.yaml"))[0].message == "no such file"
    with pytest.raises(SpecError):
        ledger.compile(str(tmp_path / "missing.yaml"))


def test_report_writes_files(tmp_path: Path) -> None:
    """The paths are returned."""
    assert ledger.write_report(SPEC, tmp_path, ["json"]) == [tmp_path / "gpt2.json"]
    with pytest.raises(SpecError, match="no format 'docx'"):
        ledger.write_report(SPEC, tmp_path, "docx")


def test_the_package_loads_nothing_heavy() -> None:
    """Importing it must not cost what a verb needs."""
    code = "import sys, ledger; print([name for name in ('sympy', 'yaml', 'numpy', 'jinja2') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_what_is_no_question_is_told_as_the_command_line_tells_it(tmp_path: Path) -> None:
    """A caller gets SpecError, before anything is searched."""
    with pytest.raises(ledger.SpecError, match="no input to solve for"):
        ledger.solve("8b", [])
    with pytest.raises(ledger.SpecError, match="exclude each other"):
        ledger.solve("8b", "run.seq_len", maximize="mfu", minimize="mfu")
    with pytest.raises(ledger.SpecError, match="no layout 'bogus'"):
        ledger.write_report("8b", tmp_path, ["json"], layout="bogus")  # type: ignore[arg-type]
