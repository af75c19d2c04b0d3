"""Whole training steps of plans: the model that PyTorch's own modules make of a plan, trained on real numbers.

Imports torch inside functions only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import yaml

from ledger.lab.bench.cases import Case, Kind, Measured, Result
from ledger.lab.bench.gpu import Watch
from ledger.lab.bench.plans import cases, plan
from ledger.lab.bench.rig import SUSTAINED, Rig, attempt, release
from ledger.lab.bench.timing import Spread, host_clock, spread
from ledger.lab.reference.model import (
    checkpoint_layers,
    freeze,
    reference_model,
    torch_dtype,
    training_loss,
    workload,
)
from ledger.lab.transformers.config import NoReferenceError, family
from ledger.spec.load import load_plan
from ledger.spec.plan import Plan

if TYPE_CHECKING:
    import torch

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


def of(case: Case, sort: str) -> Plan:
    """The plan of a case; raises SpecError."""
    document = plan(sort, "device") | {"accelerator": {**STAND_IN, "kind": "cpu" if sort == "cpu" else "gpu"}}
    changes = [f"{key}={value}" for key, value in case.keys["set"].items()]
    return load_plan(yaml.safe_dump(document, sort_keys=False), changes)


def trainer(chosen: Plan, place: str) -> Callable[[], torch.Tensor]:
    """One training step of a plan on a device, each time it is called: its loss. Raises NoReferenceError."""
    import torch

    from ledger.lab.reference.optimizers import reference_optimizer

    work = workload(chosen)
    built = reference_model(work.model, work.kernels, place, torch_dtype(work.precision.weights))
    freeze(built, work.train)
    checkpoint_layers(built, work.recompute)
    layers = attrgetter(family(work.model).layers)(built)
    optimizer = reference_optimizer(built, layers, work.optimizer, work.kernels.optimizer, work.precision)
    if chosen.stack.compiled:
        for layer in layers:
            layer.compile()
    tokens = torch.randint(work.model.vocab, (work.batch, work.seq_len), device=place)

    def step() -> torch.Tensor:
        loss = training_loss(built, work, tokens)
        loss.backward()
        optimizer.step()
        built.zero_grad()
        return loss.detach()

    return step


def warm(step: Callable[[], object], rig: Rig) -> None:
    """Steps that are not timed: compiling, choosing kernels, growing the allocator's pool."""
    for _ in range(WARM_UP):
        step()
    settled(rig)


def timed(step: Callable[[], object], rig: Rig, fewest: int = FEWEST) -> Spread:
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
        settled(rig)
        samples.append((clock() - begun) / row)
    return replace(spread(samples, f"{name} around synchronised steps"), begin=begin, end=time.perf_counter())


def settled(rig: Rig) -> None:
    """Nothing is left to do on the device."""
    if rig.cuda:
        import torch

        torch.cuda.synchronize()


def found(case: Case, rig: Rig) -> Result:
    """Seconds of a step, and on a GPU the bytes it held at most. Raises SpecError."""
    chosen = of(case, rig.limits.sort)
    try:
        return _run(chosen, rig)
    except NoReferenceError as error:
        return {"error": str(error)}
    finally:
        if chosen.stack.compiled:
            import torch

            torch.compiler.reset()  # it would hold the model, and counts how often the code of a layer is compiled


def _run(chosen: Plan, rig: Rig) -> Result:
    """The bytes are those over what was there before."""
    import torch

    before = torch.cuda.memory_allocated() if rig.cuda else 0
    step = trainer(chosen, rig.place)
    warm(step, rig)
    if not rig.cuda:
        return _written(timed(step, rig), {})
    torch.cuda.reset_peak_memory_stats()
    with Watch(rig.watched) as watch:
        spent = timed(step, rig)
    peaks = {
        "memory.peak": f"{torch.cuda.max_memory_allocated() - before} B",
        "memory.reserved": f"{torch.cuda.max_memory_reserved()} B",
    }
    return {**_written(spent, peaks), **watch.between(spent.begin, spent.end)}


def _written(spent: Spread, peaks: Mapping[str, str]) -> dict[str, Any]:
    """Fields of a record, with units."""
    times = {"low": f"{spent.low:.6g} s", "high": f"{spent.high:.6g} s"}
    measured = {"time.step": f"{spent.value:.6g} s", **peaks}
    return {"measured": measured, **times, "count": spent.count, "regime": SUSTAINED, "timer": spent.timer}


def measure(some: Sequence[Case], rig: Rig) -> Iterator[Measured]:
    """Cases one by one, each with the device's memory to itself."""
    for case in some:
        release(rig)
        yield attempt(case, rig, partial(found, case, rig))


STEP = Kind("step", cases, measure)
