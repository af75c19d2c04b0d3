"""The panel in which a reader moves a plan, or the load of a service: controls, numbers and bars for the script."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ledger.books.memory.holdings import CATEGORIES as HELD
from ledger.books.traced import CHOICES
from ledger.report.live import ZERO_STAGES, LivePage, page_of
from ledger.report.live_script import TITLES, UNITS, may_change, page_script
from ledger.report.live_service import NUMBERS, ServedInput, served_page, served_script
from ledger.report.svg import MEMORY_ORDER
from ledger.report.views.memory import CATEGORIES, OVERHEAD
from ledger.report.views.parts import Report
from ledger.spec.plan import Plan

COUNT_ALONE = (
    "Nothing can be moved here: of this model only the number of its parameters is known, and without the shapes of "
    "its layers neither activations nor a step can be derived."
)
TRAINED = tuple(name for name in MEMORY_ORDER if name in HELD)  # categories that a plan of training has
MOST_SAID = 4  # structures that a page does not hold
SHOWN_NUMBERS = (
    ("memory.reserved", "memory per device"),
    ("time.step", "time of a step"),
    ("tokens_per_second", "throughput"),
    ("devices", "devices"),
    ("time.calendar", "length of the run"),
    ("cost.run", "cost of the run"),
)


@dataclass(frozen=True)
class Control:
    """One input that a reader moves: its name, what it is, and the plan's own value.

    `words`: of a choice, its values with their places among all; `unit`: of an amount, what is typed.
    """

    name: str
    title: str
    value: str
    words: tuple[tuple[int, str], ...] = ()
    unit: str = ""


@dataclass(frozen=True)
class LiveView:
    """The panel: its `script`, its controls, its numbers by key, categories of memory, and what a bar is stacked from.

    `why` says why a plan has no script and so no panel. `left_out`: which structures near the plan's own it does not
    hold.
    """

    script: str
    why: str = ""
    controls: tuple[Control, ...] = ()
    numbers: tuple[tuple[str, str], ...] = SHOWN_NUMBERS
    categories: tuple[tuple[str, str], ...] = tuple((name, CATEGORIES[name][0]) for name in TRAINED)
    bar: tuple[str, ...] = (*TRAINED, OVERHEAD[0])
    devices: int = 0
    left_out: str = ""


def live(report: Report) -> LiveView | LoadView:
    """The panel of a plan that has formulas; of one of which only a parameter count is known, why there is none."""
    return report.panel() if report.panel else panel(report.compiled.plan)


def panel(plan: Plan) -> LiveView | LoadView:
    """The panel of a plan, the part of a page that takes longest to make."""
    if plan.serve:
        return load_panel(plan)
    page = page_of(plan)
    if page is None:
        return LiveView("", COUNT_ALONE)
    left_out = "; ".join(setting_text(page, change) for change in page.left_out[:MOST_SAID])
    controls = tuple(control(page, name) for name in TITLES if name in page.plan_setting and may_change(page, name))
    return LiveView(page_script(page), controls=controls, devices=plan.cluster.devices, left_out=left_out)


def control(page: LivePage, name: str) -> Control:
    """The control of one input."""
    value = page.plan_setting[name]
    if name in UNITS:
        unit, factor = UNITS[name]
        return Control(name, TITLES[name], f"{value / factor:.12g}", unit=unit)
    if name in CHOICES:
        words = page.choices.words(name)
        return Control(name, TITLES[name], words[value], tuple((place, words[place]) for place in page.stops[name]))
    levels = tuple((level, str(level)) for level in ZERO_STAGES) if name == "zero" else ()
    return Control(name, TITLES[name], str(value), levels)


def setting_text(page: LivePage, change: Mapping[str, Any]) -> str:
    """A setting by what it has that is not the plan's."""
    words = {name: page.choices.words(name) for name in CHOICES}
    moved = [
        f"{TITLES[name]} {words[name][value] if name in words else value}"
        for name, value in change.items()
        if name not in ("global_batch", "price")
    ]
    return ", ".join((*moved, *(("one micro-batch a step, or several",) if "global_batch" in change else ())))


# --- the panel of a service ---

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
