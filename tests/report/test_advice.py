"""What the first screen says one should change."""

from __future__ import annotations

from dataclasses import replace

from ledger.books.compiled import Compiled
from ledger.report import html
from ledger.report.recommendations import Recommendation, Recommendations
from ledger.report.views.advice import UNSEARCHED, advice, advice_sentence
from ledger.report.views.parts import Report
from ledger.report.write import as_markdown

DAY = 86400.0


def layout(compiled: Compiled, times: float, **changes: object) -> Recommendation:
    """A layout whose step, run and cost are so many times the plan's."""
    totals = {key: times * float(compiled.totals[key]) for key in ("time.step", "time.calendar", "cost.run")}
    return Recommendation(changes, {**totals, "memory.reserved": 50e9, "memory.capacity": 80e9})


def with_verdict(compiled: Compiled, *, fits: bool) -> Compiled:
    """The same plan, judged so."""
    return replace(compiled, verdict=replace(compiled.verdict, fits=fits))


def found(smallest: Recommendation, fastest: Recommendation) -> Recommendations:
    """What a search of a thousand layouts found."""
    front = (fastest,)
    points = tuple((one.totals["memory.reserved"], one.totals["time.step"]) for one in front)
    return Recommendations(smallest, fastest, fastest, front, points, 1000, 900, headroom=20e9)


def test_the_fastest_layout_is_told_with_what_it_saves(compiled: Compiled) -> None:
    """A run of 0.8 of the time and cost saves a fifth of both: in days and dollars, then what to change."""
    totals = {**compiled.totals, "time.calendar": 100 * DAY, "cost.run": 5_000_000.0}
    plan = replace(with_verdict(compiled, fits=True), totals=totals)
    fast = layout(plan, 0.8, **{"parallelism.tensor": 4})
    told = advice_sentence(Report(plan, recommendations=found(layout(plan, 1.0), fast)))
    assert told == "Saves $1.0\u202fM and 20.0\u202fdays: tensor 4."


def test_that_nothing_is_faster_is_said_with_how_many_were_looked_at(compiled: Compiled) -> None:
    """A tenth of a per cent is not worth a word."""
    plan = with_verdict(compiled, fits=True)
    told = advice_sentence(
        Report(plan, recommendations=found(layout(plan, 1.0), layout(plan, 0.999, recompute="none")))
    )
    assert told == "None of 1\u202f000 legal layouts is faster and leaves 20.0\u202fGB free."


def test_a_plan_that_misses_its_headroom_is_told_the_smallest_edit(compiled: Compiled) -> None:
    """Before what is faster: it must fit first."""
    plan = with_verdict(compiled, fits=True)
    small, fast = layout(plan, 1.1, **{"run.micro_batch": 1}), layout(plan, 0.8, **{"parallelism.tensor": 4})
    assert advice_sentence(Report(plan, recommendations=found(small, fast))) == (
        "Fits with 20.0\u202fGB free: micro_batch 1."
    )


def test_where_nothing_fits_that_is_said(compiled: Compiled) -> None:
    """With the number of layouts that were looked at."""
    nothing = Recommendations(legal=1000, headroom=20e9)
    told = advice_sentence(Report(with_verdict(compiled, fits=False), recommendations=nothing))
    assert told == "None of 1\u202f000 legal layouts on these devices fits with 20.0\u202fGB free."


def test_without_a_search_the_page_says_so(compiled: Compiled) -> None:
    """`--no-search` leaves the section out, and the reader knows why."""
    report = Report(with_verdict(compiled, fits=True))
    assert (advice(report), advice_sentence(report)) == (None, UNSEARCHED)
    page = html.render(report)
    assert UNSEARCHED in page
    assert 'id="alternatives"' not in page


def test_the_first_screen_has_the_lines_to_write(compiled: Compiled) -> None:
    """In HTML and in Markdown: why, how long, how much, and YAML; what is best in two ways stands there once."""
    plan = with_verdict(compiled, fits=True)
    small = layout(plan, 1.1, recompute="full")
    fast = layout(plan, 0.8, **{"parallelism.tensor": 4, "parallelism.schedule": None})
    report = Report(plan, recommendations=found(small, fast))
    page = html.render(report)
    first = page[: page.index('id="plan"')]
    for text in ("Smallest edit", "Cheapest and fastest", "parallelism:\n  tensor: 4\n  # remove `schedule`", "50.0"):
        assert text in first
    assert "1\u202f000 legal layouts tried, of which 900 fit with 20.0\u202fGB free." in first
    assert "```yaml\nrecompute: full\n```" in as_markdown(report).decode()


def test_a_plan_that_does_not_fit_is_told_what_frees_most(compiled: Compiled) -> None:
    """Without a search: what the table of levers begins with, on the first screen of the page."""
    full = Report(with_verdict(compiled, fits=False))
    told = advice_sentence(full)
    page = html.render(full)
    table = page[page.index("What would make it fit") :]
    first = told.partition(" frees up to ")[0]
    assert 0 < table.replace("<wbr>", "").index(first) < 1500
    assert told.replace("'", "&#39;") in page[: page.index('id="plan"')]


def test_why_a_plan_that_fits_is_to_be_edited_is_said(compiled: Compiled) -> None:
    """Its policy asks for more free memory than it leaves."""
    totals = {**compiled.totals, "memory.reserved": 70e9, "memory.capacity": 80e9}
    plan = replace(with_verdict(compiled, fits=True), totals=totals)
    wanted = replace(plan.plan, assumptions=replace(plan.plan.assumptions, headroom="production"))
    plan = replace(plan, plan=wanted)
    small, fast = layout(plan, 1.1, **{"run.micro_batch": 1}), layout(plan, 0.8, **{"parallelism.tensor": 4})
    assert advice_sentence(Report(plan, recommendations=found(small, fast))) == (
        "10.0\u202fGB free, 10.0\u202fGB short of the 20.0\u202fGB of production headroom. "
        "Fits with 20.0\u202fGB free: micro_batch 1."
    )
