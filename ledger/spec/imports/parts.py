"""Parts of a spec as plain mappings, as importers put them together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

Part = Mapping[str, Any]
LARGEST = 10**9  # of any size or count of a model
DEEPEST = 100_000  # layers


def stated(**part: Any) -> Part:
    """What differs from the spec language's own defaults, which are false, 0 and none."""
    return {key: value for key, value in part.items() if value}


def arranged(kinds: Sequence[str], parts: Mapping[str, Part]) -> Part:
    """The groups of equal layers, from the kind of every layer; kinds that take turns keep the order they have."""
    groups = [{"group": kind, "repeat": kinds.count(kind), **parts[kind]} for kind in dict.fromkeys(kinds)]
    runs = [(kind, len(list(run))) for kind, run in groupby(kinds)]
    if len(groups) == 1:
        return {"layers": [{**groups[0], "group": "decoder"}]}
    if len(runs) == len(groups):
        return {"layers": groups}
    period = next(size for size in range(1, len(kinds) + 1) if all(k == kinds[i % size] for i, k in enumerate(kinds)))
    if period == len(groups) and len(kinds) % period == 0:
        return {"layers": groups, "alternating": True}
    pattern = [(kind, len(list(run))) for kind, run in groupby(kinds[:period])]
    return {"layers": groups, "order": [kind if count == 1 else f"{count} {kind}" for kind, count in pattern]}
