"""Measured runs predicted: rows of a table and records of evidence files become rows of one kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ledger.books import time
from ledger.books.compiled_roles import CompiledRole, compile_roles, with_memory_of
from ledger.books.compiler import reserved_bytes
from ledger.books.memory.outside import allocated, workspaces_of
from ledger.books.memory.peak import peak_bytes, peak_of
from ledger.books.price_changes import step_calls, step_time
from ledger.books.time import MEMORY, evidence_on_stack
from ledger.evidence.documents import Evidence
from ledger.evidence.run_records import PEAK, RESERVED, STEP_TIME, MeasuredRun
from ledger.evidence.tables import TableRow
from ledger.lab.replay.step import replay_step
from ledger.lab.score.facts import Facts, UnreadableError, facts
from ledger.lab.score.plan_cache import PlanCache
from ledger.lab.score.row_layout import SEQUENCE
from ledger.lab.score.row_plans import RowPlan, document_text, row_plan
from ledger.lab.score.rows import GIB, ScoreRow
from ledger.lab.score.served import is_served
from ledger.lab.score.serving_rows import predict_served, served_plan
from ledger.lab.score.spelled import SkippedError
from ledger.model.schedule import roles
from ledger.spec.expand import COMMAND_LINE, ResolvedPart, of_changed_model, resolve
from ledger.spec.inputs import violations
from ledger.spec.library import FOLDERS, Library, default_library
from ledger.spec.load import load_plan
from ledger.spec.overrides import apply, read_overrides
from ledger.spec.plan import Plan
from ledger.spec.problems import Problem, SpecError
from ledger.spec.publication import ALLOCATED, DRIVER
from ledger.spec.reader import Node, read
from ledger.spec.sources import from_file

MODEL = "model"  # the part that is another where a setting changes it
SEQUENCE_SPLITS = ("save_gathered", "regather", "off")
SAME_MODEL = 0.02  # within which a published number of parameters is that of the compiled model
COUNTED_GRADE = "A"  # the grade of a measurement that summaries are made of, in a table that grades them


# --- records of evidence files ---


def predict_runs(evidence: Evidence, overrides: tuple[str, ...] = ()) -> Iterator[ScoreRow]:
    """The whole runs of a file, then its plans that ran or did not; `overrides` change every plan alike.

    Raises SpecError for a run whose plan cannot be read.
    """
    for run in evidence.runs:
        plan, books = _run_books(run, overrides)
        yield _add_step_time(
            replace(
                _run_row(run, evidence, plan),
                memory=float(max(map(peak_bytes, books))),
                measured_memory=run.measured.get(PEAK),
                needed=max(reserved_bytes(plan, book) for book in books),
                counts_memory=PEAK in run.measured,
            ),
            plan,
            books,
        )
    for run in evidence.fits:
        plan, books = _run_books(run, overrides)
        replays = [replay_step(plan, book) for book in books]
        yield replace(
            _run_row(run, evidence, plan),
            memory=float(replays[0].reserved),
            measured_memory=run.measured.get(RESERVED),
            needed=max(replay.asked for replay in replays) + plan.stack.context,
            counts_memory=RESERVED in run.measured,
        )


def _run_books(run: MeasuredRun, overrides: tuple[str, ...]) -> tuple[Plan, tuple[CompiledRole, ...]]:
    plan = load_plan(run.plan, (*run.settings, *overrides))
    return plan, compile_roles(plan, roles(plan))


def run_plan_text(run: MeasuredRun) -> str:
    """The plan of a run as a spec, its settings put into the plan that it shares with others; raises SpecError."""
    text = run.plan if "\n" in run.plan else from_file(Path(run.plan)).text
    return document_text(with_settings(read(text, run.id), run.settings).plain())


def with_settings(node: Node, settings: Sequence[str]) -> Node:
    """A plan's document with settings put into it; a part that is named becomes the base of what is set below it."""
    model: ResolvedPart | None = None
    for override in read_overrides(settings):
        part, *inner = override.steps
        named = node.fields.get(part)
        if inner and part in FOLDERS and named is not None and isinstance(named.value, str):
            written = _write_out_part(named, part)
            model = written if part == MODEL else model
            node = node.within({part: written.node}, {})
        node = apply(node, override)
    if model is None:
        return node
    return node.within({MODEL: of_changed_model(model, node.fields[MODEL]).node}, {})


def _write_out_part(named: Node, kind: str) -> ResolvedPart:
    """A part that is named, with its name as its base; a model as it stands in the library, for paths into its list."""
    if kind != MODEL:
        return ResolvedPart(Node({"base": named}, named.where), str(named.value), {})
    return resolve(named, kind, COMMAND_LINE, default_library())


