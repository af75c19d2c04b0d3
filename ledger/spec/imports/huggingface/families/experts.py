"""Architectures with experts, and recurrent ones. Defaults: transformers 5.23, configuration_<family>.py."""

from __future__ import annotations

from collections.abc import Mapping

from ledger.spec.imports.huggingface import patterns, terms
from ledger.spec.imports.huggingface import terms as fields
from ledger.spec.imports.huggingface.family import PARTLY_ROTARY, ROTARY, UNSHAPED, Family, decoder, grouped
from ledger.spec.imports.huggingface.terms import Values

# What the configurations of Mixtral and Qwen say of the balance of experts: the loss for it is added with the logits.
ROUTED_UNSHAPED = UNSHAPED | {"router_aux_loss_coef"}
BALANCE = {**fields.sizes(num_experts_per_tok=8), **fields.flags(output_router_logits=False)}
BALANCED = terms.same_field("output_router_logits", "mlp.router.auxiliary_loss")
QWEN_FIELDS = {
    **BALANCE,
    **fields.sizes(num_experts=128, decoder_sparse_step=1),
    **fields.flags(norm_topk_prob=False),
    **fields.layer_lists(mlp_only_layers=None),
    **fields.sizes_or_null(sliding_window=4096),
}
QWEN = (
    *terms.terms_of_kinds("dense", *terms.mlp("gated")),
    *terms.terms_of_kinds(
        "experts",
        *terms.experts("moe_intermediate_size", "num_experts"),
        terms.same_field("norm_topk_prob", "mlp.router.normalize"),
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
            *terms.fixed_values("attention", rotary_form="half_tables", sinks=True, softmax="input"),
            *(terms.BIASES, *terms.terms_of_kinds("local", terms.WINDOW), terms.DROPOUT),
            *terms.experts("intermediate_size", "num_experts", *terms.fixed_values("mlp", activation="clamped_swiglu")),
            *terms.router(scores="softmax_of_chosen", weights="input", bias=True),
            *(BALANCED, *terms.fixed_values("mlp", bias=True)),
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
            *(*LLAMA, *terms.ROTARY, terms.same_field("qkv_bias", "attention.qkv_bias"), terms.DROPOUT),
            *terms.terms_of_kinds("local", terms.WINDOW),
            *QWEN,
            *terms.terms_of_kinds("experts", terms.same_field("shared_expert_intermediate_size", "mlp.shared.d_ff")),
            *terms.terms_of_kinds("experts", *terms.fixed_values("mlp.shared", gated=True)),
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
            *(*LLAMA, *terms.ROTARY, terms.BIASES, *terms.fixed_values("attention", qk_norm="head")),
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
            *terms.terms_of_kinds("local rotary", *terms.fixed_values("attention", rotary=1, rotary_form="complex")),
            *terms.fixed_values("attention", softmax="input"),
            *terms.terms_of_kinds(
                "local rotary", terms.choice("use_qk_norm", "attention.qk_norm", {True: "unweighted", False: None})
            ),
            *terms.terms_of_kinds("global chunked", TEMPERATURE),
            *terms.terms_of_kinds("local chunked", terms.same_field("attention_chunk_size", "attention.chunk")),
            *terms.terms_of_kinds("dense", *terms.mlp("gated", "intermediate_size_mlp")),
            *terms.terms_of_kinds(
                "experts",
                *terms.experts("intermediate_size", "num_local_experts"),
                *terms.router(scores="sigmoid_of_chosen", weights="input", scales="input"),
                terms.derived_term("mlp.shared.d_ff", lambda values: values["intermediate_size"]),
            ),
        ),
        patterns=(patterns.CHUNKS, patterns.NAMED_OR_EVERY),
        ignored=ROUTED_UNSHAPED | {"attn_scale", "floor_scale", "cache_implementation", "for_llm_compressor"},
    ),
}

