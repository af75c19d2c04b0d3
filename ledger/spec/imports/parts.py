"""What importers have in common: the spec that they give, parts that they put together, help lines that they say."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from ledger.spec.problems import Problem

Part = Mapping[str, Any]
LARGEST = 10**9  # of any size or count of a model
DEEPEST = 100_000  # layers
NODE = 8  # devices of a node, where a file does not say
BY_HAND = "add it to the plan by hand if it matters to a figure"  # of a setting that is in no plan


@dataclass(frozen=True)
class ImportedSpec:
    """A spec's text; `notes` are settings that were left out or had to be taken otherwise, each in its place."""

    text: str
    notes: tuple[Problem, ...] = ()


def assumed_devices(count: int, *, microscaled: bool) -> dict[str, Any]:
    """The accelerator and the cluster of a plan whose file names neither; nodes are as large as `count` allows."""
    node = {"devices_per_node": math.gcd(count, NODE)} if count > NODE and count % NODE else {}
    accelerator = "b200" if microscaled else "h100-sxm"  # the oldest with the formats
    return {"accelerator": accelerator, "cluster": {"base": "h100-400g", "devices": count, **node}}


def suggestion(name: str, known: Iterable[str], cutoff: float = 0.6, prefix: str = "") -> str:
    """The beginning of a help line that asks whether the nearest known name is meant; empty where none is near."""
    close = difflib.get_close_matches(name, list(known), 1, cutoff)
    return f"is `{prefix}{close[0]}` meant? " if close else ""


def stated(**part: Any) -> Part:
    """What differs from the spec language's own defaults, which are false, 0 and none."""
    return {key: value for key, value in part.items() if value}


def arranged(kinds: Sequence[str], parts: Mapping[str, Part], only: str = "decoder") -> Part:
    """The groups of equal layers, from the kind of every layer; kinds that take turns keep the order they have.

    `only`: the name of a group that there is one of.
    """
    groups = [{"group": kind, "repeat": kinds.count(kind), **parts[kind]} for kind in dict.fromkeys(kinds)]
    runs = [(kind, len(list(run))) for kind, run in groupby(kinds)]
    if len(groups) == 1:
        return {"layers": [{**groups[0], "group": only}]}
    if len(runs) == len(groups):
        return {"layers": groups}
    period = next(size for size in range(1, len(kinds) + 1) if all(k == kinds[i % size] for i, k in enumerate(kinds)))
    if period == len(groups) and len(kinds) % period == 0:
        return {"layers": groups, "alternating": True}
    pattern = [(kind, len(list(run))) for kind, run in groupby(kinds[:period])]
    return {"layers": groups, "order": [kind if count == 1 else f"{count} {kind}" for kind, count in pattern]}