def _run_row(run: MeasuredRun, evidence: Evidence, plan: Plan) -> ScoreRow:
    """The measurements of a run as a row; its source is its file."""
    step = run.measured.get(STEP_TIME)
    return ScoreRow(
        run.id,
        evidence.title,
        evidence.path.stem,
        measured_step=step,
        capacity=plan.accelerator.memory,
        seen_fits=run.ran,
        counts_time=step is not None,
    )


def _add_step_time(row: ScoreRow, plan: Plan, books: Sequence[CompiledRole]) -> ScoreRow:
    """The row with seconds of a step, and their band."""
    table = step_calls(books)
    step = time.step_time(table.times(plan, table.rows(plan)), plan)
    return replace(row, step=step.estimate, step_low=step.low, step_high=step.high)


# --- rows of a table ---


def predict_rows(rows: Iterable[TableRow], library: Library, overrides: tuple[str, ...] = ()) -> Iterator[ScoreRow]:
    """Every row in its order; `overrides` change every plan alike."""
    cache = PlanCache(library, overrides)
    for row in rows:
        if is_served(row):
            yield from predict_served([row], library, overrides)
        else:
            yield _predict_row(row, cache)


def _predict_row(row: TableRow, cache: PlanCache) -> ScoreRow:
    group = row.text("source_id") or row.text("source")
    blank = ScoreRow(row.text("id"), row.text("source") or group, group)
    try:
        typed = facts(row)
        made = row_plan(typed, cache.library)
        plan, kind = cache.plan(made)
        _refuse_another_model(typed, cache.parameters(plan, kind))
        _refuse_more_than_there_is(typed, plan)
        books, is_first = cache.books_of(plan, kind)
    except (SkippedError, UnreadableError) as error:
        return replace(blank, skipped=str(error))
    except SpecError as error:
        return replace(blank, skipped="; ".join(problem.message for problem in error.problems))
    if not is_first and typed.measured_peak_mem_gib is None:  # its peak is asked of the books
        books = tuple(with_memory_of(plan, books))
    return _compare_row(blank, typed, made, plan, books)


def _refuse_another_model(row: Facts, count: int) -> None:
    """Raises SkippedError where the published number of parameters is not about that of the plan's model."""
    if row.n_params is not None and abs(count / row.n_params - 1) > SAME_MODEL:
        raise SkippedError(
            f"the row has {row.n_params:,.0f} parameters (`n_params`), the model of its columns {count:,.0f}: what "
            "they leave open (biases, positions, tied embeddings, a padded vocabulary) can be paths of the plan"
        )


def _refuse_more_than_there_is(row: Facts, plan: Plan) -> None:
    """Raises SkippedError where a peak is larger than the memory of its device."""
    device, measured = plan.accelerator, (row.measured_peak_mem_gib or 0.0) * GIB
    if measured > device.memory:
        contradiction = (
            f"`measured_peak_mem_gib` = {measured / GIB:g}, and {device.name} has {device.memory / GIB:.1f} GiB"
        )
        raise SkippedError(f"contradicts itself: {contradiction}")


def _compare_row(blank: ScoreRow, row: Facts, made: RowPlan, plan: Plan, books: Sequence[CompiledRole]) -> ScoreRow:
    measured = measured_step(row)
    has_peak = row.measured_peak_mem_gib is not None
    if has_peak:
        memory, needed = published_memory(made, plan, books)
    else:
        memory = needed = max(reserved_bytes(plan, book) for book in books)
    compared = replace(
        blank,
        measured_step=measured,
        memory=float(memory),
        memory_ends=MEMORY[evidence_on_stack(plan)],
        measured_memory=row.measured_peak_mem_gib * GIB if row.measured_peak_mem_gib else None,
        needed=needed,
        capacity=plan.accelerator.memory,
        seen_fits=True if has_peak or measured else None,
        counts_time=bool(measured) and not made.unpriced and not uncounted(row),
        counts_memory=has_peak and row.score_mem in (None, COUNTED_GRADE) and not made.software.unread,
        convention=made.software.memory,
        uncounted=uncounted(row) if measured and not made.unpriced else "",
        unpriced=made.unpriced,
        assumed=(*made.assumed, *filter(None, [made.unpriced, made.software.unread])),
        stack=made.software.stack.name,
        device=plan.accelerator.name,
    )
    return compared if made.unpriced else _add_step_time(compared, plan, books)


def uncounted(row: Facts) -> str:
    """Why summaries of time leave a row out; empty where they do not."""
    if row.score_time in (None, COUNTED_GRADE):
        return ""
    return f"graded {row.score_time} (`score_time`)" if row.score_time else "without a grade (`score_time`)"