# --- experts with latent attention (DeepSeek) ---

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
    *terms.fixed_values("attention", kind="latent"),
    terms.Term(
        ("attention.heads",),
        lambda values: values["num_attention_heads"],
        lambda heads: {"num_attention_heads": heads, "num_key_value_heads": heads},
    ),
    terms.Term(("attention.q_rank",), lambda values: values["q_lora_rank"], lambda rank: {"q_lora_rank": rank or None}),
    terms.same_field("kv_lora_rank", "attention.kv_rank"),
    terms.same_field("qk_nope_head_dim", "attention.nope_head_dim"),
    terms.same_field("qk_rope_head_dim", "attention.rope_head_dim"),
    terms.same_field("v_head_dim", "attention.v_head_dim"),
    *(terms.BIASES, terms.DROPOUT),
    *terms.terms_of_kinds("dense", *terms.mlp("gated")),
    *terms.terms_of_kinds("experts", *terms.experts("moe_intermediate_size", "n_routed_experts")),
)
SHARED = terms.terms_of_kinds(
    "experts",
    terms.derived_term("mlp.shared.d_ff", lambda values: values["moe_intermediate_size"]),
    terms.same_field("n_shared_experts", "mlp.shared.count"),
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
            *(*TERMS, *terms.fixed_values("attention", rotary_form="complex")),
            *terms.terms_of_kinds("dense", terms.same_field("mlp_bias", "mlp.bias")),
            *terms.terms_of_kinds(
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
            *terms.terms_of_kinds(
                "experts",
                *terms.router(scores="sigmoid"),
                terms.same_field("norm_topk_prob", "mlp.router.normalize"),
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


# --- layers that keep a state of the tokens before ---


def _widths_differ(values: Values) -> str:
    """The clash of Mamba-2's two statements of its inner width, or of heads and groups; empty where there is none."""
    inner, expanded = values["num_heads"] * values["head_dim"], values["expand"] * values["hidden_size"]
    stated = f"{values['num_heads']} heads of {values['head_dim']}"
    if inner != expanded:
        return f"`expand` makes {expanded:g} of `hidden_size`, and {stated} are {inner} wide"
    return f"{stated} do not share {values['n_groups']} groups" if values["num_heads"] % values["n_groups"] else ""


def _heads_not_shared(values: Values) -> str:
    """The clash of heads of values that cannot share those of keys evenly; empty where there is none."""
    heads, keys = values["linear_num_value_heads"], values["linear_num_key_heads"]
    return f"{heads} heads of values cannot share {keys} of keys" if heads % keys else ""


RECURRENT: Mapping[str, Family] = {
    "mamba2": Family(
        config="Mamba2Config",
        architecture="Mamba2ForCausalLM",
        divides=False,
        fields={
            **fields.sizes(hidden_size=4096, num_heads=128, head_dim=64, vocab_size=32768),
            **fields.depths(num_hidden_layers=64),
            **fields.sizes(state_size=128, expand=2, conv_kernel=4, n_groups=8, chunk_size=256),
            **fields.flags(use_bias=False, use_conv_bias=True, residual_in_fp32=True, tie_word_embeddings=False),
            "hidden_act": fields.only("silu", "swish"),
        },
        terms=(
            *(terms.same_field("hidden_size", "d_model"), terms.same_field("vocab_size", "vocab")),
            *(terms.same_field("tie_word_embeddings", "embedding.tied"), *terms.norms("rms")),
            terms.choice("residual_in_fp32", "residual_dtype", {True: "fp32", False: None}),
            *(*terms.fixed_values("attention", kind="mamba2"), terms.same_field("num_heads", "attention.heads")),
            *(
                terms.same_field("head_dim", "attention.head_dim"),
                terms.same_field("state_size", "attention.state.size"),
            ),
            *(
                terms.same_field("n_groups", "attention.state.groups"),
                terms.same_field("chunk_size", "attention.state.chunk"),
            ),
            terms.same_field("conv_kernel", "attention.state.convolution"),
            terms.same_field("use_conv_bias", "attention.state.convolution_bias"),
            terms.same_field("use_bias", "attention.qkv_bias", "attention.out_bias"),
            *terms.fixed_values("mlp", kind="none"),
        ),
        # steps of time begin there, and are clamped to no other shape; gates come before the norm whatever a file says
        ignored=frozenset(
            """
            layer_norm_epsilon norm_before_gate rescale_prenorm_residual rms_norm time_step_floor time_step_limit
            time_step_max time_step_min time_step_rank
            """.split()  # noqa: SIM905 - as a literal, one name a line, these would be half of the row
        ),
        clashes={"num_heads": _widths_differ},
        follows={"expand": lambda values: values["num_heads"] * values["head_dim"] // values["hidden_size"]},
        layers="backbone.layers",
    ),
    "qwen3_next": Family(
        config="Qwen3NextConfig",
        architecture="Qwen3NextForCausalLM",
        divides=False,
        fields={
            **decoder(width=2048, layers=48, heads=16, positions=32768, vocabulary=151936),
            **grouped(2, 5632),
            **PARTLY_ROTARY,
            **BALANCE,
            **fields.sizes(decoder_sparse_step=1),
            **fields.layer_lists(mlp_only_layers=None),
            **fields.shares(partial_rotary_factor=0.25),
            **fields.sizes(head_dim=256, num_key_value_heads=2, num_experts=512, num_experts_per_tok=10),
            **fields.sizes(moe_intermediate_size=512, shared_expert_intermediate_size=512),
            **fields.sizes(linear_conv_kernel_dim=4, linear_key_head_dim=128, linear_value_head_dim=128),
            **fields.sizes(linear_num_key_heads=16, linear_num_value_heads=32, full_attention_interval=4),
            **fields.flags(attention_bias=False, norm_topk_prob=True),
            **fields.layer_types(*fields.LINEAR)(layer_types=None),
            "hidden_act": fields.only("silu", "swish"),
        },
        terms=(
            *(*terms.OUTSIDE, *terms.norms("rms", unit_offset=True)),
            *terms.terms_of_kinds(
                "linear",
                *terms.fixed_values("attention", kind="gated_delta"),
                terms.same_field("linear_num_value_heads", "attention.heads"),
                terms.same_field("linear_value_head_dim", "attention.head_dim"),
                terms.same_field("linear_key_head_dim", "attention.state.size"),
                terms.same_field("linear_num_key_heads", "attention.state.groups"),
                *terms.fixed_values("attention.state", chunk=64),
                terms.same_field("linear_conv_kernel_dim", "attention.state.convolution"),
            ),
            *terms.terms_of_kinds(
                "global",
                *(*terms.fixed_values("attention", kind="gated", qk_norm="head"), *terms.GROUPED, terms.BIASES),
                *(
                    terms.partly_rotary("partial_rotary_factor"),
                    *terms.fixed_values("attention", rotary_form="joined_halves"),
                ),
                terms.DROPOUT,
            ),
            *QWEN,
            *terms.terms_of_kinds("experts", terms.same_field("shared_expert_intermediate_size", "mlp.shared.d_ff")),
            *terms.terms_of_kinds("experts", *terms.fixed_values("mlp.shared", gated=True)),
        ),
        patterns=(patterns.EVERY_STEP, patterns.LINEAR),
        clashes={"linear_num_value_heads": _heads_not_shared},
        aliases={"num_local_experts": "num_experts"},
        ignored=ROUTED_UNSHAPED | {"max_window_layers", "sliding_window", "use_sliding_window"},
    ),
}
