"""Architectures without experts. Defaults of absent fields: transformers 5.23, configuration_<family>.py."""

from __future__ import annotations

from collections.abc import Mapping

from ledger.spec.imports.huggingface import patterns, terms
from ledger.spec.imports.huggingface import terms as fields
from ledger.spec.imports.huggingface.family import PARTLY_ROTARY, ROTARY, UNSHAPED, Family, decoder, grouped

# What the second and third Gemma have in common.
GEMMA_FIELDS = {
    **fields.sizes(num_key_value_heads=4, head_dim=256, intermediate_size=9216),
    **fields.activations(hidden_activation="gelu_pytorch_tanh"),
    **fields.flags(attention_bias=False, tie_word_embeddings=True),
    **fields.dropouts(attention_dropout=0.0),
    **fields.sizes_or_null(sliding_window=4096),
    **fields.layer_types(*fields.SLIDING)(layer_types=None),
}
GEMMA = (
    *terms.OUTSIDE,
    *terms.fixed_values("embedding", scale=True),
    *terms.norms("rms", "sandwich", unit_offset=True),
    *terms.GROUPED,
    *terms.ROTARY,
)
CAPPED = (
    terms.same_field("attn_logit_softcapping", "attention.softcap"),
    terms.same_field("final_logit_softcapping", "head.softcap"),
    *terms.mlp("gated", nonlinearity=terms.activation("hidden_activation")),
)
QWEN = {
    **decoder(width=4096, layers=32, heads=32, positions=32768, vocabulary=151936),
    **grouped(32, 22016),
    **fields.flags(use_sliding_window=False),
    **fields.sizes_or_null(sliding_window=4096),
    **fields.wholes()(max_window_layers=28),
    **fields.layer_types(*fields.SLIDING)(layer_types=None),
}
INNER_WIDTH = terms.Term(
    ("mlp.d_ff",), lambda values: values["n_inner"] or 4 * values["hidden_size"], lambda width: {"n_inner": width}
)
LLAMA = (*terms.OUTSIDE, *terms.norms("rms"), *terms.GROUPED, *terms.ROTARY)
JOINT = terms.fixed_values("attention", fused_qkv=True)
BIASED = terms.fixed_values("attention", qkv_bias=True, out_bias=True)

