"""Fields that the configurations of many families have in common."""

from __future__ import annotations

from ledger.spec.imports.huggingface.fields import (
    ConfigField,
    activation,
    depth,
    dropout,
    flag,
    only,
    rotary_parameters,
    size,
    size_or_null,
)

ROTARY = {
    "rope_parameters": rotary_parameters(),
    "rope_scaling": rotary_parameters(),
    "partial_rotary_factor": only(1.0, 1),
}
PARTLY_ROTARY = dict.fromkeys(("rope_parameters", "rope_scaling"), rotary_parameters(partial=True))
UNSHAPED = frozenset({"is_llama_config", "max_sequence_length", "rms_norm_eps", "rope_interleaved", "rope_theta"})


def decoder(width: int, layers: int, heads: int, positions: int, vocabulary: int) -> dict[str, ConfigField]:
    """The fields that every decoder has."""
    return {
        "hidden_size": size(width),
        "num_hidden_layers": depth(layers),
        "num_attention_heads": size(heads),
        "max_position_embeddings": size(positions),
        "vocab_size": size(vocabulary),
    }


def grouped(
    heads: int | None, d_ff: int, *, head_dim: int | None = None, act: str = "silu", tied: bool = False
) -> dict[str, ConfigField]:
    """What decoders with rotary positions and grouped queries have beside: heads of keys, a feed-forward width.

    `heads` of None: as many as of queries. A class that puts a number for `head_dim` takes no null.
    """
    return {
        **ROTARY,
        "num_key_value_heads": size_or_null(heads),
        "head_dim": size_or_null(head_dim),
        "intermediate_size": size(d_ff),
        "hidden_act": activation(act),
        "attention_dropout": dropout(0.0),
        "tie_word_embeddings": flag(tied),
    }
