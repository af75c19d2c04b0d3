"""What is known of the published runs that the library carries: each with its measurement and our prediction."""

from __future__ import annotations

import csv
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

from ledger.spec.library import default_library
from ledger.spec.plan import Plan

PREDICTED = "published-runs-predicted.csv"


@dataclass(frozen=True)
class Known:
    """A published run as the library knows it: what its plan is, what was measured, and what is predicted.

    Seconds a step and bytes; 0 where nothing was published, or nothing is predicted.
    """

    id: str
    source: str
    model: str
    accelerator: str
    stack: str
    dtype: str
    recompute: str
    d_model: int
    layers: int
    seq_len: int
    micro_batch: int
    devices: int
    data: int
    tensor: int
    pipeline: int
    context: int
    zero: int
    experts: int
    step: float
    measured_step: float
    memory: float
    measured_memory: float
    held: str = "memory.reserved"  # which memory was measured


def folder() -> Path:
    """Where the library keeps its evidence."""
    return default_library().folder("evidence")


def known() -> tuple[Known, ...]:
    """The predictions as they were last written; none where the library has no such table."""
    path = folder() / PREDICTED
    return _read(path, path.stat().st_mtime_ns) if path.exists() else ()


@cache
def _read(path: Path, _stamp: int) -> tuple[Known, ...]:
    """The table, read once per state of it."""
    kinds = {name: READERS[kind] for name, kind in columns().items()}
    with path.open(encoding="utf-8", newline="") as stream:
        return tuple(Known(**{key: kinds[key](cell) for key, cell in row.items()}) for row in csv.DictReader(stream))


READERS = {"str": str, "int": int, "float": float}


def columns() -> dict[str, str]:
    """The columns of the table, and what stands in each."""
    return {field.name: str(field.type) for field in fields(Known) if field.name != "held"}


def described(plan: Plan, name: str, source: str, model: str) -> Known:
    """A plan that ran as the library knows it, before anything is said of what it took."""
    mesh = plan.parallelism
    return Known(
        id=name,
        source=source,
        model=model,
        accelerator=plan.accelerator.name,
        stack=plan.stack.name,
        dtype=plan.precision.multiplies,
        recompute=plan.recompute.policy,
        d_model=plan.model.d_model,
        layers=sum(group.repeat for group in plan.model.groups),
        seq_len=plan.run.seq_len,
        micro_batch=plan.run.micro_batch,
        devices=plan.cluster.devices,
        data=mesh.data,
        tensor=mesh.tensor,
        pipeline=mesh.pipeline,
        context=mesh.context,
        zero=mesh.zero,
        experts=experts(plan),
        step=0.0,
        measured_step=0.0,
        memory=0.0,
        measured_memory=0.0,
    )


def experts(plan: Plan) -> int:
    """Experts of a layer; 0 where no layer has any."""
    return max(group.mlp.experts for group in plan.model.groups)
