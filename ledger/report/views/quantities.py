"""Values of a plan as a person would type them, each with the unit of its field, or the things that it counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from ledger import numbers
from ledger.spec.paths import greatest, key_of, plan_path, row
from ledger.spec.paths import unit as base_unit
from ledger.spec.structures import EACH
from ledger.spec.token_budget import TokensPerParameter

if TYPE_CHECKING:
    from ledger.spec.plan import Plan

TINY = Decimal("0.001")  # below this a bare number is written with its power of ten
DIGITS = 4  # of a value that a person typed, so that 989.5 TFLOP/s stays what it is
PREFIXED = ("B/s", "FLOP/s", "B", "W")
# How a value is written whose unit in the table of fields is not what people read.
UNITS = {"tokens": "token", "parameters": "1", "1": ""}
COUNTED = {  # what a whole number counts, or a ratio is of, by the key that it stands under
    **dict.fromkeys(("seq_len", "source_len", "max_seq_len", "window", "chunk", "tokens"), "tokens"),
    **dict.fromkeys(("micro_batch", "global_batch", "concurrency", "sequences"), "sequences"),
    "speculative": "tokens a step",
    **dict.fromkeys(("repeat", "every", "segment", "layers", "first", "last"), "layers"),
    **dict.fromkeys(("heads", "kv_heads"), "heads"),
    **dict.fromkeys(("d_model", "d_ff", "head_dim", "v_head_dim", "nope_head_dim", "rope_head_dim"), "wide"),
    **dict.fromkeys(("q_rank", "kv_rank"), "wide"),
    **dict.fromkeys(("data", "tensor", "context", "expert", "replicate", "shard", "domain"), "devices"),
    **dict.fromkeys(("devices", "devices_per_node"), "devices"),
    "pipeline": "stages",
    "interleave": "chunks a stage",
    "vocab": "rows",
    **dict.fromkeys(("height", "width", "patch"), "pixels"),
    "channels": "numbers a pixel",
    "classes": "classes",
    "images": "images",
    "learned_positions": "positions",
    "depth": "tokens more",
    "block": "elements",
    "experts": "experts",
    "top_k": "experts a token",
    "groups": "groups",
    "top_groups": "groups",
    "count": "experts",
    "multiprocessors": "multiprocessors",
    "transfer_channels": "channels",
    "loss_chunks": "parts",
    "tile_rows": "rows",
    "relative_buckets": "buckets",
    "iterations": "times",
    "flops": "FLOP a parameter",
    "passes": "passes",
    "fragmentation": "times",
    "expert_imbalance": "times",
    "capacity_factor": "times",
    "routed_scale": "times",
    "power_usage_effectiveness": "times",
    "activations": "layers",
    **dict.fromkeys(("matmul_level", "quantised_level"), "of the measured rate"),
    **dict.fromkeys(("0", "1"), "elements"),  # the sides of a block that shares a scale
}
# Shown with the evidence or with the checks, or no part of the plan.
UNSHOWN = ("", EACH, "name")  # what the plan keeps nowhere, keeps entry by entry, or has in its paths


def value_at(whole: object, path: str) -> object:
    """The value at a dotted path through attributes, keys, indices and names; None where the path ends early."""
    value: object | None = whole
    for name in path.split("."):
        if isinstance(value, Mapping):
            value = value.get(name)
        elif isinstance(value, tuple):
            by_name = (part for part in value if getattr(part, "name", None) == name)
            value = value[int(name)] if name.isdigit() and int(name) < len(value) else next(by_name, None)
        else:
            value = getattr(value, name, None)
    return value


def typed_value(path: str, chosen: Plan) -> str:
    """A value of the plan as a person would type it; empty for what is no single value."""
    stated = row(path)
    if stated is not None and stated.attribute in UNSHOWN:
        return ""
    value = value_at(chosen, plan_path(path))
    if isinstance(value, TokensPerParameter):
        return f"{value}: {typed_quantity(path, value.count)}"
    if is_dataclass(value):
        return str(getattr(value, "title", "") or getattr(value, "name", ""))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float | Fraction):
        return typed_quantity(path, value)
    return value if isinstance(value, str) else ""


def typed_quantity(path: str, value: float | Fraction) -> str:
    """A number of the plan in the unit of its field, a share in per cent, a count with what it counts."""
    unit = UNITS.get(base_unit(path), base_unit(path))
    if unit in PREFIXED:
        return numbers.trimmed(numbers.si(value, unit, DIGITS))
    if unit:
        return typed_amount(value, unit)
    if is_share(path):
        return typed_amount(value, "%")
    return f"{bare_number(value)} {counted_things(key_of(path), value)}".rstrip()


def counted_things(key: str, value: float | Fraction) -> str:
    """What a number under a key counts: `devices`, of one `device`; empty where it counts nothing."""
    things, _, of_what = COUNTED.get(key, "").partition(" ")
    one = things.removesuffix("s") if value == 1 and things != "times" else things
    return f"{one} {of_what}".rstrip()


def is_share(path: str) -> bool:
    """Whether the field at a path says a part of a whole."""
    return base_unit(path) == "1" and greatest(path) == 1


def typed_amount(value: float | Fraction, unit: str) -> str:
    """A quantity without the zeros that nobody typed; money keeps its cents."""
    if unit == "token":
        return f"{numbers.trimmed(numbers.count(value))} tokens"
    text = numbers.written(value, unit)
    return text if unit == "USD" else numbers.trimmed(text)


def bare_number(value: float | Fraction) -> str:
    """A number without a unit, without the zeros that nobody typed."""
    if value == int(value):
        return numbers.integer(value)
    if numbers.magnitude(value) < TINY:
        return numbers.scientific(value)
    return numbers.trimmed(numbers.plain(value, DIGITS))
