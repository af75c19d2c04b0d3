"""What each causal model of transformers builds from its config.json, as the parts of a model spec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from ledger.spec.imports.huggingface.fields import ACTIVATIONS, Values

Part = Mapping[str, Any]
Windows = Sequence[int | None]  # of each layer, in tokens; None: it sees all that comes before


def gpt2(values: Values) -> Part:
    """GPT2LMHeadModel: learned positions, one projection for q, k and v, biases everywhere but in the head."""
    attention = attention_part(values, "attn_pdrop", fused_qkv=True, qkv_bias=True, out_bias=True, softmax="input")
    d_ff = values["n_inner"] or 4 * values["hidden_size"]
    mlp = _mlp("plain", d_ff, values["activation_function"], bias=True)
    return {
        **outside(values, learned_positions=values["max_position_embeddings"], dropout=values["embd_pdrop"]),
        "norm": {"kind": "layer", "bias": True},
        "layers": [_group(values, attention, mlp)],
        **stated(residual_dropout=values["resid_pdrop"]),
    }


def gpt_neox(values: Values) -> Part:
    """GPTNeoXForCausalLM: one projection for q, k and v, a share of each head rotated, LayerNorm with biases."""
    rotary = values["rope_scaling"] or values["rope_parameters"] or {}
    bias = values["attention_bias"]
    attention = attention_part(
        values,
        rotary=rotary.get("partial_rotary_factor", values["rotary_pct"]),
        fused_qkv=True,
        qkv_bias=bias,
        out_bias=bias,
    )
    mlp = _mlp("plain", values["intermediate_size"], values["hidden_act"], bias=True)
    residual = stated(residual="parallel" if values["use_parallel_residual"] else None)
    return {
        **outside(values, dropout=values["hidden_dropout"]),
        "norm": {"kind": "layer", "bias": True},
        "layers": [{**_group(values, attention, mlp), **residual}],
        **stated(residual_dropout=values["hidden_dropout"]),
    }


def llama(values: Values) -> Part:
    """LlamaForCausalLM: RMSNorm, rotary positions, grouped queries, a gated MLP; biases as configured."""
    bias = values["attention_bias"]
    attention = attention_part(values, rotary=1, qkv_bias=bias, out_bias=bias)
    mlp = _mlp("gated", values["intermediate_size"], values["hidden_act"], bias=values["mlp_bias"])
    return {**outside(values), "norm": {"kind": "rms"}, "layers": [_group(values, attention, mlp)]}


def mistral(values: Values) -> Part:
    """MistralForCausalLM: as Llama, without biases, every layer with one window."""
    attention = attention_part(values, rotary=1, window=values["sliding_window"])
    mlp = _mlp("gated", values["intermediate_size"], values["hidden_act"])
    return {**outside(values), "norm": {"kind": "rms"}, "layers": [_group(values, attention, mlp)]}


def qwen2(values: Values) -> Part:
    """Qwen2ForCausalLM: as Llama, with biases on q, k and v alone; the upper layers may have a window."""
    layer = _group(
        values,
        attention_part(values, rotary=1, qkv_bias=True),
        _mlp("gated", values["intermediate_size"], values["hidden_act"]),
    )
    return {**outside(values), "norm": {"kind": "rms"}, **_windowed(layer, _windows_above(values))}


def _windows_above(values: Values) -> Windows:
    """Windows as Qwen states them: by the type of each layer, or in all layers from one on."""
    window = values["sliding_window"] if values["use_sliding_window"] else None
    if values["layer_types"] is not None:
        return [window if kind == "sliding_attention" else None for kind in values["layer_types"]]
    first = values["max_window_layers"]
    return [window if layer >= first else None for layer in range(values["num_hidden_layers"])]


def gemma(values: Values) -> Part:
    """GemmaForCausalLM: scaled embeddings, `1 + weight` in its norms; its `gelu` is the tanh form (GemmaConfig)."""
    bias = values["attention_bias"]
    attention = attention_part(values, rotary=1, qkv_bias=bias, out_bias=bias)
    named = values["hidden_act"]
    mlp = _mlp("gated", values["intermediate_size"], "gelu_pytorch_tanh" if named == "gelu" else named)
    return {
        **outside(values, scale=True),
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
    attention = attention_part(values, rotary=1, qkv_bias=bias, out_bias=bias, softcap=values["attn_logit_softcapping"])
    mlp = _mlp("gated", values["intermediate_size"], values["hidden_activation"])
    layer = {**_group(values, attention, mlp), "norms": "sandwich"}
    head = stated(softcap=values["final_logit_softcapping"])
    return {
        **outside(values, scale=True),
        "norm": {"kind": "rms", "unit_offset": True},
        **({"head": head} if head else {}),
        **_windowed(layer, windows),
    }


def qwen3(values: Values) -> Part:
    """Qwen3ForCausalLM: as Llama, each head of queries and keys normed; the upper layers may have a window."""
    bias = values["attention_bias"]
    attention = attention_part(values, rotary=1, qkv_bias=bias, out_bias=bias, qk_norm="head")
    layer = _group(values, attention, _mlp("gated", values["intermediate_size"], values["hidden_act"]))
    return {**outside(values), "norm": {"kind": "rms"}, **_windowed(layer, _windows_above(values))}


def gemma3(values: Values) -> Part:
    """Gemma3ForCausalLM: as Gemma 2 with heads normed in place of capped, two bases of rotation, more local layers."""
    pattern, theta = values["sliding_window_pattern"], values["rope_parameters"] or {}
    types = values["layer_types"] or [
        "sliding_attention" if (layer + 1) % pattern else "full_attention"
        for layer in range(values["num_hidden_layers"])
    ]
    bases = {
        "sliding_attention": theta.get("sliding_attention", {}).get("rope_theta", values["rope_local_base_freq"]),
        "full_attention": theta.get("full_attention", {}).get("rope_theta", values["rope_theta"]),
    }
    bias = values["attention_bias"]
    mlp = _mlp("gated", values["intermediate_size"], values["hidden_activation"])
    parts = {}
    for kind, name in (("sliding_attention", "local"), ("full_attention", "global")):
        seen = stated(window=values["sliding_window"]) if name == "local" else {}
        attention = attention_part(
            values,
            rotary=1,
            rotary_base=int(bases[kind]),
            qkv_bias=bias,
            out_bias=bias,
            qk_norm="head",
            softcap=values["attn_logit_softcapping"],
            **seen,
        )
        parts[name] = {**_group(values, attention, mlp), "norms": "sandwich"}
    head = stated(softcap=values["final_logit_softcapping"])
    return {
        **outside(values, scale=True),
        "norm": {"kind": "rms", "unit_offset": True},
        **({"head": head} if head else {}),
        **arranged(["local" if kind == "sliding_attention" else "global" for kind in types], parts),
    }


def outside(values: Values, **embedding: Any) -> Part:
    """What is not of a layer."""
    return {
        "d_model": values["hidden_size"],
        "vocab": values["vocab_size"],
        "max_seq_len": values["max_position_embeddings"],
        "embedding": {"tied": values["tie_word_embeddings"], **stated(**embedding)},
    }


def attention_part(values: Values, dropped: str = "attention_dropout", **others: Any) -> Part:
    """Multi-head or grouped-query attention, as its configuration says; dropout under the name `dropped`."""
    heads = values["num_attention_heads"]
    return {
        "heads": heads,
        "kv_heads": values.get("num_key_value_heads") or heads,
        "head_dim": values.get("head_dim") or values["hidden_size"] // heads,
        **stated(**others, dropout=values[dropped]),
    }


def _mlp(kind: str, d_ff: int, named: str, bias: bool = False) -> Part:
    return {"kind": kind, "d_ff": d_ff, "activation": ACTIVATIONS[named], **stated(bias=bias)}


def _group(values: Values, attention: Part, mlp: Part) -> Part:
    repeat = values["num_hidden_layers"]
    return {"group": "decoder", "repeat": repeat, "attention": attention, "mlp": mlp, "norms": "pre"}


def arranged(kinds: Sequence[str], parts: Mapping[str, Part]) -> Part:
    """The groups of equal layers, from the kind of every layer; kinds that take turns keep the order they have."""
    groups = [{**parts[kind], "group": kind, "repeat": kinds.count(kind)} for kind in dict.fromkeys(kinds)]
    runs = [(kind, len(list(run))) for kind, run in groupby(kinds)]
    if len(groups) == 1:
        return {"layers": [{**groups[0], "group": "decoder"}]}
    if len(runs) == len(groups):
        return {"layers": groups}
    period = next(size for size in range(1, len(kinds) + 1) if all(k == kinds[i % size] for i, k in enumerate(kinds)))
    if period == len(groups) and len(kinds) % period == 0:
        return {"layers": groups, "alternating": True}
    pattern = [(kind, len(list(run))) for kind, run in groupby(kinds[:period])]
    return {"layers": groups, "order": [kind if count == 1 else f"{count} {kind}" for kind, count in pattern]}


def _windowed(layer: Part, windows: Windows) -> Part:
    """Layers that differ in their window alone."""
    names = {window: "global" if window is None else "local" for window in windows}
    parts = {name: _seen(layer, window) for window, name in names.items()}
    return arranged([names[window] for window in windows], parts)


def _seen(layer: Part, window: int | None) -> Part:
    return {**layer, "attention": {**layer["attention"], **stated(window=window)}}


def stated(**part: Any) -> Part:
    """What differs from the spec language's own defaults, which are false, 0 and none."""
    return {key: value for key, value in part.items() if value}
