"""Plans of the library are the fastest of their layouts, or say in a comment why they are not."""

from __future__ import annotations

import pytest

from ledger.books.compiler import compile_plan
from ledger.cli.progress import search_layouts
from ledger.report.views.advice import WORTH
from ledger.spec.library import default_library
from ledger.spec.load import load_plan
from tests.library_plans import TRAINING

EXCUSE = "# Not the fastest layout: "  # and why not
LIBRARY = default_library()


def excused(name: str) -> bool:
    """Whether a plan says why it is not the fastest of its layouts."""
    return EXCUSE in LIBRARY.path("plan", name).read_text("utf-8")


def test_some_plan_is_held_to_the_search() -> None:
    """Were each plan excused, the test below would hold nothing."""
    assert not all(excused(name) for name in LIBRARY.names("plan"))


@pytest.mark.long
@pytest.mark.parametrize("name", [path.stem for path in TRAINING if not excused(path.stem)])
def test_a_plan_of_the_library_is_what_its_report_recommends(name: str) -> None:
    """No layout that its report looks at is faster by what is worth a word, and it keeps its own headroom."""
    plan = load_plan(name)
    found = search_layouts(plan, whole=True)
    assert found is not None
    assert found.fastest is not None
    step = float(compile_plan(plan).totals["time.step"])
    assert (1 - WORTH) * step <= found.fastest.totals["time.step"], found.fastest.label
    assert found.smallest is not None
    assert not found.smallest.changes
