"""A spec as text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

# Reads back as the same text in YAML 1.1 and 1.2, also inside a flow mapping; anything else is quoted.
PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./+()-]*( [A-Za-z0-9_./+()-]+)*")
WORDS_OF_YAML = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}


def written(spec: Mapping[str, Any]) -> str:
    """A model spec as YAML: a line per part, and a line per part of a layer group."""
    lines: list[str] = []
    for key, value in spec.items():
        if key != "layers":
            lines.append(f"{key}: {flow(value)}")
            continue
        lines.append("layers:")
        for layer in value:
            marks = ["  - ", *["    "] * (len(layer) - 1)]
            lines += [f"{mark}{name}: {flow(part)}" for mark, (name, part) in zip(marks, layer.items(), strict=True)]
    return "\n".join(lines) + "\n"


def flow(value: object) -> str:
    """A scalar, or a mapping on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {flow(part)}" for key, part in value.items()) + "}"
    if isinstance(value, str) and PLAIN.fullmatch(value) and value.lower() not in WORDS_OF_YAML:
        return value
    return json.dumps(value, ensure_ascii=False)
