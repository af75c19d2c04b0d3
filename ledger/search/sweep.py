"""A sweep from its question to its answer: the space is split into tasks, these are run, and their results added."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ledger.books.compiler import compile_plan
from ledger.books.what_if.conditions import fault
from ledger.search.aims import EACH, FRONT, shown_totals
from ledger.search.aims import SHOWN as SERVED
from ledger.search.axes import Axes, Base, LeftOut, bases, left_out_words, read_axes, require_keys, with_totals
from ledger.search.batches import FULL, PricedLayouts, text_of
from ledger.search.columns import columns_of
from ledger.search.density import PER_DEVICE, Layers, layers_of
from ledger.search.found import Rows, SearchResult, add, nothing
from ledger.search.outputs import Output, form_of
from ledger.search.pricing import pieces
from ledger.search.question import MEMORY, RATE, TIME, Limit, Question, kept_free, kept_free_words, read_question
from ledger.search.space import keys_of
from ledger.search.tasks import RowFiles, Task, TaskQuestion
from ledger.search.workers import Run
from ledger.spec.device_parts import cluster_warnings
from ledger.spec.load import load_plan
from ledger.spec.overrides import assignments
from ledger.spec.problems import Location, Problem, SpecError
from ledger.spec.version import program_digest

if TYPE_CHECKING:
    from ledger.books.results import Number
    from ledger.spec.plan import Plan

Progress = Callable[[int, int, int], None]  # tasks done, of so many, and legal layouts so far


@dataclass(frozen=True)
class SweepRequest:
    """A sweep as it is asked for, in the texts of the command line."""

    spec: str
    overrides: tuple[str, ...] = ()
    over: tuple[str, ...] = ()
    objective: str = ""  # the usual one
    largest: bool = False
    conditions: tuple[str, ...] = ()
    front: str = ""  # the usual one
    top: int = 10
    headroom: str = ""
    name: str = ""  # of the spec as it was typed, where `spec` is its text


@dataclass(frozen=True)
class Search:
    """A prepared sweep: its plan with its totals, the question, the bases, and a task for each piece of each."""

    asked: SweepRequest
    plan: Plan
    plan_totals: Mapping[str, Number]
    question: Question
    axes: Axes
    bases: tuple[Base, ...]
    tasks: tuple[Task, ...]
    base_of: tuple[int, ...]  # of each task
    left_out: tuple[LeftOut, ...] = ()

    @property
    def notes(self) -> Iterator[str]:
        """Notes on the answer: plans that are left out, and an objective other than the usual one."""
        if self.left_out:
            yield left_out_words(self.left_out)
        if not self.asked.objective and self.question.objective == RATE:
            yield f"steps have different numbers of tokens, so the best has most {RATE}"

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings of plans that run on another device than their cluster describes, each device once."""
        messages = (warning.message for base in self.bases for warning in cluster_warnings(base.plan.warnings))
        return tuple(dict.fromkeys(messages))

    @property
    def space(self) -> dict[str, tuple[Any, ...]]:
        """The values of every key, over all bases, each once."""
        values_by_key: dict[str, dict[str, Any]] = {key: _by_text(values) for key, values in self.axes.named.items()}
        for base in self.bases:
            for key in base.space.keys:
                values_by_key[key] = {**values_by_key.get(key, {}), **_by_text(base.space.values[key])}
        return {key: tuple(values.values()) for key, values in values_by_key.items()}

    @property
    def combinations(self) -> int:
        """Combinations of values, legal or not."""
        return sum(base.space.combinations for base in self.bases)

    def limits(self, base: Base) -> tuple[Limit, ...]:
        """The limits on the layouts of a base."""
        return limits_of(self.question, base.plan, self.asked.headroom)

    def changes(self, rows: Rows, place: int) -> dict[str, Any]:
        """All changes that make the spec the plan of a row, as `--set` takes them."""
        base = self.bases[self.base_of[int(rows.tasks[place])]]
        choices = {key: rows.choices[place : place + 1, column] for column, key in enumerate(base.space.keys)}
        return {**base.changes, **PricedLayouts(base.space, choices, {}).layout(0)}


