"""The text of an evidence file: what stands above its records, then a line for each of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

RECORDS = "records:\n"
LINE_WIDTH = 10_000  # characters; no line is folded


def head_text(fields: Mapping[str, Any]) -> str:
    """Everything above the records."""
    return yaml.safe_dump(dict(fields), sort_keys=False, allow_unicode=True, width=LINE_WIDTH) + RECORDS


def record_line(record: Mapping[str, Any]) -> str:
    """One record on one line."""
    text = yaml.safe_dump(dict(record), sort_keys=False, default_flow_style=True, allow_unicode=True, width=LINE_WIDTH)
    return f"  - {text.strip()}\n"
