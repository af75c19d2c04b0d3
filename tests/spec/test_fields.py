"""A field of a spec is said once: its schema, its reading, its paths, units and defaults come from one row."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import strategies as st
from jsonschema.validators import extend

from ledger.evidence.documents import faults
from ledger.model.dims import LETTERS
from ledger.spec import paths
from ledger.spec.kinds import KINDS, TYPES, schema
from ledger.spec.library import default_library
from ledger.spec.load import load_plan
from ledger.spec.parts import nested_types
from ledger.spec.problems import SpecError
from ledger.spec.quantities import QuantityError, parse_any
from ledger.spec.reader import read
from ledger.spec.structures import NEEDED, Row
from ledger.spec.values import Quantity, Size
from tests.sampling import law
from tests.spec.test_robustness import SCALARS, whole
from tests.spec.test_robustness import paths as places

ROOT = Path(__file__).resolve().parents[2]
ROWS = [(kind, row) for kind in KINDS for row in nested_types(TYPES[kind]) if isinstance(row, Row)]
BEYOND = {"expect"}  # what totals allow is in no schema
SPOILT = [path for path in places(whole()) if path and not BEYOND & set(path)]
BOUNDS = {"zero": "zero", "signed": "signed", "greatest": "greatest", "minimum": "least"}  # keywords of a quantity
ADDED = '    warmth: Annotated[float, At("launch.warmth"), HOST_TIME, "What keeps the host warm."] = 2.0\n'
ASKED = """
from ledger.books.what_if.unknowns import unknown
from ledger.spec.inputs import changes
from ledger.spec.kinds import schema
from ledger.spec.load import load_plan
from ledger.spec.paths import row_at, unit
from ledger.spec.problems import SpecError
import json, sys

path = "stack.launch.warmth"
old, new = load_plan("8b"), load_plan("8b", [f"{path}=3 ms"])
try:
    load_plan("8b", [f"{path}=3 B"])
except SpecError as error:
    refusal = error.problems[0].message
change = changes(old, new)[0]
print(json.dumps({
    "schema": schema("stack")["properties"]["launch"]["properties"]["warmth"],
    "values": [old.stack.warmth, new.stack.warmth],
    "place": str(new.origins[path].where),
    "change": [change.path, change.old, change.new],
    "unit": unit(path),
    "meaning": row_at(path).meaning,
    "refusal": refusal,
    "unknown": unknown(new, path).plan_value,
}))
"""


def quantity(_: object, base: str, instance: object, beside: Mapping[str, Any]) -> Iterator[jsonschema.ValidationError]:
    """The keyword of published schemas that says which unit a value has."""
    value = instance.get("value") if isinstance(instance, dict) else instance
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return
    try:
        if base == "any":
            parse_any(str(value))
        else:
            Quantity(base, **{name: beside[key] for key, name in BOUNDS.items() if key in beside}).parsed(value)
    except QuantityError as error:
        yield jsonschema.ValidationError(error.message)


PUBLISHED = extend(jsonschema.Draft202012Validator, {"quantity": quantity})


def published(kind: str) -> Any:
    """A validator that knows the published schema of a kind, and nothing of the tables."""
    return PUBLISHED({key: value for key, value in schema(kind).items() if key != "$schema"})


def is_expression(path: tuple[str | int, ...], document: Any) -> bool:
    """Whether a size is written as a text there, of which a schema cannot say what it gives."""
    for step in path:
        document = document[step] if isinstance(document, list) else document.get(step)
    row = paths.row_at(".".join(map(str, path)))
    return isinstance(document, str) and row is not None and isinstance(row.type, Size)


@pytest.mark.parametrize("kind", KINDS)
def test_the_library_holds_to_the_published_schemas(kind: str) -> None:
    """Editors have nothing against a file that the compiler reads."""
    for entry in default_library().entries(kind):
        published(kind).validate(read(entry.path.read_text("utf-8"), entry.name).plain())


@law(st.sampled_from(SPOILT), SCALARS | st.lists(SCALARS, max_size=2), st.booleans(), few=60, many=600)
def test_published_schemas_refuse_what_is_refused(path: tuple[Any, ...], value: Any, removed: bool) -> None:
    """A plan spoilt in one place is found fault with by both, or by neither: one table is behind them."""
    plan = whole()
    owner = plan
    for step in path[:-1]:
        owner = owner[step]
    if removed:
        del owner[path[-1]]
    else:
        owner[path[-1]] = value
    try:
        node = read(json.dumps(plan), "spoilt")
    except SpecError:
        return
    found = [fault for fault in faults(node, "plan") if not is_expression(fault.path, node.plain())]
    assert bool(found) != published("plan").is_valid(node.plain()), [fault.problem for fault in found]


def test_every_field_says_what_it_means() -> None:
    """An editor has a text to show for each field, and a default wherever the plan has one that could be written."""
    for kind, row in ROWS:
        shown = row.schema()
        assert shown["description"].strip(), (kind, row.key)
        if isinstance(row.default, bool | str) and row.default and row.needed != NEEDED:
            assert "default" in shown, (kind, row.key)


def test_every_symbol_stands_for_a_field() -> None:
    """A path in the table of symbols is one that a spec can state."""
    for letter in LETTERS:
        assert paths.row_at(letter.path.replace("{group}", "decoder")) is not None, letter


@pytest.mark.parametrize("name", default_library().names("plan"))
def test_paths_lead_from_specs_to_the_plan_and_back(name: str) -> None:
    """`accelerator.memory.driver` of a spec is `accelerator.memory` of the plan."""
    origins = load_plan(name).origins
    for path in [path for path in origins if not any(other.startswith(f"{path}.") for other in origins)]:
        assert paths.spec_path(paths.plan_path(path)) == path
    assert paths.plan_path("accelerator.memory.driver") == "accelerator.memory"
    assert paths.spec_path("model.groups.decoder.repeat") == "model.layers.decoder.repeat"


def test_a_field_is_added_in_one_place(tmp_path: Path) -> None:
    """One line in a dataclass: the schema, the value, its default, unit, path, place and meaning follow from it."""
    shutil.copytree(ROOT / "ledger", tmp_path / "ledger", ignore=shutil.ignore_patterns("__pycache__", "schemas"))
    (tmp_path / "specs").symlink_to(ROOT / "specs")
    file = tmp_path / "ledger" / "spec" / "stack.py"
    before, marker, after = file.read_text("utf-8").partition("    check: Annotated[")
    file.write_text(before + ADDED + marker + after, "utf-8")
    told = subprocess.run([sys.executable, "-c", ASKED], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    answers = json.loads(told.stdout)
    shown = answers.pop("schema")
    assert (shown["description"], shown["default"], shown["quantity"]) == ("What keeps the host warm.", "2 s", "s")
    assert answers == {
        "values": [2.0, 0.003],
        "place": "--set stack.launch.warmth=3 ms:1:27",
        "change": ["stack.launch.warmth", "2 s", "0.003 s"],
        "unit": "s",
        "meaning": "What keeps the host warm.",
        "refusal": "`stack.launch.warmth`: `3 B` is a size, not a time",
        "unknown": 0.003,
    }
