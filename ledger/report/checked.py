"""Whether a plan is well formed, meets its expectations, and fits."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from ledger.numbers import THIN, with_unit
from ledger.report.problem_formats import FAILED, INVALID, PASSED, JudgedSpec, Judgement
from ledger.spec.problems import FLAG, Location, Problem, SpecError
from ledger.units import unit_of

if TYPE_CHECKING:
    from ledger.books.compiled import Compiled
    from ledger.report.recommendations import Recommendations
    from ledger.spec.plan import Plan

    Search = Callable[[Compiled], Recommendations | None]
    from ledger.books.results import Check


EXPECTED = "expect."  # begins the names of lines about what is expected
DATA = "data"
FITS, HEADROOM = "fits", "headroom"  # the line about memory; what it is about where a plan fits


@dataclass(frozen=True)
class Decision:
    """What decides a line of the checklist: the inputs at `paths`, of which the first that a spec states is its place.

    `cause`: lines of one cause are one problem; where none is named, the input is the cause. `help`: what to write
    instead. `said_by`: the rule on specs that says the same of a plan.
    """

    cause: str
    paths: tuple[str, ...]
    help: str = ""
    said_by: str = ""


LESS_MEMORY = (
    "a smaller `run.micro_batch`, `recompute`, or more devices in `parallelism`: `ledger sweep` tries them all"
)
WIDER = "keep it in bf16 or fp32; `precision: bf16-mixed` keeps an fp32 master copy"
WIDER_COPY = (
    "an fp32 master copy (`precision: bf16-mixed`) or fp32 weights (`bf16-autocast`); "
    "`optimizer: adamw-kahan` is made for it, and `optimizer.rounding=stochastic` says that another one is"
)
AVERAGES = (
    *(f"optimizer.states.{state}.dtype" for state in ("second_moment", "first_moment", "momentum", "sum")),
    "precision.states",
    "precision",
)
WIDER_STATES = "states in fp32: `precision: {base: ..., states: fp32}`, or a `decay` that the format holds"
NAPKIN = (
    "`assumptions: {mfu: ...}` is what the napkin goes by; `ledger explain SPEC time.run` has what the run is made of"
)
# line of the checklist -> what decides it; of lines of one cause, the place is that of the last one
DECISIONS: Mapping[str, Decision] = {
    FITS: Decision("memory", ("run.micro_batch", "run", "accelerator"), LESS_MEMORY),
    "state": Decision("memory", ("parallelism.zero", "parallelism", "accelerator"), LESS_MEMORY),
    "activations": Decision("memory", ("run.micro_batch", "run"), LESS_MEMORY),
    HEADROOM: Decision(HEADROOM, ("assumptions.headroom", "run.micro_batch", "run"), LESS_MEMORY),
    "run": Decision("napkin", ("assumptions.mfu", "run.tokens"), NAPKIN),
    "mfu": Decision("napkin", ("assumptions.mfu", "run.tokens", "run.global_batch"), NAPKIN),
    "intensity": Decision("intensity", ("run.micro_batch", "run"), "larger matmuls: a larger `run.micro_batch`"),
    "evidence": Decision("evidence", ("accelerator",), "measure the device: `ledger bench`, `ledger calibrate`"),
    "operations": Decision(
        "operations",
        ("operations.checkpoint_interval", "operations.restart_time", "operations"),
        "a shorter `operations.checkpoint_interval` (`best` solves it), a faster restart, or sounder devices",
    ),
    "host": Decision(
        "host",
        ("parallelism.offload", "cluster.host", "cluster"),
        "`cluster: {host: {memory: 2 TB, bandwidth: 614.4 GB/s, source: ...}}` states one; keep less there",
        said_by="host_is_stated",
    ),
    "saving": Decision(
        "saving",
        ("operations.checkpoint_interval", "operations.storage_bandwidth", "operations"),
        "a longer `operations.checkpoint_interval` (`best` leaves time to write), or faster storage",
    ),
    "nvme": Decision(
        "nvme", ("parallelism.offload", "cluster.host", "cluster"), "larger drives, or fewer devices of a node"
    ),
    "paged": Decision("paged", ("optimizer", "run.micro_batch", "run"), LESS_MEMORY),
    **{
        f"precision.{role}": Decision("", (f"precision.{role}", "precision"), WIDER)
        for role in ("gradients", "states", "weights")
    },
    "precision.updates": Decision("updates", ("precision.master", "precision.weights", "precision"), WIDER_COPY),
    "precision.averages": Decision("averages", AVERAGES, WIDER_STATES),
}


STORED = Decision(DATA, ("data.bandwidth", "data"), "faster storage: `data.bandwidth`")
PREPARED = Decision(DATA, ("data.workers", "data.rate", "data"), "more `data.workers`, or a faster `data.rate`")
LINKED = Decision(DATA, ("accelerator.host_link", "accelerator"), "a faster link to the host: `accelerator.host_link`")
AHEAD = "batches ahead of their step: `data: {prefetch: 2}`"


def data_decision(plan: Plan) -> Decision:
    """What decides how long a step waits for data: the slowest of storage, workers and link, or that nothing is ahead.

    Where nothing is ahead, reading ahead is the first that helps.
    """
    from ledger.model.batch import LINK, STORAGE, WORKERS, data_seconds

    seconds = data_seconds(plan)
    slowest = max(seconds, key=lambda part: seconds[part], default=WORKERS)
    decision = {STORAGE: STORED, WORKERS: PREPARED, LINK: LINKED}[slowest]
    if plan.data.prefetch:
        return decision
    return replace(decision, paths=("data.prefetch", *decision.paths), help=f"{AHEAD}; or {decision.help}")


LESS_SERVED = (
    "fewer sequences in flight, narrower `precision.weights` or `precision.cache`, or more devices in `parallelism`: "
    "`ledger solve SPEC --for serve.concurrency` has the most that fit"
)
FASTER = "more replicas (`cluster.devices`, `parallelism.data`), or fewer requests"
# Lines of a plan that serves which other inputs decide.
SERVED_DECISIONS: Mapping[str, Decision] = {
    FITS: Decision("memory", ("serve.concurrency", "serve"), LESS_SERVED),
    "state": Decision("memory", ("parallelism", "accelerator"), LESS_SERVED),
    "concurrency": Decision("memory", ("serve.concurrency", "serve"), LESS_SERVED),
    HEADROOM: Decision(HEADROOM, ("assumptions.headroom", "serve.concurrency", "serve"), LESS_SERVED),
    "arrivals": Decision("arrivals", ("serve.arrival_rate", "serve"), FASTER),
}


def _problems(compiled: Compiled, spec: str, status: str, said: Iterable[str] = ()) -> Iterator[Problem]:
    """A problem for each cause of the lines that have this status, but those that the rules `said` already."""
    decisions = {**DECISIONS, **SERVED_DECISIONS} if compiled.plan.serve else DECISIONS
    causes: dict[str, list[tuple[Check, Decision]]] = {}
    for check in compiled.verdict.checks:
        if check.status != status:
            continue
        if check.name == DATA:
            decision = data_decision(compiled.plan)
        else:
            decision = decisions.get(line_name(check), Decision(check.name, ("plan",)))
        if not (decision.said_by and decision.said_by in said):
            cause = decision.cause or str(place_of(compiled.plan, decision.paths, spec))
            causes.setdefault(cause, []).append((check, decision))
    for lines in causes.values():
        yield _problem_of_cause(compiled, spec, lines)


def line_name(check: Check) -> str:
    """The name of a line; a plan that fits and is warned of its memory misses its headroom."""
    return HEADROOM if (check.name, check.status) == (FITS, "warn") else check.name


def _problem_of_cause(compiled: Compiled, spec: str, lines: list[tuple[Check, Decision]]) -> Problem:
    """Lines of one cause as one problem: the first in full, the others by their titles."""
    from ledger.books.verdict import shortfall

    check, decision = lines[0]
    short = shortfall(compiled.plan, compiled.totals) if line_name(check) == HEADROOM else ""
    parts = [short] if short else [f"{check.title}: {check.figure}", check.detail]
    parts += [f"also: {', '.join(further.title for further, _ in lines[1:])}"] if lines[1:] else []
    message = "; ".join(filter(None, parts)).replace(THIN, " ")
    if check.name.startswith(EXPECTED):
        key = check.name.removeprefix(EXPECTED)
        where = expectation_place(compiled.plan, key) or place_of(compiled.plan, ("plan",), spec)
        return Problem(where, message, suggestion(compiled, key), "expect")
    where = place_of(compiled.plan, lines[-1][1].paths, spec)
    return Problem(where, message, decision.help, line_name(check))


def place_of(plan: Plan, paths: Iterable[str], spec: str) -> Location:
    """Where the first of these inputs that a spec states is written, else the plan's title."""
    stated = (plan.origins[path].where for path in (*paths, "plan") if path in plan.origins)
    return next(stated, Location(spec))


