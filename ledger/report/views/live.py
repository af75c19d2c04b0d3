"""The panel in which a reader moves the plan's sizes: controls, numbers and bars, which the page's script fills."""

from __future__ import annotations

from dataclasses import dataclass

from ledger import numbers
from ledger.report.live import RUN, own, unported
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
}
NUMBERS = (
    ("memory.reserved", "memory per device"),
    ("time.step", "time of a step"),
    ("tokens_per_second", "throughput"),
    ("devices", "devices"),
    ("time.run", "length of the run"),
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
    """The panel's controls, its numbers by key, the categories of memory, and what a bar is stacked from.

    Or, with nothing else, the `reason` why there is no panel.
    """

    controls: tuple[Control, ...] = ()
    numbers: tuple[tuple[str, str], ...] = ()
    categories: tuple[tuple[str, str], ...] = ()
    bar: tuple[str, ...] = ()
    capacity: str = ""
    reason: str = ""


def live(report: Report) -> LiveView | None:
    """The panel of a plan that has formulas; None where only a parameter count is known."""
    plan = report.compiled.plan
    if plan.model.bare:
        return None
    if reason := unported(plan):
        return LiveView(reason=reason)
    controls = tuple(
        Control(name, TITLES[name], numbers.integer(value))
        for name, value in own(plan).items()
        if name in RUN or value > 1
    )
    categories = tuple((name, CATEGORIES[name][0]) for name in MEMORY_ORDER)
    return LiveView(controls, NUMBERS, categories, (*MEMORY_ORDER, OVERHEAD[0]), numbers.size(plan.accelerator.memory))
