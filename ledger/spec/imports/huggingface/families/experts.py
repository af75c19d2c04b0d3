"""Architectures with experts and plain attention. Defaults: transformers 5.23, configuration_<family>.py."""

from __future__ import annotations

from collections.abc import Mapping

from ledger.spec.imports.huggingface import fields, patterns, terms
from ledger.spec.imports.huggingface.families.common import UNSHAPED, decoder, grouped
from ledger.spec.imports.huggingface.family import Family

# What the configurations of Mixtral and Qwen say of the balance of experts: the loss for it is added with the logits.
ROUTED_UNSHAPED = UNSHAPED | {"router_aux_loss_coef"}
BALANCE = {
    **fields.sizes(num_experts_per_tok=8),
    **fields.flags(output_router_logits=False),
}
BALANCED = terms.same("output_router_logits", "mlp.router.auxiliary_loss")
QWEN_FIELDS = {
    **BALANCE,
    **fields.sizes(num_experts=128, decoder_sparse_step=1),
    **fields.flags(norm_topk_prob=False),
    **fields.layer_lists(mlp_only_layers=None),
    **fields.sizes_or_null(sliding_window=4096),
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


EXPERTS: Mapping[str, Family] = {
    "mixtral": Family(
        config="MixtralConfig",
        architecture="MixtralForCausalLM",
        divides=False,
        fields={
            **decoder(width=4096, layers=32, heads=32, positions=131072, vocabulary=32000),
            **grouped(8, 14336),
            **BALANCE,
            **fields.sizes_or_null(sliding_window=None),
            **fields.sizes(num_experts_per_tok=2, num_experts=8),
            "router_jitter_noise": fields.only(0.0, 0),
        },
        terms=(
            *(*LLAMA, *terms.ROTARY, terms.WINDOW, terms.DROPOUT),
            *terms.experts("intermediate_size", "num_experts"),
            *(*terms.router(normalize=True), BALANCED),
        ),
        aliases={"num_local_experts": "num_experts"},
        ignored=ROUTED_UNSHAPED,
    ),
    "gpt_oss": Family(
        config="GptOssConfig",
        architecture="GptOssForCausalLM",
        divides=False,
        fields={
            **decoder(width=2880, layers=36, heads=64, positions=131072, vocabulary=201088),
            **grouped(8, 2880, head_dim=64),
            **BALANCE,
            **fields.flags(attention_bias=True),
            **fields.sizes_or_null(sliding_window=128),
            **fields.layer_types(*fields.SLIDING)(layer_types=None),
            **fields.sizes(num_experts_per_tok=4, num_experts=128),
            "hidden_act": fields.only("silu"),
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
        ignored=ROUTED_UNSHAPED
        | {"experts_per_token", "initial_context_length", "quantization_config", "swiglu_alpha", "swiglu_limit"},
    ),
    "qwen2_moe": Family(
        config="Qwen2MoeConfig",
        architecture="Qwen2MoeForCausalLM",
        divides=False,
        fields={
            **decoder(width=2048, layers=24, heads=16, positions=32768, vocabulary=151936),
            **grouped(16, 5632),
            **QWEN_FIELDS,
            **fields.sizes(moe_intermediate_size=1408, shared_expert_intermediate_size=5632),
            **fields.sizes(num_experts=60, num_experts_per_tok=4),
            **fields.flags(qkv_bias=True, use_sliding_window=False),
            **fields.wholes()(max_window_layers=28),
            **fields.wholes().or_null()(sliding_window=4096),  # 0 where windows are off
            **fields.layer_types(*fields.SLIDING)(layer_types=None),
        },
        terms=(
            *(*LLAMA, *terms.ROTARY, terms.same("qkv_bias", "attention.qkv_bias"), terms.DROPOUT),
            *terms.of("local", terms.WINDOW),
            *QWEN,
            *terms.of("experts", terms.same("shared_expert_intermediate_size", "mlp.shared.d_ff")),
            *terms.of("experts", *terms.fixed("mlp.shared", gated=True)),
        ),
        patterns=(patterns.EVERY_STEP, patterns.LOWER),
        aliases={"num_local_experts": "num_experts"},
        ignored=ROUTED_UNSHAPED,
    ),
    "qwen3_moe": Family(
        config="Qwen3MoeConfig",
        architecture="Qwen3MoeForCausalLM",
        divides=False,
        fields={
            **decoder(width=2048, layers=24, heads=32, positions=32768, vocabulary=151936),
            **grouped(4, 6144),
            **QWEN_FIELDS,
            **fields.sizes(num_key_value_heads=4, moe_intermediate_size=768),
            **fields.flags(attention_bias=False, use_sliding_window=False),
        },
        terms=(
            *(*LLAMA, *terms.ROTARY, terms.BIASES, *terms.fixed("attention", qk_norm="head")),
            terms.switched("use_sliding_window", "sliding_window", "attention.window"),
            *(terms.DROPOUT, *QWEN),
        ),
        patterns=(patterns.EVERY_STEP,),
        aliases={"num_local_experts": "num_experts"},
        ignored=ROUTED_UNSHAPED | {"max_window_layers"},
    ),
    "llama4_text": Family(
        config="Llama4TextConfig",
        architecture="Llama4ForCausalLM",
        divides=False,
        fields={
            **decoder(width=5120, layers=48, heads=40, positions=131072, vocabulary=202048),
            **grouped(8, 8192, head_dim=128),
            **fields.sizes(intermediate_size_mlp=16384, no_rope_layer_interval=4, interleave_moe_layer_step=1),
            **fields.sizes(num_local_experts=16, num_experts_per_tok=1),
            **fields.flags(attention_bias=False, use_qk_norm=True),
            **fields.layer_lists(no_rope_layers=None, moe_layers=None),
            **fields.sizes_or_null(attention_chunk_size=8192),
            **fields.flags_or_counts(attn_temperature_tuning=True),
            **fields.layer_types(*fields.CHUNKED)(layer_types=None),
            "output_router_logits": fields.only(False),
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
        ignored=ROUTED_UNSHAPED | {"attn_scale", "floor_scale", "cache_implementation", "for_llm_compressor"},
    ),
}
