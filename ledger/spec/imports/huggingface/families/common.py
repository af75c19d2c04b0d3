"""Fields that the configurations of many families have in common."""

from __future__ import annotations

from ledger.spec.imports.huggingface import fields
from ledger.spec.imports.huggingface.fields import ConfigField

ROTARY = {
    **fields.rotary_parameters()(rope_parameters=None, rope_scaling=None),
    "partial_rotary_factor": fields.only(1.0, 1),
}
PARTLY_ROTARY = fields.rotary_parameters(partial=True)(rope_parameters=None, rope_scaling=None)
UNSHAPED = frozenset({"is_llama_config", "max_sequence_length", "rms_norm_eps", "rope_interleaved", "rope_theta"})


def depth(layers: int) -> dict[str, ConfigField]:
    """The number of layers."""
    return fields.depths(num_hidden_layers=layers)


def decoder(width: int, layers: int, heads: int, positions: int, vocabulary: int) -> dict[str, ConfigField]:
    """The fields that every decoder has."""
    return {
        **fields.sizes(hidden_size=width, num_attention_heads=heads),
        **depth(layers),
        **fields.sizes(max_position_embeddings=positions, vocab_size=vocabulary),
    }


def grouped(
    heads: int | None, d_ff: int, *, head_dim: int | None = None, act: str = "silu", tied: bool = False
) -> dict[str, ConfigField]:
    """What decoders with rotary positions and grouped queries have beside: heads of keys, a feed-forward width.

    `heads` of None: as many as of queries. A class that puts a number for `head_dim` takes no null.
    """
    return {
        **ROTARY,
        **fields.sizes_or_null(num_key_value_heads=heads, head_dim=head_dim),
        **fields.sizes(intermediate_size=d_ff),
        **fields.activations(hidden_act=act),
        **fields.dropouts(attention_dropout=0.0),
        **fields.flags(tie_word_embeddings=tied),
    }
