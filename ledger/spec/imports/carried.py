"""What an import gives: the text of a spec, and what of the file is not in it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ledger.spec.problems import Problem

NODE = 8  # devices of a node, where a file does not say


@dataclass(frozen=True)
class Imported:
    """A spec's text; `notes` are settings that were left out or had to be taken otherwise, each in its place."""

    text: str
    notes: tuple[Problem, ...] = ()


def cluster(devices: int) -> dict[str, Any]:
    """A cluster of so many devices: its nodes are as large as their number allows."""
    node = {"devices_per_node": math.gcd(devices, NODE)} if devices > NODE and devices % NODE else {}
    return {"base": "h100-400g", "devices": devices, **node}