def expectation_place(plan: Plan, key: str) -> Location | None:
    """Where the plan, or else its model, expects the total `key`."""
    expected = re.escape(key)
    for line in (rf"expect\.\d+\.{expected}", rf"model\.expect\.\d+\.{expected}"):
        for path, origin in plan.origins.items():
            if re.fullmatch(line, path):
                return origin.where
    return None


def suggestion(compiled: Compiled, key: str) -> str:
    """For a key that no total has, those that may have been meant."""
    from ledger.books.names import unknown_name

    if key in compiled.totals:
        return ""
    problem = unknown_name(compiled, key)
    return f"{problem.message}; {problem.help}"


MEMORY, CAPACITY = "memory.reserved", "memory.capacity"
LENGTHS = ("time.calendar", "time.step", "serve.tokens_per_second")  # what is told first of a layout, where it has it
PAID = ("cost.run", "cost.per_million_tokens")
HOST_PLACES = {"host": "host memory", "nvme": "NVMe"}
ABOUT_MEMORY = (FITS, HEADROOM, "state", "activations", "host", "nvme")


@dataclass(frozen=True)
class CheckOutcome:
    """What became of one spec: `problems` stop the compiler; `failures` and `warnings` are a compiled plan's.

    `sources` are the texts that the places of problems lie in, by file. `unfit`: the compiled plan where it does not
    leave its headroom free, `recommendations` what a search of its layouts found.
    """

    spec: str
    problems: tuple[Problem, ...] = ()
    failures: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    headline: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)
    unfit: Compiled | None = None
    recommendations: Recommendations | None = None

    @property
    def status(self) -> str:
        """`bad input`, `failed` or `passed`."""
        if self.problems:
            return "bad input"
        return "failed" if self.failures else "passed"

    @property
    def strict(self) -> CheckOutcome:
        """The outcome with warnings as failures."""
        return replace(self, failures=(*self.failures, *self.warnings), warnings=())


