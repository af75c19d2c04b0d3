"""Whole training steps of plans: the model that PyTorch's own modules make of a plan, trained on real numbers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
import yaml

from ledger.lab.bench.cases import BenchCase, DeviceLimits, Result
from ledger.lab.bench.gpu import PowerMonitor
from ledger.lab.bench.rig import SUSTAINED, BenchKind, Rig, one_by_one, release_memory
from ledger.lab.bench.timing import Timing, host_clock, quartiles
from ledger.lab.reference.cuda_guard import torch_dtype
from ledger.lab.reference.images import micro_batch
from ledger.lab.reference.model import checkpoint_layers, freeze, layers_of, reference_model, training_loss
from ledger.lab.reference.optimizers import reference_optimizer
from ledger.lab.reference.workload import workload
from ledger.lab.transformers.config import NoReferenceError
from ledger.spec.load import load_plan
from ledger.spec.plan import Plan


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


WARM_UP = 3
FEWEST = 3
IN_A_ROW = 3  # steps of a GPU between two waits
PATIENCE, HELD = 4, 2  # times the seconds of a microbenchmark of a CPU, and of a GPU at its power limit
STAND_IN = {  # a plan needs an accelerator, and what is trained does not depend on it
    "accelerator": "the device that is measured",
    "source": "a stand-in, whose prices nobody asks",
    "peak": {"fp32": "1 TFLOP/s", "bf16": "1 TFLOP/s", "fp16": "1 TFLOP/s"},
    "vector": "1 TFLOP/s",
    "bandwidth": "1 TB/s",
    "memory": {"driver": "80 GiB", "labelled": "80 GiB"},
    "l2": "32 MiB",
    "multiprocessors": 1,
    "scaleup": {"bandwidth": "0 GB/s", "domain": 1},
    "host_link": "10 GB/s",
    "power": "100 W",
}


def step_plan(case: BenchCase, device_type: str) -> Plan:
    """The plan of a case; raises SpecError."""
    stand_in = {**STAND_IN, "kind": "cpu" if device_type == "cpu" else "gpu"}
    document = step_records_plan(device_type, "device") | {"accelerator": stand_in}
    changes = [f"{key}={value}" for key, value in case.keys["set"].items()]
    return load_plan(yaml.safe_dump(document, sort_keys=False), changes)


def training_step(chosen: Plan, place: str) -> Callable[[], torch.Tensor]:
    """One training step of a plan on a device, each time it is called: its loss. Raises NoReferenceError."""
    work = workload(chosen)
    built = reference_model(work.model, work.kernels, place, torch_dtype(work.precision.weights.base))
    if work.model.image:  # built without initial values: what memory held may be no number
        for module in built.modules():
            if callable(reset := getattr(module, "reset_parameters", None)):
                reset()
    freeze(built, work.train)
    checkpoint_layers(built, work.recompute)
    layers = layers_of(built, work.model)
    optimizer = reference_optimizer(built, layers, work.optimizer, work.kernels.optimizer, work.precision)
    if chosen.stack.compiled:
        for layer in layers:
            layer.compile()
    batch = tuple(_random_like(tensor, work.model.vocab) for tensor in micro_batch(work, place))

    def step() -> torch.Tensor:
        loss = training_loss(built, work, batch)
        loss.backward()
        optimizer.step()
        built.zero_grad()
        return loss.detach()

    return step


def _random_like(like: torch.Tensor, vocab: int) -> torch.Tensor:
    """Tokens below `vocab`, pixels or sound: zeros would draw less power, and look up one row of an embedding."""
    return torch.randn_like(like) if like.is_floating_point() else torch.randint_like(like, vocab)


def warm_up(step: Callable[[], object], rig: Rig) -> None:
    """Steps that are not timed: compiling, choosing kernels, growing the allocator's pool."""
    for _ in range(WARM_UP):
        step()
    rig.synchronize()


def time_step(step: Callable[[], object], rig: Rig, fewest: int = FEWEST) -> Timing:
    """Seconds of a step; on a GPU of several in a row, since a training loop need not wait for each."""
    clock, name = host_clock(0 if rig.cuda else rig.threads)
    row = IN_A_ROW if rig.cuda else 1
    samples: list[float] = []
    begin = time.perf_counter()
    until = begin + (HELD * rig.hold if rig.cuda else PATIENCE * rig.seconds)
    while len(samples) < fewest or time.perf_counter() < until:
        begun = clock()
        for _ in range(row):
            step()
        rig.synchronize()
        samples.append((clock() - begun) / row)
    return replace(quartiles(samples, f"{name} around synchronised steps"), begin=begin, end=time.perf_counter())


def measure_step(case: BenchCase, rig: Rig) -> Result:
    """Seconds of a step, and on a GPU the bytes it held at most. Raises SpecError."""
    release_memory(rig)
    plan = step_plan(case, rig.limits.type)
    try:
        return _run_step(plan, rig)
    except NoReferenceError as error:
        return {"error": str(error)}
    finally:
        if plan.stack.compiled:
            torch.compiler.reset()  # it would hold the model, and counts how often the code of a layer is compiled


def _run_step(plan: Plan, rig: Rig) -> Result:
    """The record of a step; its bytes are those beyond what was allocated before."""
    before = torch.cuda.memory_allocated() if rig.cuda else 0
    step = training_step(plan, rig.place)
    warm_up(step, rig)
    if not rig.cuda:
        return _step_record(time_step(step, rig), {})
    torch.cuda.reset_peak_memory_stats()
    with PowerMonitor(rig.driver_readings) as monitor:
        timing = time_step(step, rig)
    peaks = {
        "memory.peak": f"{torch.cuda.max_memory_allocated() - before} B",
        "memory.reserved": f"{torch.cuda.max_memory_reserved()} B",
    }
    return {**_step_record(timing, peaks), **monitor.medians(timing.begin, timing.end)}


def _step_record(timing: Timing, peaks: Mapping[str, str]) -> Result:
    """Fields of a record, with units."""
    quartile = {"low": f"{timing.low:.6g} s", "high": f"{timing.high:.6g} s"}
    measured = {"time.step": f"{timing.value:.6g} s", **peaks}
    return {"measured": measured, **quartile, "count": timing.count, "regime": SUSTAINED, "timer": timing.timer}


STEP = BenchKind("step", plan_cases, one_by_one(measure_step))
