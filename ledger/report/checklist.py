"""What the checklist fails and warns of as problems, each at the input that decides; one cause is one problem."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.numbers import THIN
from ledger.spec.problems import Location, Problem

if TYPE_CHECKING:
    from ledger.books.results import Check, Compiled
    from ledger.spec.plan import Plan

EXPECTED = "expect."  # begins the names of lines about what is expected
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
    "nvme": Decision(
        "nvme", ("parallelism.offload", "cluster.host", "cluster"), "larger drives, or fewer devices of a node"
    ),
    "paged": Decision("paged", ("optimizer", "run.micro_batch", "run"), LESS_MEMORY),
    **{
        f"precision.{role}": Decision("", (f"precision.{role}", "precision"), WIDER)
        for role in ("gradients", "states", "weights")
    },
}


LESS_SERVED = (
    "fewer sequences in flight, narrower `precision.weights` or `precision.cache`, or more devices in `parallelism`: "
    "`ledger solve SPEC --for serve.concurrency` has the most that fit"
)
FASTER = "more replicas (`cluster.devices`, `parallelism.data`), or fewer requests"
# The same of a plan that serves, where that is decided otherwise.
SERVED_DECISIONS: Mapping[str, Decision] = {
    FITS: Decision("memory", ("serve.concurrency", "serve"), LESS_SERVED),
    "state": Decision("memory", ("parallelism", "accelerator"), LESS_SERVED),
    "concurrency": Decision("memory", ("serve.concurrency", "serve"), LESS_SERVED),
    HEADROOM: Decision(HEADROOM, ("assumptions.headroom", "serve.concurrency", "serve"), LESS_SERVED),
    "arrivals": Decision("arrivals", ("serve.arrival_rate", "serve"), FASTER),
}


def decisions(plan: Plan) -> Mapping[str, Decision]:
    """What decides each line of a plan's checklist."""
    return {**DECISIONS, **SERVED_DECISIONS} if plan.serve else DECISIONS


def failures(compiled: Compiled, spec: str) -> tuple[Problem, ...]:
    """What fails a plan; `spec` is where a plan without places is."""
    return tuple(_problems(compiled, spec, "fail"))


def warnings(compiled: Compiled, spec: str) -> tuple[Problem, ...]:
    """What a plan is warned of: by rules on specs, and by its checklist where no rule says the same."""
    by_rules = compiled.plan.warnings
    return (*by_rules, *_problems(compiled, spec, "warn", {problem.rule for problem in by_rules}))


def _problems(compiled: Compiled, spec: str, status: str, said: Iterable[str] = ()) -> Iterator[Problem]:
    """A problem for each cause of the lines that have this status, but those that the rules `said` already."""
    causes: dict[str, list[tuple[Check, Decision]]] = {}
    for check in compiled.verdict.checks:
        decision = decisions(compiled.plan).get(line_name(check), Decision(check.name, ("plan",)))
        if check.status == status and not (decision.said_by and decision.said_by in said):
            cause = decision.cause or str(place_of(compiled.plan, decision.paths, spec))
            causes.setdefault(cause, []).append((check, decision))
    for lines in causes.values():
        yield _problem(compiled, spec, lines)


def line_name(check: Check) -> str:
    """The name of a line; a plan that fits and is warned of its memory misses its headroom."""
    return HEADROOM if (check.name, check.status) == (FITS, "warn") else check.name


def _problem(compiled: Compiled, spec: str, lines: list[tuple[Check, Decision]]) -> Problem:
    """Lines of one cause as one problem: the first in full, the others by their titles."""
    (check, decision), *others = lines
    parts = _missed_headroom(compiled, check) or [f"{check.title}: {check.figure}", check.detail]
    parts += [f"also: {', '.join(other.title for other, _ in others)}"] if others else []
    message = "; ".join(filter(None, parts)).replace(THIN, " ")
    if check.name.startswith(EXPECTED):
        key = check.name.removeprefix(EXPECTED)
        where = expectation_place(compiled.plan, key) or place_of(compiled.plan, ("plan",), spec)
        return Problem(where, message, suggestion(compiled, key), "expect")
    where = place_of(compiled.plan, lines[-1][1].paths, spec)
    return Problem(where, message, decision.help, line_name(check))


def _missed_headroom(compiled: Compiled, check: Check) -> list[str]:
    """By how much a plan that fits misses its headroom, of the line about it."""
    from ledger.books.verdict import shortfall

    short = shortfall(compiled.plan, compiled.totals) if line_name(check) == HEADROOM else ""
    return [short] if short else []


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
    from ledger.books.names import unknown

    if key in compiled.totals:
        return ""
    problem = unknown(compiled, key)
    return f"{problem.message}; {problem.help}"
