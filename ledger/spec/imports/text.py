"""Models and plans as the YAML text of a spec."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from ledger.spec.problems import Problem

QUOTED = ("model", "source", "plan")  # titles and sources may hold anything
MARKS = ", ", ": ", "[", "{"  # that would end a plain text within a line
STEPPED = ("stem", "block")  # parts that are written out in steps
ASSUMED = "# assumed: the file does not say"


def model_text(model: Mapping[str, Any]) -> str:
    """The text of a model spec."""
    return "\n".join(_model_lines(model)) + "\n"


def plan_text(plan: Mapping[str, Any], assumed: Mapping[str, Any], why: Mapping[str, str] | None = None) -> str:
    """The text of a plan; `assumed` are parts that the plan needs and its file does not state.

    `why` has what parts rest on, a comment above each.
    """
    lines = []
    for key, value in {**plan, **assumed}.items():
        if key in (why or {}):
            lines += [f"# {line}" for line in (why or {})[key].splitlines()]
        if key == "model" and isinstance(value, Mapping):
            lines += ["model:", *(f"  {line}" for line in _model_lines(value))]
            continue
        line = f"{key}: {_flow_text(value, quoted=key in QUOTED and isinstance(value, str) and key != 'model')}"
        lines.append(f"{line}  {ASSUMED}" if key in assumed else line)
    return "\n".join(lines) + "\n"


def _model_lines(model: Mapping[str, Any]) -> Iterator[str]:
    for key, value in model.items():
        if key == "layers":
            yield "layers:"
            for group in value:
                yield from _group_lines(group)
        elif key in STEPPED:
            yield from _part_lines(key, value)
        else:
            yield f"{key}: {_flow_text(value, quoted=key in QUOTED)}"


def _group_lines(group: Mapping[str, Any]) -> Iterator[str]:
    for index, (key, value) in enumerate(group.items()):
        if key in STEPPED:
            yield from (f"    {line}" for line in _part_lines(key, value))
            continue
        yield f"  {'  ' if index else '- '}{key}: {_flow_text(value)}"


def _part_lines(key: str, part: Mapping[str, Any]) -> Iterator[str]:
    """A part whose steps stand one a line; one without steps of its own stands in one."""
    if "steps" not in part:
        yield f"{key}: {_flow_text(part)}"
        return
    yield f"{key}:"
    for inner, value in part.items():
        if inner != "steps":
            yield f"  {inner}: {_flow_text(value)}"
    yield "  steps:"
    yield from (f"    - {_flow_text(step)}" for step in part["steps"])


def _flow_text(value: Any, quoted: bool = False) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_flow_text(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow_text, value)) + "]"
    plain = isinstance(value, str) and not quoted and not any(mark in value for mark in MARKS)
    return value if plain else json.dumps(value, ensure_ascii=False)


# --- what importers share ---

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


def suggestion(name: str, names: Iterable[str], cutoff: float = 0.6, prefix: str = "") -> str:
    """The beginning of a help line that asks whether the nearest known name is meant; empty where none is near."""
    close = difflib.get_close_matches(name, list(names), 1, cutoff)
    return f"is `{prefix}{close[0]}` meant? " if close else ""


def stated(**part: Any) -> Part:
    """The values that differ from the spec language's own defaults, which are false, 0 and none."""
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
