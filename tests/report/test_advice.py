"""What the first screen says one should change."""

from __future__ import annotations

from dataclasses import replace

from ledger.books.results import Compiled
from ledger.books.what_if.alternatives import Alternative
from ledger.report import html
from ledger.report.views.advice import advice
from ledger.report.views.parts import Report


def other(compiled: Compiled, times: float) -> Alternative:
    """A layout whose step takes so many times as long."""
    step = times * float(compiled.totals["time.step"])
    return Alternative({"parallelism.tensor": "4"}, {"time.step": step, "memory.reserved": 50 * 10**9})


def with_verdict(compiled: Compiled, *, fits: bool) -> Compiled:
    """The same plan, judged so."""
    return replace(compiled, verdict=replace(compiled.verdict, fits=fits))


def test_the_fastest_layout_is_told_with_what_it_holds(compiled: Compiled) -> None:
    """A step of 0.8 of the time is 20 % shorter."""
    fits = with_verdict(compiled, fits=True)
    told = advice(Report(fits, alternatives=(other(fits, 0.9), other(fits, 0.8), other(fits, 1.5))))
    assert told == "With tensor 4 a step takes 20.0\u202f% less, and a device holds 50.0\u202fGB."


def test_that_nothing_is_faster_is_said_only_where_others_were_tried(compiled: Compiled) -> None:
    """Silence where no layout was compared."""
    fits = with_verdict(compiled, fits=True)
    assert advice(Report(fits, alternatives=(other(fits, 1.1),))) == "None of the layouts that were tried is faster."
    assert advice(Report(fits)) == ""


def test_a_plan_that_does_not_fit_is_told_what_frees_most(compiled: Compiled) -> None:
    """What the table of levers begins with, on the first screen of the page."""
    full = Report(with_verdict(compiled, fits=False))
    told = advice(full)
    page = html.render(full)
    table = page[page.index("What would make it fit") :]
    first = told.partition(" frees up to ")[0]
    assert 0 < table.replace("<wbr>", "").index(first) < 1500
    assert told.replace("'", "&#39;") in page[: page.index('id="plan"')]
