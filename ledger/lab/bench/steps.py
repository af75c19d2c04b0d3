"""Whole training steps of plans: the model that PyTorch's own modules make of a plan, trained on real numbers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
import yaml

from ledger.lab.bench.cases import BenchCase, Result
from ledger.lab.bench.gpu import PowerMonitor
from ledger.lab.bench.rig import SUSTAINED, BenchKind, Rig, one_by_one, release_memory
from ledger.lab.bench.step_plans import plan_cases, step_records_plan
from ledger.lab.bench.timing import Timing, host_clock, quartiles
from ledger.lab.reference.cuda_guard import torch_dtype
from ledger.lab.reference.images import micro_batch
from ledger.lab.reference.model import checkpoint_layers, freeze, layers_of, reference_model, training_loss
from ledger.lab.reference.optimizers import reference_optimizer
from ledger.lab.reference.workload import workload
from ledger.lab.transformers.config import NoReferenceError
from ledger.spec.load import load_plan
from ledger.spec.plan import Plan

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
    return replace(quartiles(samples, f"{name} around synchronised steps"), started=begin, end=time.perf_counter())


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
    return {**_step_record(timing, peaks), **monitor.medians(timing.started, timing.end)}


def _step_record(timing: Timing, peaks: Mapping[str, str]) -> Result:
    """Fields of a record, with units."""
    quartile = {"low": f"{timing.low:.6g} s", "high": f"{timing.high:.6g} s"}
    measured = {"time.step": f"{timing.value:.6g} s", **peaks}
    return {"measured": measured, **quartile, "count": timing.count, "regime": SUSTAINED, "timer": timing.timer}


STEP = BenchKind("step", plan_cases, one_by_one(measure_step))
