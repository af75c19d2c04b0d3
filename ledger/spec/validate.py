"""A document held to what its kind may say."""

from __future__ import annotations

from ledger.spec.faults import Faults, Written
from ledger.spec.kinds import TYPES
from ledger.spec.reader import Node


def faults(node: Node, kind: str) -> Faults:
    """Everything in a document that its kind does not allow."""
    found: Faults = []
    TYPES[kind].read(Written(node), found)
    return found
