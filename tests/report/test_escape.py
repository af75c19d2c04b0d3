"""One filter for all Markdown that is written: to a parser of it, a text of a file is that text and no more."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

import ledger
from ledger.report.escape import code, fenced, plain, sentence
from ledger.report.html import markdown_environment

ROOT = Path(__file__).resolve().parents[2]
READ = MarkdownIt("commonmark").enable(["table", "strikethrough"])
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "[a link](javascript:alert(1))",
    "![a picture](https://evil.example/x.png)",
    "<https://evil.example>",
    "https://evil.example/a www.evil.example",
    "[ref]: https://evil.example",
    "a | b || c",
    "@someone @some-org/team me@evil.example",
    "#123 owner/name#123 GH-123",
    "**bold** _thin_ ~~gone~~ `code` ``x``",
    "a ` b",
    "# heading",
    "- entry",
    "+ entry",
    "1. entry",
    "---",
    "=== ",
    "> quoted",
    "    indented",
    "&lt;b&gt; &#60;b&#62;",
    "\\<b\\> \\[a\\](b)",
    "<!-- ledger ci -->",
    "a\n\n# heading\n::error::x",
    "$x$ {{ 7*7 }} {% raw %}",
)
REFERENCE = re.compile(
    r"(?<![&\w])[@#](?=\w)|\bGH-(?=\d)", re.IGNORECASE
)  # what services turn into links by themselves
SITE = re.compile(r"https?://|www\.", re.IGNORECASE)


def types_of(written: str) -> set[str]:
    """What a parser finds in a line of a paragraph."""
    blocks = READ.parse(written)
    return {token.type for token in blocks} | {child.type for token in blocks for child in token.children or ()}


def shown(written: str) -> str:
    """The text that a reader sees of a line."""
    children = READ.parseInline(written)[0].children or []
    return " ".join("".join(child.content for child in children).replace("\u200b", "").split())


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("written", [plain, sentence])
def test_a_text_is_shown_as_it_is(text: str, written: Callable[[str], str]) -> None:
    """No element, link, picture, emphasis or block, and no reference that GitHub would make of it."""
    line = written(text)
    if written is sentence:
        allowed = {"paragraph_open", "paragraph_close", "inline", "text", "text_special", "code_inline"}
        assert types_of(line) <= allowed
    assert not {"html_inline", "link_open", "image", "strong_open", "em_open", "s_open"} & types_of(line)
    assert "|" not in line.replace("\\|", "")
    outside = re.sub(r"(?<!\\)`.*?`", "", line)
    assert not REFERENCE.search(outside.replace("&#8203;", "\u200b"))
    assert not SITE.search(outside)
    assert shown(line) == " ".join((text.replace("`code`", "code") if written is sentence else text).split())


@given(st.text(max_size=40))
def test_no_text_is_markup(text: str) -> None:
    """Whatever stands in a file."""
    for line in (plain(text), sentence(text)):
        assert not {"html_inline", "html_block", "link_open", "image", "heading_open", "table_open"} & types_of(
            f"a {line}"
        )
        assert "\n" not in line
    assert types_of(sentence(text)) <= {
        "paragraph_open",
        "paragraph_close",
        "inline",
        "text",
        "text_special",
        "code_inline",
    }


@given(st.text(max_size=40))
def test_code_is_code(text: str) -> None:
    """One element of code and nothing beside it, in a cell of a table as well."""
    found = READ.parseInline(code(text))[0].children or []
    if found[0].type == "code_inline":
        assert len(found) == 1
    else:
        assert code(text).startswith("<code>")
        assert "|" not in code(text)


@pytest.mark.parametrize("line", ["```", "a: ```x", "~~~", "a\n```\n# heading", "````"])
def test_a_block_of_a_program_ends_where_it_ends(line: str) -> None:
    """No line of it can close it."""
    (block,) = READ.parse(fenced([line, "b: 1"], "yaml"))
    assert block.type == "fence"
    assert block.content.endswith("b: 1\n")


def test_templates_of_markdown_escape_by_themselves() -> None:
    """A template that forgets to ask prints no markup; what was written by the filter is not written twice."""
    made = markdown_environment().from_string("{{ x }} {{ code(x) }} {% for y in [x] %}{{ y }}{% endfor %}")
    assert made.render(x="a|<b>@c") == f"{sentence('a|<b>@c')} {code('a|<b>@c')} {sentence('a|<b>@c')}"


@pytest.mark.parametrize("text", [HOSTILE[at] for at in (0, 2, 6, 7, 10, 12, 20)])
def test_no_markdown_of_a_plan_has_its_markup(text: str, tmp_path: Path) -> None:
    """Its report, its comparison and its difference, of a plan whose title, source and decision are hostile."""
    quoted = text.replace("'", "''")
    source = (ROOT / "specs" / "gpt2.yaml").read_text("utf-8")
    titled = re.sub(r"^plan:.*$", lambda _: f"plan: '{quoted}'", source, flags=re.MULTILINE)
    plan = tmp_path / "hostile.yaml"
    plan.write_text(titled, encoding="utf-8")
    ledger.write_report(plan, tmp_path, ("md",), search=False)
    page = (tmp_path / "hostile.md").read_text("utf-8")
    first = page.splitlines()[0]
    assert first.startswith("# ")
    assert shown(first[2:]) == " ".join(text.split())
    tokens = READ.parse(page)
    found = {token.type for token in tokens} | {child.type for token in tokens for child in token.children or ()}
    assert not {"html_block", "html_inline", "link_open", "image"} & found
