"""The plan, every value with the place it was written and the publication it was taken from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import groupby
from typing import TYPE_CHECKING

from ledger import numbers
from ledger.report.views.glance import glance
from ledger.report.views.parts import Cell, Column, Report, Table, columns, text_cells
from ledger.spec.paths import greatest, key_of, part_of, plan_path, row_at
from ledger.spec.paths import unit as base_unit
from ledger.spec.rules.table import OF_TRAINING
from ledger.spec.structures import KEEP_EACH_ENTRY
from ledger.spec.token_budget import TokensPerParameter

if TYPE_CHECKING:
    from ledger.spec.plan import Origin, Plan


PARTS = (
    *(
        "run",
        "serve",
        "parallelism",
        "recompute",
        "optimizer",
        "operations",
        "data",
        "assumptions",
        "cluster",
        "precision",
        "kernels",
    ),
    *("accelerator", "model", "stack"),
)
# Shown on the first page, with the evidence or with the checks.
ELSEWHERE = ("plan", "decision", "accelerator.calibration", "accelerator.aliases", "expect.")
WHOLE = 1_000  # sources on paper: all of them
MOST_GIVEN = 40  # values of a source that are named; all of them are rows of the page's table


@dataclass(frozen=True)
class PlanValue:
    """A value of the plan as it is printed, and where it is from."""

    path: str
    text: str
    origin: Origin


@dataclass(frozen=True)
class PlanView:
    """The plan at a glance, every value with its source, the sources by number, and the text with its overrides.

    `by_source` is for paper, which has the plan as written attached: each source with the values that it gives.
    """

    glance: tuple[tuple[str, str], ...]
    table: Table | None
    by_source: Table | None
    sources: tuple[str, ...]
    text: str
    digest: str
    overrides: tuple[str, ...]


def plan(report: Report) -> PlanView:
    """The plan with its sources."""
    chosen = report.compiled.plan
    values = tuple(stated_values(chosen))
    sources = tuple(dict.fromkeys(value.origin.source for value in values if value.origin.source))
    text = report.seal.effective if report.seal else chosen.text
    overrides = report.seal.overrides if report.seal else ()
    return PlanView(
        glance(chosen),
        value_table(values, sources) if values else None,
        source_table(values, sources) if sources else None,
        sources,
        text,
        chosen.digest,
        overrides,
    )


def stated_values(chosen: Plan) -> Iterator[PlanValue]:
    """Every single value that the plan's files state, part by part."""
    for path, origin in sorted(chosen.origins.items(), key=lambda pair: part_rank(pair[0])):
        is_listed = not path.startswith(ELSEWHERE) and not path.endswith(".value")
        is_listed = is_listed and not (chosen.serve and part_of(path) in OF_TRAINING)
        if is_listed and (text := typed_value(path, chosen)):
            yield PlanValue(path, text, origin)


def part_rank(path: str) -> int:
    """Where a part of the plan stands in the table: choices first, what they are made of last."""
    part = part_of(path)
    return PARTS.index(part) if part in PARTS else -1


def value_table(values: Sequence[PlanValue], sources: tuple[str, ...]) -> Table:
    """Every value with its place and the number of its source."""
    headings = (
        *(Column("value of", "code"), Column("value", "number")),
        *(Column("written at", "code"), Column("source", "tag")),
    )
    rows = tuple(
        (*text_cells(value.path, value.text, str(value.origin.where)), source_cell(value.origin, sources))
        for value in values
    )
    return Table("Every value, where it was written and who published it", headings, rows)


def source_cell(origin: Origin, sources: tuple[str, ...]) -> Cell:
    """The number of a publication, or that a value was chosen."""
    if not origin.source:
        return Cell("choice", "0")
    number = sources.index(origin.source) + 1
    return Cell(f"source {number}", str(number))


def source_table(values: Sequence[PlanValue], sources: tuple[str, ...]) -> Table:
    """Every source with the values that the plan takes from it; the author's own choices have none."""
    headings = (Column("source", "source"), *columns("source", "gives"))
    rows = tuple(
        source_row(source, tuple(value for value in values if value.origin.source == source)) for source in sources
    )
    return Table("What the plan takes from publications", headings, rows, WHOLE, name="sources of the plan")


def source_row(source: str, values: Sequence[PlanValue]) -> tuple[Cell, ...]:
    """A source, the values taken from it by part of the plan, and the files that say so."""
    files = ", ".join(dict.fromkeys(value.origin.where.file for value in values))
    parts = (given_by_part(part, group) for part, group in groupby(values, key=lambda value: part_of(value.path)))
    return Cell(source, note=files), Cell(". ".join(parts))


def given_by_part(part: str, values: Iterable[PlanValue]) -> str:
    """`cluster`: devices_per_node 8 devices, scaleout.bandwidth 50 GB/s; of a model that is written out, the first."""
    said = [f"{value.path.removeprefix(part).removeprefix('.')} {value.text}".strip() for value in values]
    more = f" and {numbers.integer(len(said) - MOST_GIVEN)} values more" if len(said) > MOST_GIVEN else ""
    return f"`{part}`: {', '.join(said[:MOST_GIVEN])}{more}"


# --- quantities ---

TINY = Decimal("0.001")  # below this a bare number is written with its power of ten
DIGITS = 4  # of a value that a person typed, so that 989.5 TFLOP/s stays what it is
PREFIXED = ("B/s", "FLOP/s", "B", "W")
# How a value is written whose unit in the table of fields is not what people read.
UNITS = {"tokens": "token", "parameters": "1", "1": ""}
COUNTED = {  # what a whole number counts, or a ratio is of, by the key that it stands under
    **dict.fromkeys(("seq_len", "source_len", "max_seq_len", "window", "chunk", "tokens"), "tokens"),
    **dict.fromkeys(("micro_batch", "global_batch", "concurrency", "sequences"), "sequences"),
    "speculative": "tokens a step",
    "step": "times the learning rate",
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
    "workers": "workers",
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
UNSHOWN = ("", KEEP_EACH_ENTRY, "name")  # what the plan keeps nowhere, keeps entry by entry, or has in its paths


def value_at(root: object, path: str) -> object:
    """The value at a dotted path through attributes, keys, indices and names; None where the path ends early."""
    value: object | None = root
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
    stated = row_at(path)
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
    if base_unit(path) == "1" and greatest(path) == 1:  # a part of a whole
        return typed_amount(value, "%")
    return f"{bare_number(value)} {counted_things(key_of(path), value)}".rstrip()


def counted_things(key: str, value: float | Fraction) -> str:
    """What a number under a key counts: `devices`, of one `device`; empty where it counts nothing."""
    things, _, of_what = COUNTED.get(key, "").partition(" ")
    noun = things.removesuffix("s") if value == 1 and things != "times" else things
    return f"{noun} {of_what}".rstrip()


def typed_amount(value: float | Fraction, unit: str) -> str:
    """A quantity without the zeros that nobody typed; money keeps its cents."""
    if unit == "token":
        return f"{numbers.trimmed(numbers.count(value))} tokens"
    text = numbers.amount_text(value, unit)
    return text if unit == "USD" else numbers.trimmed(text)


def bare_number(value: float | Fraction) -> str:
    """A number without a unit, without the zeros that nobody typed."""
    if value == int(value):
        return numbers.integer(value)
    if numbers.magnitude(value) < TINY:
        return numbers.scientific(value)
    return numbers.trimmed(numbers.plain(value, DIGITS))
