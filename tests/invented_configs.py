"""Configurations of transformers that no model has, and several tests ask the same of.

Sizes are distinct primes wherever the class allows: two that were swapped would give another count.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LLAMA_4: Mapping[str, Any] = {
    "model_type": "llama4_text",
    "hidden_size": 6 * 17,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "head_dim": 26,
    "intermediate_size": 61,
    "intermediate_size_mlp": 103,
    "num_hidden_layers": 6,
    "vocab_size": 313,
    "num_local_experts": 7,
    "num_experts_per_tok": 2,
    "interleave_moe_layer_step": 2,
    "attention_chunk_size": 17,
}
