"""A plan's report with what else it shows: what the run depends on, other layouts, what was measured near the plan."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ledger.report.views.parts import Report

if TYPE_CHECKING:
    from ledger.books.results import Compiled


def assemble_report(compiled: Compiled, formats: Iterable[str]) -> Report:
    """The report in these formats; those without charts show nothing but the plan, and nothing else is worked out."""
    if not {"html", "pdf"} & set(formats):
        return Report(compiled)
    from ledger.books.what_if.alternatives import alternatives
    from ledger.evidence.near_microbenchmarks import nearest_microbenchmarks
    from ledger.evidence.near_runs import nearest_runs

    return Report(
        compiled,
        sensitivities=run_elasticities(compiled),
        alternatives=tuple(alternatives(compiled.plan)),
        microbenchmarks=nearest_microbenchmarks(compiled),
        runs=nearest_runs(compiled),
    )


def run_elasticities(compiled: Compiled) -> tuple[tuple[str, str, float], ...]:
    """Path, name and elasticity of the run's length (of a step's, where the run has none) for every input with one."""
    from ledger.books.what_if.sensitivity import sensitivities

    length = "time.run" if compiled.plan.run.tokens else "time.step"
    rows = [(row.path, row.title, row.elasticities.get(length)) for row in sensitivities(compiled)]
    return tuple((path, title, by) for path, title, by in rows if by is not None and "price" not in path)
