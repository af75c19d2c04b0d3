"""The architectures that the columns of a table do not spell out, as parts of a model spec."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ledger.lab.score.facts import Facts


def _llama(row: Facts) -> dict[str, Any]:
    return {
        "embedding": {"tied": bool(row.tied_embeddings)},
        "norm": {"kind": "rms"},
        "attention": {"rotary": 1},
        "mlp": {"kind": "gated", "activation": "silu"},
    }


def _gpt(row: Facts) -> dict[str, Any]:
    """GPT-2's: learned positions, layer norms, biases, dropout (Megatron-LM, pretrain_gpt.py)."""
    return {
        "embedding": {"tied": row.tied_embeddings is not False, "learned_positions": row.seq_len, "dropout": 0.1},
        "norm": {"kind": "layer", "bias": True},
        "residual_dropout": 0.1,
        "attention": {"qkv_bias": True, "out_bias": True, "fused_qkv": True, "dropout": 0.1},
        "mlp": {"kind": "plain", "activation": "gelu_tanh", "bias": True},
    }


def _mpt(row: Facts) -> dict[str, Any]:
    """MPT's: learned positions, layer norms and contractions without biases (mosaicml/llm-foundry, MPTConfig)."""
    return {
        "embedding": {"tied": row.tied_embeddings is not False, "learned_positions": row.seq_len},
        "norm": {"kind": "layer"},
        "attention": {"fused_qkv": True},
        "mlp": {"kind": "plain", "activation": "gelu"},
    }


ARCHITECTURES: Mapping[str, Callable[[Facts], dict[str, Any]]] = {"llama": _llama, "gpt": _gpt, "mpt": _mpt}
