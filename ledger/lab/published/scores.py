"""Rows of published runs predicted: each plan is read, compiled and compared; what cannot be has its reason."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from ledger.books.bindings import bindings
from ledger.books.closed import Books, close, restocked
from ledger.books.compiler import reserved_bytes
from ledger.books.evaluate import exact
from ledger.books.memory.peak import peak_bytes
from ledger.books.repricing import step_time
from ledger.books.what_if.alternatives import structure
from ledger.lab.published.documents import Document, SkippedError, document
from ledger.lab.published.facts import GIB, Facts, UnreadableError, facts
from ledger.lab.published.sources import ALLOCATED, DRIVER
from ledger.lab.published.table import Row
from ledger.lab.replay.step import replayed
from ledger.model.schedule import roles
from ledger.spec.inputs import violations
from ledger.spec.library import Library
from ledger.spec.load import load_plan
from ledger.spec.plan import Plan
from ledger.spec.problems import Problem, SpecError

WAYS = ("save_gathered", "regather", "off")
PRETRAIN = "pretrain"
COUNTED = "A"  # the grade of a measurement that summaries are made of, in a table that grades them


@dataclass(frozen=True)
class Scored:
    """One row: its prediction beside its measurement in seconds and bytes, or the reason why there is none.

    `counts_time` and `counts_memory`: whether summaries are made of it; `uncounted` says why not, where there is an
    error of time all the same. `unpriced`: why no step is predicted. `assumed` is what the row does not say.
    """

    id: str
    source: str
    group: str
    skipped: str | None = None
    step: float | None = None
    measured_step: float | None = None
    memory: float | None = None
    measured_memory: float | None = None
    counts_time: bool = False
    counts_memory: bool = False
    uncounted: str = ""
    unpriced: str = ""
    fits: bool | None = None
    assumed: tuple[str, ...] = ()

    @property
    def time_error(self) -> float | None:
        """Predicted over measured seconds, minus one."""
        return _error(self.step, self.measured_step)

    @property
    def memory_error(self) -> float | None:
        """Predicted over measured bytes, minus one."""
        return _error(self.memory, self.measured_memory)


def _error(predicted: float | None, measured: float | None) -> float | None:
    return predicted / measured - 1 if predicted and measured else None


@dataclass(frozen=True)
class Shelf:
    """What rows share: the plan of the first row of a kind, and the books of the first of each structure."""

    plans: dict[str, Plan] = field(default_factory=dict)
    books: dict[tuple[object, ...], Books] = field(default_factory=dict)


def scored(rows: Iterable[Row], library: Library, overrides: tuple[str, ...] = ()) -> Iterator[Scored]:
    """Every row in its order; `overrides` change every plan alike."""
    shelf = Shelf()
    for row in rows:
        yield _scored(row, library, overrides, shelf)


def _scored(row: Row, library: Library, overrides: tuple[str, ...], shelf: Shelf) -> Scored:
    group = row.text("source_id") or row.text("source")
    blank = Scored(row.text("id"), row.text("source") or group, group)
    try:
        typed = facts(row)
        made = document(typed, library)
        plan, kind = planned(made, overrides, library, shelf)
        books, own = valued(plan, kind, shelf)
    except (SkippedError, UnreadableError) as error:
        return replace(blank, skipped=str(error))
    except SpecError as error:
        return replace(blank, skipped="; ".join(problem.message for problem in error.problems))
    if not own and typed.measured_peak_mem_gib is None:  # its peak is asked of the books
        books = tuple(restocked(plan, books))
    return _compared(blank, typed, made, plan, books)


def _compared(blank: Scored, row: Facts, made: Document, plan: Plan, books: Sequence[Books]) -> Scored:
    measured = measured_step(row)
    known = row.measured_peak_mem_gib is not None
    if known:
        memory, asked = published_memory(made, plan, books)
    else:
        memory = asked = max(reserved_bytes(plan, book) for book in books)
    return replace(
        blank,
        step=None if made.unpriced else step_time(plan, books),
        measured_step=measured,
        memory=float(memory),
        measured_memory=row.measured_peak_mem_gib * GIB if row.measured_peak_mem_gib else None,
        counts_time=bool(measured) and not made.unpriced and not uncounted(row),
        counts_memory=known and row.score_mem in (None, COUNTED),
        uncounted=uncounted(row) if measured and not made.unpriced else "",
        unpriced=made.unpriced,
        fits=asked <= plan.accelerator.memory,
        assumed=(*made.assumed, *filter(None, [made.unpriced])),
    )


def uncounted(row: Facts) -> str:
    """Why summaries of time leave a row out; empty where they do not."""
    if row.kind != PRETRAIN:
        return f"of kind `{row.kind}`"
    if row.score_time in (None, COUNTED):
        return ""
    return f"graded {row.score_time} (`score_time`)" if row.score_time else "without a grade (`score_time`)"


def otherwise(row: Row, library: Library) -> dict[str, float]:
    """Memory errors under what the row leaves open: each other way of sequence parallelism, where none is stated."""
    try:
        typed = facts(row)
        made = document(typed, library)
        plan, _ = planned(made, (), library, Shelf())
    except (SkippedError, UnreadableError, SpecError):
        return {}
    stated = (typed.sequence_parallel, made.software.sequence_parallel) != (None, None)
    if plan.parallelism.tensor == 1 or stated or not typed.measured_peak_mem_gib:
        return {}
    found = {}
    for way in WAYS:
        other = replace(plan, parallelism=replace(plan.parallelism, sequence=way))
        if way != plan.parallelism.sequence and not violations(other):
            memory, _ = published_memory(made, other, close(other, roles(other)))
            found[f"sequence: {way}"] = memory / (typed.measured_peak_mem_gib * GIB) - 1
    return found


def measured_step(row: Facts) -> float | None:
    """Seconds a step: as measured, else from tokens per second, else as derived by whoever made the table."""
    if row.measured_step_s:
        return row.measured_step_s
    if row.measured_tokens_per_s_per_gpu and row.global_batch and row.seq_len and row.n_gpus:
        return row.global_batch * row.seq_len / (row.measured_tokens_per_s_per_gpu * row.n_gpus)
    return row.derived_step_s


def published_memory(made: Document, plan: Plan, books: Sequence[Books]) -> tuple[int, int]:
    """Bytes of the quantity and the rank that the publication prints, and the most that was asked of that device."""
    ranks = books[:1] if made.software.rank == "first" else books
    if made.software.memory == ALLOCATED:
        worst = max(map(peak_bytes, ranks))
        return worst, worst
    outside = plan.stack.context if made.software.memory == DRIVER else 0
    found = max((replayed(plan, book) for book in ranks), key=lambda one: one.reserved)
    return found.reserved + outside, found.asked + plan.stack.context


# --- plans --------------------------------------------------------------------------------------


def plan_text(row: Row, library: Library) -> str:
    """The plan of a row as a spec, with its assumptions; raises SpecError where there is none."""
    try:
        made = document(facts(row), library)
    except (SkippedError, UnreadableError) as error:
        raise SpecError([Problem(row.where, f"no plan can be made of this row: {error}")]) from error
    return "".join(f"# assumed: {assumed}\n" for assumed in made.assumed) + text(made)


def text(made: Document) -> str:
    """The plan as a spec that can be saved and explained."""
    return yaml.safe_dump(dict(made.plan), sort_keys=False, allow_unicode=True, width=120)


def planned(made: Document, overrides: tuple[str, ...], library: Library, shelf: Shelf) -> tuple[Plan, str]:
    """The plan of a row, read like any spec, and its kind.

    Rows of one kind, which differ in sizes of the layout and the batch alone, are read once; the rules hold for each.
    """
    layout = {name: value for name, value in made.plan["parallelism"].items() if name not in SHAPES}
    shape = [part for name, part in made.plan["parallelism"].items() if name in SHAPES]
    parts = {name: part for name, part in made.plan.items() if name not in SIZED}
    kind = json.dumps([parts, shape], sort_keys=True)
    if overrides or kind not in shelf.plans:
        shelf.plans[kind] = load_plan(text(made), overrides, library=library)
        return shelf.plans[kind], kind
    read = shelf.plans[kind]
    plan = replace(
        read,
        title=made.plan["plan"],
        cluster=replace(read.cluster, devices=made.plan["cluster"]["devices"]),
        parallelism=replace(read.parallelism, **layout),
        run=replace(read.run, **made.plan["run"]),
    )
    problems = violations(plan)
    if problems:
        raise SpecError(problems)
    return plan, kind


def valued(plan: Plan, kind: str, shelf: Shelf) -> tuple[tuple[Books, ...], bool]:
    """The books of every role, with formulas of the first plan of the same kind and structure, under this plan's sizes.

    Which step of a layer is the fullest was chosen for that first plan, so peaks of others are too low. Also whether
    this plan is the first for every role.
    """
    found, own = [], True
    mesh = plan.parallelism
    split = tuple(getattr(mesh, axis) > 1 for axis in ("pipeline", "interleave", "expert"))
    for role in roles(plan):
        key = (kind, *split, role.layers, role.sends > 0, role.returns > 0, *structure(plan, role))
        if key not in shelf.books:
            (shelf.books[key],) = close(plan, [role])
        else:
            own = False
        found.append(replace(shelf.books[key], role=role, value=exact(bindings(plan, role))))
    return tuple(found), own


SIZED = ("plan", "cluster", "parallelism", "run")  # of a plan
SHAPES = ("stages", "ends")  # of its layout


def summary(errors: Iterable[float]) -> dict[str, Any]:
    """Number, mean absolute, median absolute, mean signed and worst of several errors; None where there are none."""
    found = sorted(errors, key=abs)
    if not found:
        return {"rows": 0, "mape": None, "median": None, "bias": None, "worst": None}
    middle = [abs(found[(len(found) - 1) // 2]), abs(found[len(found) // 2])]
    return {
        "rows": len(found),
        "mape": sum(map(abs, found)) / len(found),
        "median": sum(middle) / 2,
        "bias": sum(found) / len(found),
        "worst": found[-1],
    }
