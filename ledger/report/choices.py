"""What a report shows beside the plan itself: what it depends on, its other layouts, what was measured near it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ledger.report.views.parts import Alternative

if TYPE_CHECKING:
    from ledger.books.results import Compiled
    from ledger.spec.plan import Plan


def sensitivities(compiled: Compiled) -> tuple[tuple[str, str, float], ...]:
    """Path, name and elasticity of the run's length (of a step's, where the run has none) for every input with one."""
    from ledger.books.what_if.sensitivity import sensitivities as derived

    length = "time.run" if compiled.plan.run.tokens else "time.step"
    rows = [(row.path, row.title, row.elasticities.get(length)) for row in derived(compiled)]
    return tuple((path, title, by) for path, title, by in rows if by is not None and "price" not in path)


def alternatives(plan: Plan) -> tuple[Alternative, ...]:
    """Layouts that nothing beats in both time and memory."""
    from ledger.books.what_if.alternatives import alternatives as found

    return tuple(Alternative(other.changes, other.totals) for other in found(plan))


def supplements(compiled: Compiled, formats: Iterable[str]) -> dict[str, Any]:
    """All of it, as `write_report` names it; nothing for formats that show none of it."""
    if not {"html", "pdf"} & set(formats):
        return {}
    from ledger.evidence.near_microbenchmarks import nearest_microbenchmarks
    from ledger.evidence.near_runs import nearest_runs

    return {
        "sensitivities": sensitivities(compiled),
        "alternatives": alternatives(compiled.plan),
        "microbenchmarks": nearest_microbenchmarks(compiled),
        "runs": nearest_runs(compiled),
    }