@dataclass(frozen=True)
class SweepResult:
    """The result of a sweep, and its seconds; not `complete` where it was interrupted."""

    search: Search
    result: SearchResult
    seconds: float
    layers: Layers | None = None
    notes: tuple[str, ...] = field(default_factory=tuple)

    @property
    def complete(self) -> bool:
        """Whether every layout of the space was looked at."""
        return self.result.complete


def limits_of(question: Question, plan: Plan, headroom: str) -> tuple[Limit, ...]:
    """The limits on the layouts of a plan."""
    return question.limits(plan, kept_free(plan, headroom), kept_free_words(plan, headroom))


def prepare(asked: SweepRequest, note: Callable[[int], None] = lambda _: None) -> Search:
    """The sweep with everything read and checked that can be before layouts are priced; raises SpecError."""
    axes = read_axes(asked.over)
    plan = load_plan(asked.spec, asked.overrides)
    if plan.model.bare:
        where = plan.origins["model"].where
        raise SpecError([Problem(where, "a bare count of parameters has no layouts", "name a model with layers")])
    require_keys(axes, plan)
    totals = compile_plan(plan).totals
    question = _question(asked, plan, totals)
    limits_of(question, plan, asked.headroom)
    usable, left_out = with_totals(bases(asked.spec, asked.overrides, axes, note), question.keys)
    if not usable:
        raise _without_totals(asked, left_out)
    if plan.serve is not None:
        question = replace(question, listed_totals=shown_totals([base.plan for base in usable]))
    elif not asked.objective and len({tokens_of(base.plan) for base in usable}) > 1:
        question = replace(question, objective=RATE, largest=True)
    tasks: list[Task] = []
    base_of: list[int] = []
    for number, base in enumerate(usable):
        limits = limits_of(question, base.plan, asked.headroom)
        for piece in pieces(base.space):
            tasks.append(Task(len(tasks), piece, base.space, base.fixed, limits, axes.data))
            base_of.append(number)
    return Search(asked, plan, totals, question, axes, usable, tuple(tasks), tuple(base_of), left_out)


def _question(asked: SweepRequest, plan: Plan, totals: Mapping[str, Number]) -> Question:
    """The question as it is asked, completed with the usual one of a plan that trains or serves."""
    usual_objective, is_most, front = (TIME, False, (TIME, MEMORY)) if plan.serve is None else (EACH, True, FRONT)
    objective = (asked.objective, asked.largest) if asked.objective else (usual_objective, is_most)
    question = read_question(plan, totals, objective, asked.conditions, asked.front or ",".join(front), asked.top)
    return question if plan.serve is None else replace(question, listed_totals=SERVED)


def tokens_of(plan: Plan) -> int:
    """The tokens of a step."""
    return plan.run.global_batch * plan.run.seq_len


def _without_totals(asked: SweepRequest, left_out: Sequence[LeftOut]) -> SpecError:
    """The error that no plan has a total that is asked for, at its place in the command line."""
    first = left_out[0]
    typed: Mapping[str, tuple[str, ...]] = {
        f"--{'maximize' if asked.largest else 'minimize'} ": (asked.objective,),
        "--front ": (asked.front,),
        "--subject-to ": asked.conditions,
    }
    flag, text = next((flag, text) for flag, texts in typed.items() for text in texts if first.key in text)
    return fault(flag + text, len(flag) + text.index(first.key) + 1, first.why.message, first.why.help)


