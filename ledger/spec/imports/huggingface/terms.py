"""What a configuration says of a model, term by term, each read both ways: config.json to spec, spec to config.json."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

from ledger.spec.imports.huggingface.fields import ACTIVATIONS

Values = Mapping[str, Any]  # every field of a configuration, by name


@dataclass(frozen=True)
class Term:
    """One value of a model: its `paths` in a model spec, how it follows from a configuration, and how it is put there.

    `kinds`: the kinds of layers that have it; empty: all of them.
    """

    paths: tuple[str, ...]
    read: Callable[[Values], Any]
    write: Callable[[Any], Values]  # of the value at the first path
    kinds: tuple[str, ...] = ()


def same(name: str, *paths: str) -> Term:
    """A field that is the value itself."""
    return Term(paths, itemgetter(name), lambda value: {name: value})


def fixed(part: str, **values: Any) -> tuple[Term, ...]:
    """What a part of every model of a family has, whatever its configuration; part "" is the layer itself."""
    return tuple(
        derived(f"{part}.{name}" if part else name, lambda _, value=value: value)  # type: ignore[misc]
        for name, value in values.items()
    )


def derived(path: str, read: Callable[[Values], Any]) -> Term:
    """What follows from fields that other terms write."""
    return Term((path,), read, lambda _: {})


def choice(name: str, path: str, meaning: Mapping[Any, Any]) -> Term:
    """A field of a few values, each with its meaning; None is what the spec language takes by itself."""
    written = {word: value for value, word in meaning.items()}
    return Term(
        (path,), lambda values: meaning[values[name]], lambda word: {name: written.get(word, written.get(None))}
    )


def switched(switch: str, name: str, path: str) -> Term:
    """A field that counts only where a second one is true."""
    return Term(
        (path,),
        lambda values: values[name] if values[switch] else None,
        lambda value: {switch: value is not None, name: value},
    )


def activation(name: str = "hidden_act", path: str = "mlp.activation", **others: str) -> Term:
    """A nonlinearity under transformers' name; `others` are names that mean something else to a family."""
    known = {**ACTIVATIONS, **others}
    written = {"gelu_tanh": "gelu_pytorch_tanh"}
    return Term((path,), lambda values: known[values[name]], lambda value: {name: written.get(value, value)})


def of(kinds: str, *terms: Term) -> tuple[Term, ...]:
    """Terms of layers of some kinds alone."""
    return tuple(replace(term, kinds=tuple(kinds.split())) for term in terms)


# What is not of a layer.
OUTSIDE = (
    same("hidden_size", "d_model"),
    same("vocab_size", "vocab"),
    Term(("max_seq_len",), itemgetter("max_position_embeddings"), lambda most: {"max_position_embeddings": most or 1}),
    same("tie_word_embeddings", "embedding.tied"),
)


def norms(kind: str, place: str = "pre", **others: bool) -> tuple[Term, ...]:
    """All norms of a family, and where a layer has them."""
    return (*fixed("norm", kind=kind, **others), *fixed("", norms=place))


# Heads of attention: as many of keys as of queries where nothing is said, as wide as fit into the stream.
HEADS = same("num_attention_heads", "attention.heads")
KEY_HEADS = Term(
    ("attention.kv_heads",),
    lambda values: values["num_key_value_heads"] or values["num_attention_heads"],
    lambda value: {"num_key_value_heads": value},
)
HEAD_DIM = Term(
    ("attention.head_dim",),
    lambda values: values["head_dim"] or values["hidden_size"] // values["num_attention_heads"],
    lambda value: {"head_dim": value},
)
GROUPED = (HEADS, KEY_HEADS, HEAD_DIM)
EQUAL_HEADS = derived("attention.kv_heads", lambda values: values["num_attention_heads"])
SPLIT_WIDTH = derived("attention.head_dim", lambda values: values["hidden_size"] // values["num_attention_heads"])
BIASES = same("attention_bias", "attention.qkv_bias", "attention.out_bias")
DROPOUT = same("attention_dropout", "attention.dropout")
WINDOW = same("sliding_window", "attention.window")
ROTARY = fixed("attention", rotary=1)


def partly_rotary(share: str) -> Term:
    """A share of each head that is rotated: among the rotary parameters, or in a field of its own."""

    def read(values: Values) -> Any:
        return (values["rope_scaling"] or values["rope_parameters"] or {}).get("partial_rotary_factor", values[share])

    def write(value: Any) -> Values:
        return {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": value}}

    return Term(("attention.rotary",), read, write)


def rotary_base(kind: str, name: str) -> Term:
    """The base of rotation of one kind of layers, in the spelling of transformers 5 or, in `name`, of before it."""

    def read(values: Values) -> int:
        return int((values["rope_parameters"] or {}).get(kind, {}).get("rope_theta", values[name]))

    def write(value: Any) -> Values:
        return {"rope_parameters": {kind: {"rope_type": "default", "rope_theta": float(value)}}}

    return Term(("attention.rotary_base",), read, write)


def mlp(kind: str, width: str | Term = "intermediate_size", nonlinearity: Term | None = None) -> tuple[Term, ...]:
    """A plain or gated feed-forward part, or the like of every expert."""
    inner = same(width, "mlp.d_ff") if isinstance(width, str) else width
    return (*fixed("mlp", kind=kind), inner, nonlinearity or activation())


def experts(width: str, count: str, nonlinearity: Term | None = None) -> tuple[Term, ...]:
    """Gated experts, of which each token uses a few."""
    top_k = same("num_experts_per_tok", "mlp.top_k")
    return (*mlp("experts", width, nonlinearity), same(count, "mlp.experts"), top_k)


def router(**parts: str | bool) -> tuple[Term, ...]:
    """What every router of a family has."""
    return fixed("mlp.router", **parts)
