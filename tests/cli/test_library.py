"""`ledger list`, `schema` and `init`: what a newcomer tries first."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
from click.testing import Result

from ledger.spec.quantities import DIMENSIONS, parse_any

CommandLine = Callable[..., Result]
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("kind", ["model", "models"])
def test_list_names_every_file_of_a_kind(command_line: CommandLine, kind: str) -> None:
    """What is in the folder can be named in a plan, and nothing else is listed."""
    listed = json.loads(command_line("list", kind, "--json").stdout)
    assert {entry["name"] for entry in listed} == {path.stem for path in (ROOT / "specs" / "models").glob("*.yaml")}
    assert all(entry["title"] for entry in listed)


def test_list_of_all_kinds_is_a_table(command_line: CommandLine) -> None:
    """Without a kind, everything, one spec a line."""
    lines = command_line("list").stdout.splitlines()
    assert lines[0].split() == ["kind", "name", "title"]
    assert any(line.startswith("accelerator") and "h100-sxm" in line for line in lines)


@pytest.mark.parametrize("verb", ["list", "schema"])
def test_unknown_kinds_are_told_the_known_ones(command_line: CommandLine, verb: str) -> None:
    """A wrong kind is a usage error that lists the right ones."""
    result = command_line(verb, "modle")
    assert result.exit_code == 2
    assert "model" in result.stderr


def test_every_schema_is_one(command_line: CommandLine) -> None:
    """Each listed kind prints a valid JSON Schema."""
    kinds = command_line("schema").stdout.split()
    assert {"plan", "accelerator", "model", "show"} <= set(kinds)
    for kind in kinds:
        jsonschema.Draft202012Validator.check_schema(json.loads(command_line("schema", kind).stdout))


def test_init_starts_with_a_modeline_that_leads_to_the_schema(command_line: CommandLine, tmp_path: Path) -> None:
    """An editor finds the schema from the file itself, and the rest is the plan to start from."""
    result = command_line("init", "mine.yaml")
    assert (result.exit_code, result.stdout) == (0, "mine.yaml\n")
    first, second, *_ = (tmp_path / "mine.yaml").read_text(encoding="utf-8").splitlines()
    address = first.removeprefix("# yaml-language-server: $schema=").removeprefix("file://")
    assert json.loads(Path(address).read_text(encoding="utf-8"))
    assert second == "spec: ledger/1"


def test_init_overwrites_nothing(command_line: CommandLine, tmp_path: Path) -> None:
    """A plan that someone wrote stays as it is."""
    (tmp_path / "plan.yaml").write_text("mine", encoding="utf-8")
    result = command_line("init")
    assert result.exit_code == 2
    assert "plan.yaml exists already" in result.stderr
    assert (tmp_path / "plan.yaml").read_text(encoding="utf-8") == "mine"


def test_units_lists_what_the_reader_takes(command_line: CommandLine) -> None:
    """What is listed can be written in a spec, as that quantity; each dimension has an example that parses."""
    rows = json.loads(command_line("units", "--json").stdout)
    assert {row["measures"] for row in rows} == {dimension.noun for dimension in DIMENSIONS.values()}
    for row in rows:
        texts = (row["example"].split(" or ")[0], *(f"1 {unit}" for unit in row["units"]))
        assert {DIMENSIONS[parse_any(text)[1]].noun for text in texts} == {row["measures"]}
    assert "GiB" in command_line("units").stdout


def test_stacks_are_listed_with_what_they_assume(command_line: CommandLine) -> None:
    """A user tells one software from another: framework, version, date, scored devices, what figures hang on."""
    listed = {entry["name"]: entry for entry in json.loads(command_line("list", "stacks", "--json").stdout)}
    assert all(entry["framework"] and entry["version"] and entry["date"] for entry in listed.values())
    megatron = listed["megatron-core-2025"]
    assert (megatron["framework"], megatron["scored on"]) == ("Megatron-Core", "b200-simumax")
    for said in ("eager", "attention cudnn_grouped", "tensor transfers behind userbuffers", "context by ring"):
        assert said in megatron["assumes"].split(", ")
    assert "gradients bf16" in listed["megatron-bridge-2025"]["assumes"]
    lines = command_line("list", "stack").stdout.splitlines()
    assert lines[0].split()[:4] == ["name", "framework", "version", "date"]
    assert len(lines) == len(listed) + 1
