"""DeepSeek's models as the parts of a model spec: latent attention, and experts after some dense layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ledger.spec.imports.huggingface.builders import Part, arranged, outside, stated
from ledger.spec.imports.huggingface.fields import ACTIVATIONS, Values


def deepseek_v2(values: Values) -> Part:
    """DeepseekV2ForCausalLM: rotation as complex numbers, softmax over the scores of all experts."""
    grouped = values["topk_method"] == "group_limited_greedy"
    router = {"scores": "softmax", "dtype": "fp32", **stated(groups=values["n_group"] if grouped else None)}
    return _decoder(values, {"rotary_form": "complex"}, router, bias=values["mlp_bias"])


def deepseek_v3(values: Values) -> Part:
    """DeepseekV3ForCausalLM with the modules for further tokens that it was trained with: scores that add up to one.

    transformers leaves the modules out, DeepSeek-AI 2024 (DeepSeek-V3, arXiv 2412.19437, section 2.2) does not.
    """
    form = {} if values["rope_interleave"] else {"rotary_form": "halves"}
    router = {"scores": "sigmoid", **stated(normalize=values["norm_topk_prob"]), "dtype": "fp32"}
    further = values["num_nextn_predict_layers"]
    predicted = {"multi_token": {"depth": further}} if further else {}
    return {**_decoder(values, form, {**router, "groups": values["n_group"]}, bias=False), **predicted}


def _decoder(values: Values, form: Mapping[str, Any], router: Mapping[str, Any], *, bias: bool) -> Part:
    attention = {
        "kind": "latent",
        "heads": values["num_attention_heads"],
        **stated(q_rank=values["q_lora_rank"]),
        "kv_rank": values["kv_lora_rank"],
        "nope_head_dim": values["qk_nope_head_dim"],
        "rope_head_dim": values["qk_rope_head_dim"],
        "v_head_dim": values["v_head_dim"],
        **stated(
            qkv_bias=values["attention_bias"], out_bias=values["attention_bias"], dropout=values["attention_dropout"]
        ),
        **form,
    }
    activation = ACTIVATIONS[values["hidden_act"]]
    dense = {
        "kind": "gated",
        "d_ff": values["intermediate_size"],
        "activation": activation,
        **stated(bias=bias),
    }
    shared = {"d_ff": values["moe_intermediate_size"], "count": values["n_shared_experts"]}
    experts = {
        "kind": "experts",
        "d_ff": values["moe_intermediate_size"],
        "activation": activation,
        "experts": values["n_routed_experts"],
        "top_k": values["num_experts_per_tok"],
        "router": router,
        "shared": shared,
    }
    parts = {
        name: {"group": name, "repeat": 0, "attention": attention, "mlp": mlp, "norms": "pre"}
        for name, mlp in (("dense", dense), ("experts", experts))
    }
    first = min(values["first_k_dense_replace"], values["num_hidden_layers"])
    kinds = ["dense"] * first + ["experts"] * (values["num_hidden_layers"] - first)
    return {**outside(values), "norm": {"kind": "rms"}, **arranged(kinds, parts)}
