"""Inputs of a plan that serves whose values are in order: lengths that all sequences have, and devices as replicas."""

from __future__ import annotations

from typing import Any

from ledger.books.what_if.sizes import multiples
from ledger.books.what_if.sought import Settings, Unknown, key_fault
from ledger.spec.paths import greatest
from ledger.spec.plan import Lengths, Plan


def length(_: Plan, path: str, given: Lengths) -> Unknown:
    """Tokens of every prompt, or of every output; of a distribution nothing says which of its lengths is meant."""
    if len(given.parts) > 1:
        help_text = f"state one length for all, as in `--set '{path}={given.longest} tokens'`"
        raise key_fault(path, f"`{path}` is a distribution of lengths", help_text)

    def settings(value: Any) -> Settings:
        return {path: f"{value} tokens"}

    return Unknown(path, given.longest, settings, step=1)


def devices(plan: Plan) -> Unknown:
    """More devices are more replicas, which share the sequences in flight."""
    rest = plan.parallelism.replica

    def settings(value: Any) -> Settings:
        return {"cluster.devices": value, "parallelism.data": value // rest}

    most = greatest("cluster.devices")
    return Unknown("cluster.devices", plan.cluster.devices, settings, multiples(rest), step=rest, greatest=most)
