"""Models and plans as the YAML text of a spec."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

QUOTED = ("model", "source", "plan")  # titles and sources may hold anything
MARKS = ", ", ": ", "[", "{"  # that would end a plain text within a line
STEPPED = ("stem", "block")  # parts that are written out in steps
ASSUMED = "# assumed: the file does not say"


def model_text(model: Mapping[str, Any]) -> str:
    """The text of a model spec."""
    return "\n".join(_model(model)) + "\n"


def plan_text(plan: Mapping[str, Any], assumed: Mapping[str, Any], why: Mapping[str, str] | None = None) -> str:
    """The text of a plan; `assumed` are parts that the plan needs and its file does not state.

    `why` has what parts rest on, a comment above each.
    """
    lines = []
    for key, value in {**plan, **assumed}.items():
        if key in (why or {}):
            lines += [f"# {line}" for line in (why or {})[key].splitlines()]
        if key == "model" and isinstance(value, Mapping):
            lines += ["model:", *(f"  {line}" for line in _model(value))]
            continue
        line = f"{key}: {_flow(value, quoted=key in QUOTED and isinstance(value, str) and key != 'model')}"
        lines.append(f"{line}  {ASSUMED}" if key in assumed else line)
    return "\n".join(lines) + "\n"


def _model(model: Mapping[str, Any]) -> Iterator[str]:
    for key, value in model.items():
        if key == "layers":
            yield "layers:"
            for group in value:
                yield from _group(group)
        elif key in STEPPED:
            yield from _stepped(key, value)
        else:
            yield f"{key}: {_flow(value, quoted=key in QUOTED)}"


def _group(group: Mapping[str, Any]) -> Iterator[str]:
    for at, (key, value) in enumerate(group.items()):
        if key in STEPPED:
            yield from (f"    {line}" for line in _stepped(key, value))
            continue
        yield f"  {'  ' if at else '- '}{key}: {_flow(value)}"


def _stepped(key: str, part: Mapping[str, Any]) -> Iterator[str]:
    """A part whose steps stand one a line; one without steps of its own stands in one."""
    if "steps" not in part:
        yield f"{key}: {_flow(part)}"
        return
    yield f"{key}:"
    for inner, value in part.items():
        if inner != "steps":
            yield f"  {inner}: {_flow(value)}"
    yield "  steps:"
    yield from (f"    - {_flow(step)}" for step in part["steps"])


def _flow(value: Any, quoted: bool = False) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_flow(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    plain = isinstance(value, str) and not quoted and not any(mark in value for mark in MARKS)
    return value if plain else json.dumps(value, ensure_ascii=False)
