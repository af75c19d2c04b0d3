"""Decoders with experts and plain attention, as the parts of a model spec."""

from __future__ import annotations

from typing import Any

from ledger.spec.imports.huggingface.builders import Part, arranged, attention_part, outside, stated
from ledger.spec.imports.huggingface.fields import ACTIVATIONS, Values


def mixtral(values: Values) -> Part:
    """MixtralForCausalLM: as Mistral, experts in every layer, chosen scores that add up to one in fp32."""
    mixing = attention_part(values, rotary=1, window=values["sliding_window"])
    mlp = _experts(values, values["intermediate_size"], {"normalize": True})
    return {**outside(values), "norm": {"kind": "rms"}, **arranged(_kinds(values), {"experts": _layer(mixing, mlp)})}


def qwen2_moe(values: Values) -> Part:
    """Qwen2MoeForCausalLM: as Qwen2, experts in most layers and one that all tokens use, scaled by a gate."""
    shared = {"d_ff": values["shared_expert_intermediate_size"], "gated": True}
    return _qwen(values, attention_part(values, rotary=1, qkv_bias=values["qkv_bias"]), shared=shared)


def qwen3_moe(values: Values) -> Part:
    """Qwen3MoeForCausalLM: as Qwen3, experts in most layers; one window for all layers where it is used."""
    bias, window = values["attention_bias"], values["sliding_window"] if values["use_sliding_window"] else None
    return _qwen(values, attention_part(values, rotary=1, qkv_bias=bias, out_bias=bias, qk_norm="head", window=window))


def gpt_oss(values: Values) -> Part:
    """GptOssForCausalLM: sinks, biases, windows in every other layer; experts that clamp gate and up."""
    bias = values["attention_bias"]
    own: dict[str, Any] = {"rotary": 1, "rotary_form": "half_tables", "sinks": True, "softmax": "input"}
    router = {"scores": "softmax_of_chosen", "weights": "input", "bias": True}
    experts = {**_experts(values, values["intermediate_size"], router), "activation": "clamped_swiglu", "bias": True}
    types = values["layer_types"] or [
        "full_attention" if layer % 2 else "sliding_attention" for layer in range(values["num_hidden_layers"])
    ]
    kinds = ["local" if kind == "sliding_attention" else "global" for kind in types]
    parts = {
        name: _layer(attention_part(values, **own, qkv_bias=bias, out_bias=bias, window=window), experts)
        for name, window in (("local", values["sliding_window"]), ("global", None))
    }
    return {
        **outside(values),
        "norm": {"kind": "rms", "wide": True},
        **arranged(kinds, parts),
    }


def _qwen(values: Values, mixing: Part, **others: Any) -> Part:
    router = {**stated(normalize=values["norm_topk_prob"]), "weights": "input"}
    experts = _experts(values, values["moe_intermediate_size"], router, **others)
    dense = {"kind": "gated", "d_ff": values["intermediate_size"], "activation": ACTIVATIONS[values["hidden_act"]]}
    parts = {"experts": _layer(mixing, experts), "dense": _layer(mixing, dense)}
    return {**outside(values), "norm": {"kind": "rms"}, **arranged(_kinds(values), parts)}


def _kinds(values: Values) -> list[str]:
    """Of each layer whether it has experts: every n-th does, those aside that are named."""
    every, without = values.get("decoder_sparse_step", 1), values.get("mlp_only_layers") or []
    return [
        "dense" if layer in without or (layer + 1) % every else "experts"
        for layer in range(values["num_hidden_layers"])
    ]


def _experts(values: Values, d_ff: int, router: Part, **others: Any) -> Part:
    balanced = stated(auxiliary_loss=values["output_router_logits"])
    return {
        "kind": "experts",
        "d_ff": d_ff,
        "activation": ACTIVATIONS[values["hidden_act"]],
        "experts": values["num_experts"],
        "top_k": values["num_experts_per_tok"],
        "router": {**router, **balanced},
        **others,
    }


def _layer(mixing: Part, mlp: Part) -> Part:
    return {"group": "", "repeat": 0, "attention": mixing, "mlp": mlp, "norms": "pre"}
