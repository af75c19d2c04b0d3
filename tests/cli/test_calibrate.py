"""`ledger calibrate`: what it prints and writes, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from click.testing import Result
from jsonschema import Draft202012Validator

from ledger.spec.load import load_accelerator

Ledger = Callable[..., Result]
SCHEMA = Path(__file__).resolve().parents[2] / "ledger" / "cli" / "schemas" / "calibrate.schema.json"


def test_a_spec_comes_out_that_a_plan_can_name(command_line: Ledger) -> None:
    """Printed without --out; its base is the library's device, and fitted prices cite their file."""
    result = command_line("calibrate", "h100-sxm-nccl")
    assert result.exit_code == 0
    document = yaml.safe_load(result.stdout)
    assert document["base"] == "h100-sxm"
    cited = [row["what"] for row in document["calibration"] if "h100-sxm-nccl.yaml" in row["source"]]
    assert set(cited) == {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"}
    assert len(document["calibration"]) == len(load_accelerator("h100-sxm").calibration)


def test_the_spec_and_a_page_are_written_where_they_are_asked_for(command_line: Ledger, tmp_path: Path) -> None:
    """The page is one file without a network, one circle for each measurement; the spec passes `ledger check`."""
    result = command_line("calibrate", "h100-sxm-nccl", "--out", "mine.yaml", "--html", "page.html")
    assert result.exit_code == 0
    assert result.stdout == ""
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.count("<circle") == 132  # four collectives, three group sizes, eleven messages
    assert "default-src &#39;none&#39;" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    checked = command_line("check", "8b", "--set", f"accelerator={tmp_path / 'mine.yaml'}")
    assert checked.exit_code == 0, checked.output


def test_the_table_has_a_row_for_each_set(command_line: Ledger) -> None:
    """Twelve sets of collectives and two of sends, of two files of one device, each with an error."""
    result = command_line("calibrate", "--table", "h100-sxm-nccl", "h100-sxm-send")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert len(lines) == 1 + 12 + 2
    assert all("%" in line for line in lines[1:])


def test_json_keeps_to_its_schema(command_line: Ledger) -> None:
    """What programs read is a contract; a set without a fit has no error."""
    result = command_line("calibrate", "--json", "h100-sxm-send", "mi300x-matmul")
    published = json.loads(result.stdout)
    Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(published)
    errors = {row["device"]: row["held_out_error"] for row in published["rows"]}
    assert errors["mi300x"] is None
    assert errors["h100-sxm"] is not None


def test_files_of_two_devices_make_no_spec(command_line: Ledger) -> None:
    """A spec is of one device, so both names are told, and exit is 2."""
    result = command_line("calibrate", "h100-sxm-send", "a100-sxm-80gb-send")
    assert result.exit_code == 2
    assert "h100-sxm, a100-sxm-80gb" in " ".join(result.stderr.split())


def test_a_name_that_nothing_has_is_told_with_what_it_may_be(command_line: Ledger) -> None:
    """A typo offers the nearest names, and nothing is written."""
    result = command_line("calibrate", "h100-sxm-ncl", "--out", "mine.yaml")
    assert result.exit_code == 2
    assert "h100-sxm-nccl" in result.stderr
    assert not Path("mine.yaml").exists()


def test_a_file_of_whole_runs_has_nothing_to_fit(command_line: Ledger) -> None:
    """Runs belong to `ledger score`."""
    result = command_line("calibrate", "korthikanti-2022")
    assert result.exit_code == 2
    assert "no microbenchmark" in result.stderr


def test_bad_records_leave_what_was_there(command_line: Ledger, tmp_path: Path) -> None:
    """A negative time is told with its line; the file that --out names stays as it was."""
    (tmp_path / "mine.yaml").write_text("accelerator: mine\n", encoding="utf-8")
    (tmp_path / "bad.yaml").write_text(
        "spec: ledger/1\nevidence: Bad\ndevice: h100-sxm\nsource: this test\norigin: {method: none}\n"
        "records:\n  - {what: copy, unit: us, bytes: 1000, value: -3}\n",
        encoding="utf-8",
    )
    result = command_line("calibrate", "bad.yaml", "--out", "mine.yaml")
    assert result.exit_code == 2
    assert "bad.yaml:7" in result.stderr
    assert (tmp_path / "mine.yaml").read_text(encoding="utf-8") == "accelerator: mine\n"


def test_the_spec_and_its_page_are_two_files(command_line: Ledger) -> None:
    """A page's name for the spec would have one overwrite the other."""
    result = command_line("calibrate", "h100-sxm-send", "--out", "mine.html")
    assert result.exit_code == 2
    assert "mine.yaml" in result.stderr
    assert not Path("mine.html").exists()


@pytest.mark.parametrize("text", ["spec: ledger/1\nevidence: mine\n", "accelerator: h100-sxm\nplan: P\n", "", "a: [\n"])
def test_other_files_are_not_written_over(command_line: Ledger, tmp_path: Path, text: str) -> None:
    """--out takes a new file or a spec of an accelerator; measurements, a plan or anything else stay what they are."""
    own = tmp_path / "own.yaml"
    own.write_text(text, encoding="utf-8")
    result = command_line("calibrate", "h100-sxm-send", "--out", "own.yaml")
    assert result.exit_code == 2
    assert "own.yaml:" in result.output
    assert own.read_text(encoding="utf-8") == text


def test_a_spec_may_be_written_anew(command_line: Ledger) -> None:
    """Calibrating again replaces the prices that it made."""
    for _ in range(2):
        assert command_line("calibrate", "h100-sxm-send", "--out", "mine.yaml").exit_code == 0
