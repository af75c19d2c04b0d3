"""Files that once broke the compiler or were answered wrongly, one fault each: what must come out of them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from time import process_time
from typing import Any

import pytest
from click.testing import CliRunner, Result

import ledger
from ledger.books.price_changes import PRICES
from ledger.cli import main
from tests.lawful import is_lawful

HERE = Path(__file__).parent
AUDIT = HERE / "audit"
SLOWEST = 5.0  # seconds of the processor for any answer
Run = Callable[..., Result]

# file -> the verb, and what it says of the file: a place, and words.
REFUSED: dict[str, tuple[Sequence[str], str]] = {
    "digits-5000.yaml": (["check"], "digits-5000.yaml:14:15: `run.tokens` cannot be `9999"),
    "mfu-digits.yaml": (["check"], "mfu-digits.yaml:16:8: `assumptions.mfu`: a quantity of more than 100 characters"),
    "mfu-tiny.yaml": (["check"], "mfu-tiny.yaml:16:8: `assumptions.mfu`: `5e-301` is too small to be meant"),
    "redos-quantity.yaml": (["check"], "redos-quantity.yaml:14:15: a line break or a tab in a value"),
    "csv-escape.csv": (["score", "--rows"], "csv-escape.csv:2:1: a control character or a line break in `id`"),
    "csv-newline.csv": (["score", "--rows"], "csv-newline.csv:2:1: a control character or a line break in `id`"),
    "size-bomb.yaml": (["check"], "size-bomb.yaml:10:21: `parallelism.data` must be at most 10000000, not 46569600000"),
    "lecture-size-missing.yaml": (
        ["check"],
        "lecture-size-missing.yaml:8:34: `questions.0.operation.steps.0.einsum`: `m` has no",
    ),
    "evidence-column.yaml": (["calibrate", "--table"], "evidence-column.yaml:14:5: grouped.bf16 has no `top_k`"),
    "evidence-head-dim.yaml": (
        ["calibrate", "--table"],
        "evidence-head-dim.yaml:11:5: attention.flash3.forward: `head_dim` is no",
    ),
    "evidence-id-mapping.yaml": (
        ["score"],
        "evidence-id-mapping.yaml:38:9: `record.id` must be text or a number, not a mapping",
    ),
    "job-digits.toml": (["import", "--plan"], "job-digits.toml:5:20: a number beyond reason"),
    "audit/cpu.yaml": (["check"], "cpu.yaml:6:1: this is a spec of kind `accelerator`, not a plan"),
    "audit/cpuplan.yaml": (["check"], "cpu.yaml:56:21: softmax: `b` cannot be 180400000.0"),  # a share of the bandwidth
    "audit/fit.yaml": (["check"], "fit.yaml:5:39: `moments` is no field of `questions.0`"),
    "audit/one.yaml": (["check"], "one.yaml:5:29: `activation` is no field of `questions.0`"),
    "audit/inf_gpt-oss-20b.yaml": (["check"], "flash attention has no sinks, and `global` does"),
    "audit/tb.yaml": (["check"], "tb.yaml:5:64: `questions.0.operation.steps.0.einsum`: `a` has the size of itself"),
}
# Tables whose one row names no software that is known: it is skipped with that reason, and nothing is scored.
SKIPPED = ("csv-formula.csv", "csv-html.csv")
# Plans: whether they hold, as their exit code has it.
PLANS: dict[str, int] = {
    "pace-negative.yaml": 0,
    "zero1-peak.yaml": 1,
    "zero2-peak.yaml": 1,
    **{
        f"audit/{name}.yaml": 0
        for name in (
            *(
                "a",
                "a2",
                "b200",
                "bare",
                "cp",
                "cust",
                "fail",
                "hsdp",
                "lora",
                "lora8",
                "mega",
                "moe",
                "pipe",
                "serve",
                "tiny",
            ),
            *("v1", "v1024"),
        )
    },
    "audit/exp.yaml": 1,
    "audit/off.yaml": 1,
}
# Lectures: how many questions they ask, all of which have an answer.
LECTURES: dict[str, int] = {
    **{f"audit/{name}.yaml": 1 for name in ("bud", "conv", "rearr", "inf_deepseek-v3", "inf_gemma-3-27b")},
    **{f"audit/{name}.yaml": 1 for name in ("inf_llama-4-scout", "inf_mistral-7b")},
    "audit/lec.yaml": 14,
    "audit/lec_traceback.yaml": 15,
    "audit/lv.yaml": 2,
    "audit/red.yaml": 2,
}
OVERRIDES = next(
    shlex.split(line.partition("for s in ")[2].partition(";")[0])
    for line in (HERE / "calibration-nonsense.sh").read_text("utf-8").splitlines()
    if "for s in" in line
)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command line in the folder of a file, and holds every answer to its time."""

    def invoke(file: str, *words: str) -> Result:
        monkeypatch.chdir((HERE / file).parent)
        started = process_time()
        result = CliRunner().invoke(main, [*words, Path(file).name], prog_name="ledger")
        assert process_time() - started < SLOWEST
        assert "Traceback" not in result.output
        return result

    return invoke


def test_every_file_has_its_answer() -> None:
    """A file that nobody reads protects nothing."""
    files = {path.relative_to(HERE).as_posix() for path in HERE.rglob("*") if path.suffix in {".yaml", ".csv", ".toml"}}
    assert files == {*REFUSED, *SKIPPED, *PLANS, *LECTURES}


