"""The published runs that the library carries, in a table and in files, and what the compiler says of each."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from ledger.books.closed import Books, close
from ledger.books.repricing import step_time
from ledger.evidence.citations import device
from ledger.evidence.known_runs import Known, columns, described, folder
from ledger.evidence.runs import STEP, cited_as, read_runs, steps
from ledger.lab.published.documents import Document, SkippedError, document
from ledger.lab.published.facts import GIB, NEEDED, Facts, UnreadableError, facts
from ledger.lab.published.scores import Shelf, measured_step, planned, published_memory, valued
from ledger.lab.published.table import Row, read_table
from ledger.model.schedule import roles
from ledger.spec.library import Library, default_library
from ledger.spec.load import load_plan
from ledger.spec.plan import Plan
from ledger.spec.problems import SpecError

RUNS = "published-runs.csv"


@dataclass(frozen=True)
class Carried:
    """A row with what a plan was made of it, and its books."""

    row: Facts
    made: Document
    plan: Plan
    books: tuple[Books, ...]

    @property
    def step(self) -> float:
        """Seconds a step; 0 where they cannot be predicted."""
        return 0.0 if self.made.unpriced else step_time(self.plan, self.books)

    @property
    def memory(self) -> float:
        """Bytes of the quantity that the publication prints; 0 where it prints none."""
        return float(published_memory(self.made, self.plan, self.books)[0]) if self.row.measured_peak_mem_gib else 0.0


def carried(rows: Iterable[Row], library: Library) -> Iterator[Carried]:
    """Every row that a plan can be made of, with its books."""
    shelf = Shelf()
    for row in rows:
        try:
            typed = facts(row)
            made = document(typed, library)
            plan, kind = planned(made, (), library, shelf)
            books, _ = valued(plan, kind, shelf)
        except (SkippedError, UnreadableError, SpecError):
            continue
        yield Carried(typed, made, plan, books)


def table() -> tuple[Row, ...]:
    """The rows that the library carries."""
    return read_table(folder() / RUNS, NEEDED)


def predictions() -> Iterator[Known]:
    """What the compiler says today of every run that the library carries; one that is in the table and a file, once."""
    seen = set[str]()
    for one in carried(table(), default_library()):
        seen.add(one.row.id)
        yield replace(
            described(one.plan, one.row.id, one.row.source, one.row.model_name),
            step=one.step,
            measured_step=measured_step(one.row) or 0.0,
            memory=one.memory,
            measured_memory=(one.row.measured_peak_mem_gib or 0.0) * GIB,
        )
    yield from whole_runs(default_library(), seen)


def whole_runs(library: Library, but: Collection[str] = ()) -> Iterator[Known]:
    """The runs that files of evidence describe, each by a plan, of devices of the library; those named are left out."""
    for path in sorted(library.folder("evidence").glob("*.yaml")):
        if steps(path) and library.spelt("accelerator", device(path)):
            for run in (one for one in read_runs(path) if one.name not in but):
                plan = load_plan(run.plan, run.overrides, library=library)
                known = described(plan, run.name, cited_as(path), plan.model.title)
                step = step_time(plan, close(plan, roles(plan)))
                yield replace(known, step=step, measured_step=run.measured[STEP])


def written(found: Iterable[Known]) -> str:
    """The predictions as a table; four digits, so that it changes where a prediction does."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns())
    for one in found:
        values = [getattr(one, name) for name in columns()]
        writer.writerow(f"{value:.4g}" if isinstance(value, float) else value for value in values)
    return out.getvalue()