DENSE: Mapping[str, Family] = {
    "gpt2": Family(
        config="GPT2Config",
        architecture="GPT2LMHeadModel",
        fields={
            **decoder(width=768, layers=12, heads=12, positions=1024, vocabulary=50257),
            **fields.sizes_or_null(n_inner=None),
            **fields.activations(activation_function="gelu_new"),
            **fields.dropouts(resid_pdrop=0.1, embd_pdrop=0.1, attn_pdrop=0.1),
            **fields.flags(tie_word_embeddings=True),
            "reorder_and_upcast_attn": fields.only(False),  # true computes scores in fp32
        },
        terms=(
            *terms.OUTSIDE,
            terms.same_field("max_position_embeddings", "embedding.learned_positions"),
            terms.same_field("embd_pdrop", "embedding.dropout"),
            terms.same_field("resid_pdrop", "residual_dropout"),
            *terms.norms("layer", bias=True),
            *(terms.HEADS, terms.EQUAL_HEADS, terms.SPLIT_WIDTH),
            *(*JOINT, *BIASED, *terms.fixed_values("attention", softmax="input")),
            terms.same_field("attn_pdrop", "attention.dropout"),
            *terms.mlp("plain", INNER_WIDTH, terms.activation("activation_function")),
            *terms.fixed_values("mlp", bias=True),
        ),
        aliases={
            "n_embd": "hidden_size",
            "n_layer": "num_hidden_layers",
            "n_head": "num_attention_heads",
            "n_positions": "max_position_embeddings",
        },
        ignored=frozenset(
            """
            layer_norm_epsilon n_ctx scale_attn_by_inverse_layer_idx scale_attn_weights summary_activation
            summary_first_dropout summary_proj_to_labels summary_type summary_use_proj
            """.split()  # noqa: SIM905 - as a literal, one name a line, these would be half of the row
        ),
        layers="transformer.h",
    ),
    "gpt_neox": Family(
        config="GPTNeoXConfig",
        architecture="GPTNeoXForCausalLM",
        fields={
            **decoder(width=6144, layers=44, heads=64, positions=2048, vocabulary=50432),
            **PARTLY_ROTARY,
            **fields.sizes(intermediate_size=24576),
            **fields.activations(hidden_act="gelu"),
            **fields.flags(attention_bias=True, tie_word_embeddings=False, use_parallel_residual=True),
            **fields.dropouts(attention_dropout=0.0, hidden_dropout=0.0),
            **fields.shares(rotary_pct=0.25),
        },
        terms=(
            *terms.OUTSIDE,
            terms.same_field("hidden_dropout", "residual_dropout", "embedding.dropout"),
            *terms.norms("layer", bias=True),
            *(terms.HEADS, terms.EQUAL_HEADS, terms.SPLIT_WIDTH),
            *(terms.partly_rotary("rotary_pct"), *JOINT, terms.BIASES, terms.DROPOUT),
            *(*terms.mlp("plain"), *terms.fixed_values("mlp", bias=True)),
            terms.choice("use_parallel_residual", "residual", {True: "parallel", False: None}),
        ),
        ignored=frozenset({"layer_norm_eps", "rope_theta", "rotary_emb_base"}),
        layers="gpt_neox.layers",
    ),
    "llama": Family(
        config="LlamaConfig",
        architecture="LlamaForCausalLM",
        fields={
            **decoder(width=4096, layers=32, heads=32, positions=2048, vocabulary=32000),
            **grouped(None, 11008),
            **fields.flags(attention_bias=False, mlp_bias=False),
        },
        terms=(*LLAMA, terms.BIASES, terms.DROPOUT, *terms.mlp("gated"), terms.same_field("mlp_bias", "mlp.bias")),
        ignored=UNSHAPED,
    ),
    "mistral": Family(
        config="MistralConfig",
        architecture="MistralForCausalLM",
        divides=False,
        fields={
            **decoder(width=4096, layers=32, heads=32, positions=131072, vocabulary=32000),
            **grouped(8, 14336),
            **fields.sizes_or_null(sliding_window=4096),
        },
        terms=(*LLAMA, terms.WINDOW, terms.DROPOUT, *terms.mlp("gated")),
        ignored=UNSHAPED,
    ),
    "qwen2": Family(
        config="Qwen2Config",
        architecture="Qwen2ForCausalLM",
        divides=False,
        fields={**QWEN, "use_mrope": fields.only(False)},
        terms=(
            *LLAMA,
            *terms.fixed_values("attention", qkv_bias=True),
            terms.DROPOUT,
            *terms.terms_of_kinds("local", terms.WINDOW),
            *terms.mlp("gated"),
        ),
        patterns=(patterns.UPPER,),
        ignored=UNSHAPED,
    ),
    "gemma": Family(
        config="GemmaConfig",
        architecture="GemmaForCausalLM",
        divides=False,
        fields={
            **decoder(width=3072, layers=28, heads=16, positions=8192, vocabulary=256000),
            **grouped(16, 24576, act="gelu_pytorch_tanh", tied=True),
            **fields.sizes(num_key_value_heads=16, head_dim=256),
            **fields.flags(attention_bias=False),
        },
        terms=(
            *(*GEMMA, *terms.fixed_values("", norms="pre")),
            *(terms.BIASES, terms.DROPOUT),
            *terms.mlp("gated", nonlinearity=terms.activation(gelu="gelu_tanh")),  # as GemmaConfig takes it
        ),
        ignored=UNSHAPED | {"hidden_activation"},
    ),
    "gemma2": Family(
        config="Gemma2Config",
        architecture="Gemma2ForCausalLM",
        fields={
            **decoder(width=2304, layers=26, heads=8, positions=8192, vocabulary=256000),
            **GEMMA_FIELDS,
            **ROTARY,
            **fields.caps(attn_logit_softcapping=50.0, final_logit_softcapping=30.0),
        },
        terms=(*GEMMA, terms.BIASES, *CAPPED, terms.DROPOUT, *terms.terms_of_kinds("local", terms.WINDOW)),
        patterns=(patterns.EVERY_OTHER_IF_ANY,),
        ignored=UNSHAPED | {"hidden_act", "query_pre_attn_scalar", "sliding_window_size"},
    ),
    "qwen3": Family(
        config="Qwen3Config",
        architecture="Qwen3ForCausalLM",
        divides=False,
        fields={**QWEN, **fields.sizes(head_dim=128), **fields.flags(attention_bias=False)},
        terms=(
            *(*LLAMA, terms.BIASES, *terms.fixed_values("attention", qk_norm="head"), terms.DROPOUT),
            *(*terms.terms_of_kinds("local", terms.WINDOW), *terms.mlp("gated")),
        ),
        patterns=(patterns.UPPER,),
        ignored=UNSHAPED,
    ),
    "gemma3_text": Family(
        config="Gemma3TextConfig",
        architecture="Gemma3ForCausalLM",
        fields={
            **decoder(width=2304, layers=26, heads=8, positions=131072, vocabulary=262208),
            **GEMMA_FIELDS,
            **fields.rotary_parameters()(rope_parameters=None),
            **fields.of_any_kind(rope_theta=1_000_000.0, rope_local_base_freq=10_000.0),
            **fields.caps(attn_logit_softcapping=None, final_logit_softcapping=None),
            **fields.sizes(sliding_window_pattern=6),
        },
        terms=(
            *GEMMA,
            *terms.terms_of_kinds("local", terms.rotary_base("sliding_attention", "rope_local_base_freq")),
            *terms.terms_of_kinds("global", terms.rotary_base("full_attention", "rope_theta")),
            *(terms.BIASES, *terms.fixed_values("attention", qk_norm="head"), *CAPPED),
            *(*terms.terms_of_kinds("local", terms.WINDOW), terms.DROPOUT),
        ),
        patterns=(patterns.ALL_BUT_EVERY,),
        # transformers saves `_sliding_window_pattern` beside the types of all layers, and reads those alone
        ignored=UNSHAPED | {"_sliding_window_pattern", "hidden_act", "query_pre_attn_scalar", "rope_scaling"},
    ),
    "phi": Family(
        config="PhiConfig",
        architecture="PhiForCausalLM",
        fields={
            **decoder(width=2048, layers=24, heads=32, positions=2048, vocabulary=51200),
            **PARTLY_ROTARY,
            **fields.sizes_or_null(num_key_value_heads=None),
            **fields.sizes(intermediate_size=8192),
            **fields.activations(hidden_act="gelu_new"),
            **fields.dropouts(attention_dropout=0.0, resid_pdrop=0.0, embd_pdrop=0.0),
            **fields.flags(tie_word_embeddings=False),
            **fields.shares(partial_rotary_factor=0.5),
            "qk_layernorm": fields.only(False),
        },
        terms=(
            *(*terms.OUTSIDE, *terms.fixed_values("head", bias=True)),
            terms.same_field("embd_pdrop", "embedding.dropout"),
            terms.same_field("resid_pdrop", "residual_dropout"),
            *terms.norms("layer", "shared", bias=True),
            *(terms.HEADS, terms.KEY_HEADS, terms.SPLIT_WIDTH),
            *(terms.partly_rotary("partial_rotary_factor"), *BIASED, terms.DROPOUT),
            *(*terms.mlp("plain"), *terms.fixed_values("mlp", bias=True), *terms.fixed_values("", residual="parallel")),
        ),
        ignored=frozenset({"layer_norm_eps", "rope_theta"}),
    ),
    "olmo2": Family(
        config="Olmo2Config",
        architecture="Olmo2ForCausalLM",
        fields={
            **decoder(width=4096, layers=32, heads=32, positions=2048, vocabulary=50304),
            **{name: field for name, field in grouped(None, 11008).items() if name != "head_dim"},
            **fields.flags(attention_bias=False),
        },
        terms=(
            *(*terms.OUTSIDE, *terms.norms("rms", "post", wide=True)),
            *(terms.HEADS, terms.KEY_HEADS, terms.SPLIT_WIDTH),
            *(*terms.ROTARY, *terms.fixed_values("attention", rotary_form="wide_halves", qk_norm="all")),
            *(terms.BIASES, terms.DROPOUT, *terms.mlp("gated")),
        ),
        ignored=UNSHAPED,
    ),
}

