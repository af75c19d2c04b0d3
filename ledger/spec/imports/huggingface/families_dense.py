"""Architectures without experts. Defaults of absent fields: transformers 5.23, configuration_<family>.py."""

from __future__ import annotations

from collections.abc import Mapping

from ledger.spec.imports.huggingface import builders as build
from ledger.spec.imports.huggingface.fields import (
    Family,
    activation,
    anything,
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
from ledger.spec.imports.huggingface.shared import ROTARY, UNSHAPED, decoder, grouped

# What the second and third Gemma have in common.
GEMMA = {
    "num_key_value_heads": size(4),
    "head_dim": size(256),
    "intermediate_size": size(9216),
    "hidden_activation": activation("gelu_pytorch_tanh"),
    "attention_bias": flag(False),
    "attention_dropout": dropout(0.0),
    "sliding_window": size_or_null(4096),
    "layer_types": layer_types(),
    "tie_word_embeddings": flag(True),
}

DENSE: Mapping[str, Family] = {
    "gpt2": Family(
        config="GPT2Config",
        architecture="GPT2LMHeadModel",
        build=build.gpt2,
        fields={
            **decoder(width=768, layers=12, heads=12, positions=1024, vocabulary=50257),
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
            **decoder(width=6144, layers=44, heads=64, positions=2048, vocabulary=50432),
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
            **decoder(width=4096, layers=32, heads=32, positions=2048, vocabulary=32000),
            **grouped(None, 11008),
            "attention_bias": flag(False),
            "mlp_bias": flag(False),
        },
        ignored=UNSHAPED,
    ),
    "mistral": Family(
        config="MistralConfig",
        architecture="MistralForCausalLM",
        build=build.mistral,
        divides=False,
        fields={
            **decoder(width=4096, layers=32, heads=32, positions=131072, vocabulary=32000),
            **grouped(8, 14336),
            "sliding_window": size_or_null(4096),
        },
        ignored=UNSHAPED,
    ),
    "qwen2": Family(
        config="Qwen2Config",
        architecture="Qwen2ForCausalLM",
        build=build.qwen2,
        divides=False,
        fields={
            **decoder(width=4096, layers=32, heads=32, positions=32768, vocabulary=151936),
            **grouped(32, 22016),
            "use_sliding_window": flag(False),
            "sliding_window": size_or_null(4096),
            "max_window_layers": layer_index(28),
            "layer_types": layer_types(),
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
            **decoder(width=3072, layers=28, heads=16, positions=8192, vocabulary=256000),
            **grouped(16, 24576, act="gelu_pytorch_tanh", tied=True),
            "num_key_value_heads": size(16),
            "head_dim": size(256),
            "attention_bias": flag(False),
        },
        ignored=UNSHAPED | {"hidden_activation"},
    ),
    "gemma2": Family(
        config="Gemma2Config",
        architecture="Gemma2ForCausalLM",
        build=build.gemma2,
        fields={
            **decoder(width=2304, layers=26, heads=8, positions=8192, vocabulary=256000),
            **GEMMA,
            **ROTARY,
            "attn_logit_softcapping": cap(50.0),
            "final_logit_softcapping": cap(30.0),
        },
        ignored=UNSHAPED | {"hidden_act", "query_pre_attn_scalar", "sliding_window_size"},
    ),
    "qwen3": Family(
        config="Qwen3Config",
        architecture="Qwen3ForCausalLM",
        build=build.qwen3,
        divides=False,
        fields={
            **decoder(width=4096, layers=32, heads=32, positions=32768, vocabulary=151936),
            **grouped(32, 22016),
            "head_dim": size(128),
            "attention_bias": flag(False),
            "use_sliding_window": flag(False),
            "sliding_window": size_or_null(4096),
            "max_window_layers": layer_index(28),
            "layer_types": layer_types(),
        },
        ignored=UNSHAPED,
    ),
    "gemma3_text": Family(
        config="Gemma3TextConfig",
        architecture="Gemma3ForCausalLM",
        build=build.gemma3,
        fields={
            **decoder(width=2304, layers=26, heads=8, positions=131072, vocabulary=262208),
            **GEMMA,
            "rope_parameters": rotary_parameters(partial=False),
            "rope_scaling": anything(None),
            "rope_theta": anything(1_000_000.0),
            "rope_local_base_freq": anything(10_000.0),
            "attn_logit_softcapping": cap(None),
            "final_logit_softcapping": cap(None),
            "sliding_window_pattern": size(6),
        },
        ignored=UNSHAPED | {"hidden_act", "query_pre_attn_scalar"},
    ),
}
