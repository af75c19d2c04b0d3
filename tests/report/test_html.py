from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
from jinja2 import UndefinedError
from tinyhtml5.parser import HTMLParser as StrictParser

import ledger
from ledger.books.compiled import Compiled
from ledger.report import html
from ledger.report.recommendations import Recommendation, Recommendations
from ledger.report.views import SECTIONS, SERVED_SECTIONS
from ledger.report.views.parts import Report, Table

LARGEST = 1_500_000  # bytes a report may weigh, fonts included


def full(compiled: Compiled) -> Report:
    """A report with every optional section."""
    totals = {key: float(compiled.totals[key]) for key in ("time.run", "cost.run")}
    other = Recommendation(
        {"parallelism.tensor": 4}, {**totals, "time.step": 9.5, "memory.reserved": 9e10, "memory.capacity": 8e10}
    )
    found = Recommendations(other, other, other, (other,), ((9e10, 9.5),), 1000, 1)
    return Report(compiled, (("run.tokens", "tokens", 1.0), ("cluster.devices", "devices", -0.9)), found)


@pytest.fixture(scope="module")
def pages(variants: dict[str, Compiled]) -> dict[str, str]:
    """The page of every kind of plan, and one with every section."""
    plain = {name: html.render(Report(plan)) for name, plan in variants.items()}
    return plain | {"full": html.render(full(variants["fits"]))}


@pytest.fixture(params=["fits", "too large", "bare", "full"])
def page(request: pytest.FixtureRequest, pages: dict[str, str]) -> str:
    """One page at a time."""
    return pages[request.param]


class Elements(HTMLParser):
    """Every element of a page with its attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        """One more element."""
        self.found.append((tag, {name: value or "" for name, value in attrs}))

    def named(self, *tags: str) -> list[dict[str, str]]:
        """The attributes of every element of these kinds."""
        return [attributes for tag, attributes in self.found if tag in tags]


def test_the_page_is_valid(page: str) -> None:
    """A parser that follows the standard finds no error."""
    parser = StrictParser()
    parser.parse(page)
    assert parser.errors == []


def test_the_page_needs_no_network(page: str) -> None:
    """Nothing is fetched: addresses are fragments of the page or hold their data, but of links to what is cited."""
    elements = Elements(page).found
    fetched = [
        value
        for tag, found in elements
        for name, value in found.items()
        if name == "src" or (name == "href" and tag != "a")
    ]
    assert [address for address in fetched if not address.startswith(("#", "data:"))] == []
    followed = [found["href"] for tag, found in elements if tag == "a"]
    assert [address for address in followed if not address.startswith(("#", "https://"))] == []
    assert re.findall(r"url\((?!data:)|@import", page) == []


def test_the_policy_names_exactly_this_style_and_this_script(page: str) -> None:
    """Any other style or script, and every connection, is forbidden."""
    policy = next(
        m["content"] for m in Elements(page).named("meta") if m.get("http-equiv") == "Content-Security-Policy"
    )
    for tag in ("style", "script"):
        texts = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        assert len(texts) == 1
        digest = base64.b64encode(hashlib.sha256(texts[0].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy


def test_nothing_in_the_page_runs_or_styles_by_attribute(page: str) -> None:
    """The policy would block inline handlers and styles, so there are none."""
    names = {name for _, found in Elements(page).found for name in found}
    assert [name for name in names if name == "style" or name.startswith("on")] == []


def test_a_number_shown_twice_is_the_same(page: str) -> None:
    """Every total has one text wherever it stands."""
    shown = re.findall(r'<data value="([^"]*)" data-key="([^"]*)">([^<]*)</data>', page)
    assert shown
    for key in {key for _, key, _ in shown}:
        assert len({(value, text) for value, other, text in shown if other == key}) == 1, key


def test_every_total_is_the_compiled_one(variants: dict[str, Compiled], pages: dict[str, str]) -> None:
    """What the page says of a key is what the books say."""
    for name, plan in variants.items():
        for found in Elements(pages[name]).named("data"):
            assert float(found["value"]) == float(plan.totals[found["data-key"]])


def test_the_page_can_be_read_by_machine_and_by_ear(page: str) -> None:
    """Landmarks, one title, headings of every table, names of every chart, a way past the contents."""
    elements = Elements(page)
    kinds = Counter(tag for tag, _ in elements.found)
    assert (kinds["main"], kinds["nav"], kinds["header"], kinds["h1"]) == (1, 1, 1, 1)
    assert all(head.get("scope") in {"col", "row"} for head in elements.named("th"))
    charts = [found for found in elements.named("svg") if found.get("aria-hidden") != "true"]
    assert all(found.get("role") == "img" and found.get("aria-label") for found in charts)
    assert any(link.get("href") == "#main" and link.get("class") == "skip" for link in elements.named("a"))
    assert all(region.get("tabindex") == "0" for region in elements.named("div") if region.get("role") == "region")


def test_every_link_inside_the_page_has_its_target(page: str) -> None:
    """Identifiers are unique, and no fragment leads nowhere."""
    elements = Elements(page)
    names = Counter(found["id"] for _, found in elements.found if "id" in found)
    assert [name for name, times in names.items() if times > 1] == []
    inside = [found["href"][1:] for _, found in elements.found if found.get("href", "").startswith("#")]
    assert [name for name in inside if name not in names] == []


def test_cells_name_their_column_where_rows_are_cards(page: str) -> None:
    """On a phone a row of more than two columns is a card: each of its cells says the heading that is out of sight."""
    tables = re.findall(r'<table[^>]* class="[^"]*stacks[^"]*".*?</table>', page, re.DOTALL)
    assert tables
    for table in tables:
        _, *headings = re.findall(r'<th scope="col"[^>]*>(.*?)</th>', table)
        for row in re.findall(r"<tr>\n?(<th scope=\"row\".*?)</tr>", table, re.DOTALL):
            assert re.findall(r'<td [^>]*data-label="([^"]*)"', row) == headings


def test_the_page_is_light(page: str) -> None:
    """Fonts and charts included, a report travels by mail."""
    assert len(page.encode()) < LARGEST


def test_no_number_is_broken(page: str) -> None:
    """Neither not-a-number nor infinity, nor a Python object, reaches the reader."""
    body = re.sub(r"<(style|script)>.*?</\1>", "", page, flags=re.DOTALL)
    text = re.sub(r"<[^>]+>", " ", body)
    assert re.findall(r"\b(?:nan|inf|None|Fraction\(|Decimal\()", text) == []


def test_two_renders_are_the_same(variants: dict[str, Compiled], pages: dict[str, str]) -> None:
    """A page depends on its plan alone."""
    assert html.render(Report(variants["fits"])) == pages["fits"]


def test_text_of_the_user_is_text(compiled: Compiled) -> None:
    """A plan's title cannot bring elements or scripts into the page."""
    hostile = replace(compiled, plan=replace(compiled.plan, title='<script>alert("x")</script>'))
    page = html.render(Report(hostile))
    assert "<script>alert" not in page
    assert page.count("<script>") == 1