# --- architectures that differ from Llama in a few operations ---

# Granite states a divisor of its logits; rounded so that it is the same read again.
LOGITS_SCALING = terms.Term(
    ("head.scale",),
    lambda values: round(1 / values["logits_scaling"], 12),
    lambda scale: {"logits_scaling": 1 / scale if scale else None},
)

AFTER_LLAMA: Mapping[str, Family] = {
    "phi3": Family(
        config="Phi3Config",
        architecture="Phi3ForCausalLM",
        divides=False,
        fields={
            **decoder(width=3072, layers=32, heads=32, positions=4096, vocabulary=32064),
            **grouped(None, 8192),
            **fields.sizes(head_dim=None),
            **PARTLY_ROTARY,
            **fields.shares(partial_rotary_factor=1.0),
            **fields.dropouts(resid_pdrop=0.0),
            **fields.sizes_or_null(sliding_window=None),
        },
        terms=(
            *(*terms.OUTSIDE, *terms.norms("rms"), terms.same_field("resid_pdrop", "residual_dropout")),
            *terms.GROUPED,
            *(
                terms.partly_rotary("partial_rotary_factor"),
                *terms.fixed_values("attention", rotary_form="joined_halves"),
            ),
            *(*terms.fixed_values("attention", fused_qkv=True), terms.WINDOW, terms.DROPOUT),
            *(*terms.mlp("gated"), *terms.fixed_values("mlp", fused_gate_up=True)),
        ),
        # the model drops no embedding out, and has no biases
        ignored=UNSHAPED | {"attention_bias", "auto_map", "embd_pdrop", "original_max_position_embeddings"},
    ),
    "granite": Family(
        config="GraniteConfig",
        architecture="GraniteForCausalLM",
        divides=False,
        fields={
            **decoder(width=4096, layers=32, heads=32, positions=2048, vocabulary=32000),
            **grouped(None, 11008),
            **fields.flags(attention_bias=False, mlp_bias=False),
            **fields.factors(embedding_multiplier=1.0, logits_scaling=1.0, residual_multiplier=1.0),
        },
        terms=(
            *(*LLAMA, terms.same_field("embedding_multiplier", "embedding.multiplier"), LOGITS_SCALING),
            terms.same_field("residual_multiplier", "residual_scale"),
            *(terms.BIASES, terms.DROPOUT, *terms.mlp("gated"), terms.same_field("mlp_bias", "mlp.bias")),
        ),
        ignored=UNSHAPED | {"attention_multiplier"},
    ),
    "starcoder2": Family(
        config="Starcoder2Config",
        architecture="Starcoder2ForCausalLM",
        divides=False,
        fields={
            **decoder(width=3072, layers=30, heads=24, positions=4096, vocabulary=49152),
            **grouped(2, 12288, act="gelu_pytorch_tanh", tied=True),
            **fields.flags(use_bias=True),
            **fields.dropouts(residual_dropout=0.0, embedding_dropout=0.0),
            **fields.sizes_or_null(sliding_window=None),
            "norm_type": fields.only("layer_norm"),
            "mlp_type": fields.only("default"),
        },
        terms=(
            *(*terms.OUTSIDE, terms.same_field("embedding_dropout", "embedding.dropout")),
            terms.same_field("residual_dropout", "residual_dropout"),
            *(*terms.norms("layer", bias=True), *terms.GROUPED, *terms.ROTARY),
            *(terms.same_field("use_bias", "attention.qkv_bias", "attention.out_bias", "mlp.bias"), terms.WINDOW),
            *(terms.DROPOUT, *terms.mlp("plain")),
        ),
        ignored=UNSHAPED
        | {"activation_function", "attention_softmax_in_fp32", "layer_norm_epsilon", "norm_epsilon"}
        | {"scale_attention_softmax_in_fp32", "scale_attn_weights"},
    ),
    "glm4": Family(
        config="Glm4Config",
        architecture="Glm4ForCausalLM",
        divides=False,
        fields={
            **decoder(width=4096, layers=40, heads=32, positions=131072, vocabulary=151552),
            **grouped(2, 13696),
            **fields.sizes(head_dim=128),
            **PARTLY_ROTARY,
            **fields.shares(partial_rotary_factor=0.5),
            **fields.flags(attention_bias=True),
        },
        terms=(
            *(*terms.OUTSIDE, *terms.norms("rms", "sandwich"), *terms.GROUPED),
            *(
                terms.partly_rotary("partial_rotary_factor"),
                *terms.fixed_values("attention", rotary_form="repeated_pairs"),
            ),
            *(terms.same_field("attention_bias", "attention.qkv_bias"), terms.DROPOUT),
            *(*terms.mlp("gated"), *terms.fixed_values("mlp", fused_gate_up=True)),
        ),
        ignored=UNSHAPED,
    ),
    "qwen2_vl_text": Family(
        config="Qwen2VLTextConfig",
        architecture="Qwen2VLTextModel",
        divides=False,
        fields={
            **QWEN,
            **decoder(width=8192, layers=80, heads=64, positions=32768, vocabulary=152064),
            **grouped(8, 29568),
            **fields.wholes()(max_window_layers=80),
        },
        terms=(
            *(*LLAMA, *terms.fixed_values("attention", qkv_bias=True), terms.DROPOUT),
            *(*terms.terms_of_kinds("local", terms.WINDOW), *terms.mlp("gated")),
        ),
        patterns=(patterns.UPPER,),
        ignored=UNSHAPED,
        layers="layers",
    ),
}
