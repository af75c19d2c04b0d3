"""What to change first, in a sentence: what makes a plan fit, or what makes one that fits faster."""

from __future__ import annotations

from ledger import numbers
from ledger.report.views.choices import layout_label
from ledger.report.views.levers import applicable_levers
from ledger.report.views.parts import Report, fullest_role, share

WORTH = 0.005  # of a step: what another layout must save to be worth a word
SAID = 2  # changes that free memory


def advice(report: Report) -> str:
    """The change that helps most; empty where nothing was found or tried."""
    compiled = report.compiled
    if not compiled.roles or "time.step" not in compiled.totals:
        return ""
    return time_advice(report) if compiled.verdict.fits else memory_advice(report)


def memory_advice(report: Report) -> str:
    """The changes that free most memory, each by itself."""
    levers = applicable_levers(report.compiled.plan, fullest_role(report.compiled).peak.parts)[:SAID]
    sentences = [f"{lever.change} frees up to {numbers.size(freed)}" for lever, freed in levers]
    return f"{', '.join(sentences)}." if sentences else ""


def time_advice(report: Report) -> str:
    """The fastest of the other layouts, if it is faster."""
    if not report.alternatives:
        return ""
    best = min(report.alternatives, key=lambda other: other.totals["time.step"])
    shorter = share(best.totals["time.step"], report.compiled.totals["time.step"]) - 1
    if shorter > -WORTH:
        return "None of the layouts that were tried is faster."
    held = numbers.size(best.totals["memory.reserved"])
    return f"With {layout_label(best)} a step takes {numbers.percent(-shorter)} less, and a device holds {held}."
