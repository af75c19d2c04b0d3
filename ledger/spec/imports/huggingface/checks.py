"""What speaks against reading a configuration as one of a family."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice

from ledger.spec.imports.huggingface.family import Family
from ledger.spec.imports.huggingface.fields import FIXED, WITHOUT_EFFECT
from ledger.spec.imports.huggingface.terms import Values
from ledger.spec.imports.parts import suggestion
from ledger.spec.problems import MOST_PROBLEMS, Problem
from ledger.spec.reader import Node


def all_values(family: Family, config: Node) -> Values:
    """Every field that shapes the model, the class's default where the file has none."""
    given = {family.aliases.get(key, key): node.plain() for key, node in config.fields.items()}
    return {name: given.get(name, known.default) for name, known in family.fields.items()}


def problems(family: Family, config: Node) -> list[Problem]:
    """Fields that are not understood and values that theirs cannot have; else those that do not go together."""
    return list(islice(_misfits(family, config), MOST_PROBLEMS)) or list(_mismatches(family, config))


def _misfits(family: Family, config: Node) -> Iterator[Problem]:
    for key, node in config.fields.items():
        where, name = config.keys[key], family.aliases.get(key, key)
        known = None if key in family.ignored else family.fields.get(name) or FIXED.get(name)
        if name != key and name in config.fields and config.fields[name].plain() != node.plain():
            yield Problem(where, f"`{key}` and `{name}` are one field of {family.config}", "keep one of them")
        elif known and not known.kind.accepts(node.plain()):
            yield Problem(where, f"`{key}` is {_shown(node)}", f"understood is: {known.kind.must}")
        elif not known and key not in WITHOUT_EFFECT | family.ignored:
            yield Problem(where, f"`{key}` is no known field of {family.config}", _meant(family, key))


def _meant(family: Family, key: str) -> str:
    meant = suggestion(key, [*family.fields, *family.aliases], 0.8)
    return f"{meant}remove it where it changes neither shapes nor dropout; else write the model spec by hand"


def _shown(node: Node) -> str:
    text = json.dumps(node.plain(), ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


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
    for key, what in (("layer_types", "layer types"), ("no_rope_layers", "marks of rotation")):
        listed = values.get(key)
        if listed and len(listed) != layers:
            yield Problem(written[key], f"{len(listed)} {what} for {layers} layers", "one for each layer")
