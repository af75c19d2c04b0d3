"""Small plans for tests, as mappings that are written to a file and read back through the public interface.

Sizes are such that no two products of sizes are alike, so that a dimension in the wrong place shows.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ledger
from ledger.books.compiled import Compiled

Mapped = dict[str, Any]

LLAMA: Mapped = {
    "model": "small Llama",
    "source": "invented for tests",
    "d_model": 102,
    "vocab": 211,
    "max_seq_len": 64,
    "embedding": {"tied": False},
    "norm": {"kind": "rms"},
    "head": {"bias": False},
    "layers": [
        {
            "group": "decoder",
            "repeat": 2,
            "attention": {"heads": 6, "kv_heads": 3, "head_dim": 24, "rotary": 1},
            "mlp": {"kind": "gated", "d_ff": 272, "activation": "silu"},
            "norms": "pre",
        }
    ],
}


def layer(model: Mapped, repeat: int = 0, **changes: Mapped) -> Mapped:
    """`model` with changed parts in every layer group, and so many layers."""
    groups = []
    for group in model["layers"]:
        parts = {name: {**group[name], **values} for name, values in changes.items()}
        groups.append({**group, **parts, "repeat": repeat or group["repeat"]})
    return {**model, "layers": groups}


QWEN2 = layer(LLAMA, attention={"qkv_bias": True})
BIASED_LLAMA = layer(LLAMA, attention={"qkv_bias": True, "out_bias": True}, mlp={"bias": True})
MISTRAL = layer(LLAMA, attention={"window": 19})
GEMMA2: Mapped = {
    **layer(LLAMA, mlp={"activation": "gelu_tanh"}),
    "embedding": {"tied": True, "scale": True},
    "norm": {"kind": "rms", "unit_offset": True},
    "head": {"bias": False, "softcap": 30.0},
}
GEMMA2["layers"] = [
    {**group, "group": name, "repeat": 2, "norms": "sandwich", "attention": {**group["attention"], **core}}
    for group in GEMMA2["layers"]
    for name, core in (("local", {"softcap": 50.0, "window": 19}), ("global", {"softcap": 50.0}))
]
GEMMA2["alternating"] = True

QWEN3 = layer(LLAMA, attention={"qk_norm": "head"})
GEMMA3: Mapped = {
    **{key: value for key, value in GEMMA2.items() if key != "alternating"},
    "head": {"bias": False},
    "order": ["2 local", "global"],
}
GEMMA3["layers"] = [
    {**group, "repeat": repeat, "attention": {**LLAMA["layers"][0]["attention"], "qk_norm": "head", **core}}
    for group, repeat, core in zip(
        GEMMA2["layers"], (5, 2), ({"window": 19, "rotary_base": 10_000}, {"rotary_base": 1_000_000}), strict=True
    )
]
LATENT: Mapped = {
    **LLAMA,
    "layers": [
        {
            **LLAMA["layers"][0],
            "attention": {
                "kind": "latent",
                "heads": 6,
                "q_rank": 46,
                "kv_rank": 34,
                "rope_head_dim": 14,
                "nope_head_dim": 22,
                "v_head_dim": 26,
            },
        }
    ],
}
LATENT_COMPLEX = layer(LATENT, attention={"rotary_form": "complex"})
LATENT_KEYS = {
    **LATENT,
    "layers": [
        {
            **group,
            "attention": {
                "qkv_bias": True,
                "out_bias": True,
                **{key: value for key, value in group["attention"].items() if key != "q_rank"},
            },
        }
        for group in LATENT["layers"]
    ],
}

OLMO2: Mapped = {
    **LLAMA,
    "d_model": 144,
    "norm": {"kind": "rms", "wide": True},
    "layers": [
        {
            **group,
            "norms": "post",
            "attention": {**group["attention"], "qk_norm": "all", "rotary_form": "wide_halves"},
        }
        for group in LLAMA["layers"]
    ],
}

# Six heads in two groups, over chunks of which a sequence of any case here does not fill the last.
MAMBA2: Mapped = {
    **LLAMA,
    "d_model": 24,
    "embedding": {"tied": True},
    "residual_dtype": "fp32",
    "layers": [
        {
            "group": "decoder",
            "repeat": 2,
            "attention": {
                "kind": "mamba2",
                "heads": 6,
                "head_dim": 8,
                "state": {"size": 5, "groups": 2, "chunk": 11, "convolution": 4, "convolution_bias": True},
            },
            "mlp": {"kind": "none"},
            "norms": "pre",
        }
    ],
}

# Four heads of values and two of keys, over chunks of which a sequence does not fill the last.
GATED_DELTA: Mapped = {
    **LLAMA,
    "norm": {"kind": "rms", "unit_offset": True},
    "order": ["linear", "global"],
    "layers": [
        {
            **LLAMA["layers"][0],
            "group": "linear",
            "repeat": 1,
            "attention": {
                "kind": "gated_delta",
                "heads": 4,
                "head_dim": 13,
                "state": {"size": 7, "groups": 2, "chunk": 64, "convolution": 4},
            },
        },
        {
            **LLAMA["layers"][0],
            "group": "global",
            "repeat": 1,
            "attention": {
                **LLAMA["layers"][0]["attention"],
                "kind": "gated",
                "qk_norm": "head",
                "rotary_form": "joined_halves",
            },
        },
    ],
}

_JOINT = {"heads": 5, "kv_heads": 5, "head_dim": 24, "fused_qkv": True, "qkv_bias": True, "out_bias": True}
GPT2: Mapped = {
    "model": "small GPT-2",
    "source": "invented for tests",
    "d_model": 120,
    "vocab": 211,
    "max_seq_len": 64,
    "embedding": {"tied": True, "learned_positions": 64, "dropout": 0.1},
    "norm": {"kind": "layer", "bias": True},
    "head": {"bias": False},
    "layers": [
        {
            "group": "decoder",
            "repeat": 2,
            "attention": {**_JOINT, "dropout": 0.1, "softmax": "input"},
            "mlp": {"kind": "plain", "d_ff": 448, "activation": "gelu_tanh", "bias": True},
            "norms": "pre",
        }
    ],
    "residual_dropout": 0.1,
}
GPT2_NO_DROPOUT = {
    key: value for key, value in layer(GPT2, attention={"dropout": 0.0}).items() if key != "residual_dropout"
} | {"embedding": {"tied": True, "learned_positions": 64}}
NEOX: Mapped = {
    **{key: value for key, value in GPT2.items() if key != "residual_dropout"},
    "model": "small GPT-NeoX",
    "embedding": {"tied": False},
    "layers": [
        {
            "group": "decoder",
            "repeat": 2,
            "attention": {**_JOINT, "rotary": 0.25},
            "mlp": {"kind": "plain", "d_ff": 448, "activation": "gelu", "bias": True},
            "norms": "pre",
            "residual": "parallel",
        }
    ],
}

# Widths are multiples of 8, as the kernel over groups of rows needs them.
MIXTRAL = layer(
    {**LLAMA, "model": "small Mixtral", "d_model": 104},
    mlp={"kind": "experts", "d_ff": 272, "experts": 5, "top_k": 2, "router": {"normalize": True}},
)
QWEN3_EXPERTS = layer(
    MIXTRAL, attention={"qk_norm": "head"}, mlp={"d_ff": 88, "router": {"normalize": True, "weights": "input"}}
)
QWEN2_EXPERTS = layer(
    MIXTRAL,
    attention={"qkv_bias": True},
    mlp={"d_ff": 88, "router": {"weights": "input"}, "shared": {"d_ff": 120, "gated": True}},
)

_SIGMOID = {"scores": "sigmoid", "normalize": True, "dtype": "fp32", "groups": 3}
_ROUTED: Mapped = {"experts": 6, "top_k": 2, "shared": {"d_ff": 88, "count": 2}}
DEEPSEEK3: Mapped = {
    **LATENT,
    "d_model": 120,
    "layers": [
        {**LATENT["layers"][0], "group": "dense", "repeat": 2},
        {
            **LATENT["layers"][0],
            "group": "sparse",
            "mlp": {"kind": "experts", "d_ff": 88, "activation": "silu", "router": _SIGMOID, **_ROUTED},
        },
    ],
}
DEEPSEEK2: Mapped = {
    **LATENT_COMPLEX,
    "d_model": 120,
    "layers": [
        {**LATENT_COMPLEX["layers"][0], "group": "dense", "repeat": 2},
        {
            **LATENT_COMPLEX["layers"][0],
            "group": "sparse",
            "mlp": {
                "kind": "experts",
                "d_ff": 88,
                "activation": "silu",
                "router": {"dtype": "fp32", "groups": 3},
                **_ROUTED,
            },
        },
    ],
}
PHI: Mapped = {
    **NEOX,
    "head": {"bias": True},
    "layers": [
        {
            **group,
            "norms": "shared",
            "attention": {**group["attention"], "rotary": 0.5, "fused_qkv": False},
            "mlp": {**group["mlp"], "activation": "gelu_tanh"},
        }
        for group in NEOX["layers"]
    ],
}
SINKS: Mapped = {
    **LLAMA,
    "layers": [
        {
            **group,
            "attention": {
                **group["attention"],
                "rotary_form": "half_tables",
                "sinks": True,
                "qkv_bias": True,
                "out_bias": True,
                "softmax": "input",
            },
        }
        for group in LLAMA["layers"]
    ],
}
LLAMA4: Mapped = {
    **LLAMA,
    "layers": [
        {
            **group,
            "group": name,
            "repeat": repeat,
            "attention": {**LLAMA["layers"][0]["attention"], "rotary_form": "complex", "softmax": "input", **own},
        }
        for group in LLAMA["layers"]
        for name, repeat, own in (
            ("local", 6, {"chunk": 11, "qk_norm": "unweighted"}),
            ("global", 2, {"rotary": 0, "temperature": True}),
        )
    ],
    "order": ["3 local", "global"],
}
_SCALED = {"scores": "sigmoid_of_chosen", "weights": "input", "scales": "input"}
LLAMA4_EXPERTS = layer(
    {**LLAMA4, "d_model": 104},
    mlp={"kind": "experts", "d_ff": 88, "experts": 5, "top_k": 2, "router": _SCALED, "shared": {"d_ff": 88}},
)
LLAMA4_MIXED: Mapped = {
    **LLAMA4_EXPERTS,
    "layers": [
        {**group, "mlp": {"kind": "gated", "d_ff": 280, "activation": "silu"}} if group["group"] == "global" else group
        for group in LLAMA4_EXPERTS["layers"]
    ],
}
GPT_OSS: Mapped = {
    **SINKS,
    "d_model": 104,
    "norm": {"kind": "rms", "wide": True},
    "layers": [
        {
            **group,
            "group": name,
            "repeat": 2,
            "attention": {**group["attention"], **window},
            "mlp": {
                **MIXTRAL["layers"][0]["mlp"],
                "activation": "clamped_swiglu",
                "bias": True,
                "router": {"scores": "softmax_of_chosen", "weights": "input", "bias": True},
            },
        }
        for group in SINKS["layers"]
        for name, window in (("local", {"window": 19}), ("global", {}))
    ],
    "alternating": True,
}

PHI3 = layer(LLAMA, attention={"fused_qkv": True, "rotary_form": "joined_halves"}, mlp={"fused_gate_up": True}) | {
    "d_model": 144
}
PHI4 = layer(PHI3, attention={"rotary": 0.75})
GRANITE: Mapped = {
    **LLAMA,
    "embedding": {"tied": False, "multiplier": 12.0},
    "head": {"bias": False, "scale": 0.125},
    "residual_scale": 0.22,
}
STARCODER2: Mapped = {
    **layer(
        LLAMA,
        attention={"qkv_bias": True, "out_bias": True, "window": 19},
        mlp={"kind": "plain", "activation": "gelu_tanh", "bias": True},
    ),
    "norm": {"kind": "layer", "bias": True},
    "embedding": {"tied": True, "dropout": 0.1},
    "residual_dropout": 0.1,
}
GLM4: Mapped = {
    **LLAMA,
    "layers": [
        {
            **group,
            "norms": "sandwich",
            "attention": {**group["attention"], "qkv_bias": True, "rotary": 0.5, "rotary_form": "repeated_pairs"},
            "mlp": {**group["mlp"], "fused_gate_up": True},
        }
        for group in LLAMA["layers"]
    ],
}
STABLELM = layer(LLAMA, attention={"rotary": 0.25, "qkv_bias": True}) | {
    "d_model": 144,
    "norm": {"kind": "layer", "bias": True},
}
COHERE: Mapped = {
    **LLAMA,
    "d_model": 144,
    "norm": {"kind": "layer", "wide": True},
    "head": {"bias": False, "scale": 0.0625},
    "layers": [
        {
            **group,
            "norms": "shared",
            "residual": "parallel",
            "attention": {**group["attention"], "rotary_form": "wide_pairs"},
        }
        for group in LLAMA["layers"]
    ],
}
COHERE_NORMED = layer(COHERE, attention={"qk_norm": "heads"})
COHERE2: Mapped = {
    **COHERE,
    "layers": [
        {**group, "group": name, "attention": {**group["attention"], **own}, "repeat": repeat}
        for group in COHERE["layers"]
        for name, repeat, own in (("local", 4, {"window": 19}), ("global", 2, {"rotary": 0}))
    ],
    "order": ["2 local", "global"],
}

BERT: Mapped = {
    **GPT2,
    "model": "small BERT",
    "embedding": {"tied": True, "learned_positions": 64, "types": 3, "norm": True, "dropout": 0.1},
    "norm": {"kind": "layer", "bias": True, "final": False},
    "head": {"bias": True, "transform": "gelu"},
    "layers": [
        {
            **group,
            "norms": "residual",
            "attention": {
                **{key: value for key, value in group["attention"].items() if key != "fused_qkv"},
                "bidirectional": True,
            },
            "mlp": {**group["mlp"], "activation": "gelu"},
        }
        for group in GPT2["layers"]
    ],
}

VIT: Mapped = {
    "model": "small ViT",
    "source": "invented for tests",
    "d_model": 120,
    "image": {"height": 20, "width": 45, "channels": 3, "patch": 5},  # 36 patches: 37 tokens, as many as ONE_DEVICE has
    "embedding": {"learned_positions": 37, "dropout": 0.1},
    "norm": {"kind": "layer", "bias": True},
    "head": {"classes": 11, "bias": True},
    "layers": [
        {
            "group": "encoder",
            "repeat": 2,
            "attention": {**BERT["layers"][0]["attention"], "softmax": "fp32"},
            "mlp": {"kind": "plain", "d_ff": 448, "activation": "gelu", "bias": True},
            "norms": "pre",
        }
    ],
    "residual_dropout": 0.1,
}
VIT_NO_DROPOUT = {
    key: value for key, value in layer(VIT, attention={"dropout": 0.0}).items() if key != "residual_dropout"
} | {"embedding": {"learned_positions": 37}}

# Heads are wider together than the stream; the sides differ in all sizes but the stream's.
T5: Mapped = {
    "model": "small T5",
    "source": "invented for tests",
    "d_model": 46,
    "vocab": 211,
    "embedding": {"tied": True, "dropout": 0.1},
    "norm": {"kind": "rms", "scales_input": True, "final_dropout": 0.1},
    "head": {"scale_input": True},
    "residual_dropout": 0.1,
    "layers": [
        {
            "group": group,
            "repeat": 3,
            **side,
            "attention": {
                "heads": 5,
                "kv_heads": 5,
                "head_dim": 14,
                "relative_buckets": 32,
                **seen,
                "softmax": "unconverted",
                "dropout": 0.1,
            },
            "mlp": {"kind": "plain", "d_ff": 71, "activation": "relu", "dropout": 0.1},
            "norms": "pre",
        }
        for group, side, seen in (
            ("encoder", {"reads": "source"}, {"bidirectional": True}),
            ("decoder", {"cross_attention": True}, {}),
        )
    ],
}
T5_GATED: Mapped = {
    **{
        key: value
        for key, value in layer(T5, mlp={"kind": "gated", "activation": "gelu_tanh"}).items()
        if key != "head"
    }
}
WHISPER: Mapped = {
    "model": "small Whisper",
    "source": "invented for tests",
    "d_model": 40,
    "vocab": 211,
    "sound": {"bands": 13, "frames": 106},
    "embedding": {"tied": True, "learned_positions": 41, "positions_each": True, "dropout": 0.1},
    "norm": {"kind": "layer", "bias": True},
    "residual_dropout": 0.1,
    "layers": [
        {
            "group": group,
            "repeat": repeat,
            **side,
            "attention": {
                "heads": heads,
                "kv_heads": heads,
                "head_dim": 40 // heads,
                **seen,
                "qkv_bias": True,
                "key_bias": False,
                "out_bias": True,
                "scaled": "queries",
                "masked": False,
                "softmax": "unconverted",
                "dropout": 0.1,
            },
            "mlp": {"kind": "plain", "d_ff": d_ff, "activation": "gelu", "bias": True, "dropout": 0.1},
            "norms": "pre",
        }
        for group, repeat, heads, d_ff, side, seen in (
            ("encoder", 3, 5, 71, {"reads": "source"}, {"bidirectional": True}),
            ("decoder", 2, 4, 73, {"cross_attention": True}, {}),
        )
    ],
}

ONE_DEVICE: Mapped = {
    "spec": "ledger/1",
    "plan": "a small plan",
    "accelerator": "h100-sxm",
    "cluster": {"base": "h100-400g", "devices": 1},
    "model": LLAMA,
    "precision": "bf16-true",
    "optimizer": "adamw",
    "parallelism": {"data": 1},
    "recompute": "none",
    "stack": "pytorch-fsdp2-2025",
    "run": {"seq_len": 37, "micro_batch": 3, "global_batch": 3},
}


def compiled(**parts: Any) -> Compiled:
    """The small plan with some of its parts replaced, compiled from a file."""
    return compiled_text(json.dumps({**ONE_DEVICE, **parts}))


def compiled_text(text: str) -> Compiled:
    """A plan compiled from the text of its spec."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.yaml"
        path.write_text(text, encoding="utf-8")
        return ledger.compile(str(path))


def merged(base: Mapping[str, Any], **changes: Any) -> Mapped:
    """One mapping over another, one level deep."""
    return {**base, **changes}
