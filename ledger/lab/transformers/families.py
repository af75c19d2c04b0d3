"""The architectures of transformers that the judge knows: what a model must be to be one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ledger.lab.transformers import settings

if TYPE_CHECKING:
    from ledger.spec.plan import Model


@dataclass(frozen=True)
class Family:
    """A transformers architecture: its classes, where its layers are, what a model must be to be one of it."""

    configuration: str
    model: str
    layers: str  # dotted path to the list of layers
    requires: Mapping[str, object]  # features, by the names of `features`
    settings: Callable[[Model], dict[str, Any]]


_EVERY: dict[str, object] = {
    "kinds of layer": 1,
    "attention": "grouped_query",
    "head bias": False,
    "rotary form": "halves",
    "rotary bases": 1,
    "rotary in every layer": True,
    "norms of queries and keys": "none",
    "sinks": False,
    "temperature": False,
    "weight in fp32": False,
    "chunks": False,
    "capacity": False,
    "scores multiply": "output",
}
_LAYER_NORM: dict[str, object] = _EVERY | {
    "norm": "layer",
    "norm bias": True,
    "norms": "pre",
    "mlp": "plain",
    "mlp bias": True,
    "qkv bias": True,
    "output bias": True,
    "fused qkv": True,
    "window": False,
    "soft cap": False,
    "grouped queries": False,
    "heads x head_dim = d_model": True,
    "scaled embedding": False,
    "head soft cap": False,
}
_RMS_NORM: dict[str, object] = _EVERY | {
    "norm": "rms",
    "residual": "sequential",
    "mlp": "gated",
    "fused qkv": False,
    "rotary": True,
    "partial rotary": False,
    "learned positions": False,
    "residual dropout": False,
    "embedding dropout": False,
}
_PLAIN_RMS: dict[str, object] = _RMS_NORM | {
    "norms": "pre",
    "unit offset": False,
    "soft cap": False,
    "scaled embedding": False,
    "head soft cap": False,
}
_NO_BIAS: dict[str, object] = {"qkv bias": False, "output bias": False, "mlp bias": False}
_GEMMA: dict[str, object] = _NO_BIAS | {"norms": "sandwich", "unit offset": True, "scaled embedding": True}
_EXPERTS: dict[str, object] = _PLAIN_RMS | {
    "mlp": "experts",
    "mlp bias": False,
    "router bias": False,
    "router in": "compute",
    "groups of experts": False,
    "gated shared experts": False,
    "clamped": False,
}
_CHUNKED: dict[str, object] = {
    key: value for key, value in _PLAIN_RMS.items() if key not in ("rotary in every layer", "chunks", "temperature")
} | {
    "rotary form": "complex",
    "mlp bias": False,
    "equal attention biases": True,
    "window": False,
    "norms of queries and keys": "unweighted",
    "temperature where nothing rotates": True,
    "chunks where something rotates": True,
}
_LATENT: dict[str, object] = _PLAIN_RMS | {"attention": "latent", "window": False, "equal attention biases": True}

FAMILIES = {
    "gpt2": Family(
        "GPT2Config",
        "GPT2LMHeadModel",
        "transformer.h",
        _LAYER_NORM | {"residual": "sequential", "rotary": False, "learned positions": True},
        settings.gpt2,
    ),
    "gpt_neox": Family(
        "GPTNeoXConfig",
        "GPTNeoXForCausalLM",
        "gpt_neox.layers",
        _LAYER_NORM | {"rotary": True, "learned positions": False, "equal hidden dropouts": True},
        settings.gpt_neox,
    ),
    "llama": Family(
        "LlamaConfig",
        "LlamaForCausalLM",
        "model.layers",
        _PLAIN_RMS | {"window": False, "equal attention biases": True},
        settings.llama,
    ),
    "mistral": Family(
        "MistralConfig",
        "MistralForCausalLM",
        "model.layers",
        _PLAIN_RMS | _NO_BIAS | {"window": True},
        settings.mistral,
    ),
    "qwen2": Family(
        "Qwen2Config",
        "Qwen2ForCausalLM",
        "model.layers",
        _PLAIN_RMS | _NO_BIAS | {"qkv bias": True, "window": False},
        settings.grouped,
    ),
    "gemma2": Family(
        "Gemma2Config",
        "Gemma2ForCausalLM",
        "model.layers",
        _RMS_NORM | _GEMMA,
        settings.gemma2,
    ),
    "phi": Family(
        "PhiConfig",
        "PhiForCausalLM",
        "model.layers",
        {key: value for key, value in _LAYER_NORM.items() if key != "grouped queries"}
        | {
            "norms": "shared",
            "residual": "parallel",
            "fused qkv": False,
            "rotary": True,
            "learned positions": False,
            "head bias": True,
        },
        settings.phi,
    ),
    "llama4": Family(
        "Llama4TextConfig",
        "Llama4ForCausalLM",
        "model.layers",
        _CHUNKED,
        settings.llama4,
    ),
    "llama4, experts": Family(
        "Llama4TextConfig",
        "Llama4ForCausalLM",
        "model.layers",
        _CHUNKED
        | {"mlp": "experts", "scores": "sigmoid_of_chosen", "scores multiply": "input", "weights of chosen": "input"}
        | {"router in": "compute", "router bias": False, "normalized": False, "groups of experts": False}
        | {"one shared expert": True, "shared experts as wide as others": True, "gated shared experts": False}
        | {"auxiliary loss": False, "clamped": False},
        settings.llama4,
    ),
    "olmo2": Family(
        "Olmo2Config",
        "Olmo2ForCausalLM",
        "model.layers",
        _PLAIN_RMS
        | {
            "norms": "post",
            "weight in fp32": True,
            "rotary form": "wide_halves",
            "mlp bias": False,
            "equal attention biases": True,
            "window": False,
            "norms of queries and keys": "all",
            "heads x head_dim = d_model": True,
        },
        settings.olmo2,
    ),
    "qwen3": Family(
        "Qwen3Config",
        "Qwen3ForCausalLM",
        "model.layers",
        _PLAIN_RMS | {"mlp bias": False, "equal attention biases": True, "norms of queries and keys": "head"},
        settings.qwen3,
    ),
    "gemma3": Family(
        "Gemma3TextConfig",
        "Gemma3ForCausalLM",
        "model.layers",
        {key: value for key, value in (_RMS_NORM | _GEMMA).items() if key != "rotary bases"}
        | {"a rotary base for each kind of window": True, "norms of queries and keys": "head"},
        settings.gemma3,
    ),
    "deepseek_v3": Family(
        "DeepseekV3Config",
        "DeepseekV3ForCausalLM",
        "model.layers",
        _LATENT | {"rotary form": "pairs", "mlp bias": False},
        settings.deepseek_v3,
    ),
    "deepseek_v2": Family(
        "DeepseekV2Config",
        "DeepseekV2ForCausalLM",
        "model.layers",
        _LATENT | {"rotary form": "complex"},
        settings.deepseek_v2,
    ),
    "mixtral": Family(
        "MixtralConfig",
        "MixtralForCausalLM",
        "model.layers",
        _EXPERTS
        | _NO_BIAS
        | {"scores": "softmax", "weights of chosen": "fp32", "normalized": True}
        | {"shared experts": False, "dense layers": False},
        settings.mixtral,
    ),
    "qwen2_moe": Family(
        "Qwen2MoeConfig",
        "Qwen2MoeForCausalLM",
        "model.layers",
        _EXPERTS
        | {"qkv bias": True, "output bias": False, "window": False, "shared experts": True}
        | {"gated shared experts": True, "weights of chosen": "input", "scores": "softmax"},
        settings.qwen2_moe,
    ),
    "qwen3_moe": Family(
        "Qwen3MoeConfig",
        "Qwen3MoeForCausalLM",
        "model.layers",
        _EXPERTS
        | {"equal attention biases": True, "norms of queries and keys": "head", "shared experts": False}
        | {"weights of chosen": "input", "scores": "softmax"},
        settings.qwen3_moe,
    ),
    "gpt_oss": Family(
        "GptOssConfig",
        "GptOssForCausalLM",
        "model.layers",
        _EXPERTS
        | {"sinks": True, "rotary form": "half_tables", "weight in fp32": True, "equal attention biases": True}
        | {"mlp bias": True, "router bias": True, "clamped": True, "shared experts": False, "dense layers": False}
        | {"scores": "softmax_of_chosen", "weights of chosen": "input", "normalized": False},
        settings.gpt_oss,
    ),
    "deepseek_v3, experts": Family(
        "DeepseekV3Config",
        "DeepseekV3ForCausalLM",
        "model.layers",
        _LATENT
        | {"mlp": "experts", "rotary form": "pairs", "mlp bias": False, "shared experts as wide as others": True}
        | {"gated shared experts": False, "scores": "sigmoid", "weights of chosen": "fp32", "router in": "fp32"}
        | {"dense layers first": True, "groups of experts": True},
        settings.deepseek_v3,
    ),
    "deepseek_v2, experts": Family(
        "DeepseekV2Config",
        "DeepseekV2ForCausalLM",
        "model.layers",
        _LATENT
        | {"mlp": "experts", "rotary form": "complex", "mlp bias": False, "shared experts as wide as others": True}
        | {"gated shared experts": False, "scores": "softmax", "weights of chosen": "fp32", "router in": "fp32"}
        | {"dense layers first": True, "normalized": False},
        settings.deepseek_v2,
    ),
}
