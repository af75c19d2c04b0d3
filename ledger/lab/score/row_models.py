"""The model of a row: sizes from its columns, and what these leave open from its family, its stack, its publication."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from ledger.lab.score.facts import Facts
from ledger.lab.score.software import SkippedError, Software
from ledger.lab.score.spelled import UnknownWordError, meaning
from ledger.spec.library import Library

GATED: Mapping[str, Any] = {"mlp.kind": "gated", "mlp.activation": "silu"}
UNGATED: Mapping[str, Any] = {"mlp.kind": "plain", "mlp.activation": "gelu"}
# What a decoder has of which a row says nothing but sizes: Llama's.
USUAL: Mapping[str, Any] = {
    "model.embedding.tied": False,
    "model.norm.kind": "rms",
    "attention.rotary": 1,
}
PADDED = 128  # rows to which frameworks pad a vocabulary, times tensor parallelism (Megatron-LM)
POSITIONS: Mapping[str, Mapping[str, Any]] = {
    "rope": {"attention.rotary": 1, "model.embedding.learned_positions": None},
    "learned": {"attention.rotary": 0, "model.embedding.learned_positions": "{seq_len}"},
    "alibi": {"attention.rotary": 0, "model.embedding.learned_positions": None},
    "none": {"attention.rotary": 0, "model.embedding.learned_positions": None},
}
NORMS: Mapping[str, Mapping[str, Any]] = {
    "rmsnorm": {"model.norm.kind": "rms", "model.norm.bias": False},
    "rms": {"model.norm.kind": "rms", "model.norm.bias": False},
    "layernorm": {"model.norm.kind": "layer", "model.norm.bias": True},
    "layer": {"model.norm.kind": "layer", "model.norm.bias": True},
    "layernorm1p": {"model.norm.kind": "layer", "model.norm.bias": True},
}
ACTIVATIONS: Mapping[str, str] = {
    "swiglu": "silu",
    "silu": "silu",
    "gelu": "gelu",
    "geglu": "gelu",
    "gelu_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "relu": "relu",
    "relu2": "relu2",
    "squared_relu": "relu2",
    "squared-relu": "relu2",
    "sqrelu": "relu2",
}
BIASES = ("attention.qkv_bias", "attention.out_bias", "mlp.bias")


def row_model(row: Facts, software: Software, library: Library, tensor: int, assumed: list[str]) -> dict[str, Any]:
    """A decoder of one group of equal layers; a vocabulary that tensor parallelism cannot split is padded.

    Raises SkippedError where sizes contradict each other, and for unknown words.
    """
    heads, hidden, vocab = row.heads or 1, row.hidden or 1, row.vocab or 1
    if vocab % tensor:
        vocab = math.ceil(vocab / (PADDED * tensor)) * PADDED * tensor
        assumed.append(f"vocabulary padded from {row.vocab} to {vocab}")
    if row.head_dim is None and hidden % heads:
        raise SkippedError(f"hidden = {hidden} is no multiple of heads = {heads}, and no head_dim is published")
    sizes = {"heads": heads, "kv_heads": row.kv_heads or heads, "head_dim": row.head_dim or hidden // heads}
    style = _style(row, software, library, assumed)
    group: dict[str, Any] = {
        "group": "decoder",
        "repeat": row.layers,
        "attention": {**sizes, **_below("attention.", style)},
        "mlp": {**_below("mlp.", style), **_width(row)},
        **_below("layers.", style),
    }
    model: dict[str, Any] = {
        "model": row.model_name or "published model",
        "source": row.source or row.source_id or row.id,
        "d_model": hidden,
        "vocab": vocab,
    }
    for path, value in _below("model.", style).items():
        part, _, inner = path.partition(".")
        model[part] = {**model.get(part, {}), inner: value} if inner else value
    return {**model, "layers": [group]}


def _below(prefix: str, style: Mapping[str, Any]) -> dict[str, Any]:
    return {path.removeprefix(prefix): value for path, value in style.items() if path.startswith(prefix)}


def _style(row: Facts, software: Software, library: Library, assumed: list[str]) -> dict[str, Any]:
    """What sizes do not say, by path: the row's own columns before its publication, its stack and its family."""
    style = {**USUAL, **(UNGATED if row.gated_mlp is False else GATED), **_family(row, software, library, assumed)}
    style |= {path: value for path, value in software.stack.defaults.plan.items() if _is_of_model(path)}
    style |= {path: value for path, value in software.plan.items() if _is_of_model(path)}
    for stated in _stated(row):
        style |= stated
    if style["mlp.kind"] == "plain" and style["mlp.activation"] == "silu":
        style["mlp.activation"] = UNGATED["mlp.activation"]
    return {path: _sized(value, row) for path, value in style.items() if value is not None}


def _is_of_model(path: str) -> bool:
    return path.startswith(("model.", "attention.", "mlp."))


def _sized(value: Any, row: Facts) -> Any:
    """A value, or the row's own number that a default stands for: `{seq_len}`."""
    return getattr(row, value.strip("{}")) if isinstance(value, str) and value.startswith("{") else value


def _family(row: Facts, software: Software, library: Library, assumed: list[str]) -> Mapping[str, Any]:
    """What the row's family has; where nobody knows it, that of the stack's models without a gate, or nothing."""
    usual = software.stack.defaults.ungated if row.gated_mlp is False else ""
    try:
        found: Mapping[str, Any] = meaning("family", row.family or usual, library).value
    except UnknownWordError:
        found = meaning("family", usual, library).value if usual else {}
        if row.gated_mlp is False:
            said = f"family `{row.family}` is not known" if row.family else "family not stated"
            assumed.append(f"{said}: {usual or 'llama'}, without a gate")
    return found


def _stated(row: Facts) -> Iterator[Mapping[str, Any]]:
    """What the row's own columns say of the architecture; raises SkippedError for a word that means nothing there."""
    if row.gated_mlp is not None:
        yield {"mlp.kind": "gated" if row.gated_mlp else "plain"}
    if row.tied_embeddings is not None:
        yield {"model.embedding.tied": row.tied_embeddings}
    if row.activation:
        yield {"mlp.activation": _known("activation", row.activation, ACTIVATIONS)}
    if row.norm:
        yield _known("norm", row.norm, NORMS)
    if row.positions:
        yield _known("positions", row.positions, POSITIONS)
    if row.bias is not None:
        yield dict.fromkeys(BIASES, row.bias)
    if row.dropout is not None:
        yield dict.fromkeys(("model.embedding.dropout", "model.residual_dropout", "attention.dropout"), row.dropout)


def _known(column: str, word: str, table: Mapping[str, Any]) -> Any:
    if word.lower() not in table:
        raise SkippedError(f"`{column}` = `{word}` is not known; {', '.join(table)} are")
    return table[word.lower()]


def _width(row: Facts) -> dict[str, Any]:
    """Width of the feed-forward part, or of its experts."""
    if row.n_experts and row.n_experts > 1:
        return {"kind": "experts", "experts": row.n_experts, "top_k": row.top_k, "d_ff": row.moe_ffn_hidden}
    return {"d_ff": row.ffn_hidden}