def check_plan(spec: str, compiler: Callable[[], Compiled]) -> CheckOutcome:
    """What is wrong with the plan that `compiler` compiles, or with how it compares with what it expects."""
    try:
        compiled = compiler()
    except SpecError as error:
        return CheckOutcome(spec, problems=error.problems, sources=error.sources)
    from ledger.books.what_if.idle import warnings

    by_rules = warnings(compiled)  # of the checklist, what no rule says already
    return CheckOutcome(
        spec,
        failures=tuple(_problems(compiled, spec, "fail")),
        warnings=(*by_rules, *_problems(compiled, spec, "warn", {problem.rule for problem in by_rules})),
        headline=compiled.verdict.headline,
        sources=_unsaved_texts(compiled.plan),
        unfit=compiled if misses_headroom(compiled) else None,
    )


def with_search(outcome: CheckOutcome, search: Search) -> CheckOutcome:
    """The outcome with what a search of layouts recommends, of a plan that does not leave its headroom free."""
    return replace(outcome, recommendations=search(outcome.unfit)) if outcome.unfit else outcome


def search_lines(outcome: CheckOutcome) -> Iterator[str]:
    """What a search recommends of a plan, with the figures of each layout and the lines to write, and what it saw."""
    search = outcome.recommendations
    if search is None:
        return
    for name, layout in search.by_reason().items():
        length = next(key for key in LENGTHS if key in layout.totals)
        keys = [length, *(key for key in PAID if key in layout.totals), MEMORY]
        yield f"{name}: {', '.join(with_unit(layout.totals[key], unit_of(key)) for key in keys)}"
        yield from (f"  {line}" for line in layout.yaml)
    if search.nearest:
        free = with_unit(search.headroom, "B")
        fits = outcome.unfit is not None and outcome.unfit.verdict.fits
        missed = f"leaves {free} free" if fits else f"fits with {free} free" if search.headroom else "fits"
        if search.nearest.changes:
            yield f"none {missed}; the nearest miss: {search.nearest.label}"
            yield from (f"  {line}" for line in _memory_shortfalls(search.nearest.totals, search.headroom))
        else:
            yield f"none {missed}, or misses it by less than the plan"
    further = "" if search.complete or search.failure else "; `--search SECONDS` or `--search all` looks further"
    yield f"{search.scope}{further}".replace(THIN, " ")


