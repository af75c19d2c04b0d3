"""A Hugging Face config.json -> the text of a model spec."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from ledger.spec.imports.huggingface.checks import all_values, problems
from ledger.spec.imports.huggingface.families import FAMILIES, WRAPPED
from ledger.spec.imports.huggingface.family import Family
from ledger.spec.imports.parts import suggestion
from ledger.spec.imports.text import model_text
from ledger.spec.problems import Location, Problem, SpecError
from ledger.spec.reader import LARGEST_TEXT, Node, read

LONGEST_TITLE = 200


def import_config(path: str | Path) -> str:
    """The YAML text of the model spec that a config.json, or the folder that holds one, describes; raises SpecError."""
    file = Path(path)
    file = file / "config.json" if file.is_dir() else file
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise SpecError(
            [Problem(Location(str(file)), f"cannot be read: {reason}", "a config.json, or its folder")]
        ) from error
    return import_text(text, str(file))


def import_text(text: str, file: str) -> str:
    """The YAML text of the model spec that the text of a config.json describes; raises SpecError."""
    whole = _parse(text, file)
    config, family = _decoder(whole)
    wrong = problems(family, config)
    if wrong:
        raise SpecError(wrong)
    name = _title(whole, file)
    source = f"config.json of {name} (Hugging Face), a {family.config}, through `ledger import`"
    document = family.document(all_values(family, config))
    return model_text({"spec": "ledger/1", "model": name, "source": source, **document})


def _parse(text: str, file: str) -> Node:
    try:
        parsed = json.loads(text) if len(text) <= LARGEST_TEXT else {}
    except json.JSONDecodeError as error:
        where = Location(file, error.lineno, error.colno)
        raise SpecError(
            [Problem(where, f"not valid JSON: {error.msg}", "a config.json as transformers writes it")]
        ) from error
    except (RecursionError, ValueError) as error:
        raise SpecError([Problem(Location(file), "nested or long beyond reason", "is this the right file?")]) from error
    if not isinstance(parsed, dict):
        raise SpecError([Problem(Location(file), "a config.json is one JSON object", "is this the right file?")])
    return read(text.replace("\t", " "), file)  # JSON may indent with tabs, and has them nowhere else


def _decoder(config: Node) -> tuple[Node, Family]:
    """The decoder's own configuration, and what it is."""
    names = ", ".join((*FAMILIES, *WRAPPED))
    if "model_type" not in config.fields:
        raise SpecError([Problem(config.where, "no `model_type`", f"known are {names}")])
    name = str(config.fields["model_type"].plain())
    if name in WRAPPED:
        key, inner = WRAPPED[name]
        if isinstance(config.fields.get(key, Node(None, config.where)).value, Mapping):
            return config.fields[key], FAMILIES[inner]
        raise SpecError(
            [Problem(config.keys["model_type"], f"`{name}` without `{key}`", "the decoder is described there")]
        )
    if name in FAMILIES:
        return config, FAMILIES[name]
    meant = suggestion(name, (*FAMILIES, *WRAPPED))
    message = f"`model_type` is {json.dumps(config.fields['model_type'].plain())}, of which no model can be made"
    raise SpecError([Problem(config.keys["model_type"], message, f"{meant}known are {names}")])


def _title(config: Node, file: str) -> str:
    named = config.fields["_name_or_path"].plain() if "_name_or_path" in config.fields else None
    last = str(named or "").rstrip("/").rsplit("/", 1)[-1]
    path = Path(file).absolute()
    stem = path.parent.name if path.stem == "config" else path.stem
    words = (last, stem, str(config.fields["model_type"].plain()))
    printable = ("".join(letter for letter in word if letter.isprintable()).strip() for word in words)
    return next(word for word in printable if word)[:LONGEST_TITLE]
