"""DeepSeek's architectures: latent attention, experts after dense layers. Defaults: transformers 5.23, as elsewhere."""

from __future__ import annotations

from collections.abc import Mapping

from ledger.spec.imports.huggingface import fields, patterns, terms
from ledger.spec.imports.huggingface.families.common import ROTARY, UNSHAPED, decoder
from ledger.spec.imports.huggingface.family import Family

# How experts were spread, losses of routers, 8-bit weights, sums that transformers saves and computes again.
UNSHAPED_HERE = UNSHAPED | {
    "auto_map",
    "aux_loss_alpha",
    "ep_size",
    "head_dim",
    "qk_head_dim",
    "quantization_config",
    "routed_scaling_factor",
    "seq_aux",
    "topk_group",
}
COMMON = {
    **ROTARY,
    **fields.activations(hidden_act="silu"),
    **fields.flags(attention_bias=False, tie_word_embeddings=False),
    **fields.dropouts(attention_dropout=0.0),
    **fields.sizes_or_null(q_lora_rank=1536),
    **fields.sizes(kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128),
    "output_router_logits": fields.only(False),
    "moe_layer_freq": fields.only(1),
}
TERMS = (
    *terms.OUTSIDE,
    *terms.norms("rms"),
    *terms.fixed("attention", kind="latent"),
    terms.Term(
        ("attention.heads",),
        lambda values: values["num_attention_heads"],
        lambda heads: {"num_attention_heads": heads, "num_key_value_heads": heads},
    ),
    terms.Term(("attention.q_rank",), lambda values: values["q_lora_rank"], lambda rank: {"q_lora_rank": rank or None}),
    terms.same("kv_lora_rank", "attention.kv_rank"),
    terms.same("qk_nope_head_dim", "attention.nope_head_dim"),
    terms.same("qk_rope_head_dim", "attention.rope_head_dim"),
    terms.same("v_head_dim", "attention.v_head_dim"),
    *(terms.BIASES, terms.DROPOUT),
    *terms.of("dense", *terms.mlp("gated")),
    *terms.of("experts", *terms.experts("moe_intermediate_size", "n_routed_experts")),
)
SHARED = terms.of(
    "experts",
    terms.derived("mlp.shared.d_ff", lambda values: values["moe_intermediate_size"]),
    terms.same("n_shared_experts", "mlp.shared.count"),
)


def _best_groups(groups: int) -> terms.Values:
    """A token uses experts of some of the groups: how many shapes nothing."""
    return {"n_group": groups, "topk_group": max(1, groups // 2)}


LATENT: Mapping[str, Family] = {
    "deepseek_v2": Family(
        config="DeepseekV2Config",
        architecture="DeepseekV2ForCausalLM",
        fields={
            **decoder(width=4096, layers=32, heads=32, positions=2048, vocabulary=102400),
            **COMMON,
            **fields.sizes(intermediate_size=11008, moe_intermediate_size=1407),
            **fields.sizes(n_routed_experts=64, n_shared_experts=2),
            **fields.flags(mlp_bias=False, norm_topk_prob=False),
            **fields.sizes_or_null(num_key_value_heads=None, num_experts_per_tok=None, n_group=None),
            **fields.wholes()(first_k_dense_replace=0),
            "topk_method": fields.only("greedy", "group_limited_greedy"),
            "scoring_func": fields.only("softmax"),
        },
        terms=(
            *(*TERMS, *terms.fixed("attention", rotary_form="complex")),
            *terms.of("dense", terms.same("mlp_bias", "mlp.bias")),
            *terms.of(
                "experts",
                *terms.router(scores="softmax", dtype="fp32"),
                terms.Term(
                    ("mlp.router.groups",),
                    lambda values: values["n_group"] if values["topk_method"] == "group_limited_greedy" else None,
                    lambda groups: {
                        **_best_groups(groups),
                        "topk_method": "group_limited_greedy" if groups > 1 else "greedy",
                    },
                ),
                *SHARED,
            ),
        ),
        patterns=(patterns.AFTER_DENSE,),
        aliases={"num_experts": "n_routed_experts"},
        ignored=UNSHAPED_HERE,
    ),
    "deepseek_v3": Family(
        config="DeepseekV3Config",
        architecture="DeepseekV3ForCausalLM",
        divides=False,
        fields={
            **decoder(width=7168, layers=61, heads=128, positions=4096, vocabulary=129280),
            **COMMON,
            **fields.flags(rope_interleave=True, norm_topk_prob=True),
            **fields.sizes(intermediate_size=18432, moe_intermediate_size=2048),
            **fields.sizes(n_routed_experts=256, n_shared_experts=1, num_experts_per_tok=8, n_group=8),
            **fields.sizes_or_null(num_key_value_heads=128),
            **fields.wholes()(first_k_dense_replace=3),
            **fields.wholes(0, 64)(num_nextn_predict_layers=1),
            "topk_method": fields.only("noaux_tc"),
            "scoring_func": fields.only("sigmoid"),
        },
        terms=(
            *(*TERMS, terms.choice("rope_interleave", "attention.rotary_form", {True: None, False: "halves"})),
            *terms.of(
                "experts",
                *terms.router(scores="sigmoid"),
                terms.same("norm_topk_prob", "mlp.router.normalize"),
                *terms.router(dtype="fp32"),
                terms.Term(("mlp.router.groups",), lambda values: values["n_group"], _best_groups),
                *SHARED,
            ),
        ),
        patterns=(patterns.AFTER_DENSE,),
        aliases={"num_local_experts": "n_routed_experts", "num_mtp_layers": "num_nextn_predict_layers"},
        ignored=UNSHAPED_HERE,
        # modules for further tokens (DeepSeek-AI 2024, arXiv 2412.19437, section 2.2)
        unbuilt={"num_nextn_predict_layers": "multi_token.depth"},
    ),
}