def _memory_shortfalls(totals: Mapping[str, float], headroom: float) -> Iterator[str]:
    """How much more than there is a layout needs of a device, of its host, and of the host's drives."""
    needed, capacity = totals[MEMORY], totals[CAPACITY]
    if needed > capacity - headroom:
        less = f" less {with_unit(headroom, 'B')} headroom" if headroom else ""
        more = with_unit(needed - capacity + headroom, "B")
        yield f"it needs {with_unit(needed, 'B')}, {more} more than {with_unit(capacity, 'B')}{less}"
    for place, words in HOST_PLACES.items():
        stored, room = totals.get(f"memory.{place}", 0.0), totals.get(f"memory.{place}.capacity", inf)
        if stored > room:
            yield f"it needs {with_unit(stored, 'B')} of {words}, {with_unit(stored - room, 'B')} more than there is"


def search_note(outcome: CheckOutcome) -> Problem | None:
    """What a search recommends, as a note at the input that decides memory; None where no layouts were searched."""
    if outcome.recommendations is None:
        return None
    where = next(
        (problem.where for problem in (*outcome.failures, *outcome.warnings) if problem.rule in ABOUT_MEMORY),
        Location(outcome.spec),
    )
    return Problem(where, "\n".join(search_lines(outcome)), rule="search")


def misses_headroom(compiled: Compiled) -> bool:
    """Whether the fullest device has less free than the plan's own policy asks for, or a host less than it needs."""
    return not compiled.verdict.fits or any(
        check.name == FITS and check.status != "pass" for check in compiled.verdict.checks
    )


def _unsaved_texts(plan: Plan) -> dict[str, str]:
    """The texts of a plan that are in no file, or not in the file as it is now."""
    if plan.reading is None:
        return {}
    typed = {f"{FLAG}{setting}": f"{FLAG}{setting}" for setting in plan.reading.overrides}
    return {plan.reading.source.file: plan.reading.source.text, **typed}


def judgement(outcomes: Sequence[CheckOutcome]) -> Judgement:
    """What `check` found of specs, as other programs list it."""
    from ledger.spec.rules.table import rule_meanings

    return Judgement("check", tuple(map(judged_spec, outcomes)), rule_meanings())


def search_notes(outcomes: Sequence[CheckOutcome]) -> Judgement:
    """What searches of layouts recommend of checked specs, as notes in files of a checkout."""
    judged = []
    for outcome in outcomes:
        note, spec = search_note(outcome), judged_spec(outcome)
        notes = (problem_in_checkout(note, spec.file),) if note else ()
        judged.append(JudgedSpec(spec.spec, spec.file, notes=notes))
    return Judgement("check", tuple(judged))


def judged_spec(outcome: CheckOutcome) -> JudgedSpec:
    """A checked spec with its problems where a program finds them: in files of a checkout."""
    read = next((file for file in outcome.sources if not file.startswith(FLAG)), outcome.spec)
    file = checkout_path(read)

    def placed(problems: Iterable[Problem]) -> tuple[Problem, ...]:
        return tuple(problem_in_checkout(problem, file) for problem in problems)

    return JudgedSpec(
        outcome.spec,
        file,
        INVALID if outcome.problems else FAILED if outcome.failures else PASSED,
        errors=placed((*outcome.problems, *outcome.failures)),
        warnings=placed(outcome.warnings),
        headline=outcome.headline,
    )


def problem_in_checkout(problem: Problem, spec: str) -> Problem:
    """The problem in a file: of a revision, as it is checked out; of what was typed, the first line of the `spec`."""
    where = problem.where
    if not where.file.startswith(FLAG):
        return replace(problem, where=replace(where, file=checkout_path(where.file)))
    return replace(problem, where=Location(spec), message=f"{problem.message} ({where.file})")


def checkout_path(file: str) -> str:
    """The path of a file in a checkout, also of one at a revision (`HEAD~1:specs/70b.yaml`)."""
    _, colon, path = file.partition(":")
    return path if colon and path and not Path(file).exists() else file
