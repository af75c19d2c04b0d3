"""What the trained model asks of the devices that it was trained on, once it answers."""

from __future__ import annotations

from ledger.report.views.parts import Report, Table
from ledger.report.views.time import key_table

KEYS = (
    ("kv_cache", "keys and values", "of a micro-batch of whole sequences, in the dtype that matmuls write"),
    ("prefill.time", "reading the prompts", "forward of one micro-batch through all stages, kernels as in training"),
    (
        "decode.time_per_token",
        "a token more",
        "the weights that it uses and all keys and values read once, a lower bound",
    ),
)


def serving(report: Report) -> Table | None:
    """Keys and values, prefill and decode; None where only a count is known."""
    found = key_table("A micro-batch served as it was trained", KEYS, report.compiled)
    return found if found.rows else None
