"""The published runs that the library carries, and what the compiler says of each."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields

from ledger.books.closed import Books
from ledger.books.repricing import step_time
from ledger.evidence.published.documents import Document, SkippedError, document
from ledger.evidence.published.facts import GIB, NEEDED, Facts, UnreadableError, facts
from ledger.evidence.published.known import Known, folder
from ledger.evidence.published.scores import Shelf, measured_step, planned, published_memory, valued
from ledger.evidence.published.table import Row, read_table
from ledger.spec.library import Library, default_library
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
    """What the compiler says today of every run that the library carries."""
    for one in carried(table(), default_library()):
        plan, mesh = one.plan, one.plan.parallelism
        yield Known(
            id=one.row.id,
            source=one.row.source,
            model=one.row.model_name,
            accelerator=plan.accelerator.name,
            stack=plan.stack.name,
            dtype=plan.precision.multiplies,
            recompute=plan.recompute.policy,
            d_model=plan.model.d_model,
            layers=sum(group.repeat for group in plan.model.groups),
            seq_len=plan.run.seq_len,
            micro_batch=plan.run.micro_batch,
            devices=plan.cluster.devices,
            data=mesh.data,
            tensor=mesh.tensor,
            pipeline=mesh.pipeline,
            context=mesh.context,
            zero=mesh.zero,
            step=one.step,
            measured_step=measured_step(one.row) or 0.0,
            memory=one.memory,
            measured_memory=(one.row.measured_peak_mem_gib or 0.0) * GIB,
        )


def written(found: Iterable[Known]) -> str:
    """The predictions as a table; four digits, so that it changes where a prediction does."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(field.name for field in fields(Known))
    for one in found:
        writer.writerow(f"{value:.4g}" if isinstance(value, float) else value for value in vars(one).values())
    return out.getvalue()
