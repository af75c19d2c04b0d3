"""Which transformers class a model is, and its configuration: the judge never sees the compiler's own operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ledger.spec.plan import Group, Model

ACTIVATIONS = {"silu": "silu", "gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh", "relu": "relu"}


class NoReferenceError(ValueError):
    """transformers has no class for this model; the message says what the nearest one lacks."""


@dataclass(frozen=True)
class Family:
    """A transformers architecture: its classes, where its layers are, what a model must be to be one of it."""

    configuration: str
    model: str
    layers: str  # dotted path to the list of layers
    requires: Mapping[str, object]  # features, by the names of `_features`
    settings: Callable[[Model], dict[str, Any]]


def family(model: Model) -> Family:
    """The architecture whose layers these are; raises `NoReferenceError` where there is none."""
    if model.bare:
        raise NoReferenceError(f"{model.title}: only a parameter count is known")
    features = _features(model)
    wanting = {
        name: [key for key, value in candidate.requires.items() if features[key] != value]
        for name, candidate in FAMILIES.items()
    }
    nearest = min(wanting, key=lambda name: len(wanting[name]))
    if wanting[nearest]:
        differences = ", ".join(f"{key} = {features[key]}" for key in wanting[nearest])
        raise NoReferenceError(f"{model.title}: the nearest transformers class, {nearest}, does not have {differences}")
    return FAMILIES[nearest]


def transformers_config(model: Model) -> Any:
    """The transformers configuration of `model`, every size and dropout set; raises `NoReferenceError`."""
    import transformers

    architecture = family(model)
    unused = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    return getattr(transformers, architecture.configuration)(**architecture.settings(model), **unused)


def layer_order(model: Model) -> tuple[Group, ...]:
    """The group of every layer, first to last; alternating groups take turns."""
    if not model.alternating:
        return tuple(group for group in model.groups for _ in range(group.repeat))
    longest = max(group.repeat for group in model.groups)
    return tuple(group for index in range(longest) for group in model.groups if index < group.repeat)


def with_layers(model: Model, count: int) -> Model:
    """`model` with `count` layers, all of its first group."""
    return replace(model, groups=(replace(model.groups[0], repeat=count),), alternating=False)


def _features(model: Model) -> dict[str, object]:
    """What a class either has or has not; sizes and probabilities that every class takes are left out."""
    group = model.groups[0]
    attention, mlp = group.attention, group.mlp
    parts = {(replace(g.attention, window=None), g.mlp, g.norms, g.residual) for g in model.groups}
    return {
        "kinds of layer": len(parts),
        "norm": model.norm.kind,
        "norm bias": model.norm.bias,
        "unit offset": model.norm.unit_offset,
        "norms": group.norms,
        "residual": group.residual,
        "mlp": mlp.kind,
        "mlp bias": mlp.bias,
        "qkv bias": attention.qkv_bias,
        "output bias": attention.out_bias,
        "equal attention biases": attention.qkv_bias == attention.out_bias,
        "fused qkv": attention.fused_qkv,
        "rotary": bool(attention.rotary),
        "partial rotary": 0 < attention.rotary < 1,
        "window": any(g.attention.window is not None for g in model.groups),
        "soft cap": attention.softcap is not None,
        "grouped queries": attention.kv_heads != attention.heads,
        "heads x head_dim = d_model": attention.heads * attention.head_dim == model.d_model,
        "learned positions": model.learned_positions > 0,
        "residual dropout": model.residual_dropout > 0,
        "embedding dropout": model.embedding_dropout > 0,
        "equal hidden dropouts": model.embedding_dropout == model.residual_dropout,
        "scaled embedding": model.scale_embedding,
        "head bias": model.head_bias,
        "head soft cap": model.head_softcap is not None,
        "attention": attention.kind,
    }


def _common(model: Model) -> dict[str, Any]:
    """What every family but GPT-2 names alike."""
    group = model.groups[0]
    return {
        "vocab_size": model.vocab,
        "hidden_size": model.d_model,
        "intermediate_size": group.mlp.d_ff,
        "num_hidden_layers": len(layer_order(model)),
        "num_attention_heads": group.attention.heads,
        "max_position_embeddings": max(model.max_seq_len, 1),
        "attention_dropout": float(group.attention.dropout),
        "tie_word_embeddings": model.tied,
        "hidden_act": ACTIVATIONS[group.mlp.activation],
    }


def _gpt2(model: Model) -> dict[str, Any]:
    group = model.groups[0]
    return {
        "vocab_size": model.vocab,
        "n_positions": model.learned_positions,
        "n_embd": model.d_model,
        "n_layer": len(layer_order(model)),
        "n_head": group.attention.heads,
        "n_inner": group.mlp.d_ff,
        "activation_function": ACTIVATIONS[group.mlp.activation],
        "attn_pdrop": float(group.attention.dropout),
        "resid_pdrop": float(model.residual_dropout),
        "embd_pdrop": float(model.embedding_dropout),
        "tie_word_embeddings": model.tied,
    }


def _gpt_neox(model: Model) -> dict[str, Any]:
    group = model.groups[0]
    rotary = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": float(group.attention.rotary)}
    return _common(model) | {
        "hidden_dropout": float(model.residual_dropout),
        "use_parallel_residual": group.residual == "parallel",
        "rope_parameters": rotary,
    }


def _grouped(model: Model) -> dict[str, Any]:
    """Families whose heads share keys and values; all there is to Qwen2."""
    attention = model.groups[0].attention
    return _common(model) | {"num_key_value_heads": attention.kv_heads, "head_dim": attention.head_dim}


def _llama(model: Model) -> dict[str, Any]:
    group = model.groups[0]
    return _grouped(model) | {"attention_bias": group.attention.qkv_bias, "mlp_bias": group.mlp.bias}


def _mistral(model: Model) -> dict[str, Any]:
    return _grouped(model) | {"sliding_window": model.groups[0].attention.window}


def _gemma2(model: Model) -> dict[str, Any]:
    attention = model.groups[0].attention
    settings = _grouped(model)
    return settings | {
        "hidden_activation": settings.pop("hidden_act"),
        "query_pre_attn_scalar": attention.head_dim,
        "sliding_window": next((g.attention.window for g in model.groups if g.attention.window), None),
        "layer_types": ["sliding_attention" if g.attention.window else "full_attention" for g in layer_order(model)],
        "final_logit_softcapping": model.head_softcap,
        "attn_logit_softcapping": attention.softcap,
    }


_EVERY: dict[str, object] = {"kinds of layer": 1, "attention": "grouped_query", "head bias": False}
_LAYER_NORM: dict[str, object] = _EVERY | {
    "norm": "layer",
    "norm bias": True,
    "norms": "pre",
    "mlp": "plain",
    "mlp bias": True,
    "qkv bias": True,
    "output bias": True,
    "fused qkv": True,
    "window": False,
    "soft cap": False,
    "grouped queries": False,
    "heads x head_dim = d_model": True,
    "scaled embedding": False,
    "head soft cap": False,
}
_RMS_NORM: dict[str, object] = _EVERY | {
    "norm": "rms",
    "residual": "sequential",
    "mlp": "gated",
    "fused qkv": False,
    "rotary": True,
    "partial rotary": False,
    "learned positions": False,
    "residual dropout": False,
    "embedding dropout": False,
}
_PLAIN_RMS: dict[str, object] = _RMS_NORM | {
    "norms": "pre",
    "unit offset": False,
    "soft cap": False,
    "scaled embedding": False,
    "head soft cap": False,
}
_NO_BIAS: dict[str, object] = {"qkv bias": False, "output bias": False, "mlp bias": False}

FAMILIES = {
    "gpt2": Family(
        "GPT2Config",
        "GPT2LMHeadModel",
        "transformer.h",
        _LAYER_NORM | {"residual": "sequential", "rotary": False, "learned positions": True},
        _gpt2,
    ),
    "gpt_neox": Family(
        "GPTNeoXConfig",
        "GPTNeoXForCausalLM",
        "gpt_neox.layers",
        _LAYER_NORM | {"rotary": True, "learned positions": False, "equal hidden dropouts": True},
        _gpt_neox,
    ),
    "llama": Family(
        "LlamaConfig",
        "LlamaForCausalLM",
        "model.layers",
        _PLAIN_RMS | {"window": False, "equal attention biases": True},
        _llama,
    ),
    "mistral": Family(
        "MistralConfig", "MistralForCausalLM", "model.layers", _PLAIN_RMS | _NO_BIAS | {"window": True}, _mistral
    ),
    "qwen2": Family(
        "Qwen2Config",
        "Qwen2ForCausalLM",
        "model.layers",
        _PLAIN_RMS | _NO_BIAS | {"qkv bias": True, "window": False},
        _grouped,
    ),
    "gemma2": Family(
        "Gemma2Config",
        "Gemma2ForCausalLM",
        "model.layers",
        _RMS_NORM | _NO_BIAS | {"norms": "sandwich", "unit offset": True, "scaled embedding": True},
        _gemma2,
    ),
}
