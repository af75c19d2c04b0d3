"""The plan, every value with the place it was written and the publication it was taken from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from ledger import numbers
from ledger.report.views.glance import glance
from ledger.report.views.parts import Cell, Column, Report, Table, columns, text_cells
from ledger.report.views.quantities import typed_value
from ledger.spec.paths import part_of
from ledger.spec.rules.table import OF_TRAINING

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
        shown = not path.startswith(ELSEWHERE) and not path.endswith(".value")
        shown = shown and not (chosen.serve and part_of(path) in OF_TRAINING)
        if shown and (text := typed_value(path, chosen)):
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
        (*text_cells(one.path, one.text, str(one.origin.where)), source_cell(one.origin, sources)) for one in values
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
    rows = tuple(source_row(source, tuple(one for one in values if one.origin.source == source)) for source in sources)
    return Table("What the plan takes from publications", headings, rows, WHOLE, name="sources of the plan")


def source_row(source: str, values: Sequence[PlanValue]) -> tuple[Cell, ...]:
    """A source, the values taken from it by part of the plan, and the files that say so."""
    files = ", ".join(dict.fromkeys(one.origin.where.file for one in values))
    parts = (given_by_part(part, group) for part, group in groupby(values, key=lambda one: part_of(one.path)))
    return Cell(source, note=files), Cell(". ".join(parts))


def given_by_part(part: str, values: Iterable[PlanValue]) -> str:
    """`cluster`: devices_per_node 8 devices, scaleout.bandwidth 50 GB/s; of a model that is written out, the first."""
    said = [f"{one.path.removeprefix(part).removeprefix('.')} {one.text}".strip() for one in values]
    more = f" and {numbers.integer(len(said) - MOST_GIVEN)} values more" if len(said) > MOST_GIVEN else ""
    return f"`{part}`: {', '.join(said[:MOST_GIVEN])}{more}"
