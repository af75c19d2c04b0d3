"""The report of a plan that serves."""

from __future__ import annotations

import re

import pytest

import ledger
from ledger.books.compiled import Compiled
from ledger.books.serving.totals import curve
from ledger.report.charts.curve import Axis, CurvePoint, chart
from ledger.report.html import render
from ledger.report.views.parts import Report
from ledger.report.views.served.service import service
from ledger.report.write import as_markdown
from tests.library_plans import SERVING


@pytest.fixture(scope="module", params=[str(path) for path in SERVING], ids=lambda path: path[-16:])
def compiled(request: pytest.FixtureRequest) -> Compiled:
    """Every plan of the library that serves."""
    return ledger.compile(request.param)


def test_the_page_has_its_sections(compiled: Compiled) -> None:
    """A page of a service says so, and has its curve, both rooflines and its memory; nothing of a training step."""
    page = render(Report(compiled))
    assert "Serving plan, compiled" in page
    titles = ("How fast?", "Does it fit?", "Rooflines of both passes", "Throughput against latency")
    assert all(title in page for title in titles)
    assert "optimizer states" not in page


def test_the_curve_goes_through_the_plan(compiled: Compiled) -> None:
    """One point of the curve is the plan's own load, with the totals that it states."""
    assert compiled.service is not None
    points = curve(compiled.service)
    (own,) = [point for point in points if point.stated]
    assert own.state.time_per_token == compiled.totals["serve.time_per_token"]
    assert [point.state.concurrency for point in points] == sorted(point.state.concurrency for point in points)


def test_the_table_beside_the_curve_has_each_of_its_points(compiled: Compiled) -> None:
    """What is drawn is also said in numbers, with a price where one is known."""
    view = service(Report(compiled))
    assert view is not None
    assert compiled.service is not None
    assert len(view.curve.rows) == len(curve(compiled.service))
    assert "a million tokens" in [column.title for column in view.curve.columns]


def test_points_that_lie_on_one_another_have_one_label() -> None:
    """Where more in flight gain nothing, their circles coincide, and their names stand together in their order."""
    places = [CurvePoint(x, y, name) for x, y, name in [(1, 5, "1"), (9, 9, "128"), (9.01, 9, "256"), (9, 5, "512")]]
    drawn = chart(places, Axis("s", "s"), Axis("tokens/s", "tokens/s"), "a curve", 760.0)
    labels = re.findall(r">([\d, ]+)</text>", drawn)
    assert "128, 256" in labels
    assert {"1", "512"} <= set(labels)
    assert not {"128", "256"} & set(labels)


def test_markdown_has_the_curve(compiled: Compiled) -> None:
    """A pull request shows latency and throughput by the number of sequences."""
    page = as_markdown(Report(compiled)).decode()
    assert re.search(r"\| in flight \| time per token \|", page)
