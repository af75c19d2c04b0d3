"""What a generated plan may choose from: values of its keys, by theme; the rules say what agrees with what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ledger

ROOT = Path(ledger.__file__).resolve().parents[1]
Choice = Mapping[str, Any]  # values by their paths in a plan


def each(path: str, *values: Any) -> list[Choice]:
    """A choice for each value of one key."""
    return [{path: value} for value in values]


def under(prefix: str, *choices: Choice) -> list[Choice]:
    """Choices whose keys lie below one part of a plan."""
    return [{f"{prefix}.{key}": value for key, value in choice.items()} for choice in choices]


def in_layers(key: str, *values: Any) -> list[Choice]:
    """A key of the first group of layers, of the second, or of both."""
    groups = ((0,), (1,), (0, 1))
    return [{f"model.layers.{group}.{key}": value for group in some} for value in values for some in groups]


def library(kind: str) -> list[str]:
    """The names of one kind that the library has."""
    return sorted(path.stem for path in (ROOT / "specs" / kind).glob("*.yaml"))


CUSTOM = {
    "kind": "custom",
    "dims": {"latent": 256, "wide": 2048},
    "weights": {"w_narrow": "latent d_model", "w_gate": "wide latent", "w_up": "wide latent", "w_down": "d_model wide"},
    "steps": [
        {"name": "narrow", "einsum": "batch seq d_model, latent d_model -> batch seq latent", "weight": "w_narrow"},
        {"name": "gate", "einsum": "batch seq latent, wide latent -> batch seq wide", "weight": "w_gate"},
        {"name": "active", "activation": "silu"},
        {
            "name": "up",
            "of": ["narrow"],
            "einsum": "batch seq latent, wide latent -> batch seq wide",
            "weight": "w_up",
        },
        {"name": "product", "multiply": ["active", "up"]},
        {"name": "down", "einsum": "batch seq wide, d_model wide -> batch seq d_model", "weight": "w_down"},
    ],
    "split": {"tensor": ["wide"]},
}
EXPERTS = {"kind": "experts", "d_ff": 1024, "activation": "silu", "experts": 16, "top_k": 2}
LATENT = {
    "kind": "latent",
    "heads": 16,
    "kv_rank": 512,
    "nope_head_dim": 128,
    "rope_head_dim": 64,
    "v_head_dim": 128,
}
CORE = {"format": "e5m6", "block": [1, 128]}
STORED = {"format": "fp8_e4m3", "block": [1, 128]}
MATRICES = ["q", "k", "v", "out", "gate", "up", "down"]


# Of a theme a plan has one choice.
THEMES: Mapping[str, Sequence[Choice]] = {
    "tensor": under(
        "parallelism",
        *({"tensor": size, "sequence": kind} for size in (2, 4, 8) for kind in ("off", "save_gathered", "regather")),
    ),
    "context": under(
        "parallelism",
        *(
            {"context": size, "context_exchange": exchange, "context_balance": balance}
            for size in (2, 4)
            for exchange in ("all_gather", "ring", "all_to_all")
            for balance in ("zigzag", "none")
        ),
    ),
    "pipeline": under(
        "parallelism",
        *({"pipeline": size, "schedule": kind} for size in (2, 4) for kind in ("gpipe", "1f1b", "zero_bubble")),
        *({"pipeline": 4, "schedule": kind} for kind in ("zero_bubble_h2", "dual_pipe")),
        *({"pipeline": size, "interleave": 2, "schedule": "interleaved"} for size in (2, 4)),
        {"pipeline": 2, "interleave": 4},
        {"pipeline": 4, "stages": {"first": 3, "last": 3}},
        {"pipeline": 4, "stages": {"first": 1}},
        {"pipeline": 4, "stages": [5, 4, 4, 3]},
        {"pipeline": 4, "stages": [5, 4, 4, 3], "schedule": "zero_bubble"},
        {"pipeline": 4, "stages": [5, 4, 4, 3], "schedule": "dual_pipe"},
        {"pipeline": 2, "interleave": 2, "stages": [5, 4, 4, 3]},
        {"pipeline": 2, "ends": "own"},
        {"pipeline": 4, "ends": "own"},
        {"pipeline": 2, "ends": "layer"},
        {"pipeline": 2, "interleave": 3, "ends": "layer"},
        {"pipeline": 2, "interleave": 9, "ends": "layer"},
        {"pipeline": 6, "ends": "layer", "schedule": "1f1b"},
    ),
    "expert": each("parallelism.expert", 2, 4, 8),
    "zero": each("parallelism.zero", 0, 1, 2, 3),
    "replicate": under("parallelism", {"replicate": 2}, {"replicate": 2, "zero": 3}, {"replicate": 4, "zero": 2}),
    "reshard": [{"parallelism.zero": 3, "parallelism.reshard": kind} for kind in ("all", "layers", "none")],
    "wrap": [{"parallelism.zero": 3, "parallelism.wrap": kind} for kind in ("layer", "model", {"every": 2})],
    "reduce": each("parallelism.reduce", "micro_batch", "step"),
    "bucket": each("parallelism.bucket", "100 MiB"),
    "offload": [
        *each("parallelism.offload", ["optimizer"], ["activations"], {"activations": 2}),
        {"parallelism.offload": ["optimizer", "activations"], "parallelism.zero": 2},
        {"parallelism.offload": ["weights"], "parallelism.zero": 3},
    ],
    "batch": under(
        "run",
        {"micro_batch": 2},
        {"micro_batch": 4, "global_batch": 1024},
        {"global_batch": 1536},
        {"micro_batch": 8},
    ),
    "length": each("run.seq_len", 1024, 4096, 16384),
    "precision": [
        *each("precision", *library("precisions")),
        *({"precision": name, "accelerator": "b200"} for name in library("precisions")),
    ],
    "stored": under(
        "precision.stored",
        {"core": CORE, "source": "invented"},
        {"activation": STORED, "source": "invented"},
        {"core": CORE, "activation": {"format": "fp8_e4m3"}, "source": "invented"},
    ),
    "numbers": under(
        "precision",
        {"gradients": "fp32"},
        {"reduction": "fp32"},
        {"states": "bf16"},
        {"softmax": "fp32"},
        {"logits": "bf16"},
        {"master": "none"},
        {"autocast": True},
    ),
    "recipe": [
        {"precision": name, f"precision.matmul.{key}": value}
        for name in ("fp8-block", "fp8-current", "fp8-delayed", "fp8-rowwise")
        for key, value in (
            ("saves", "original"),
            ("layouts", "one"),
            ("weights", "anew"),
            ("gathers", "quantised"),
            ("keep", ["head", "mlp/down"]),
        )
    ],
    "optimizer": each("optimizer", *library("optimizers")),
    "stack": each("stack", *library("stacks")),
    "overlap": under(
        "stack.overlap",
        *({"tensor": kind} for kind in ("none", "weight_gradient", "userbuffers", "matmul")),
        *({"data": kind} for kind in ("none", "backward", "replicas")),
        *({"gather": kind} for kind in ("none", "layer")),
        *({"expert": kind} for kind in ("none", "shared", "micro_batch")),
        {"pipeline": "compute"},
        {"context": "none"},
        {"host": "none"},
    ),
    "recompute": each(
        "recompute",
        *("selective", "full", "square_root"),
        *({"every": 2}, {"every": 3}, {"layers": 2}, {"segment": 2}, {"segment": 4}),
        *({"components": [part]} for part in ("core", "attention", "mlp", "experts", "norm", "activation")),
        {"components": ["norm", "up_projection", "activation"]},
        {"components": ["norm", "activation"]},
        {"components": ["core", "mlp"]},
        {"keep": ["matmul", "attention"]},
        {"keep": ["matmul", "attention"], "matmuls": "every_second"},
        {"keep": ["attention", "collective"]},
        {"keep": ["matmul", "reduce_scatter", "all_to_all", "norm"]},
        {"keep": ["activation"]},
    ),
    "train": each(
        "train",
        {"lora": {"rank": 16, "targets": MATRICES}},
        {"lora": {"rank": 8, "targets": ["q", "v"]}},
        {"lora": {"rank": 8, "targets": ["qkv", "out"]}},
        {"lora": {"rank": 64, "targets": ["kv_latent", "kv", "out"]}},
        {"frozen": ["embedding"]},
        {"frozen": ["attention"]},
        {"only": ["head"]},
        {"only": ["embedding", "final_norm"]},
        {"only": ["decoder/mlp"]},
    ),
    "attention kernel": each(
        "kernels.attention",
        *("flash", "flash_repeated", "flash3", "triton", "efficient"),
        *("cudnn", "cudnn_grouped", "math", "eager", "fused_softmax"),
    ),
    "norm kernel": each("kernels.norm", "fused", "eager"),
    "activation kernel": each("kernels.activation", "fused", "fused_gated", "eager"),
    "rotary kernel": each("kernels.rotary", "fused", "eager"),
    "residual kernel": each("kernels.residual", "fused", "eager"),
    "loss kernel": under(
        "kernels",
        *({"loss": kind} for kind in ("eager", "fused", "softmax_in_place", "compiled")),
        {"loss": "chunked", "loss_chunks": 8},
        {"loss": "fused_linear", "loss_chunks": 4},
    ),
    "optimizer kernel": each("kernels.optimizer", "foreach", "fused", "loop"),
    "experts kernel": each("kernels.experts", "grouped_mm", "batched_mm", "eager", "dense"),
    "weighing kernel": each("kernels.weighing", "results", "activation"),
    "router kernel": each("kernels.router", "eager", "fused"),
    "device": each("accelerator", *library("accelerators"), {"base": "h100-sxm", "kind": "cpu"}),
    "nodes": [
        {"cluster.devices_per_node": 4},
        {"cluster.scaleout": {"bandwidth": "200 Gb/s", "latency": "5 us", "efficiency": 0.8}},
        {"cluster.scaleout": "100 Gb/s"},
    ],
    "heads": [
        *in_layers("attention.kv_heads", 1, 4, 16),
        {"model": "deepseek-v2", "recompute": {"components": ["norm", "up_projection", "activation"]}},
        *in_layers("attention", LATENT, {**LATENT, "q_rank": 768, "rotary_form": "complex"}),
    ],
    "region": [*in_layers("attention.window", 512, 4096), *in_layers("attention.chunk", 1024)],
    "sinks": in_layers("attention.sinks", True),
    "scores": [*in_layers("attention.softcap", 50.0), *in_layers("attention.softmax", "input")],
    "query norms": in_layers("attention.qk_norm", "head", "all", "unweighted"),
    "rotation": [
        *in_layers("attention.rotary_form", "halves", "wide_halves", "half_tables", "pairs", "complex"),
        *in_layers("attention.rotary", 0, 0.5),
        *in_layers("attention.temperature", True),
    ],
    "biases": [*in_layers("attention.qkv_bias", True), *in_layers("attention.fused_qkv", True)],
    "dropout": [
        {"model.residual_dropout": 0.1, "model.embedding.dropout": 0.1},
        *in_layers("attention.dropout", 0.1),
    ],
    "norms": [*in_layers("norms", "post", "sandwich", "shared"), *in_layers("residual", "parallel")],
    "parallel parts": [
        {"model.layers.0.norms": kind, "model.layers.0.residual": "parallel"} for kind in ("pre", "shared")
    ],
    "feed-forward": [
        *in_layers("mlp", CUSTOM, {**CUSTOM, "split": {}}, EXPERTS),
        *in_layers("mlp", {"kind": "plain", "d_ff": 4096, "activation": "relu2", "bias": True}),
        *in_layers("mlp", {"kind": "gated", "d_ff": 6144, "activation": "gelu_tanh"}),
    ],
    "shared experts": in_layers("mlp.shared", {"d_ff": 1024}, {"d_ff": 512, "count": 2, "gated": True}),
    "capacity": in_layers("mlp.capacity_factor", 1.25),
    "router": in_layers(
        "mlp.router",
        {"scores": "sigmoid", "normalize": True, "dtype": "fp32", "bias": True},
        {"scores": "softmax_of_chosen", "weights": "input"},
        {"scores": "sigmoid_of_chosen", "scales": "input"},
        {"auxiliary_loss": True},
        {"groups": 4},
    ),
    "further tokens": each("model.multi_token", {"depth": 1}, {"depth": 2}),
    "ends": [
        *each("model.embedding.tied", True, False),
        {"model.head.bias": True},
        {"model.head.softcap": 30.0},
        {"model.embedding.learned_positions": 16384},
    ],
    "assumptions": under(
        "assumptions",
        {"expert_imbalance": 1.3},
        {"headroom": "production"},
        {"mfu": 0.45, "price": {"per_device_hour": "2.50 USD", "date": "2026-01", "source": "invented"}},
    ),
}

# Those that multiply the ways in which a device can be laid out; of these a plan tries some before all others.
LAYOUTS = ("tensor", "context", "pipeline", "expert", "zero", "replicate", "recompute", "offload")

# Every choice, in a fixed order: plan after plan begins with the next.
FIRSTS = [choice for choices in THEMES.values() for choice in choices]
