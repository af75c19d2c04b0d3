"""The panel in which a reader moves the plan's sizes: controls, numbers and bars, which the page's script fills."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ledger import numbers
from ledger.books.traced import setting
from ledger.report.live import Page, page_of
from ledger.report.palette import MEMORY_ORDER
from ledger.report.views.memory import CATEGORIES, OVERHEAD
from ledger.report.views.parts import Report

TITLES = {
    "micro_batch": "micro-batch, sequences",
    "seq_len": "sequence, tokens",
    "global_batch": "global batch, sequences",
    "data": "data parallel",
    "tensor": "tensor parallel",
    "pipeline": "pipeline stages",
    "context": "context parallel",
    "expert": "expert parallel",
}
MOST_SAID = 4  # structures that a page does not hold
NUMBERS = (
    ("memory.reserved", "memory per device"),
    ("time.step", "time of a step"),
    ("tokens_per_second", "throughput"),
    ("devices", "devices"),
    ("time.calendar", "length of the run"),
    ("cost.run", "cost of the run"),
)


@dataclass(frozen=True)
class Control:
    """One size that a reader moves: its name in the plan, what it is, and the plan's own value."""

    name: str
    title: str
    value: str


@dataclass(frozen=True)
class LiveView:
    """The panel: its `page`, its controls, its numbers by key, categories of memory, and what a bar is stacked from.

    `left_out` says which structures near the plan's own the page does not hold.
    """

    page: Page
    controls: tuple[Control, ...]
    numbers: tuple[tuple[str, str], ...]
    categories: tuple[tuple[str, str], ...]
    bar: tuple[str, ...]
    capacity: str
    left_out: str


def live(report: Report) -> LiveView | None:
    """The panel of a plan that has formulas; None where only a parameter count is known."""
    plan = report.compiled.plan
    known = page_of(plan)
    if known is None:
        return None
    own = setting(plan)
    controls = tuple(
        Control(name, TITLES[name], numbers.integer(own[name]))
        for name in TITLES
        if name == "global_batch" or len(known.stops[name]) > 1
    )
    return LiveView(
        known,
        controls,
        NUMBERS,
        tuple((name, CATEGORIES[name][0]) for name in MEMORY_ORDER),
        (*MEMORY_ORDER, OVERHEAD[0]),
        numbers.size(plan.accelerator.memory),
        "; ".join(said(change) for change in known.left_out[:MOST_SAID]),
    )


def said(change: Mapping[str, int]) -> str:
    """A setting by what it has that is not the plan's."""
    moved = [f"{TITLES[name]} {value}" for name, value in change.items() if name != "global_batch"]
    return ", ".join((*moved, *(("one micro-batch a step, or several",) if "global_batch" in change else ())))
