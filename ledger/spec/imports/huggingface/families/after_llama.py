"""Architectures that differ from Llama in a few operations. Defaults: transformers 5.23, configuration_<family>.py."""

from __future__ import annotations

from collections.abc import Mapping

from ledger.spec.imports.huggingface import fields, patterns, terms
from ledger.spec.imports.huggingface.families.common import PARTLY_ROTARY, UNSHAPED, decoder, grouped
from ledger.spec.imports.huggingface.families.dense import LLAMA, QWEN
from ledger.spec.imports.huggingface.family import Family

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
            *(*terms.OUTSIDE, *terms.norms("rms"), terms.same("resid_pdrop", "residual_dropout")),
            *terms.GROUPED,
            *(terms.partly_rotary("partial_rotary_factor"), *terms.fixed("attention", rotary_form="joined_halves")),
            *(*terms.fixed("attention", fused_qkv=True), terms.WINDOW, terms.DROPOUT),
            *(*terms.mlp("gated"), *terms.fixed("mlp", fused_gate_up=True)),
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
            *(*LLAMA, terms.same("embedding_multiplier", "embedding.multiplier"), LOGITS_SCALING),
            terms.same("residual_multiplier", "residual_scale"),
            *(terms.BIASES, terms.DROPOUT, *terms.mlp("gated"), terms.same("mlp_bias", "mlp.bias")),
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
            *(*terms.OUTSIDE, terms.same("embedding_dropout", "embedding.dropout")),
            terms.same("residual_dropout", "residual_dropout"),
            *(*terms.norms("layer", bias=True), *terms.GROUPED, *terms.ROTARY),
            *(terms.same("use_bias", "attention.qkv_bias", "attention.out_bias", "mlp.bias"), terms.WINDOW),
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
            *(terms.partly_rotary("partial_rotary_factor"), *terms.fixed("attention", rotary_form="repeated_pairs")),
            *(terms.same("attention_bias", "attention.qkv_bias"), terms.DROPOUT),
            *(*terms.mlp("gated"), *terms.fixed("mlp", fused_gate_up=True)),
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
            *(*LLAMA, *terms.fixed("attention", qkv_bias=True), terms.DROPOUT),
            *(*terms.of("local", terms.WINDOW), *terms.mlp("gated")),
        ),
        patterns=(patterns.UPPER,),
        ignored=UNSHAPED,
        layers="layers",
    ),
}
