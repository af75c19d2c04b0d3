"""Every value of a plan that was read lies in the range that its field has, however it got there."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from fractions import Fraction
from typing import Any

from ledger.spec.load import load_plan
from ledger.spec.parts import field_rows
from ledger.spec.plan import Plan
from ledger.spec.problems import SpecError

UNTOLD = {"reading", "origins", "warnings"}  # of a plan: where it was read from
GREATEST = 1e36  # of any value in its base unit: that of an amount of arithmetic


def beyond_range(path: str, settings: list[str]) -> str:
    """The first value of the plan in a file that is not finite, or outside the range of its field."""
    try:
        plan = load_plan(path, settings)
    except SpecError:
        return ""
    return next(_beyond(plan, "plan"), "")


def _beyond(value: Any, path: str) -> Iterator[str]:
    """Each of them, with its path."""
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, int | float | Fraction):
        if not math.isfinite(value) or abs(value) > GREATEST:
            yield f"accepted {path} = {value}"
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _beyond(inner, f"{path}.{key}")
    elif isinstance(value, tuple | list):
        for inner in value:
            yield from _beyond(inner, path)
    elif is_dataclass(value):
        yield from _of_part(value, path)


def _of_part(part: Any, path: str) -> Iterator[str]:
    """The same of the fields of a part, each against the interval that its row states."""
    rows = {row.attribute: row.type for row in field_rows(type(part))}
    for field in fields(part):
        if isinstance(part, Plan) and field.name in UNTOLD:
            continue
        value = getattr(part, field.name)
        interval = getattr(rows.get(field.name), "interval", None)
        if interval is not None and isinstance(value, int | float | Fraction) and not isinstance(value, bool):
            least, greatest = interval
            default = next((one.default for one in fields(part) if one.name == field.name), None)
            if value != default and not least <= value <= greatest:
                yield f"accepted {path}.{field.name} = {value}, outside of {least} to {greatest}"
        yield from _beyond(value, f"{path}.{field.name}")
