"""The architectures whose config.json can be read. Defaults: transformers 5.23, configuration_<family>.py."""

from __future__ import annotations

from collections.abc import Mapping

from ledger.spec import config_builders as build
from ledger.spec.config_fields import (
    Family,
    Field,
    activation,
    cap,
    dropout,
    flag,
    layer_index,
    layer_types,
    only,
    rotary_parameters,
    share,
    size,
    size_or_null,
)


def _decoder(width: int, layers: int, heads: int, positions: int, vocabulary: int) -> dict[str, Field]:
    return {
        "hidden_size": size(width),
        "num_hidden_layers": size(layers),
        "num_attention_heads": size(heads),
        "max_position_embeddings": size(positions),
        "vocab_size": size(vocabulary),
    }


ROTARY = {
    "rope_parameters": rotary_parameters(partial=False),
    "rope_scaling": rotary_parameters(partial=False),
    "partial_rotary_factor": only(1.0, 1),
}
UNSHAPED = frozenset({"is_llama_config", "max_sequence_length", "rms_norm_eps", "rope_interleaved", "rope_theta"})

FAMILIES: Mapping[str, Family] = {
    "gpt2": Family(
        config="GPT2Config",
        architecture="GPT2LMHeadModel",
        build=build.gpt2,
        fields={
            **_decoder(width=768, layers=12, heads=12, positions=1024, vocabulary=50257),
            "n_inner": size_or_null(None),
            "activation_function": activation("gelu_new"),
            "resid_pdrop": dropout(0.1),
            "embd_pdrop": dropout(0.1),
            "attn_pdrop": dropout(0.1),
            "tie_word_embeddings": flag(True),
            "reorder_and_upcast_attn": only(False),  # true computes scores in fp32
        },
        aliases={
            "n_embd": "hidden_size",
            "n_layer": "num_hidden_layers",
            "n_head": "num_attention_heads",
            "n_positions": "max_position_embeddings",
        },
        ignored=frozenset(
            {
                "layer_norm_epsilon",
                "n_ctx",
                "scale_attn_by_inverse_layer_idx",
                "scale_attn_weights",
                "summary_activation",
                "summary_first_dropout",
                "summary_proj_to_labels",
                "summary_type",
                "summary_use_proj",
            }
        ),
    ),
    "gpt_neox": Family(
        config="GPTNeoXConfig",
        architecture="GPTNeoXForCausalLM",
        build=build.gpt_neox,
        fields={
            **_decoder(width=6144, layers=44, heads=64, positions=2048, vocabulary=50432),
            "intermediate_size": size(24576),
            "hidden_act": activation("gelu"),
            "attention_bias": flag(True),
            "attention_dropout": dropout(0.0),
            "hidden_dropout": dropout(0.0),
            "tie_word_embeddings": flag(False),
            "use_parallel_residual": flag(True),
            "rotary_pct": share(0.25),
            "rope_parameters": rotary_parameters(partial=True),
            "rope_scaling": rotary_parameters(partial=True),
        },
        ignored=frozenset({"layer_norm_eps", "rope_theta", "rotary_emb_base"}),
    ),
    "llama": Family(
        config="LlamaConfig",
        architecture="LlamaForCausalLM",
        build=build.llama,
        fields={
            **_decoder(width=4096, layers=32, heads=32, positions=2048, vocabulary=32000),
            **ROTARY,
            "num_key_value_heads": size_or_null(None),
            "head_dim": size_or_null(None),
            "intermediate_size": size(11008),
            "hidden_act": activation("silu"),
            "attention_bias": flag(False),
            "mlp_bias": flag(False),
            "attention_dropout": dropout(0.0),
            "tie_word_embeddings": flag(False),
        },
        ignored=UNSHAPED,
    ),
    "mistral": Family(
        config="MistralConfig",
        architecture="MistralForCausalLM",
        build=build.mistral,
        divides=False,
        fields={
            **_decoder(width=4096, layers=32, heads=32, positions=131072, vocabulary=32000),
            **ROTARY,
            "num_key_value_heads": size_or_null(8),
            "head_dim": size_or_null(None),
            "intermediate_size": size(14336),
            "hidden_act": activation("silu"),
            "attention_dropout": dropout(0.0),
            "sliding_window": size_or_null(4096),
            "tie_word_embeddings": flag(False),
        },
        ignored=UNSHAPED,
    ),
    "qwen2": Family(
        config="Qwen2Config",
        architecture="Qwen2ForCausalLM",
        build=build.qwen2,
        divides=False,
        fields={
            **_decoder(width=4096, layers=32, heads=32, positions=32768, vocabulary=151936),
            **ROTARY,
            "num_key_value_heads": size_or_null(32),
            "head_dim": size_or_null(None),
            "intermediate_size": size(22016),
            "hidden_act": activation("silu"),
            "attention_dropout": dropout(0.0),
            "use_sliding_window": flag(False),
            "sliding_window": size_or_null(4096),
            "max_window_layers": layer_index(28),
            "layer_types": layer_types(),
            "tie_word_embeddings": flag(False),
            "use_mrope": only(False),
        },
        ignored=UNSHAPED,
    ),
    "gemma": Family(
        config="GemmaConfig",
        architecture="GemmaForCausalLM",
        build=build.gemma,
        divides=False,
        fields={
            **_decoder(width=3072, layers=28, heads=16, positions=8192, vocabulary=256000),
            **ROTARY,
            "num_key_value_heads": size(16),
            "head_dim": size(256),
            "intermediate_size": size(24576),
            "hidden_act": activation("gelu_pytorch_tanh"),
            "attention_bias": flag(False),
            "attention_dropout": dropout(0.0),
            "tie_word_embeddings": flag(True),
        },
        ignored=UNSHAPED | {"hidden_activation"},
    ),
    "gemma2": Family(
        config="Gemma2Config",
        architecture="Gemma2ForCausalLM",
        build=build.gemma2,
        fields={
            **_decoder(width=2304, layers=26, heads=8, positions=8192, vocabulary=256000),
            **ROTARY,
            "num_key_value_heads": size(4),
            "head_dim": size(256),
            "intermediate_size": size(9216),
            "hidden_activation": activation("gelu_pytorch_tanh"),
            "attention_bias": flag(False),
            "attention_dropout": dropout(0.0),
            "attn_logit_softcapping": cap(50.0),
            "final_logit_softcapping": cap(30.0),
            "sliding_window": size_or_null(4096),
            "layer_types": layer_types(),
            "tie_word_embeddings": flag(True),
        },
        ignored=UNSHAPED | {"hidden_act", "query_pre_attn_scalar", "sliding_window_size"},
    ),
}
