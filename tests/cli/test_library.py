"""`ledger list`, `schema` and `init`: what a newcomer tries first."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import jsonschema
import pytest
from click.testing import Result

from ledger.spec.kinds import TYPES
from ledger.spec.library import default_library
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


@pytest.mark.parametrize(("kind", "names"), [("plan", ["plan"]), (None, [*TYPES, "lecture"])])
def test_schemas_are_written_as_they_are_asked_for(
    command_line: CommandLine, kind: str | None, names: list[str]
) -> None:
    """One kind alone, or all that a spec may be."""
    assert command_line("schema", *([kind] if kind else []), "--out", "there").exit_code == 0
    assert sorted(path.name for path in Path("there").iterdir()) == sorted(f"{name}.schema.json" for name in names)


def test_a_schema_is_complete_in_itself(command_line: CommandLine) -> None:
    """An editor without a network, and one that has the file alone, knows all of it."""
    for kind in TYPES:
        text = command_line("schema", kind).stdout
        referred = set(re.findall(r'"\$ref": "([^"]*)"', text))
        assert all(address.startswith("#/$defs/") for address in referred)
        assert {address.removeprefix("#/$defs/") for address in referred} <= json.loads(text).get("$defs", {}).keys()


@pytest.mark.parametrize("kind", ["accelerator", "cluster", "model", "precision", "optimizer", "stack"])
def test_editors_complete_the_names_of_the_library(command_line: CommandLine, kind: str) -> None:
    """Every name of the kind is offered where a part is named; what is offered hides no description of the key."""
    whole = json.loads(command_line("schema", "plan").stdout)
    named, *_ = whole["properties"][kind]["anyOf"]
    assert named["anyOf"][0] == {"enum": list(default_library().names(kind))}
    assert not any("description" in one for one in named["anyOf"])


def test_every_key_says_what_it_is(command_line: CommandLine) -> None:
    """Editors show the description of the key under the cursor: a property without one shows nothing."""
    bare = sorted(undescribed(json.loads(command_line("schema", "plan").stdout), ""))
    assert bare == []


def undescribed(schema: object, path: str) -> Iterator[str]:
    """Properties of a schema that have no description, but in conditions."""
    if isinstance(schema, list):
        for place, inner in enumerate(schema):
            yield from undescribed(inner, f"{path}/{place}")
    if isinstance(schema, dict):
        found = schema.get("properties", {})
        yield from (f"{path}/{name}" for name, one in found.items() if not one.get("description"))
        for key, inner in schema.items():
            if key != "if":
                yield from undescribed(inner, f"{path}/{key}")


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