def measured_step(row: Facts) -> float | None:
    """Seconds a step: as measured, else from tokens per second, else as derived by whoever made the table."""
    if row.measured_step_s:
        return row.measured_step_s
    if row.measured_tokens_per_s_per_gpu and row.global_batch and row.seq_len and row.n_gpus:
        return row.global_batch * row.seq_len / (row.measured_tokens_per_s_per_gpu * row.n_gpus)
    return row.derived_step_s


def published_memory(made: RowPlan, plan: Plan, books: Sequence[CompiledRole]) -> tuple[int, int]:
    """Bytes of the quantity and the rank that the publication prints, and the most that was asked of that device."""
    ranks = {"first": books[:1], "last": books[-1:]}.get(made.software.rank, books)
    if made.software.memory == ALLOCATED:
        worst = int(max(allocated(plan, peak_of(book), workspaces_of(book)) for book in ranks))
        return worst, worst
    outside = plan.stack.context if made.software.memory == DRIVER else 0
    fullest = max((replay_step(plan, book) for book in ranks), key=lambda replay: replay.reserved)
    return fullest.reserved + outside, fullest.asked + plan.stack.context


def memory_errors_otherwise(row: TableRow, library: Library) -> dict[str, float]:
    """Memory errors under what the row leaves open: each other way of sequence parallelism, where none is stated."""
    if is_served(row):
        return {}
    try:
        typed = facts(row)
        made = row_plan(typed, library)
        plan, _ = PlanCache(library).plan(made)
    except (SkippedError, UnreadableError, SpecError):
        return {}
    stated = typed.sequence_parallel is not None or SEQUENCE in made.software.plan
    if plan.parallelism.tensor == 1 or stated or not typed.measured_peak_mem_gib:
        return {}
    errors = {}
    for sequence in SEQUENCE_SPLITS:
        changed = replace(plan, parallelism=replace(plan.parallelism, sequence=sequence))
        if sequence != plan.parallelism.sequence and not violations(changed):
            memory, _ = published_memory(made, changed, compile_roles(changed, roles(changed)))
            errors[f"sequence: {sequence}"] = memory / (typed.measured_peak_mem_gib * GIB) - 1
    return errors


def row_plan_text(row: TableRow, library: Library) -> str:
    """The plan of a row as a spec, with assumptions and what others would do; raises SpecError where there is none."""
    try:
        made = served_plan(row, library) if is_served(row) else row_plan(facts(row), library)
    except (SkippedError, UnreadableError) as error:
        raise SpecError([Problem(row.place(), f"no plan can be made of this row: {error}")]) from error
    text = (
        document_text(with_settings(read(made.text, row.file), made.settings).plain()) if made.settings else made.text
    )
    notes = [f"assumed: {assumed}" for assumed in made.assumed]
    notes += [] if made.unpriced or is_served(row) else lines(step_changes(text, made.assumed))
    return "".join(f"# {line}\n" for line in notes) + text


# --- a row's step under other assumptions ---

# How an assumption begins, the path that it fills, and what else may stand there.
OTHERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "recompute not stated": ("recompute", ("full", "selective")),
    "sequence parallelism not stated": ("parallelism.sequence", ("off",)),
    "data_parallel_kind not stated": ("parallelism.zero", ("0", "1", "3")),
    "interleave not stated": ("parallelism.interleave", ("2", "4")),
    "micro_batch not stated": ("run.micro_batch", ("2", "4")),
    "dtype not stated": ("precision", ("fp32",)),
}


@dataclass(frozen=True)
class StepChange:
    """An assumption, another value for what it fills, and the step under that over the step as assumed."""

    assumed: str
    setting: str
    ratio: float


def step_changes(text: str, assumed: Sequence[str]) -> tuple[StepChange, ...]:
    """Every other value that makes a legal plan of a row's text, what moves the step most first."""
    stated = _step_seconds(load_plan(text))
    changes = (
        StepChange(words, setting, step / stated)
        for words in assumed
        for setting in _other_settings(words)
        if (step := _changed_step_seconds(text, setting)) and abs(step / stated - 1) > 0
    )
    return tuple(sorted(changes, key=lambda change: -abs(change.ratio - 1)))


def lines(changes: Sequence[StepChange]) -> Iterator[str]:
    """Sentences, the first of which is about what moves the step most."""
    for change in changes:
        yield f'`{change.setting}` instead of "{change.assumed}" changes the step by {change.ratio - 1:+.1%}'


def _other_settings(words: str) -> Iterator[str]:
    for beginning, (path, values) in OTHERS.items():
        if words.startswith(beginning):
            yield from (f"{path}={value}" for value in values)


def _changed_step_seconds(text: str, setting: str) -> float:
    """Seconds under a setting; 0 where that is no legal plan."""
    try:
        return _step_seconds(load_plan(text, [setting]))
    except SpecError:
        return 0.0


def _step_seconds(plan: Plan) -> float:
    return float(step_time(plan, compile_roles(plan, roles(plan))))
