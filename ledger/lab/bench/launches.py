"""What it costs to launch an operation, however small: on the host, on the device, in a graph, with autograd.

Imports torch inside functions only.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ledger.lab.bench.cases import Case, Kind, Limits, Measured, Result
from ledger.lab.bench.plans import NO_DROPOUT, STEP
from ledger.lab.bench.rig import SUSTAINED, Rig, attempt, written
from ledger.lab.bench.timing import FEWEST, Spread, Work, spread

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


def cases(limits: Limits) -> Iterator[Case]:
    """A chain of additions of a few numbers, and one with its backward pass; on a GPU, by who sets the pace.

    `training` is a step of a transformer too small to compute anything, for each kernel that the books post for it.
    """
    names = ("host", "device", "graph", "autograd") if limits.sort == "cuda" else ("host", "autograd", "module")
    for name in names:
        yield Case("launch", "launch", {"operation": name, "operations": CHAIN})
    yield Case("launch", "launch", {"operation": TRAINING, "layers": LAYERS})


def _chain(rig: Rig) -> Any:
    one = rig.random(TINY)

    def run(_: int) -> Any:
        x = one
        for _ in range(CHAIN):
            x = x + one
        return x

    return run


def _differentiated(rig: Rig) -> Any:
    """Forward and backward of the chain; a multiplication saves both operands, as most operations save something."""
    one, leaf = rig.random(TINY), rig.random(TINY, grad=True)

    def run(_: int) -> None:
        x = leaf
        for _ in range(CHAIN):
            x = x * one
        x.backward(one)
        leaf.grad = None

    return run


def _modules(rig: Rig) -> Any:
    """Forward and backward of as many linear layers, as modules."""
    import torch

    layers = torch.nn.Sequential(*(torch.nn.Linear(TINY, TINY) for _ in range(CHAIN))).to(rig.place)
    one = rig.random(TINY, TINY)

    def run(_: int) -> None:
        layers(one).backward(one)
        layers.zero_grad()

    return run


def _sent(rig: Rig) -> Spread:
    """Seconds until the host has sent one operation: the device works meanwhile, and the queue never fills."""
    import torch

    run, samples = _chain(rig), []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        run(0)
        samples.append((time.perf_counter() - begun) / CHAIN)
    return spread(samples[ROUNDS // 5 :], "host clock")


def _training(rig: Rig) -> Spread:
    """Seconds of a step that has nothing to compute, for each of its kernels: what the host takes for one of them."""
    from ledger.books import compile_plan
    from ledger.lab.bench.steps import of, timed, trainer, warm

    chosen = of(Case(STEP, STEP, {"set": NOTHING}), rig.limits.sort)
    kernels = sum(row.times for role in compile_plan(chosen).roles for row in role.kernels)
    step = trainer(chosen, rig.place)
    warm(step, rig)
    found = timed(step, rig, FEWEST)
    return replace(found, **{name: getattr(found, name) / kernels for name in ("value", "low", "high")})


def _found(case: Case, rig: Rig) -> Result:
    name = str(case.keys["operation"])
    if name == TRAINING:
        return written(_training(rig), SUSTAINED)
    if rig.cuda and name == "host":
        return written(_sent(rig), SUSTAINED)
    chain = {"autograd": _differentiated, "module": _modules}.get(name, _chain)
    # forward and backward are an operation each
    count = CHAIN if name in ("host", "device", "graph") else 2 * CHAIN
    work = Work(chain(rig), operations=count, capturable=name == "graph")
    return written(rig.timed(work), SUSTAINED)


def measure(cases: Sequence[Case], rig: Rig) -> Iterator[Measured]:
    """Cases one by one."""
    for case in cases:
        yield attempt(case, rig, partial(_found, case, rig))


LAUNCH = Kind("launch", cases, measure)
