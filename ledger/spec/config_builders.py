"""What each causal model of transformers builds from its config.json, as the parts of a model spec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any

from ledger.spec.config_fields import ACTIVATIONS, Values

Part = Mapping[str, Any]
Windows = Sequence[int | None]  # of each layer, in tokens; None: it sees all that comes before


def gpt2(values: Values) -> Part:
    """GPT2LMHeadModel: learned positions, one projection for q, k and v, biases everywhere but in the head."""
    attention = _attention(values, "attn_pdrop", fused_qkv=True, qkv_bias=True, out_bias=True, softmax="input")
    d_ff = values["n_inner"] or 4 * values["hidden_size"]
    mlp = _mlp("plain", d_ff, values["activation_function"], bias=True)
    return {
        **_outside(values, learned_positions=values["max_position_embeddings"], dropout=values["embd_pdrop"]),
        "norm": {"kind": "layer", "bias": True},
        "layers": [_group(values, attention, mlp)],
        **_stated(residual_dropout=values["resid_pdrop"]),
    }


def gpt_neox(values: Values) -> Part:
    """GPTNeoXForCausalLM: one projection for q, k and v, a share of each head rotated, LayerNorm with biases."""
    rotary = values["rope_scaling"] or values["rope_parameters"] or {}
    bias = values["attention_bias"]
    attention = _attention(
        values,
        rotary=rotary.get("partial_rotary_factor", values["rotary_pct"]),
        fused_qkv=True,
        qkv_bias=bias,
        out_bias=bias,
    )
    mlp = _mlp("plain", values["intermediate_size"], values["hidden_act"], bias=True)
    residual = _stated(residual="parallel" if values["use_parallel_residual"] else None)
    return {
        **_outside(values, dropout=values["hidden_dropout"]),
        "norm": {"kind": "layer", "bias": True},
        "layers": [{**_group(values, attention, mlp), **residual}],
        **_stated(residual_dropout=values["hidden_dropout"]),
    }


def llama(values: Values) -> Part:
    """LlamaForCausalLM: RMSNorm, rotary positions, grouped queries, a gated MLP; biases as configured."""
    bias = values["attention_bias"]
    attention = _attention(values, rotary=1, qkv_bias=bias, out_bias=bias)
    mlp = _mlp("gated", values["intermediate_size"], values["hidden_act"], bias=values["mlp_bias"])
    return {**_outside(values), "norm": {"kind": "rms"}, "layers": [_group(values, attention, mlp)]}


def mistral(values: Values) -> Part:
    """MistralForCausalLM: as Llama, without biases, every layer with one window."""
    attention = _attention(values, rotary=1, window=values["sliding_window"])
    mlp = _mlp("gated", values["intermediate_size"], values["hidden_act"])
    return {**_outside(values), "norm": {"kind": "rms"}, "layers": [_group(values, attention, mlp)]}


def qwen2(values: Values) -> Part:
    """Qwen2ForCausalLM: as Llama, with biases on q, k and v alone; the upper layers may have a window."""
    layers, first = values["num_hidden_layers"], values["max_window_layers"]
    window = values["sliding_window"] if values["use_sliding_window"] else None
    if values["layer_types"] is None:
        windows: Windows = [window if layer >= first else None for layer in range(layers)]
    else:
        windows = [window if kind == "sliding_attention" else None for kind in values["layer_types"]]
    layer = _group(
        values,
        _attention(values, rotary=1, qkv_bias=True),
        _mlp("gated", values["intermediate_size"], values["hidden_act"]),
    )
    return {**_outside(values), "norm": {"kind": "rms"}, **_windowed(layer, windows)}


def gemma(values: Values) -> Part:
    """GemmaForCausalLM: scaled embeddings, `1 + weight` in its norms; its `gelu` is the tanh form (GemmaConfig)."""
    bias = values["attention_bias"]
    attention = _attention(values, rotary=1, qkv_bias=bias, out_bias=bias)
    named = values["hidden_act"]
    mlp = _mlp("gated", values["intermediate_size"], "gelu_pytorch_tanh" if named == "gelu" else named)
    return {
        **_outside(values, scale=True),
        "norm": {"kind": "rms", "unit_offset": True},
        "layers": [_group(values, attention, mlp)],
    }


def gemma2(values: Values) -> Part:
    """Gemma2ForCausalLM: as Gemma, norms before and after each part, capped scores, windows in every other layer."""
    bias = values["attention_bias"]
    types = values["layer_types"] or [
        "full_attention" if layer % 2 else "sliding_attention" for layer in range(values["num_hidden_layers"])
    ]
    windows = [values["sliding_window"] if kind == "sliding_attention" else None for kind in types]
    attention = _attention(values, rotary=1, qkv_bias=bias, out_bias=bias, softcap=values["attn_logit_softcapping"])
    mlp = _mlp("gated", values["intermediate_size"], values["hidden_activation"])
    layer = {**_group(values, attention, mlp), "norms": "sandwich"}
    head = _stated(softcap=values["final_logit_softcapping"])
    return {
        **_outside(values, scale=True),
        "norm": {"kind": "rms", "unit_offset": True},
        **({"head": head} if head else {}),
        **_windowed(layer, windows),
    }


def _outside(values: Values, **embedding: Any) -> Part:
    return {
        "d_model": values["hidden_size"],
        "vocab": values["vocab_size"],
        "max_seq_len": values["max_position_embeddings"],
        "embedding": {"tied": values["tie_word_embeddings"], **_stated(**embedding)},
    }


def _attention(values: Values, dropped: str = "attention_dropout", **others: Any) -> Part:
    heads = values["num_attention_heads"]
    return {
        "heads": heads,
        "kv_heads": values.get("num_key_value_heads") or heads,
        "head_dim": values.get("head_dim") or values["hidden_size"] // heads,
        **_stated(**others, dropout=values[dropped]),
    }


def _mlp(kind: str, d_ff: int, named: str, bias: bool = False) -> Part:
    return {"kind": kind, "d_ff": d_ff, "activation": ACTIVATIONS[named], **_stated(bias=bias)}


def _group(values: Values, attention: Part, mlp: Part) -> Part:
    repeat = values["num_hidden_layers"]
    return {"group": "decoder", "repeat": repeat, "attention": attention, "mlp": mlp, "norms": "pre"}


def _windowed(layer: Part, windows: Windows) -> Part:
    """The groups of equal layers; two kinds that take turns equally often are two alternating groups."""
    kinds = tuple(dict.fromkeys(windows))
    if len(kinds) == 1:
        return {"layers": [_seen(layer, "decoder", windows)]}
    takes_turns = all(one != other for one, other in pairwise(windows))
    if len(windows) > 2 and len(windows) % 2 == 0 and takes_turns:
        layers = [_seen(layer, _named(kind), [one for one in windows if one == kind]) for kind in kinds]
        return {"layers": layers, "alternating": True}
    runs = [list(run) for _, run in groupby(windows)]
    names = [_named(run[0]) for run in runs]
    counted = [
        f"{name}_{names[: at + 1].count(name)}" if names.count(name) > 1 else name for at, name in enumerate(names)
    ]
    return {"layers": [_seen(layer, name, run) for name, run in zip(counted, runs, strict=True)]}


def _seen(layer: Part, name: str, windows: Windows) -> Part:
    attention = {**layer["attention"], **_stated(window=windows[0])}
    return {**layer, "group": name, "repeat": len(windows), "attention": attention}


def _named(window: int | None) -> str:
    return "global" if window is None else "local"


def _stated(**part: Any) -> Part:
    """What differs from the spec language's own defaults, which are false, 0 and none."""
    return {key: value for key, value in part.items() if value}
