"""A document held to what its kind may say."""

from __future__ import annotations

from ledger.spec.findings import Findings, Written
from ledger.spec.kinds import TYPES
from ledger.spec.reader import Node


def findings(node: Node, kind: str) -> Findings:
    """Everything in a document that its kind does not allow."""
    found: Findings = []
    TYPES[kind].read(Written(node), found)
    return found
