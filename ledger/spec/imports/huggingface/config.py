"""A Hugging Face config.json -> the text of a model spec."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from ledger.spec.imports.huggingface.families import FAMILIES, WRAPPED
from ledger.spec.imports.huggingface.fields import Family
from ledger.spec.imports.text import model_text
from ledger.spec.problems import Location, Problem, SpecError
from ledger.spec.reader import LARGEST, Node, read

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
    problems = list(family.problems(config)) or list(_mismatches(config, family))
    if problems:
        raise SpecError(problems)
    name = _title(whole, file)
    source = f"config.json of {name} (Hugging Face), a {family.config}, through `ledger import`"
    return model_text({"spec": "ledger/1", "model": name, "source": source, **family.build(family.values(config))})


def _parse(text: str, file: str) -> Node:
    try:
        parsed = json.loads(text) if len(text) <= LARGEST else {}
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
    close = difflib.get_close_matches(name, (*FAMILIES, *WRAPPED), 1)
    meant = f"is `{close[0]}` meant? " if close else ""
    message = f"`model_type` is {json.dumps(config.fields['model_type'].plain())}, of which no model can be made"
    raise SpecError([Problem(config.keys["model_type"], message, f"{meant}known are {names}")])


def _mismatches(config: Node, family: Family) -> Iterator[Problem]:
    """Values that are each possible, and together make no model that transformers builds and runs."""
    written = {family.aliases.get(key, key): where for key, where in config.keys.items()}
    values = family.values(config)
    architectures = config.fields["architectures"].plain() if "architectures" in config.fields else None
    if architectures and architectures != [family.architecture]:
        message = f"`architectures` is {json.dumps(architectures)}"
        yield Problem(written["architectures"], message, f'understood is ["{family.architecture}"]')
    width, heads = values["hidden_size"], values["num_attention_heads"]
    kv_heads = values.get("num_key_value_heads") or heads
    by_heads = written.get("num_attention_heads", written.get("hidden_size", config.where))
    if (family.divides and width % heads) or width < heads:
        yield Problem(by_heads, f"a width of {width} is no multiple of {heads} heads", f"{family.config} refuses it")
    if heads % kv_heads:
        message = f"{heads} query heads cannot share {kv_heads} key and value heads"
        yield Problem(written.get("num_key_value_heads", by_heads), message, "a divisor of the number of query heads")
    if values.get("num_experts_per_tok", heads) is None:
        yield Problem(config.where, "no `num_experts_per_tok`", "how many experts a token uses")
    layers = values["num_hidden_layers"]
    for key, what in (("layer_types", "layer types"), ("no_rope_layers", "marks of rotation")):
        listed = values.get(key)
        if listed and len(listed) != layers:
            yield Problem(written[key], f"{len(listed)} {what} for {layers} layers", "one for each layer")


def _title(config: Node, file: str) -> str:
    named = config.fields["_name_or_path"].plain() if "_name_or_path" in config.fields else None
    last = str(named or "").rstrip("/").rsplit("/", 1)[-1]
    path = Path(file).absolute()
    stem = path.parent.name if path.stem == "config" else path.stem
    words = (last, stem, str(config.fields["model_type"].plain()))
    printable = ("".join(letter for letter in word if letter.isprintable()).strip() for word in words)
    return next(word for word in printable if word)[:LONGEST_TITLE]
