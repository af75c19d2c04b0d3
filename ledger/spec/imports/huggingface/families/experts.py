"""Architectures with experts. Defaults of absent fields: transformers 5.23, configuration_<family>.py."""

from __future__ import annotations

from collections.abc import Mapping

from ledger.spec.imports.huggingface import fields, patterns, terms
from ledger.spec.imports.huggingface.families.common import ROTARY, UNSHAPED, decoder, grouped
from ledger.spec.imports.huggingface.family import Family

# What DeepSeek's configurations have in common: latent attention; and beside shapes the losses of routers, how experts
# were spread, 8-bit weights.
DEEPSEEK_FIELDS = {
    **ROTARY,
    "hidden_act": fields.activation("silu"),
    "attention_bias": fields.flag(False),
    "attention_dropout": fields.dropout(0.0),
    "q_lora_rank": fields.size_or_null(1536),
    "kv_lora_rank": fields.size(512),
    "qk_nope_head_dim": fields.size(128),
    "qk_rope_head_dim": fields.size(64),
    "v_head_dim": fields.size(128),
    "tie_word_embeddings": fields.flag(False),
    "ep_size": fields.anything(),
    "aux_loss_alpha": fields.anything(),
    "seq_aux": fields.anything(),
    "routed_scaling_factor": fields.anything(),
    "topk_group": fields.anything(),
    "auto_map": fields.anything(),
    "quantization_config": fields.anything(),
    "output_router_logits": fields.only(False),
    "moe_layer_freq": fields.only(1),
}
LATENT = (
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

# What the configurations of Mixtral and Qwen say of the balance of experts: the loss for it is added with the logits.
BALANCE = {
    "num_experts_per_tok": fields.size(8),
    "output_router_logits": fields.flag(False),
    "router_aux_loss_coef": fields.anything(),
}
BALANCED = terms.same("output_router_logits", "mlp.router.auxiliary_loss")
QWEN_FIELDS = {
    **BALANCE,
    "num_experts": fields.size(128),
    "norm_topk_prob": fields.flag(False),
    "decoder_sparse_step": fields.size(1),
    "mlp_only_layers": fields.layers_or_null(),
    "sliding_window": fields.size_or_null(4096),
}
QWEN = (
    *terms.of("dense", *terms.mlp("gated")),
    *terms.of(
        "experts",
        *terms.experts("moe_intermediate_size", "num_experts"),
        terms.same("norm_topk_prob", "mlp.router.normalize"),
        *terms.router(weights="input"),
        BALANCED,
    ),
)
TEMPERATURE = terms.Term(
    ("attention.temperature",),
    lambda values: bool(values["attn_temperature_tuning"]),  # 4 in published files
    lambda tuned: {"attn_temperature_tuning": tuned},
)
LLAMA = (*terms.OUTSIDE, *terms.norms("rms"), *terms.GROUPED)


def _best_groups(groups: int) -> terms.Values:
    """A token uses experts of some of the groups: how many shapes nothing."""
    return {"n_group": groups, "topk_group": max(1, groups // 2)}


EXPERTS: Mapping[str, Family] = {
    "mixtral": Family(
        config="MixtralConfig",
        architecture="MixtralForCausalLM",
        divides=False,
        fields={
            **decoder(width=4096, layers=32, heads=32, positions=131072, vocabulary=32000),
            **grouped(8, 14336),
            **BALANCE,
            "sliding_window": fields.size_or_null(None),
            "num_experts_per_tok": fields.size(2),
            "num_experts": fields.size(8),
            "router_jitter_noise": fields.only(0.0, 0),
        },
        terms=(
            *(*LLAMA, *terms.ROTARY, terms.WINDOW, terms.DROPOUT),
            *terms.experts("intermediate_size", "num_experts"),
            *(*terms.router(normalize=True), BALANCED),
        ),
        aliases={"num_local_experts": "num_experts"},
        ignored=UNSHAPED,
    ),
    "gpt_oss": Family(
        config="GptOssConfig",
        architecture="GptOssForCausalLM",
        divides=False,
        fields={
            **decoder(width=2880, layers=36, heads=64, positions=131072, vocabulary=201088),
            **grouped(8, 2880, head_dim=64),
            **BALANCE,
            "hidden_act": fields.only("silu"),
            "attention_bias": fields.flag(True),
            "sliding_window": fields.size_or_null(128),
            "layer_types": fields.layer_types(),
            "num_experts_per_tok": fields.size(4),
            "num_experts": fields.size(128),
            "quantization_config": fields.anything(),
        },
        terms=(
            *(*terms.OUTSIDE, *terms.norms("rms", wide=True), *terms.GROUPED, *terms.ROTARY),
            *terms.fixed("attention", rotary_form="half_tables", sinks=True, softmax="input"),
            *(terms.BIASES, *terms.of("local", terms.WINDOW), terms.DROPOUT),
            *terms.experts("intermediate_size", "num_experts", *terms.fixed("mlp", activation="clamped_swiglu")),
            *terms.router(scores="softmax_of_chosen", weights="input", bias=True),
            *(BALANCED, *terms.fixed("mlp", bias=True)),
        ),
        patterns=(patterns.EVERY_OTHER,),
        aliases={"num_local_experts": "num_experts"},
        ignored=UNSHAPED | {"experts_per_token", "initial_context_length", "swiglu_alpha", "swiglu_limit"},
    ),
    "qwen2_moe": Family(
        config="Qwen2MoeConfig",
        architecture="Qwen2MoeForCausalLM",
        divides=False,
        fields={
            **decoder(width=2048, layers=24, heads=16, positions=32768, vocabulary=151936),
            **grouped(16, 5632),
            **QWEN_FIELDS,
            "moe_intermediate_size": fields.size(1408),
            "shared_expert_intermediate_size": fields.size(5632),
            "num_experts": fields.size(60),
            "num_experts_per_tok": fields.size(4),
            "qkv_bias": fields.flag(True),
            "use_sliding_window": fields.only(False),
        },
        terms=(
            *(*LLAMA, *terms.ROTARY, terms.same("qkv_bias", "attention.qkv_bias"), terms.DROPOUT),
            *QWEN,
            *terms.of("experts", terms.same("shared_expert_intermediate_size", "mlp.shared.d_ff")),
            *terms.of("experts", *terms.fixed("mlp.shared", gated=True)),
        ),
        patterns=(patterns.EVERY_STEP,),
        aliases={"num_local_experts": "num_experts"},
        ignored=UNSHAPED | {"max_window_layers"},
    ),
    "qwen3_moe": Family(
        config="Qwen3MoeConfig",
        architecture="Qwen3MoeForCausalLM",
        divides=False,
        fields={
            **decoder(width=2048, layers=24, heads=32, positions=32768, vocabulary=151936),
            **grouped(4, 6144),
            **QWEN_FIELDS,
            "num_key_value_heads": fields.size(4),
            "moe_intermediate_size": fields.size(768),
            "attention_bias": fields.flag(False),
            "use_sliding_window": fields.flag(False),
        },
        terms=(
            *(*LLAMA, *terms.ROTARY, terms.BIASES, *terms.fixed("attention", qk_norm="head")),
            terms.switched("use_sliding_window", "sliding_window", "attention.window"),
            *(terms.DROPOUT, *QWEN),
        ),
        patterns=(patterns.EVERY_STEP,),
        aliases={"num_local_experts": "num_experts"},
        ignored=UNSHAPED | {"max_window_layers"},
    ),
    "llama4_text": Family(
        config="Llama4TextConfig",
        architecture="Llama4ForCausalLM",
        divides=False,
        fields={
            **decoder(width=5120, layers=48, heads=40, positions=131072, vocabulary=202048),
            **grouped(8, 8192, head_dim=128),
            "intermediate_size_mlp": fields.size(16384),
            "attention_bias": fields.flag(False),
            "use_qk_norm": fields.flag(True),
            "no_rope_layers": fields.layers_or_null(),
            "no_rope_layer_interval": fields.size(4),
            "attention_chunk_size": fields.size_or_null(8192),
            "attn_temperature_tuning": fields.flag_or_count(True),
            "layer_types": fields.layer_types(fields.CHUNKED),
            "moe_layers": fields.layers_or_null(),
            "interleave_moe_layer_step": fields.size(1),
            "num_local_experts": fields.size(16),
            "num_experts_per_tok": fields.size(1),
            "output_router_logits": fields.only(False),
            "router_aux_loss_coef": fields.anything(),
            "router_jitter_noise": fields.only(0.0, 0),
        },
        terms=(
            *(*LLAMA, terms.BIASES, terms.DROPOUT),
            *terms.of("local rotary", *terms.fixed("attention", rotary=1, rotary_form="complex")),
            *terms.fixed("attention", softmax="input"),
            *terms.of(
                "local rotary", terms.choice("use_qk_norm", "attention.qk_norm", {True: "unweighted", False: None})
            ),
            *terms.of("global chunked", TEMPERATURE),
            *terms.of("local chunked", terms.same("attention_chunk_size", "attention.chunk")),
            *terms.of("dense", *terms.mlp("gated", "intermediate_size_mlp")),
            *terms.of(
                "experts",
                *terms.experts("intermediate_size", "num_local_experts"),
                *terms.router(scores="sigmoid_of_chosen", weights="input", scales="input"),
                terms.derived("mlp.shared.d_ff", lambda values: values["intermediate_size"]),
            ),
        ),
        patterns=(patterns.CHUNKS, patterns.NAMED_OR_EVERY),
        ignored=UNSHAPED | {"attn_scale", "floor_scale", "cache_implementation", "for_llm_compressor"},
    ),
    "deepseek_v2": Family(
        config="DeepseekV2Config",
        architecture="DeepseekV2ForCausalLM",
        fields={
            **decoder(width=4096, layers=32, heads=32, positions=2048, vocabulary=102400),
            **DEEPSEEK_FIELDS,
            "intermediate_size": fields.size(11008),
            "moe_intermediate_size": fields.size(1407),
            "mlp_bias": fields.flag(False),
            "num_key_value_heads": fields.size_or_null(None),
            "first_k_dense_replace": fields.whole(0),
            "n_routed_experts": fields.size(64),
            "n_shared_experts": fields.size(2),
            "num_experts_per_tok": fields.size_or_null(None),
            "n_group": fields.size_or_null(None),
            "norm_topk_prob": fields.flag(False),
            "topk_method": fields.only("greedy", "group_limited_greedy"),
            "scoring_func": fields.only("softmax"),
        },
        terms=(
            *(*LATENT, *terms.fixed("attention", rotary_form="complex")),
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
        ignored=UNSHAPED | {"head_dim"},
    ),
    "deepseek_v3": Family(
        config="DeepseekV3Config",
        architecture="DeepseekV3ForCausalLM",
        divides=False,
        fields={
            **decoder(width=7168, layers=61, heads=128, positions=4096, vocabulary=129280),
            **DEEPSEEK_FIELDS,
            "rope_interleave": fields.flag(True),
            "intermediate_size": fields.size(18432),
            "moe_intermediate_size": fields.size(2048),
            "num_key_value_heads": fields.size_or_null(128),
            "first_k_dense_replace": fields.whole(3),
            "n_routed_experts": fields.size(256),
            "n_shared_experts": fields.size(1),
            "num_experts_per_tok": fields.size(8),
            "n_group": fields.size(8),
            "norm_topk_prob": fields.flag(True),
            "topk_method": fields.only("noaux_tc"),
            "scoring_func": fields.only("sigmoid"),
            "num_nextn_predict_layers": fields.whole(0, 0, 64),
        },
        # transformers leaves out the modules for further tokens that the model was trained with; DeepSeek-AI 2024
        # (DeepSeek-V3, arXiv 2412.19437, section 2.2) does not.
        terms=(
            *(*LATENT, terms.choice("rope_interleave", "attention.rotary_form", {True: None, False: "halves"})),
            *terms.of(
                "experts",
                *terms.router(scores="sigmoid"),
                terms.same("norm_topk_prob", "mlp.router.normalize"),
                *terms.router(dtype="fp32"),
                terms.Term(("mlp.router.groups",), lambda values: values["n_group"], _best_groups),
                *SHARED,
            ),
            terms.same("num_nextn_predict_layers", "multi_token.depth"),
        ),
        patterns=(patterns.AFTER_DENSE,),
        aliases={"num_local_experts": "n_routed_experts", "num_mtp_layers": "num_nextn_predict_layers"},
        ignored=UNSHAPED | {"head_dim"},
    ),
}
