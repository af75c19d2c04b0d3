"""Layouts that are recommended of a service: those that fit, by what they give at the load of the plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger import numbers
from ledger.report.views.advice import WORTH, Advice, AdvisedLayout, unfound_sentence
from ledger.report.views.parts import Report
from ledger.units import unit_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledger.books.results import Number
    from ledger.report.recommendations import Recommendation

FIRST, LATENCY, RATE = "serve.ttft", "serve.time_per_token", "serve.tokens_per_second"
COST = "cost.per_million_tokens"
AT_THIS_LOAD = "with the sequences in flight, or the requests, of this plan"


def served_advice(report: Report) -> Advice | None:
    """The layouts that are recommended; None where none were searched, or where none gives more than this one."""
    found, here = report.recommendations, report.compiled.totals
    if not found:
        return None
    fits = float(here["memory.reserved"]) <= float(here["memory.capacity"]) - found.headroom
    rows = [(name, one) for name, one in found.named().items() if one.changes and not (fits and _alike(one, here))]
    if not rows:
        return None
    return Advice(tuple(advised_service(*row, here) for row in rows), f"{found.scope}, {AT_THIS_LOAD}.")


def served_sentence(report: Report) -> str:
    """The layout that gives most, or that none fits; empty where none were searched, or none gives more."""
    found, here = report.recommendations, report.compiled.totals
    if not found:
        return ""
    if not found.smallest or not found.fastest or not found.legal:
        return unfound_sentence(found, "fits")
    if found.smallest.changes:
        return f"Fits with {numbers.size(found.headroom)} free: {found.smallest.label}."
    if _alike(found.fastest, here):
        return f"None of {numbers.integer(found.legal)} legal layouts gives more."
    if found.fastest.totals[RATE] < (1 + WORTH) * float(here[RATE]):
        saved = numbers.percent(1 - found.fastest.totals[LATENCY] / float(here[LATENCY]))
        return f"A token takes {saved} less: {found.fastest.label}."
    return f"{numbers.percent(found.fastest.totals[RATE] / float(here[RATE]) - 1)} more output: {found.fastest.label}."


def _alike(one: Recommendation, here: Mapping[str, Number]) -> bool:
    """Whether a layout is faster by no more than is worth a word, in output and between tokens."""
    return one.totals[RATE] < (1 + WORTH) * float(here[RATE]) and one.totals[LATENCY] > (1 - WORTH) * float(
        here[LATENCY]
    )


def advised_service(name: str, one: Recommendation, here: Mapping[str, Number]) -> AdvisedLayout:
    """A layout against the plan: its output, what that costs, and how long a user waits."""
    totals = one.totals
    told = [f"{numbers.money(totals[COST])} a million tokens"] if COST in totals else []
    told.append(f"first token after {numbers.written(totals[FIRST], unit_of(FIRST))}")
    told.append(f"then one every {numbers.written(totals[LATENCY], unit_of(LATENCY))}")
    told.append(f"{numbers.size(totals['memory.reserved'])} a device")
    told.append(f"{numbers.change(totals[RATE] / float(here[RATE]) - 1)} output")
    return AdvisedLayout(name.capitalize(), numbers.written(totals[RATE], unit_of(RATE)), ", ".join(told), one.yaml)
