"""What it costs to launch an operation, however small: on the host, on the device, in a graph, with autograd."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch

from ledger.books import compile_plan
from ledger.lab.bench.cases import BenchCase, DeviceLimits, Result
from ledger.lab.bench.rig import SUSTAINED, BenchKind, Rig, one_by_one, timing_record
from ledger.lab.bench.step_plans import NO_DROPOUT, STEP_NAME
from ledger.lab.bench.steps import step_plan, time_step, training_step, warm_up
from ledger.lab.bench.timing import FEWEST, TimedWork, Timing, quartiles

CHAIN = 100  # operations in a row, each on the result of the one before
ROUNDS = 50
TRAINING, LAYERS = "training", 12
TINY = 16  # elements: nothing to compute, nothing to move
NOTHING = {
    "model.d_model": TINY,
    "model.vocab": TINY,
    "model.layers.0.repeat": LAYERS,
    "model.layers.0.attention.heads": 1,
    "model.layers.0.attention.kv_heads": 1,
    "model.layers.0.attention.head_dim": TINY,
    **NO_DROPOUT,
    "run.seq_len": TINY,
    "run.micro_batch": 1,
    "run.global_batch": 1,
}


def cases(limits: DeviceLimits) -> Iterator[BenchCase]:
    """A chain of additions of a few numbers, and one with its backward pass; on a GPU, by who sets the pace.

    `training` is a step of a transformer too small to compute anything, for each kernel that the books post for it.
    """
    names = ("host", "device", "graph", "autograd") if limits.type == "cuda" else ("host", "autograd", "module")
    for name in names:
        yield BenchCase("launch", "launch", {"operation": name, "operations": CHAIN})
    yield BenchCase("launch", "launch", {"operation": TRAINING, "layers": LAYERS})


def measure_launch(case: BenchCase, rig: Rig) -> Result:
    """Seconds of an operation of a chain, or of a kernel of a step."""
    name = str(case.keys["operation"])
    if name == TRAINING:
        return timing_record(_time_training(rig), SUSTAINED)
    timing = _time_host(rig) if rig.cuda and name == "host" else _time_chain(name, rig)
    return timing_record(timing, SUSTAINED)


def _time_host(rig: Rig) -> Timing:
    """Seconds until the host has sent one operation: the device works meanwhile, and the queue never fills."""
    run, samples = _chain_of_additions(rig), []
    for _ in range(ROUNDS):
        rig.synchronize()
        begun = time.perf_counter()
        run(0)
        samples.append((time.perf_counter() - begun) / CHAIN)
    return quartiles(samples[ROUNDS // 5 :], "host clock")


def _time_training(rig: Rig) -> Timing:
    """Seconds of a step that has nothing to compute, for each of its kernels: what the host takes for one of them."""
    plan = step_plan(BenchCase(STEP_NAME, STEP_NAME, {"set": NOTHING}), rig.limits.type)
    kernels = sum(row.times for role in compile_plan(plan).roles for row in role.kernels)
    step = training_step(plan, rig.place)
    warm_up(step, rig)
    return time_step(step, rig, FEWEST).divided(kernels)


def _time_chain(name: str, rig: Rig) -> Timing:
    chain = {"autograd": _products_with_backward, "module": _linear_layers}.get(name, _chain_of_additions)
    count = CHAIN if chain is _chain_of_additions else 2 * CHAIN  # forward and backward are an operation each
    return rig.time_work(TimedWork(chain(rig), operations=count, capturable=name == "graph"))


def _chain_of_additions(rig: Rig) -> Any:
    addend = rig.random_tensor(TINY)

    def run(_: int) -> Any:
        x = addend
        for _ in range(CHAIN):
            x = x + addend
        return x

    return run


def _products_with_backward(rig: Rig) -> Any:
    """A chain of multiplications, each of which saves both operands, as most operations save something."""
    factor, leaf = rig.random_tensor(TINY), rig.random_tensor(TINY, grad=True)

    def run(_: int) -> None:
        x = leaf
        for _ in range(CHAIN):
            x = x * factor
        x.backward(factor)
        leaf.grad = None

    return run


def _linear_layers(rig: Rig) -> Any:
    """Forward and backward of as many linear layers, as modules."""
    layers = torch.nn.Sequential(*(torch.nn.Linear(TINY, TINY) for _ in range(CHAIN))).to(rig.place)
    inputs = rig.random_tensor(TINY, TINY)

    def run(_: int) -> None:
        layers(inputs).backward(inputs)
        layers.zero_grad()

    return run


LAUNCH = BenchKind("launch", cases, one_by_one(measure_launch))
