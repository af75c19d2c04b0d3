"""What tells one case of a microbenchmark from another, and what a measurement adds to it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

# What a measurement adds to a record; everything else tells one case from another.
RESULTS = (
    *("value", "unit", "low", "high", "count", "regime", "timer"),
    *("graphics_clock", "power", "others", "measured", "error"),
)


def identity(record: Mapping[str, Any]) -> str:
    """What two records of one case share: everything but the results."""
    return json.dumps({key: value for key, value in record.items() if key not in RESULTS}, sort_keys=True)
