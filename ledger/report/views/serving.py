"""What the trained model asks of the devices that it was trained on, once it answers."""

from __future__ import annotations

from ledger.report.views.parts import Report, Table
from ledger.report.views.time import key_table

KEYS = (
    ("kv_cache", "cache of keys and values", "of a micro-batch of whole sequences, in the dtype that matmuls write"),
    ("prefill.time", "prefill", "a micro-batch of prompts forward through all stages, with the kernels of training"),
    (
        "decode.time_per_token",
        "decoding a token",
        "a lower bound: the weights that it uses, and all keys and values, are read once",
    ),
)


def serving(report: Report) -> Table | None:
    """Keys and values, prefill and decode; None where only a count is known."""
    found = key_table("Serving on the training devices", KEYS, report.compiled)
    return found if found.rows else None