@pytest.mark.parametrize("file", REFUSED)
def test_what_cannot_be_is_refused_at_its_place(run: Run, file: str) -> None:
    """Exit code 2; file, line, column, what is wrong, and what to write instead."""
    verb, said = REFUSED[file]
    result = run(file, *verb)
    assert result.exit_code == 2
    assert said in result.output
    assert re.search(r"\.(yaml|toml|csv):\d+:\d+: ", result.output)
    assert "help: " in result.output


@pytest.mark.parametrize("file", SKIPPED)
def test_a_row_of_odd_cells_is_skipped_with_a_reason(run: Run, file: str) -> None:
    """Nothing is scored of it, which is exit code 1, not 0."""
    result = run(file, "score", "--rows")
    assert result.exit_code == 1
    assert "the software is not known: no `stack`, and no publication" in result.stdout


@pytest.mark.parametrize("override", [f"parameters.{text}" for text in OVERRIDES] + ["what=matmul.bf61"])
def test_a_price_that_none_can_have_is_refused(run: Run, override: str) -> None:
    """Signs, units, ranges, names of parameters and of kernels: seven overrides that once passed."""
    result = CliRunner().invoke(main, ["check", "8b", "--no-search", "--set", f"accelerator.calibration.0.{override}"])
    assert len(OVERRIDES) == 6
    assert result.exit_code == 2
    assert re.search(rf"--set accelerator\.calibration\.0\.{re.escape(override)}:1:\d+: ", result.stdout)


@pytest.mark.parametrize("file", PLANS)
def test_a_sound_plan_keeps_the_laws(run: Run, file: str) -> None:
    """It holds or fails as it should, and its numbers are in their order, none of them below zero or not finite."""
    assert run(file, "check", "--no-search").exit_code == PLANS[file]
    assert is_lawful(ledger.compile(HERE / file)) == ""


@pytest.mark.parametrize("file", LECTURES)
def test_a_sound_question_has_an_answer(run: Run, file: str) -> None:
    """All of the questions, not some."""
    result = run(file, "check", "--no-search")
    assert (result.exit_code, f"passed: {LECTURES[file]} questions" in result.stdout) == (0, True)


def totals(file: str) -> dict[str, Any]:
    """What a plan comes to."""
    return dict(ledger.compile(HERE / file).totals)


def test_no_resource_slows_a_step_by_being_better() -> None:
    """Of what a step waits for no part is below zero, and the parts are the whole."""
    found = totals("pace-negative.yaml")
    paces = {name: value for name, value in found.items() if name.startswith("pace.")}
    assert {price.pace for price in PRICES} < paces.keys()
    assert min(paces.values()) >= 0
    assert sum(paces.values()) == pytest.approx(1, abs=1e-9)


def test_sharded_gradients_do_not_raise_the_peak() -> None:
    """The two plans differ in ZeRO 1 and 2 alone, and 2 holds a share of the gradients instead of all."""
    one, two = ((HERE / f"zero{stage}-peak.yaml").read_text("utf-8") for stage in (1, 2))
    assert one.replace("zero: 1", "zero: 2") == two
    first, second = totals("zero1-peak.yaml"), totals("zero2-peak.yaml")
    assert second["memory.gradients"] < first["memory.gradients"]
    assert second["memory.peak"] < first["memory.peak"]


def test_what_a_run_took_is_held_against_the_plan(run: Run) -> None:
    """5.5 s with 5 % of tolerance were expected of a step: what the plan says is less, so it fails in that line."""
    step = totals("audit/exp.yaml")["time.step"]
    assert not 0.95 * 5.5 <= step <= 1.05 * 5.5
    result = run("audit/exp.yaml", "check", "--no-search")
    assert f"exp.yaml:9:22: Expected time.step: {step:.6g} s; expected 5.5 s within 5.00%" in result.stdout


def test_figures_of_questions_are_those_of_arithmetic(run: Run, tmp_path: Path) -> None:
    """A mean of 2 x 5 x 12 values in fp32 reads them all and writes ten; a product is two FLOPs for each point."""
    result = run("audit/red.yaml", "report", "--format", "json", "--out", str(tmp_path))
    assert result.exit_code == 0
    mean, product = json.loads((tmp_path / "red.json").read_text("utf-8"))["questions"]
    points, points_of_result = 2 * 5 * 12, 2 * 5
    assert mean["figures"]["forward"]["value"] == points
    assert mean["figures"]["bytes"]["value"] == 4 * (points + points_of_result)
    assert product["figures"]["forward"]["value"] == 2 * (2 * 5 * 3) * 7 * 11
    assert product["figures"]["bytes"]["value"] == 4 * ((2 * 5 * 3) * 7 + 7 * 11 + (2 * 5 * 3) * 11)


def test_figures_of_a_tensor_are_those_of_arithmetic(run: Run, tmp_path: Path) -> None:
    """3 x 777 x 7 x 80 values: 2 B each in fp16; in mxfp8 96 to a row, 1 B each and one of scale for 32."""
    result = run("audit/lec.yaml", "report", "--format", "json", "--out", str(tmp_path))
    assert result.exit_code == 0
    questions = {
        one["id"]: one["figures"] for one in json.loads((tmp_path / "lec.json").read_text("utf-8"))["questions"]
    }
    values = 3 * 777 * 7
    assert questions["t.view"]["bytes"]["value"] == 2 * values * 80
    assert questions["t.mx"]["bytes"]["value"] == values * (96 + 96 // 32)
