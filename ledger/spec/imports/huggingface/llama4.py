"""Llama 4's text decoder, as the parts of a model spec."""

from __future__ import annotations

from ledger.spec.imports.huggingface.builders import Part, arranged, attention_part, outside, stated
from ledger.spec.imports.huggingface.fields import ACTIVATIONS, Values

# By whether the layer rotates, and whether its attention stays within a chunk.
NAMES = {(True, True): "local", (False, False): "global", (True, False): "rotary", (False, True): "chunked"}


def llama4(values: Values) -> Part:
    """Llama4ForCausalLM: chunks and rotation in most layers, neither in the others; experts that read scaled tokens."""
    experts = _experts(values)
    sparse = [layer in experts for layer in range(values["num_hidden_layers"])]
    mixed = len(set(sparse)) == 2
    kinds, parts = [], {}
    for (rotates, chunked), routed in zip(_seen(values), sparse, strict=True):
        name = NAMES[rotates, chunked] + ("" if routed or not mixed else "_dense")
        kinds.append(name)
        mlp = _routed(values) if routed else _gated(values, values["intermediate_size_mlp"])
        attention = _attention(values, rotates, chunked)
        parts[name] = {"group": "", "repeat": 0, "attention": attention, "mlp": mlp, "norms": "pre"}
    return {**outside(values), "norm": {"kind": "rms"}, **arranged(kinds, parts)}


def _experts(values: Values) -> list[int]:
    """The layers with experts: those that are named, or every n-th."""
    every = values["interleave_moe_layer_step"]
    named = values["moe_layers"]
    return list(range(every - 1, values["num_hidden_layers"], every)) if named is None else named


def _seen(values: Values) -> list[tuple[bool, bool]]:
    """Of each layer, whether it rotates and whether it attends within chunks: the same layers unless they are named."""
    layers, interval = values["num_hidden_layers"], values["no_rope_layer_interval"]
    rotates = values["no_rope_layers"] or [(layer + 1) % interval for layer in range(layers)]
    types = values["layer_types"] or ["chunked_attention" if one else "full_attention" for one in rotates[:layers]]
    return [(bool(one), kind == "chunked_attention") for one, kind in zip(rotates, types, strict=False)]


def _attention(values: Values, rotates: bool, chunked: bool) -> Part:
    bias = values["attention_bias"]
    own = stated(
        qk_norm="unweighted" if rotates and values["use_qk_norm"] else None,
        temperature=bool(values["attn_temperature_tuning"]) and not rotates,
        chunk=values["attention_chunk_size"] if chunked else None,
    )
    rotary = stated(rotary=int(rotates), rotary_form="complex" if rotates else None)
    common = attention_part(values, qkv_bias=bias, out_bias=bias)
    return {**common, **rotary, "softmax": "input", **own}


def _gated(values: Values, d_ff: int) -> Part:
    return {"kind": "gated", "d_ff": d_ff, "activation": ACTIVATIONS[values["hidden_act"]]}


def _routed(values: Values) -> Part:
    d_ff = values["intermediate_size"]
    return {
        **_gated(values, d_ff),
        "kind": "experts",
        "experts": values["num_local_experts"],
        "top_k": values["num_experts_per_tok"],
        "router": {"scores": "sigmoid_of_chosen", "weights": "input", "scales": "input"},
        "shared": {"d_ff": d_ff},
    }
