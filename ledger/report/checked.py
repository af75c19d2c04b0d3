"""Whether a plan is well formed, meets its expectations, and fits."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ledger.spec.problems import Location, Problem, SpecError

if TYPE_CHECKING:
    from ledger.books.results import Compiled
    from ledger.report.recommendations import Recommendations
    from ledger.spec.plan import Plan

    Search = Callable[[Plan], Recommendations | None]

FITS = "fits"  # how the verdict names the check of memory and headroom
EXPECTED = "expect."  # how the verdict names the check of an `expect:` line


@dataclass(frozen=True)
class CheckOutcome:
    """What became of one spec: `problems` stop the compiler; `failures` and `warnings` are a compiled plan's.

    `sources` are the texts that the places of problems lie in, by file. `recommendations`: layouts that fit, of a plan
    that does not leave its headroom free; `shortfall` says by how much, of one that fits.
    """

    spec: str
    problems: tuple[Problem, ...] = ()
    failures: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    headline: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)
    recommendations: Recommendations | None = None
    shortfall: str = ""

    @property
    def status(self) -> str:
        """`bad input`, `failed` or `passed`."""
        if self.problems:
            return "bad input"
        return "failed" if self.failures else "passed"


def check_plan(spec: str, compiler: Callable[[], Compiled], search: Search | None = None) -> CheckOutcome:
    """What is wrong with the plan that `compiler` compiles, or with how it compares with what it expects.

    `search` finds what to change of a plan that does not leave its headroom free.
    """
    try:
        compiled = compiler()
    except SpecError as error:
        return CheckOutcome(spec, problems=error.problems, sources=error.sources)
    from ledger.books.verdict import shortfall

    return CheckOutcome(
        spec,
        failures=tuple(failed_checks(compiled, spec)),
        warnings=compiled.plan.warnings,
        headline=compiled.verdict.headline,
        recommendations=search(compiled.plan) if search and misses_headroom(compiled) else None,
        shortfall=shortfall(compiled.plan, compiled.totals) if misses_headroom(compiled) else "",
    )


def misses_headroom(compiled: Compiled) -> bool:
    """Whether the fullest device has less free than the plan's own policy asks for."""
    return any(check.name == FITS and check.status != "pass" for check in compiled.verdict.checks)


def failed_checks(compiled: Compiled, spec: str) -> Iterator[Problem]:
    """Every check of the verdict that failed, in the line of the spec that it is about."""
    for check in compiled.verdict.checks:
        if check.status == "fail":
            key = check.name.removeprefix(EXPECTED) if check.name.startswith(EXPECTED) else ""
            where = expectation_place(compiled.plan, key) or Location(spec)
            yield Problem(where, f"{check.title}: {check.figure}", suggestion(compiled, key) or check.detail)


def expectation_place(plan: Plan, key: str) -> Location | None:
    """Where the plan, or else its model, expects the total `key`; for no key, where the plan has its title."""
    expected = re.escape(key)
    for line in (rf"expect\.\d+\.{expected}", rf"model\.expect\.\d+\.{expected}") if key else ("plan",):
        for path, origin in plan.origins.items():
            if re.fullmatch(line, path):
                return origin.where
    return None


def suggestion(compiled: Compiled, key: str) -> str:
    """For a key that no total has, those that may have been meant."""
    from ledger.books.names import unknown

    if not key or key in compiled.totals:
        return ""
    problem = unknown(compiled, key)
    return f"{problem.message}; {problem.help}"
