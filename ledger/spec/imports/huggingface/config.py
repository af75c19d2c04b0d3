"""A Hugging Face config.json -> the text of a model spec."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from ledger.spec.imports.huggingface.families import FAMILIES, WRAPPED
from ledger.spec.imports.huggingface.family import Family, Wrapping
from ledger.spec.imports.huggingface.terms import Values
from ledger.spec.imports.text import model_text, suggestion
from ledger.spec.kinds import DIALECT
from ledger.spec.problems import MOST_PROBLEMS, Location, Problem, SpecError
from ledger.spec.reader import LARGEST_TEXT, Node, read
from ledger.spec.sources import from_file
from ledger.spec.values import Schema

LONGEST_TITLE = 200
# Ends of the names of classes.
HEADS = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "ForImageClassification", "Model")


@dataclass(frozen=True)
class UnbuiltField:
    """A field of a file that transformers saves and builds nothing of, and the part of a spec that would say it."""

    where: Location
    name: str
    value: int
    part: Mapping[str, Any]


@dataclass(frozen=True)
class ConfigModel:
    """The model of a config.json as a plan has it, and the fields of the file that are not in it."""

    document: dict[str, Any]
    unbuilt: tuple[UnbuiltField, ...] = ()


def import_config(path: str | Path) -> str:
    """The YAML text of the model spec that a config.json, or the folder that holds one, describes; raises SpecError."""
    return model_text({"spec": "ledger/1", **config_model(path).document})


def config_model(path: str | Path) -> ConfigModel:
    """The model that a config.json, or the folder that holds one, describes; raises SpecError."""
    file = Path(path)
    file = file / "config.json" if file.is_dir() else file
    return _model(from_file(file).text, str(file))


def import_text(text: str, file: str) -> str:
    """The YAML text of the model spec that the text of a config.json describes; raises SpecError."""
    return model_text({"spec": "ledger/1", **_model(text, file).document})


def _model(text: str, file: str) -> ConfigModel:
    root = _parse(text, file)
    config, family = _decoder(root)
    found_problems = problems(family, config)
    if found_problems:
        raise SpecError(found_problems)
    values = all_values(family, config)
    document = family.document(values)
    name = _title(root, file, f"{family.depth(values)} layers of {document['d_model']}")
    source = f"config.json of {name} (Hugging Face), a {family.config}, through `ledger import`"
    source += "".join(f"; {words}" for key, words in family.assumed.items() if key not in config.fields)
    return ConfigModel({"model": name, "source": source, **document}, tuple(_unbuilt_fields(family, config)))


def _unbuilt_fields(family: Family, config: Node) -> Iterator[UnbuiltField]:
    """Fields that count parts which the architecture does not have."""
    for key, node in config.fields.items():
        path, count = family.unbuilt.get(family.aliases.get(key, key)), node.value
        if path and isinstance(count, int) and count:
            part, _, field = path.partition(".")
            yield UnbuiltField(config.keys[key], key, count, {part: {field: count}})


def _parse(text: str, file: str) -> Node:
    try:
        parsed = json.loads(text, parse_int=float) if len(text) <= LARGEST_TEXT else {}
    except json.JSONDecodeError as error:
        where = Location(file, error.lineno, error.colno)
        problem = Problem(where, f"not valid JSON: {error.msg}", "a config.json as transformers writes it")
        raise SpecError([problem]) from error
    except (RecursionError, ValueError) as error:
        raise SpecError([Problem(Location(file), "nested or long beyond reason", "is this the right file?")]) from error
    if not isinstance(parsed, dict):
        raise SpecError([Problem(Location(file), "a config.json is one JSON object", "is this the right file?")])
    return read(text.replace("\t", " "), file)  # JSON may indent with tabs, and has them nowhere else


def _decoder(config: Node) -> tuple[Node, Family]:
    """The decoder's own configuration, and its family."""
    names = ", ".join((*FAMILIES, *WRAPPED))
    if "model_type" not in config.fields:
        raise SpecError([Problem(config.where, "no `model_type`", f"known are {names}")])
    name = str(config.fields["model_type"].plain())
    if name in WRAPPED:
        return _decoder_node(config, WRAPPED[name]), FAMILIES[WRAPPED[name].family]
    if name in FAMILIES:
        return config, FAMILIES[name]
    meant = suggestion(name, (*FAMILIES, *WRAPPED))
    message = f"`model_type` is {json.dumps(config.fields['model_type'].plain())}, of which no model can be made"
    raise SpecError([Problem(config.keys["model_type"], message, f"{meant}known are {names}")])


def _decoder_node(config: Node, wrapping: Wrapping) -> Node:
    """The decoder's own fields in the file of a model of text and more."""
    inner = config.fields.get(wrapping.part, Node(None, config.where))
    if isinstance(inner.value, Mapping):
        names = [name for name in wrapping.outside if name in config.fields and name not in inner.fields]
        return inner.within({name: config.fields[name] for name in names}, {name: config.keys[name] for name in names})
    if wrapping.foreign_fields:
        decoder_fields = {name: node for name, node in config.fields.items() if name not in wrapping.foreign_fields}
        return Node(decoder_fields, config.where, config.keys)
    message = f"`{config.fields['model_type'].plain()}` without `{wrapping.part}`"
    raise SpecError([Problem(config.keys["model_type"], message, "the decoder is described there")])


