"""Random plans of the library's parts that are valid: drawn until the rules have nothing against one."""

from __future__ import annotations

import json
from functools import cache
from random import Random
from typing import Any

from ledger.spec.library import default_library
from ledger.spec.load import load_plan
from ledger.spec.problems import SpecError

Drawn = dict[str, Any]
TRIES = 400  # drawings of which one is valid, or the drawing is at fault
MODELS = (
    *("llama-3-8b", "mistral-7b", "gemma-2-9b", "qwen3-8b", "gpt2", "pythia-6.9b", "mixtral-8x7b", "qwen3-30b-a3b"),
    *("deepseek-v2", "gpt-oss-20b", "llama-4-scout", "mamba2-2.7b", "qwen3-next-80b-a3b", "gpt3-175b"),
)
ACCELERATORS = ("h100-sxm", "h100-sxm", "a100-sxm-80gb", "b200", "h200-sxm", "mi300x", "l40s")
STACKS = (
    "pytorch-fsdp2-2025",
    "pytorch-fsdp2-compile-2025",
    "megatron-te-2024",
    "megatron-core-2025",
    "torchtitan-2026",
)
RECOMPUTE: tuple[Any, ...] = (
    *("none", "none", "full", "selective", {"every": 2}, {"components": ["mlp"]}, {"keep": ["matmul", "attention"]}),
)
SCHEDULES = ("gpipe", "1f1b", "1f1b", "interleaved", "zero_bubble", "dual_pipe")


@cache
def names(kind: str) -> tuple[str, ...]:
    """What the library has of a kind."""
    return tuple(sorted(default_library().names(kind)))


def random_plan(random: Random) -> Drawn:
    """A valid plan; the same for the same state of `random`."""
    for _ in range(TRIES):
        drawn = draw(random)
        try:
            load_plan(text_of(drawn))
        except SpecError:
            continue
        return drawn
    raise AssertionError(f"none of {TRIES} plans is valid")


def numbered_plan(seed: int, number: int) -> tuple[Drawn, Random]:
    """The plan of that number, and what its laws draw from; the same on every machine."""
    random = Random(f"{seed}/{number}")  # noqa: S311 - not for secrets
    return random_plan(random), random


def text_of(drawn: Drawn) -> str:
    """The text of a plan, a line for each key."""
    return "".join(f"{json.dumps(key)}: {json.dumps(value)}\n" for key, value in drawn.items())


def draw(random: Random) -> Drawn:
    """A plan whose mesh multiplies to its devices and whose batch is whole; the rest is for the rules to judge."""
    mesh = _mesh(random)
    devices = mesh["data"] * mesh["tensor"] * mesh["pipeline"] * mesh["context"]
    micro_batch = random.choice((1, 1, 2, 4))
    batches = 2 * mesh["pipeline"] * random.choice((1, 2, 4))
    sequence = random.choice((512, 1024, 2048, 4096))
    batch = micro_batch * batches * mesh["data"]
    drawn: Drawn = {
        "spec": "ledger/1",
        "plan": "Drawn",
        "accelerator": random.choice(ACCELERATORS),
        "cluster": {"base": "h100-400g", "devices": devices},
        "model": random.choice(MODELS),
        "precision": random.choice(("bf16-mixed", "bf16-true", "bf16-fp32-gradients", *names("precision"))),
        "optimizer": random.choice(("adamw", *names("optimizer"))),
        "parallelism": mesh,
        "recompute": random.choice(RECOMPUTE),
        "stack": random.choice(STACKS),
        "run": {
            "tokens": f"{1000 * batch * sequence} tokens",
            "seq_len": sequence,
            "micro_batch": micro_batch,
            "global_batch": batch,
        },
        "assumptions": {
            "mfu": 0.4,
            "price": {"per_device_hour": "2 USD", "date": "2026-01-01", "source": "an offer"},
        },
    }
    if random.random() < 0.3:
        drawn["kernels"] = {"attention": random.choice(("flash", "cudnn", "efficient", "math", "eager", "flash3"))}
    if random.random() < 0.15:
        drawn["train"] = random.choice(({"only": ["head"]}, {"lora": {"rank": 16, "targets": ["q", "v"]}}))
    return drawn


def _mesh(random: Random) -> Drawn:
    """Degrees of every axis, and what goes with them."""
    mesh: Drawn = {
        "data": random.choice((1, 2, 4, 8, 16, 64)),
        "tensor": random.choice((1, 1, 2, 4, 8)),
        "pipeline": random.choice((1, 1, 1, 2, 4)),
        "context": random.choice((1, 1, 1, 2)),
    }
    mesh["zero"] = random.choice((0, 1, 2, 3)) if mesh["data"] * mesh["context"] > 1 else 0
    if mesh["tensor"] > 1:
        mesh["sequence"] = random.choice(("off", "save_gathered", "regather"))
    if mesh["pipeline"] > 1:
        mesh["schedule"] = random.choice(SCHEDULES)
        mesh["interleave"] = 2 if mesh["schedule"] == "interleaved" else 1
    if random.random() < 0.2:
        mesh["expert"] = random.choice((2, 4, 8))
    if mesh["zero"] == 3:
        mesh["reshard"] = random.choice((True, False))
    if mesh["context"] > 1:
        mesh["context_exchange"] = random.choice(("all_gather", "ring", "all_to_all"))
    if random.random() < 0.1:
        mesh["offload"] = random.choice((["optimizer"], ["activations"]))
    return mesh
