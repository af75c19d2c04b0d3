"""The plans whose steps `ledger bench` times: small ones for a processor, some of a GPU's own size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ledger.lab.bench.cases import BenchCase, DeviceLimits


def _batch(count: int, seq: int) -> dict[str, Any]:
    return {"run.micro_batch": count, "run.global_batch": count, "run.seq_len": seq}


STEP_NAME = "step"


NO_DROPOUT = {"model.embedding.dropout": 0, "model.residual_dropout": 0, "model.layers.0.attention.dropout": 0}


# width, heads, layers, vocabulary of GPTs that a CPU trains in seconds; the last is GPT-2 small itself
CPU_MODELS: Mapping[str, tuple[int, int, int, int]] = {
    "gpt-256x4": (256, 4, 4, 16384),
    "gpt-512x6": (512, 8, 6, 32768),
    "gpt2": (768, 12, 12, 50257),
}


CPU_LENGTHS = (128, 256)


TOKENS = 256  # of a step on a CPU


# name -> model, sequences and tokens of a micro-batch, and the layers of a cut model: published widths that fit a GPU
CUDA_MODELS: Mapping[str, tuple[str, int, int, int | None]] = {
    "gpt2": ("gpt2", 16, 1024, None),
    "llama-3-8b-4-layers": ("llama-3-8b", 2, 4096, 4),
    "llama-3-70b-2-layers": ("llama-3-70b", 1, 4096, 2),
}


# Models of images and of sound: images, or sequences beside half a minute of sound each, of a micro-batch, and tokens.
CUDA_OTHERS: Mapping[str, Mapping[str, Any]] = {
    "resnet-50": {"model": "resnet-50", **_batch(128, 1)},
    "vit-l": {"model": "vit-l", **_batch(64, 197)},
    "whisper-large-v3": {"model": "whisper-large-v3", **_batch(4, 256)},
}


COMPILED = {"stack": "pytorch-fsdp2-compile-2025", "kernels.loss": "eager"}  # layers are compiled, the loss is not


CUDA_VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "eager": {},
    "recompute": {"recompute": "full"},
    "compile": COMPILED,
    "compile-recompute": {**COMPILED, "recompute": "full"},
}


# Each model as it comes, which is quick; then what is worth the time that compiling takes.
CUDA_STEPS = (
    *((name, "eager") for name in CUDA_MODELS),
    *((name, "recompute") for name in CUDA_MODELS),
    *(("gpt2", "compile"), ("llama-3-8b-4-layers", "compile"), ("llama-3-8b-4-layers", "compile-recompute")),
)


# PyTorch's own default, and what a worker is started with; some virtual machines cannot map memory otherwise.
ALLOCATOR = {"stack.replay.expandable": False}


CPU_STACK, CUDA_STACK = "pytorch-eager-cpu-2026", "pytorch-fsdp2-2025"


def step_records_plan(device_type: str, device: str) -> dict[str, Any]:
    """The plan that the step records of a file share: one device, AdamW, no dropout."""
    cpu = device_type == "cpu"
    return {
        "spec": "ledger/1",
        "plan": f"Training steps of small models on one {device}",
        "accelerator": device,
        "cluster": "single",
        "model": "gpt2",
        "precision": "fp32" if cpu else "bf16-autocast",
        "optimizer": "adamw",
        "parallelism": {"data": 1, "zero": 0},
        "recompute": "none",
        "stack": CPU_STACK if cpu else CUDA_STACK,
        "run": {"seq_len": 128, "micro_batch": 4, "global_batch": 4},
    }


def plan_cases(limits: DeviceLimits) -> Iterator[BenchCase]:
    """Models x lengths on a CPU; models x software on a GPU."""
    for name, changes in (_cpu_steps if limits.type == "cpu" else _cuda_steps)(limits):
        yield BenchCase("step", STEP_NAME, {"id": name, "set": changes})


def _cpu_steps(limits: DeviceLimits) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, (width, heads, layers, vocab) in list(CPU_MODELS.items())[: 1 if limits.quick else None]:
        for seq in CPU_LENGTHS:
            sizes = {"model.d_model": width, "model.vocab": vocab, "model.layers.0.repeat": layers}
            shape = {f"model.layers.0.attention.{key}": heads for key in ("heads", "kv_heads")}
            shape["model.layers.0.attention.head_dim"] = width // heads
            yield f"{name}-{seq}", {**sizes, **shape, **NO_DROPOUT, **_batch(TOKENS // seq, seq)}


def _cuda_steps(limits: DeviceLimits) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, variant in CUDA_STEPS[: len(CUDA_MODELS) if limits.quick else None]:
        model, batch, seq, layers = CUDA_MODELS[name]
        dropout = NO_DROPOUT if model == "gpt2" else {}
        cut = {"model.layers.0.repeat": layers} if layers else {}
        changes = {**CUDA_VARIANTS[variant], **ALLOCATOR}
        yield f"{name}-{variant}", {"model": model, **changes, **cut, **dropout, **_batch(batch, seq)}
    for name, parts in () if limits.quick else CUDA_OTHERS.items():
        yield f"{name}-eager", {**parts, **ALLOCATOR}