def _title(config: Node, file: str, shape: str) -> str:
    """The name that the model was saved under, else that of its file, else its architecture with its shape.

    A folder is called whatever its owner likes, and `config.json` is no name.
    """
    named = config.fields["_name_or_path"].plain() if "_name_or_path" in config.fields else None
    last = str(named or "").rstrip("/").rsplit("/", 1)[-1]
    stem = Path(file).stem
    words = (last, "" if stem == "config" else stem, f"{_architecture(config)}, {shape}")
    printable = ("".join(letter for letter in word if letter.isprintable()).strip() for word in words)
    return next(word for word in printable if word)[:LONGEST_TITLE]


def _architecture(config: Node) -> str:
    """The class of the model without its head: `LlamaForCausalLM` is a Llama; else the type of the model."""
    listed = config.fields.get("architectures")
    classes = [str(node.value) for node in listed.items] if listed and isinstance(listed.value, tuple) else []
    name = classes[0] if classes else str(config.fields["model_type"].plain())
    head = next((end for end in HEADS if name.endswith(end) and name != end), "")
    return name.removesuffix(head)


# --- problems of a configuration as one of a family ---


def all_values(family: Family, config: Node) -> Values:
    """Every field that shapes the model, the class's default where the file has none."""
    stated = {family.aliases.get(key, key): node.plain() for key, node in config.fields.items()}
    return {name: stated.get(name, field.default) for name, field in family.fields.items()}


def problems(family: Family, config: Node) -> list[Problem]:
    """Fields that are not understood and values that theirs cannot have; else those that do not go together."""
    return list(islice(_misfits(family, config), MOST_PROBLEMS)) or list(_mismatches(family, config))


def _misfits(family: Family, config: Node) -> Iterator[Problem]:
    """Fields that the schema of the family does not allow, and two names of one field that differ."""
    for key, node in config.fields.items():
        name = family.aliases.get(key, key)
        if name != key and name in config.fields and config.fields[name].plain() != node.plain():
            yield Problem(
                config.keys[key], f"`{key}` and `{name}` are one field of {family.config}", "keep one of them"
            )
    properties = family.schema.content["properties"]
    for error in family.schema.errors(config.plain()):
        if error.absolute_path:
            key, *inner = error.absolute_path
            message = f"`{key}` is {_short_json(config.fields[key].plain())}"
            message += f": `{'.'.join(map(str, inner))}` is {_short_json(error.instance)}" if inner else ""
            yield Problem(config.keys[key], message, f"understood is: {properties[key]['description']}")
            continue
        for key in config.fields.keys() - properties.keys():
            help_text = suggestion(key, [*family.fields, *family.aliases], 0.8)
            help_text += "remove it where it changes neither shapes nor dropout; else write the model spec by hand"
            yield Problem(config.keys[key], f"`{key}` is no known field of {family.config}", help_text)


def _short_json(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


def config_schema() -> Schema:
    """The schema of the config.json files that can be imported, of which each family has its own."""
    by_type = {
        **{name: {"$ref": f"#/$defs/{name}"} for name in FAMILIES},
        **{name: {"properties": {row.part: {"$ref": f"#/$defs/{row.family}"}}} for name, row in WRAPPED.items()},
    }
    return {
        "$schema": DIALECT,
        "title": "A config.json of Hugging Face transformers that `ledger import` reads",
        "type": "object",
        "required": ["model_type"],
        "properties": {"model_type": {"enum": list(by_type), "description": "The family of the model."}},
        "allOf": [
            {"if": {"properties": {"model_type": {"const": name}}}, "then": schema} for name, schema in by_type.items()
        ],
        "$defs": {name: family.schema.content for name, family in FAMILIES.items()},
    }


def _mismatches(family: Family, config: Node) -> Iterator[Problem]:
    """Values that are each possible, and together make no model that transformers builds and runs."""
    written = {family.aliases.get(key, key): where for key, where in config.keys.items()}
    values = all_values(family, config)
    architectures = config.fields["architectures"].plain() if "architectures" in config.fields else None
    if architectures and architectures not in ([family.architecture], *([former] for former in family.formerly)):
        message = f"`architectures` is {json.dumps(architectures)}"
        yield Problem(written["architectures"], message, f'understood is ["{family.architecture}"]')
    heads = values.get("num_attention_heads", 1)  # 1: a class without attention
    width = values.get("hidden_size", heads)
    kv_heads = values.get("num_key_value_heads") or heads
    by_heads = written.get("num_attention_heads", written.get("hidden_size", config.where))
    if (family.divides and width % heads) or width < heads:
        yield Problem(by_heads, f"a width of {width} is no multiple of {heads} heads", f"{family.config} refuses it")
    if heads % kv_heads:
        message = f"{heads} query heads cannot share {kv_heads} key and value heads"
        yield Problem(written.get("num_key_value_heads", by_heads), message, "a divisor of the number of query heads")
    if values.get("num_experts_per_tok", heads) is None:
        yield Problem(config.where, "no `num_experts_per_tok`", "how many experts a token uses")
    for key, clash in family.clashes.items():
        if message := clash(values):
            yield Problem(written.get(key, config.where), message, f"{family.config} builds no model of it that runs")
    layers = values.get("num_hidden_layers")
    for key, noun in (("layer_types", "layer types"), ("no_rope_layers", "marks of rotation")):
        listed = values.get(key)
        if listed and len(listed) != layers:
            yield Problem(written[key], f"{len(listed)} {noun} for {layers} layers", "one for each layer")