def sweep(
    search: Search, run: Run, out: Path | None = None, *, dense: bool = False, progress: Progress = lambda *_: None
) -> SweepResult:
    """The results of all tasks, added in whatever order they are done; interrupted, the sum so far."""
    begin = time.perf_counter()
    layers = None
    if dense:
        most_memory = max(float(base.plan.accelerator.memory) for base in search.bases)
        layers = layers_of(most_memory / PER_DEVICE, search.question.listed_totals[0], search.space)
    counted = search.axes.named
    parts = parts_of(search, out, layers) if out else None
    job = TaskQuestion(search.question, counted, layers, parts)
    output = Output(out, parts) if out and parts else None
    total = nothing(search.question)
    number = 0
    try:
        for task, result in _results(search, job, run):
            number += 1
            total = add(total, result, search.question)
            if not result.complete:
                break
            if output:
                output.take(task)
            progress(number, len(search.tasks), total.legal)
        if output and total.complete:
            output.finish(whole=bool(total.legal))
            output = None
    except KeyboardInterrupt:
        total = replace(total, complete=False)
    finally:
        if output:
            output.abandon()
    seconds = time.perf_counter() - begin
    if total.complete and not total.legal:
        raise no_layout_error(search)
    return SweepResult(search, total, seconds, layers, (*search.notes, *_unused(search, total)))


def _results(search: Search, job: TaskQuestion, run: Run) -> Any:
    """Each task with its result, which is read from its file where the task was done before."""
    not_done = []
    for task in search.tasks:
        result = job.parts.done(task) if job.parts else None
        if result is None:
            not_done.append(task)
        else:
            yield task, result
    if not_done:
        yield from run(not_done, job)


def _by_text(values: Sequence[Any]) -> dict[str, Any]:
    return {text_of(value): value for value in values}


def parts_of(search: Search, out: Path, layers: Layers | None) -> RowFiles:
    """The folder of parts beside a file, whose name follows from all that the parts depend on."""
    others = tuple(search.axes.others)
    columns = columns_of(search.space, others, keys_of(search.plan), search.question.keys)
    form = form_of(out)
    identity = [
        program_digest(),
        form,
        repr(search.question),
        repr(columns.keys),
        repr(layers),
        str(FULL),
        repr(search.axes),
    ]
    for base in search.bases:
        identity += [base.plan.digest, text_of(dict(base.changes)), text_of(base.space.values)]
    identity += [f"{task.number} {task.piece.name} {task.limits} {task.data}" for task in search.tasks]
    name = hashlib.sha256("\n".join(identity).encode()).hexdigest()[:16]
    return RowFiles(str((out.parent / f"{out.name}.parts-{name}").absolute()), form, columns)


def _unused(search: Search, result: SearchResult) -> list[str]:
    """Values that were named and that no legal layout has, but for those of plans that were left out."""
    notes = []
    values_left_out = {(key, text_of(value)) for lack in search.left_out for key, value in lack.base.fixed.items()}
    for key, values in search.axes.named.items():
        counts = zip(values, result.used.get(key, np.zeros(0)), strict=False)
        unused = [value for value, count in counts if not count and (key, text_of(value)) not in values_left_out]
        if unused and result.complete:
            notes.append(f"no legal layout has {key} = {', '.join(map(text_of, unused))}")
    return notes


def no_layout_error(search: Search) -> SpecError:
    """Why a space has no legal layout: the rule that most of some of its layouts break."""
    from ledger.search.axes import common_reason

    def without(base: Base, key: str) -> Plan | None:
        fixed = {other_key: value for other_key, value in base.fixed.items() if other_key != key}
        try:
            return load_plan(search.asked.spec, (*search.asked.overrides, *assignments(fixed)), rules=())
        except SpecError:
            return None

    reason = common_reason(search.bases, search.axes, without)
    named = {text.partition("=")[0].strip(): f"--over {text}" for text in search.asked.over}
    where = Location(search.asked.name or search.asked.spec)
    if named:
        where = Location(named.get(reason.key) or next(iter(named.values())), 1, len("--over ") + 1)
    message = f"the space has no legal layout among {search.combinations} combinations"
    return SpecError([Problem(where, message, reason.text)], {text: text for text in named.values()})
