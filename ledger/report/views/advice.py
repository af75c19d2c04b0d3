"""What to change first: the smallest edit that fits, the cheapest and the fastest layout, with the lines to write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger import numbers
from ledger.books.verdict import shortfall
from ledger.report.views.levers import applicable_levers
from ledger.report.views.parts import Report, fullest_role

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledger.books.results import Number
    from ledger.report.recommendations import Recommendation, Recommendations

WORTH = 0.005  # of a step: what another layout must save to be worth a word
SAID = 2  # changes that free memory
UNSEARCHED = "Other layouts were not searched."


@dataclass(frozen=True)
class AdvisedLayout:
    """A layout that is recommended: why, the length of the run, what it costs and holds, and the lines to write."""

    title: str
    length: str
    note: str
    yaml: tuple[str, ...]


@dataclass(frozen=True)
class Advice:
    """Layouts to choose from, and how many were looked at."""

    layouts: tuple[AdvisedLayout, ...]
    scope: str


def advice(report: Report) -> Advice | None:
    """The layouts that are recommended; None where none were searched, or where no change is better."""
    found = report.recommendations
    if not found:
        return None
    here = report.compiled.totals
    rows = tuple(advised(name, one, here) for name, one in found.named().items() if one.changes)
    return Advice(rows, f"{found.scope}.") if rows else None


def advised(name: str, one: Recommendation, here: Mapping[str, Number]) -> AdvisedLayout:
    """A layout against the plan, whose own time counts where it fits the device."""
    totals = one.totals
    length = f"{numbers.duration(totals['time.step'])} a step"
    told = []
    if "time.calendar" in totals:
        length = numbers.duration(totals["time.calendar"])
    if "cost.run" in totals:
        told.append(numbers.money(totals["cost.run"]))
    told.append(f"{numbers.size(totals['memory.reserved'])} a device")
    if here["memory.reserved"] <= here["memory.capacity"]:
        key = "time.calendar" if {"time.calendar"} <= totals.keys() & here.keys() else "time.step"
        told.append(f"{numbers.change(totals[key] / float(here[key]) - 1)} time")
    return AdvisedLayout(name.capitalize(), length, ", ".join(told), one.yaml)


def advice_sentence(report: Report) -> str:
    """The change that helps most; empty where nothing was found."""
    compiled, found = report.compiled, report.recommendations
    if not compiled.roles or "time.step" not in compiled.totals:
        return ""
    if found:
        why = shortfall(compiled.plan, compiled.totals) if found.smallest and found.smallest.changes else ""
        return f"{why[:1].upper()}{why[1:]}{'. ' if why else ''}{_searched_sentence(found, compiled.totals)}"
    return UNSEARCHED if compiled.verdict.fits else f"{memory_advice(report)} {UNSEARCHED}".strip()


def memory_advice(report: Report) -> str:
    """The changes that free most memory, each by itself."""
    levers = applicable_levers(report.compiled.plan, fullest_role(report.compiled).peak.parts)[:SAID]
    sentences = [f"{lever.change} frees up to {numbers.size(freed)}" for lever, freed in levers]
    return f"{', '.join(sentences)}." if sentences else ""


def _searched_sentence(found: Recommendations, here: Mapping[str, Number]) -> str:
    free = f" with {numbers.size(found.headroom)} free" if found.headroom else ""
    if not found.smallest or not found.fastest or not found.legal:
        return unfound_sentence(found, f"fits{free}")
    if found.smallest.changes:
        return f"Fits{free}: {found.smallest.label}."
    if found.fastest.totals["time.step"] > (1 - WORTH) * float(here["time.step"]):
        return (
            f"None of {numbers.integer(found.legal)} legal layouts is faster{f' and leaves{free[5:]}' if free else ''}."
        )
    return f"{_saving(found.fastest, here)}: {found.fastest.label}."


def unfound_sentence(found: Recommendations, lacks: str) -> str:
    """That none of the layouts that were looked at has what all of them lack, or why there were none."""
    note = f"{found.note[:1].upper()}{found.note[1:]}; `ledger sweep` takes its time." if found.note else ""
    if not found.legal and note:
        return note
    where = "near the plan" if found.near else "on these devices"
    return f"None of {numbers.integer(found.legal)} legal layouts {where} {lacks}. {note}".rstrip()


def _saving(one: Recommendation, here: Mapping[str, Number]) -> str:
    saved = {key: float(here[key]) - one.totals[key] for key in ("cost.run", "time.calendar") if key in one.totals}
    said = {"cost.run": numbers.money, "time.calendar": numbers.duration}
    if not saved:
        return f"A step takes {numbers.percent(1 - one.totals['time.step'] / float(here['time.step']))} less"
    return f"Saves {' and '.join(said[key](by) for key, by in saved.items())}"
