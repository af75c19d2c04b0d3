"""What the inputs of a page are called, in the order of their controls, and the units in which amounts are typed."""

from __future__ import annotations

from collections.abc import Mapping

from ledger.numbers import DAY

TITLES: Mapping[str, str] = {
    "micro_batch": "micro-batch, sequences",
    "seq_len": "sequence, tokens",
    "global_batch": "global batch, sequences",
    "data": "data parallel",
    "tensor": "tensor parallel",
    "pipeline": "pipeline stages",
    "context": "context parallel",
    "expert": "expert parallel",
    "zero": "ZeRO stage",
    "recompute": "recomputation",
    "accelerator": "device",
    "tokens": "tokens of the run",
    "price": "price of a device-hour",
    "failure_rate": "failures of a device",
    "checkpoint_interval": "checkpoint every",
    "checkpoint_cost": "a checkpoint takes",
    "restart_time": "a restart takes",
    "storage_bandwidth": "checkpoint storage",
}
# By amount, the unit that a reader types, and what it is in SI base units.
UNITS: Mapping[str, tuple[str, float]] = {
    "tokens": ("B tokens", 1e9),
    "price": ("USD", 1),
    "failure_rate": ("/d", 1 / DAY),
    "checkpoint_interval": ("min", 60),
    "checkpoint_cost": ("s", 1),
    "restart_time": ("min", 60),
    "storage_bandwidth": ("GB/s", 1e9),
}
