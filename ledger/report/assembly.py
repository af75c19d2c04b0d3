"""A plan's report with what else it shows: what the run depends on, other layouts, what was measured near the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ledger.report.views.parts import Report

if TYPE_CHECKING:
    from ledger.books.results import Compiled
    from ledger.report.recommendations import Recommendations
    from ledger.report.seals.seal import Seal
    from ledger.report.views.live import LiveView, LoadView


def assemble_report(
    compiled: Compiled,
    formats: Iterable[str],
    recommendations: Recommendations | None = None,
    seal: Seal | None = None,
    panel: Callable[[], LiveView | LoadView] | None = None,
) -> Report:
    """The report in these formats; those without charts show the plan and what is recommended, and nothing else.

    `recommendations` are those of a search of the plan's layouts; None: there was none, and the report says so.
    `seal` is what the plan was read from, which the report carries; `panel` gives the panel where it is already being
    made.
    """
    if compiled.plan.serve or not {"html", "pdf"} & set(formats):
        return Report(compiled, recommendations=recommendations, seal=seal, panel=panel)
    from ledger.evidence.nearest import nearest_microbenchmarks, nearest_runs

    return Report(
        compiled,
        sensitivities=run_elasticities(compiled),
        recommendations=recommendations,
        microbenchmarks=nearest_microbenchmarks(compiled),
        runs=nearest_runs(compiled),
        seal=seal,
        panel=panel,
    )


def run_elasticities(compiled: Compiled) -> tuple[tuple[str, str, float], ...]:
    """Path, name and elasticity of the run's length (of a step's, where the run has none) for every input with one."""
    from ledger.books.what_if.sensitivity import sensitivities

    length = "time.calendar" if compiled.plan.run.tokens else "time.step"
    found = sensitivities(compiled, of_time_alone=True)
    rows = [(row.path, row.title, row.elasticities.get(length)) for row in found]
    return tuple((path, title, by) for path, title, by in rows if by is not None and "price" not in path)
