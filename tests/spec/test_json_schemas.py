"""What others write is held to a published schema, and each fault has its path."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from ledger.spec.imports.huggingface.config import config_schema, import_text
from ledger.spec.json_schemas import PublishedSchema
from ledger.spec.problems import Location, SpecError
from tests.invented_configs import INVENTED

CONFIG = Draft202012Validator(config_schema())
CONFIGS = Path(__file__).parent / "published_configs"
BOX = PublishedSchema(
    {
        "type": "object",
        "required": ["name", "sides"],
        "additionalProperties": False,
        "properties": {
            "name": {"type": "string", "maxLength": 8},
            "sides": {"type": "array", "minItems": 2, "items": {"type": "integer", "exclusiveMaximum": 100}},
            "kind": {"enum": ["open", "closed"]},
            "weight": {"type": ["number", "null"], "description": "in kg"},
        },
    }
)
SOUND = {"name": "crate", "sides": [1, 2]}


@pytest.mark.parametrize(
    ("change", "message", "help_text"),
    [
        ({"sides": [1, "2"]}, "`box.sides.1` must be a whole number, not `2`", ""),
        ({"sides": [1, 2.0]}, "`box.sides.1` must be a whole number, not `2.0`", ""),
        ({"sides": [1, True]}, "`box.sides.1` must be a whole number, not `true`", ""),
        ({"sides": [1, 10**400]}, f"`box.sides.1` must be below 100, not {10**400}", ""),
        ({"sides": [1]}, "`box.sides` has 1 entries, and at least 2 are due", ""),
        ({"sides": {}}, "`box.sides` must be a list, not a mapping", ""),
        ({"kind": "opne"}, "`box.kind` cannot be `opne`", "did you mean `open`? (open, closed)"),
        ({"weight": float("nan")}, "`box.weight` must be a number, not `nan`", "in kg"),
        ({"weight": 10**400, "name": "a\x1b[2J"}, "", ""),
        ({"name": "\ud800\x1b[2J" * 4}, "`box.name` has 20 letters, and at most 8 are due", ""),
        ({"wieght": 1}, "`wieght` is no field of `box`", "did you mean `weight`?"),
        ({"\x1b[2J": 1}, "`\\x1b[2J` is no field of `box`", "known: name, sides, kind, weight"),
    ],
)
def test_a_fault_is_told_with_its_path_and_what_is_due(change: dict[str, Any], message: str, help_text: str) -> None:
    """In the words that specs have, in letters that every terminal shows; any finite number is one."""
    said = [(problem.message, problem.help) for problem in BOX.problems({**SOUND, **change}, Location("x"), "box")]
    assert said == ([(message, help_text)] if message else [])


def test_what_is_missing_is_told_key_by_key() -> None:
    """Each missing key is one problem."""
    said = [problem.message for problem in BOX.problems({}, Location("x"), "box")]
    assert said == ["`box` lacks `name`", "`box` lacks `sides`"]


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.json")), ids=lambda path: path.stem)
def test_a_published_config_is_what_the_schema_says(path: Path) -> None:
    """`ledger schema config`, held by `jsonschema` alone, takes what `ledger import` takes."""
    text = path.read_text("utf-8")
    import_text(text, path.name)
    CONFIG.validate(json.loads(text))


@pytest.mark.parametrize("name", INVENTED)
def test_an_invented_config_is_what_the_schema_says(name: str) -> None:
    """Of every family; with a field of no family neither takes it."""
    config = INVENTED[name]
    CONFIG.validate(config)
    assert not CONFIG.is_valid({**config, "hidden_sizess": 1})
    with pytest.raises(SpecError, match="`hidden_sizess` is no known field"):
        import_text(json.dumps({**config, "hidden_sizess": 1}), "config.json")


def test_a_fault_within_a_field_is_told_with_its_path() -> None:
    """The value of the field, and where in it."""
    config = {"model_type": "gemma3_text", "rope_parameters": {"sliding_attention": {"rope_theta": "1e4"}}}
    with pytest.raises(SpecError, match=r'`rope_parameters` is .*: `sliding_attention.rope_theta` is "1e4"'):
        import_text(json.dumps(config), "config.json")
