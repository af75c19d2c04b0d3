"""What is said of a spec that is no plan at all, but of another kind."""

from __future__ import annotations

from collections.abc import Mapping

from ledger.spec.problems import Problem
from ledger.spec.reader import Node

# Fields that only one kind of spec has.
TELLING: Mapping[str, str] = {
    "lecture": "lecture",
    "questions": "lecture",
    "suite": "suite",
    "evidence": "evidence",
    "layers": "model",
    "peak": "accelerator",
    "scaleout": "cluster",
    "per_device_hour": "price",
    "compute": "precision",
    "matmul": "precision",
    "flops": "optimizer",
    "update": "optimizer",
    "overlap": "stack",
    "date": "stack",
}


def another_kind(node: Node) -> Problem | None:
    """What to say of a spec that is no plan at all, if its fields tell what it is."""
    if "evidence" not in node.fields and ("plan" in node.fields or "run" in node.fields):
        return None
    for field, kind in TELLING.items():
        if field in node.fields:
            help_text = "give a plan, for example one of `ledger list plan`"
            return Problem(node.keys.get(field, node.where), f"this is a spec of kind `{kind}`, not a plan", help_text)
    return None
