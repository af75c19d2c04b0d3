"""Whether a plan is well formed, meets its expectations, and fits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from ledger.numbers import THIN, said
from ledger.report import checklist
from ledger.report.problem_formats import FAILED, INVALID, PASSED, JudgedSpec, Judgement
from ledger.spec.problems import FLAG, Location, Problem, SpecError
from ledger.units import unit_of

if TYPE_CHECKING:
    from ledger.books.results import Compiled
    from ledger.report.recommendations import Recommendations
    from ledger.spec.plan import Plan

    Search = Callable[[Compiled], Recommendations | None]

MEMORY, CAPACITY = "memory.reserved", "memory.capacity"
LENGTHS = ("time.calendar", "time.step", "serve.tokens_per_second")  # what is told first of a layout, where it has it
PAID = ("cost.run", "cost.per_million_tokens")
HOST_PLACES = {"host": "host memory", "nvme": "NVMe"}
ABOUT_MEMORY = (checklist.FITS, checklist.HEADROOM, "state", "activations", "host", "nvme")


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
        """The same where warnings fail a plan."""
        return replace(self, failures=(*self.failures, *self.warnings), warnings=())


def check_plan(spec: str, compiler: Callable[[], Compiled]) -> CheckOutcome:
    """What is wrong with the plan that `compiler` compiles, or with how it compares with what it expects."""
    try:
        compiled = compiler()
    except SpecError as error:
        return CheckOutcome(spec, problems=error.problems, sources=error.sources)
    return CheckOutcome(
        spec,
        failures=checklist.failures(compiled, spec),
        warnings=checklist.warnings(compiled, spec),
        headline=compiled.verdict.headline,
        sources=_texts(compiled.plan),
        unfit=compiled if misses_headroom(compiled) else None,
    )


def with_search(outcome: CheckOutcome, search: Search) -> CheckOutcome:
    """The same with what a search of the layouts recommends, of a plan that does not leave its headroom free."""
    return replace(outcome, recommendations=search(outcome.unfit)) if outcome.unfit else outcome


def search_lines(outcome: CheckOutcome) -> Iterator[str]:
    """What a search recommends of a plan, with the figures of each layout and the lines to write, and what it saw."""
    found = outcome.recommendations
    if found is None:
        return
    for name, layout in found.named().items():
        length = next(key for key in LENGTHS if key in layout.totals)
        shown = [length, *(key for key in PAID if key in layout.totals), MEMORY]
        yield f"{name}: {', '.join(said(layout.totals[key], unit_of(key)) for key in shown)}"
        yield from (f"  {line}" for line in layout.yaml)
    if found.nearest:
        free = said(found.headroom, "B")
        fits = outcome.unfit is not None and outcome.unfit.verdict.fits
        missed = f"leaves {free} free" if fits else f"fits with {free} free" if found.headroom else "fits"
        if found.nearest.changes:
            yield f"none {missed}; the nearest miss: {found.nearest.label}"
            yield from (f"  {line}" for line in _missing(found.nearest.totals, found.headroom))
        else:
            yield f"none {missed}, or misses it by less than the plan"
    further = "" if found.complete or found.failure else "; `--search SECONDS` or `--search all` looks further"
    yield f"{found.scope}{further}".replace(THIN, " ")


def _missing(totals: Mapping[str, float], headroom: float) -> Iterator[str]:
    """How much more than there is a layout needs of a device, of its host, and of the host's drives."""
    needed, capacity = totals[MEMORY], totals[CAPACITY]
    if needed > capacity - headroom:
        less = f" less {said(headroom, 'B')} headroom" if headroom else ""
        more = said(needed - capacity + headroom, "B")
        yield f"it needs {said(needed, 'B')}, {more} more than {said(capacity, 'B')}{less}"
    for place, words in HOST_PLACES.items():
        held, room = totals.get(f"memory.{place}", 0.0), totals.get(f"memory.{place}.capacity", inf)
        if held > room:
            yield f"it needs {said(held, 'B')} of {words}, {said(held - room, 'B')} more than there is"


def search_note(outcome: CheckOutcome) -> Problem | None:
    """The same as a note at the input that the plan misses its memory by; None where no layouts were searched."""
    if outcome.recommendations is None:
        return None
    where = next(
        (one.where for one in (*outcome.failures, *outcome.warnings) if one.rule in ABOUT_MEMORY),
        Location(outcome.spec),
    )
    return Problem(where, "\n".join(search_lines(outcome)), rule="search")


def misses_headroom(compiled: Compiled) -> bool:
    """Whether the fullest device has less free than the plan's own policy asks for, or a host less than it needs."""
    return not compiled.verdict.fits or any(
        check.name == checklist.FITS and check.status != "pass" for check in compiled.verdict.checks
    )


def _texts(plan: Plan) -> dict[str, str]:
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
