"""The published runs that the library carries, in a table and in files, and what the compiler says of each."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ledger.books.compiled_roles import CompiledRole, compile_roles
from ledger.books.price_changes import step_time
from ledger.evidence.documents import read_evidence
from ledger.evidence.published_runs import PublishedRun, column_types, run_of_plan
from ledger.evidence.run_records import STEP_TIME
from ledger.evidence.tables import TableRow, read_table
from ledger.lab.score.facts import NEEDED_COLUMNS, Facts, UnreadableError, facts
from ledger.lab.score.plan_cache import PlanCache
from ledger.lab.score.predictions import COUNTED_GRADE, measured_step, published_memory
from ledger.lab.score.row_plans import RowPlan, row_plan
from ledger.lab.score.rows import GIB
from ledger.lab.score.spelled import SkippedError
from ledger.model.schedule import roles
from ledger.spec.library import Library, default_library
from ledger.spec.load import load_plan
from ledger.spec.plan import Plan
from ledger.spec.problems import SpecError

RUNS_TABLE = "published-runs.csv"


@dataclass(frozen=True)
class LibraryRun:
    """A row with the plan that was made of it, and its books."""

    row: Facts
    row_plan: RowPlan
    plan: Plan
    books: tuple[CompiledRole, ...]

    @property
    def step(self) -> float:
        """Seconds a step; 0 where they cannot be predicted."""
        return 0.0 if self.row_plan.unpriced else step_time(self.plan, self.books)

    @property
    def memory(self) -> float:
        """Bytes of the quantity that the publication prints; 0 where it prints none."""
        return (
            float(published_memory(self.row_plan, self.plan, self.books)[0]) if self.row.measured_peak_mem_gib else 0.0
        )

    @property
    def is_scored(self) -> bool:
        """Whether summaries of step time are made of it."""
        return (
            not self.row_plan.unpriced and self.row.score_time == COUNTED_GRADE and measured_step(self.row) is not None
        )

    def time_error(self, plan: Plan, books: tuple[CompiledRole, ...]) -> float:
        """Seconds of another plan of the same run over those that were measured, minus one."""
        return float(step_time(plan, books)) / (measured_step(self.row) or 1.0) - 1


def library_runs(rows: Iterable[TableRow], library: Library) -> Iterator[LibraryRun]:
    """Every row that a plan can be made of, with its books."""
    cache = PlanCache(library)
    for row in rows:
        try:
            typed = facts(row)
            made = row_plan(typed, library)
            plan, kind = cache.plan(made)
            books, _ = cache.books_of(plan, kind)
        except (SkippedError, UnreadableError, SpecError):
            continue
        yield LibraryRun(typed, made, plan, books)


def library_rows() -> tuple[TableRow, ...]:
    """The rows that the library carries."""
    return read_table(default_library().folder("evidence") / RUNS_TABLE, NEEDED_COLUMNS)


def scored_runs(*tables: Sequence[TableRow]) -> tuple[LibraryRun, ...]:
    """The runs of tables, or of the library's own, of whose step time summaries are made."""
    rows = [row for table in tables or (library_rows(),) for row in table]
    return tuple(run for run in library_runs(rows, default_library()) if run.is_scored)


def errors_by_source(runs: Iterable[LibraryRun], error: Callable[[LibraryRun], float]) -> dict[str, list[float]]:
    """An error of each run, by its publication."""
    errors: dict[str, list[float]] = {}
    for run in runs:
        errors.setdefault(run.row.source_id, []).append(error(run))
    return errors


def predictions() -> Iterator[PublishedRun]:
    """What the compiler says today of every run that the library carries; one that is in the table and a file, once."""
    seen = set[str]()
    for run in library_runs(library_rows(), default_library()):
        seen.add(run.row.id)
        yield replace(
            run_of_plan(run.plan, run.row.id, run.row.source, run.row.model_name),
            step=run.step,
            measured_step=measured_step(run.row) or 0.0,
            memory=run.memory,
            measured_memory=(run.row.measured_peak_mem_gib or 0.0) * GIB,
        )
    yield from runs_of_files(default_library(), seen)


def runs_of_files(library: Library, left_out: Collection[str] = ()) -> Iterator[PublishedRun]:
    """The runs that files of evidence describe, each by a plan, of devices of the library; those named are left out."""
    for path in library.files("evidence"):
        evidence = read_evidence(path)
        if library.matching_names("accelerator", evidence.device):
            for run in (run for run in evidence.runs if run.id not in left_out):
                plan = load_plan(run.plan, run.settings, library=library)
                described = run_of_plan(plan, run.id, evidence.citation, plan.model.title)
                step = step_time(plan, compile_roles(plan, roles(plan)))
                yield replace(described, step=step, measured_step=run.measured[STEP_TIME])


def table_text(runs: Iterable[PublishedRun]) -> str:
    """The predictions as a table; four digits, so that it changes where a prediction does."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(column_types())
    for run in runs:
        values = [getattr(run, name) for name in column_types()]
        writer.writerow(f"{value:.4g}" if isinstance(value, float) else value for value in values)
    return out.getvalue()