def test_a_name_that_a_template_does_not_know_is_an_error() -> None:
    """A missing field fails loudly instead of printing nothing."""
    template = html.environment().from_string("{{ section.missing }}")
    with pytest.raises(UndefinedError):
        template.render(section=SECTIONS[0])


def test_templates_escape_what_they_print() -> None:
    """Escaping is on for every template, whatever its name."""
    assert html.environment().from_string("{{ text }}").render(text="<b>") == "&lt;b&gt;"


def test_optional_sections_appear_when_there_is_something_to_say(pages: dict[str, str]) -> None:
    """Sensitivities and alternatives have their sections only where they were supplied; bare plans are short."""
    for name in ("sensitivity", "alternatives"):
        assert f'<section id="{name}"' in pages["full"]
        assert f'<section id="{name}"' not in pages["fits"]
    assert '<section id="memory"' not in pages["bare"]
    assert "Napkin only" in pages["bare"]


def test_every_section_has_its_template(variants: dict[str, Compiled]) -> None:
    """A row of the table of sections and a template belong together, but where the section is a table."""
    found = {path for path in html.environment().list_templates() if path.startswith("sections/")}
    trained, served = full(variants["fits"]), Report(ledger.compile("serve-70b"))
    pairs = [*((section, trained) for section in SECTIONS), *((section, served) for section in SERVED_SECTIONS)]
    own = {section.name for section, report in pairs if not isinstance(section.view(report), Table | None)}
    assert found == {f"sections/{name}.html" for name in (*own, "table")}


def test_letters_of_formulas_are_drawn_once(pages: dict[str, str]) -> None:
    """Formulas share their letters, which keeps the page small."""
    symbols = [found["id"] for found in Elements(pages["fits"]).named("symbol")]
    assert symbols
    assert len(symbols) == len(set(symbols))


def test_a_line_of_a_formula_is_drawn_once(pages: dict[str, str]) -> None:
    """Formulas that recur point to one drawing, and every drawing that is pointed to is there."""
    page = pages["fits"]
    used = re.findall(r'href="#(line-\d+)"', page)
    drawn = re.findall(r'<g id="(line-\d+)">', page)
    assert set(used) == set(drawn)
    assert len(drawn) == len(set(drawn)) < len(used)
