"""Training steps on this machine's CPU, predicted from microbenchmarks of the same minutes: how far off, how often.

Usage: python benchmarks/cpu.py [RUNS] [THREADS]. A run measures kernels and, between them, steps of six models; makes
prices of the kernels alone; and compares. What else the machine does meanwhile so hits both alike. The steps are the
models of `ledger bench`, the prices those of `ledger calibrate`.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import yaml

from ledger.books import compile_plan
from ledger.lab.bench import step_plans as plans
from ledger.lab.bench import steps
from ledger.lab.bench.cases import BenchCase, MeasuredDevice
from ledger.lab.bench.machine import ProcessorLoad, find_device
from ledger.lab.bench.records import EvidenceFile, append_record, open_evidence
from ledger.lab.bench.rig import Rig
from ledger.lab.bench.runner import CPU_ENVIRONMENT, file_head
from ledger.lab.bench.table import by_kind, suite
from ledger.lab.bench.timing import host_clock
from ledger.lab.calibration.calibrate import fit_all, read_all
from ledger.spec.load import load_plan

LOW, HIGH = 0.85, 1.15
ROUNDS = 2  # steps of each model in a run, with kernels between them
SECONDS = 0.03  # for one kernel
TOKENS = plans.TOKENS
LAUNCH = "stack.launch.per_operation"


@dataclass
class Model:
    """A model that is trained: its plan, and seconds of its steps, by the processor's clock and by the wall's."""

    name: str
    changes: Mapping[str, object]
    step: Callable[[], object]
    seconds: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)


def near(case: BenchCase) -> bool:
    """Whether a case is of a kernel that small GPTs run in eager PyTorch, on about as many tokens."""
    keys = case.keys
    if case.kind == "matmul":
        tokens = keys["k"] if keys["layout"] == "weight_gradient" else keys["m"]
        return bool(tokens == TOKENS)
    if case.kind == "attention":
        return bool(case.what.startswith("attention.flash") and keys["head_dim"] == 64 and keys["seq"] <= 2 * TOKENS)
    if case.kind == "optimizer":
        return bool(keys["kernel"] == "fused")
    if case.kind == "launch":
        return bool(keys["operation"] == "training")
    idle = ("dropout", "cast", "softmax", "activation.silu")
    return case.kind == "stream" and case.what not in idle and keys["rows"] <= 2 * TOKENS


def trained(model: Model, threads: int) -> None:
    """Runs a further step, and keeps its seconds of the processor and of the wall with the model's."""
    clock, _ = host_clock(threads)
    begun, wall = clock(), time.perf_counter()
    model.step()
    model.seconds.append(clock() - begun)
    model.wall.append(time.perf_counter() - wall)


def run(models: list[Model], device: MeasuredDevice, rig: Rig, path: Path) -> Iterator[tuple[Model, float]]:
    """Each model with the seconds that the kernels of this run predict for its step."""
    file = open_evidence(path, file_head(device, datetime.now(UTC)))
    cases = [case for case in suite(device.limits) if near(case)]
    random.Random(len(path.name)).shuffle(cases)  # noqa: S311 - an order, no secret
    slots = ROUNDS * len(models)
    for slot in range(slots):
        trained(models[slot % len(models)], rig.threads)
        measure(sorted(cases[slot::slots], key=lambda case: case.kind), rig, file)
    (fitted,) = fit_all(read_all([path]))
    prices = path.with_suffix(".accelerator.yaml")
    prices.write_text(fitted.spec, encoding="utf-8")
    launch = next(record for record in read_all([path])[0].microbenchmarks if record["what"] == "launch")
    for model in models:
        document = plans.step_records_plan("cpu", str(prices))
        changes = {**model.changes, LAUNCH: f"{launch['value']} {launch['unit']}"}
        plan = load_plan(yaml.safe_dump(document), [f"{key}={value}" for key, value in changes.items()])
        yield model, float(compile_plan(plan).totals["time.step"])


def measure(cases: list[BenchCase], rig: Rig, file: EvidenceFile) -> None:
    """Times each kernel on this machine, and adds a record of it to the file as soon as it is made."""
    for kind, some in by_kind(cases):
        for one in kind.measure(some, rig):
            append_record(file, one)


def main(runs: int, threads: int) -> None:
    """Prints a line for each run and model, then how many lie within the bounds."""
    device = find_device("cpu", threads, quick=False)
    rig = Rig(device.place, device.limits, SECONDS, SECONDS, threads)
    models = []
    for case in plans.plan_cases(device.limits):
        step = steps.training_step(steps.step_plan(case, "cpu"), "cpu")
        models.append(Model(str(case.keys["id"]), case.keys["set"], step))
        steps.warm_up(step, rig)
    print(f"{device.title}; {device.origin['method']}\n")
    print("run  model             predicted   measured      ratio   on the wall  others")
    ratios: dict[str, list[float]] = {model.name: [] for model in models}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(1, runs + 1):
            load = ProcessorLoad.now()
            for model, predicted in list(run(models, device, rig, Path(folder) / f"run-{number}.yaml")):
                seconds, wall = median(model.seconds), median(model.wall)
                ratios[model.name].append(predicted / seconds)
                model.seconds.clear()
                model.wall.clear()
                figures = f"{predicted:9.3f} s {seconds:8.3f} s {predicted / seconds:10.3f} {wall:10.3f} s"
                print(f"{number:3d}  {model.name:16s} {figures} {load.share_of_others():7.0%}", flush=True)
    conclude(ratios, runs)


def conclude(ratios: Mapping[str, list[float]], runs: int) -> None:
    """How many runs predicted each model, and all of them, within the bounds."""
    print(f"\npredicted over measured, within {LOW} and {HIGH}:")
    for name, found in ratios.items():
        spread = f"{min(found):.3f} to {max(found):.3f}, median {median(found):.3f}"
        print(f"  {name:16s} {sum(map(within, found))} of {runs} runs; {spread}")
    whole = sum(all(map(within, row)) for row in zip(*ratios.values(), strict=True))
    print(f"  all of them      {whole} of {runs} runs")


def within(ratio: float) -> bool:
    """Whether a prediction is near enough."""
    return LOW <= ratio <= HIGH


if __name__ == "__main__":
    if any(
        os.environ.get(name) != value for name, value in CPU_ENVIRONMENT.items()
    ):  # the allocator reads them at its start
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **CPU_ENVIRONMENT})  # noqa: S606
    main(*(int(text) for text in (*sys.argv[1:3], *("10", "1")[len(sys.argv[1:3]) :])))
