"""What is known of the published runs that the library carries: each with its measurement and our prediction."""

from __future__ import annotations

import csv
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

from ledger.spec.library import default_library

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
    step: float
    measured_step: float
    memory: float
    measured_memory: float


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
    kinds = {field.name: READERS[str(field.type)] for field in fields(Known)}
    with path.open(encoding="utf-8", newline="") as stream:
        return tuple(Known(**{key: kinds[key](cell) for key, cell in row.items()}) for row in csv.DictReader(stream))


READERS = {"str": str, "int": int, "float": float}
