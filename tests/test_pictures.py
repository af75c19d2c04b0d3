"""The pictures of README.md: what they show is what the program says today, or `make pictures` draws them anew."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from PIL import Image

import ledger
from ledger.books.traced import setting
from ledger.report.recommendations import from_record
from ledger.report.seals.reproduction import _other_layouts
from ledger.spec.load import load_plan

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
NAMES = ("first-page", "what-if", "comment")
GOLDEN = ROOT / "tests" / "cli" / "golden" / "ci-layout.md"
STALE = "docs/pictures/{}.png is no longer true: run `make pictures`, and look at it"


@pytest.fixture(scope="module")
def pictures() -> ModuleType:
    """The script that draws them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "scripts")
        return import_module("pictures")


@pytest.fixture(scope="module")
def found() -> Any:
    """What a search of minutes recommended on the first page, as a record; None where there was none."""
    return json.loads((PICTURES / "first-page.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def page(pictures: ModuleType, found: Any) -> str:
    """The report as it would be written today, with the same layouts recommended."""
    made: Callable[[Any], str] = pictures.report_page
    return made(found)


def shown(name: str) -> str:
    """The words that a picture shows, whatever their lines."""
    return " ".join((PICTURES / f"{name}.txt").read_text("utf-8").split())


def test_the_first_page_is_what_a_report_says(pictures: ModuleType, page: str) -> None:
    """Every word and figure of it; where they stand on the page, and of which revision they are, may change."""
    assert " ".join(pictures.first_page(page).split()) == shown("first-page"), STALE.format("first-page")


def test_recommended_layouts_have_their_totals(found: Any) -> None:
    """A layout that the first page names has the time and cost that it gives, compiled by itself."""
    plan = load_plan(str(ROOT / "specs" / "70b.yaml"))
    assert not found or list(_other_layouts(plan, from_record(found))) == [], STALE.format("first-page")


def test_the_panel_is_what_the_compiler_says(pictures: ModuleType, page: str) -> None:
    """Its words are those of the page, and its numbers those of the plan compiled with what was moved."""
    assert pictures.missing_from_panel(page, shown("what-if")) == [], STALE.format("what-if")
    own = setting(load_plan(str(ROOT / "specs" / "70b.yaml")))
    assert all(own[name] != value for name, value in pictures.WHAT_IF.items()), "nothing is moved"
    assert len(pictures.compiled_figures()) > 3


def test_the_comment_is_what_ci_says(pictures: ModuleType) -> None:
    """The comment on the change that `tests/cli/test_ci.py` holds a golden file of."""
    assert pictures.CHANGE == 2, "the layout is the second change"
    golden = GOLDEN.read_text("utf-8").replace("by ledger\n", f"by ledger {ledger.__version__}\n")
    assert " ".join(golden.split()) == shown("comment"), STALE.format("comment")


@pytest.mark.parametrize("name", NAMES)
def test_pictures_are_small_and_described(pictures: ModuleType, name: str) -> None:
    """A page on GitHub loads at once, and who cannot see a picture reads what it shows."""
    path = PICTURES / f"{name}.png"
    assert path.stat().st_size <= pictures.LARGEST
    with Image.open(path) as picture:
        assert (picture.format, picture.mode) == ("PNG", "P"), "a picture in few colours"
        assert 800 <= picture.width <= 2400
    described = re.search(rf"!\[([^]]+)\]\(docs/pictures/{name}\.png\)", (ROOT / "README.md").read_text("utf-8"))
    assert described, "README shows it"
    assert len(described[1].split()) >= 10, "an alternative text says what one sees"


def test_words_are_those_of_blocks(pictures: ModuleType) -> None:
    """A block is a line, whatever is marked within it; drawings, and the line that names a revision, are left out."""
    page = (
        '<p class="origin">abc</p><div><p>a <b>b</b>&nbsp;c\nd</p><svg><text>x</text></svg></div><li>1&#8239;024</li>'
    )
    assert pictures.words(page) == "a b c d\n1 024\n"
