"""The panel in which a reader moves the load of a service: its controls and numbers, which the page's script fills."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.report.live_service import NUMBERS, ServedInput, served_page, served_script
from ledger.spec.plan import Plan

NO_SPEC = "Nothing can be moved here: this plan was read from no spec, in which another value could be written."


@dataclass(frozen=True)
class LoadView:
    """The panel: its `script`, its inputs, its numbers by key, and of how many settings the page has them.

    `why` says why a plan has no script and so no panel.
    """

    script: str
    why: str = ""
    inputs: tuple[ServedInput, ...] = ()
    numbers: tuple[tuple[str, str], ...] = NUMBERS
    count: int = 0


def load_panel(plan: Plan) -> LoadView:
    """The panel of a plan that serves."""
    page = served_page(plan)
    if page is None:
        return LoadView("", NO_SPEC)
    return LoadView(served_script(page), inputs=page.inputs, count=len(page.settings))
