"""Draws the pictures of README.md: the first page of a report, its What-if panel, the comment on a pull request.

    python scripts/pictures.py      # docs/pictures/*.png, and beside each the text that it shows

`tests/test_pictures.py` makes the texts again, without a browser: a picture that is no longer true fails there. Needs
what `make pictures` installs: Chromium, playwright-core, pypdfium2 and markdown-it-py.
"""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import chdir
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image, ImageOps

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
SPEC = "specs/70b.yaml"  # from the root
AUTHOR = ("-c", "user.name=A. Planner", "-c", "user.email=planner@example.org")
DAY = "2026-11-02T09:00:00Z"  # of the commit that the head of the first page shows
WHAT_IF = {"tensor": 2}  # what is moved in the panel, by its control
FOLLOWS = {"data": 512}  # with it, as the devices stay as many
TABLES = ".scroll"  # of a section, what its picture has no room for
CHANGE = 2  # of the repository of thirty plans, the commit that is commented on
LARGEST = 150_000  # bytes of a picture
PAGE_WIDTH = 1240  # pixels of a page of paper
PANEL_WIDTH, COMMENT_WIDTH = 860, 980  # of a window, which is drawn at twice its size
COLOURS, MARGIN = 24, 24
# What names a revision or a digest, which any commit changes; what is for the screen; what holds no words.
UNREAD = re.compile(r'<p class="origin">.*?</p>|<(svg|style|script|button)\b.*?</\1>', re.DOTALL)
TABLE = re.compile(r'<div class="scroll".*?</div>', re.DOTALL)
SET = re.compile(r"<(output|figcaption)\b.*?</\1>", re.DOTALL)  # of a page, what a control moves
INLINE = re.compile(r"</?(?:a|b|code|em|small|span|strong|sub|sup|wbr)\b[^>]*>")
TAG = re.compile(r"<[^>]*>")
GITHUB = """
body { margin: 0; background: #fff; color: #1f2328; font: 14px/1.5 "Noto Sans", Helvetica, Arial, sans-serif; }
article { padding: 16px; border: 1px solid #d1d9e0; border-radius: 6px; }
article > :first-child { margin-top: 0; } article > :last-child { margin-bottom: 0; }
table { border-collapse: collapse; } th, td { padding: 6px 13px; border: 1px solid #d1d9e0; text-align: left; }
tr:nth-child(2n) { background: #f6f8fa; }
code { padding: .2em .4em; border-radius: 6px; background: #eff1f3; font: 85% "Liberation Mono", monospace; }
"""


def words(page: str) -> str:
    """The words of a piece of HTML, a block of it a line; without drawings, and without what names a revision."""
    blocks = TAG.sub("\n", INLINE.sub("", UNREAD.sub("\n", page).replace("\n", " ")))
    lines = (" ".join(html.unescape(line).split()) for line in blocks.splitlines())
    return "".join(f"{line}\n" for line in lines if line)


def first_page(page: str) -> str:
    """The words of a report's first page: its header and its first section."""
    return "".join(words(part) for part in (cut(page, "<header>", "</header>"), section(page, "verdict")))


def section(page: str, name: str) -> str:
    """The HTML of a section of a report."""
    return cut(page, f'<section id="{name}"', "</section>")


def cut(page: str, begin: str, end: str) -> str:
    """What stands from one text to the next of another, both included; ValueError where they are not there."""
    start = page.index(begin)
    return page[start : page.index(end, start) + len(end)]


def report_page(found: Mapping[str, Any] | None) -> str:
    """The report's page as `ledger report` writes it where a search has found these layouts; it takes seconds."""
    from ledger.books import compile_plan
    from ledger.report.html import render
    from ledger.report.recommendations import from_record
    from ledger.report.seals.opening import sealed, with_books
    from ledger.report.write import assemble_report
    from ledger.spec.load import load_plan

    with chdir(ROOT):
        plan = load_plan(SPEC)
    with sealed(plan) as (same, seal):
        compiled = compile_plan(same)
        layouts = from_record(found) if found else None
        return render(assemble_report(compiled, ("html",), layouts, with_books(seal, compiled, layouts)))


def named_layouts(search: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What a search recommends on a first page, as a record; of the front, which is for later sections, its ends."""
    from ledger.report.recommendations import as_record, from_record

    if not search:
        return None
    found = from_record(search)
    front, points = (found.front[0], found.front[-1]), (found.points[0], found.points[-1])
    return as_record(replace(found, front=front, points=points))


def draw_report(folder: Path) -> None:
    """The first page, from the PDF of the plan's report, and the panel, from its page."""
    from ledger.report.seals.reproduction import carried_seal

    own_repository(folder)
    run(sys.executable, "-m", "ledger", "report", SPEC, "--format", "html,pdf", "--out", ".", folder=folder)
    path = folder / Path(SPEC).name
    page, paper = path.with_suffix(".html"), path.with_suffix(".pdf").read_bytes()
    found = named_layouts(carried_seal(page, page.read_bytes())[1].search)
    text = first_page(page.read_text("utf-8"))
    if text != first_page(report_page(found)):
        raise SystemExit("the first page shows more than its layouts in brief: docs/pictures/first-page.json lacks it")
    for line in cut_lines(text, paper):
        print(f"the first page has no room for: {line}", file=sys.stderr)
    (PICTURES / "first-page.json").write_text(f"{json.dumps(found, indent=1, ensure_ascii=False)}\n", "utf-8")
    keep("first-page", page_picture(paper), text)
    moves = [f"{name}={value}" for name, value in WHAT_IF.items()]
    picture, panel = element_picture(page, "#live", PANEL_WIDTH, moves)
    if missing := missing_from_panel(page.read_text("utf-8"), words(panel)):
        raise SystemExit(f"the panel does not show what the compiler says: {'; '.join(missing)}")
    keep("what-if", picture, words(panel))


def own_repository(folder: Path) -> None:
    """The plan in a repository of its planners, whose names and revision its head shows."""
    (folder / SPEC).parent.mkdir(parents=True)
    shutil.copy(ROOT / SPEC, folder / SPEC)
    run("git", "init", "--quiet", folder=folder)
    run("git", "add", SPEC, folder=folder)
    run("git", *AUTHOR, "commit", "--quiet", "--message=A plan", f"--date={DAY}", folder=folder)


def missing_from_panel(page: str, text: str) -> list[str]:
    """What the words of a moved panel lack: words that a page has before its script runs, figures that are compiled."""
    fixed = words(SET.sub("", TABLE.sub("", section(page, "live")))).splitlines()
    shown = " ".join(text.split())
    return [line for line in (*fixed, *compiled_figures()) if line not in shown]


def compiled_figures() -> list[str]:
    """The name and the value of each number of the panel, of the plan compiled with what was moved."""
    from ledger.books import compile_plan
    from ledger.books.traced import at_inputs, setting
    from ledger.report.views.live import SHOWN_NUMBERS
    from ledger.report.views.parts import total
    from ledger.spec.load import load_plan

    plan = load_plan(str(ROOT / SPEC))
    compiled = compile_plan(at_inputs(plan, {**setting(plan), **WHAT_IF, **FOLLOWS}))
    return [
        " ".join(f"{title} {total(compiled, key).text}".split())
        for key, title in SHOWN_NUMBERS
        if key in compiled.totals
    ]


def cut_lines(text: str, paper: bytes) -> list[str]:
    """The lines of a text with a word that is not on the first page of a PDF, where words may be broken."""
    from pypdf import PdfReader

    joined = re.sub(r"\W", "", PdfReader(BytesIO(paper)).pages[0].extract_text())
    return [line for line in text.splitlines() if any(re.sub(r"\W", "", word) not in joined for word in line.split())]


def draw_comment(folder: Path) -> None:
    """The comment of `ledger ci` on a change of thirty plans, as GitHub shows Markdown: what is folded is closed."""
    from markdown_it import MarkdownIt

    text = comment(folder / "plans")
    body = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    page = folder / "comment.html"
    page.write_text(f"<!doctype html><meta charset=utf-8><style>{GITHUB}</style><article>{body}</article>", "utf-8")
    keep("comment", element_picture(page, "article", COMMENT_WIDTH)[0], text)


def comment(folder: Path) -> str:
    """What `ledger ci` says in a new repository of thirty plans, of one of its changes."""
    sys.path.append(str(ROOT / "benchmarks"))
    from plan_repository import build

    commits = build(folder)
    revisions = ("--base", commits[CHANGE - 1][:7], "--head", commits[CHANGE][:7])
    return run(sys.executable, "-m", "ledger", "ci", *revisions, folder=folder)


def page_picture(paper: bytes) -> Image.Image:
    """The first page of a PDF."""
    from pypdfium2 import PdfDocument

    first = PdfDocument(paper)[0]
    picture: Image.Image = first.render(scale=PAGE_WIDTH / first.get_width()).to_pil()
    return picture


def element_picture(page: Path, selector: str, width: int, moves: Sequence[str] = ()) -> tuple[Image.Image, str]:
    """An element of a page in a window of `width` pixels with a white margin, and its HTML once controls were moved."""
    with tempfile.NamedTemporaryFile(suffix=".png") as file:
        drawn = (str(page), selector, TABLES, str(width), file.name, *moves)
        markup = run(str(ROOT / "scripts" / "screenshot"), *drawn)
        with Image.open(file.name) as picture:
            inked = ImageOps.invert(picture.convert("L")).getbbox()
            return ImageOps.expand(picture.convert("RGB").crop(inked), MARGIN, "white"), markup


def keep(name: str, picture: Image.Image, text: str) -> None:
    """Writes a picture in few colours, and the text that it shows; too large a one is no picture for a page."""
    few = picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    content = BytesIO()
    few.save(content, "PNG", optimize=True)
    if len(content.getvalue()) > LARGEST:
        raise SystemExit(f"{name}.png has {len(content.getvalue())} bytes, more than {LARGEST}")
    (PICTURES / f"{name}.png").write_bytes(content.getvalue())
    (PICTURES / f"{name}.txt").write_text(text, "utf-8")
    print(f"docs/pictures/{name}.png: {few.width} x {few.height}, {len(content.getvalue())} bytes", flush=True)


def run(*command: str, folder: Path = ROOT) -> str:
    """What a command prints; its complaints go where this script's go, and its failure ends it."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GIT_COMMITTER_DATE": DAY}
    return subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> None:
    """Draws all of them."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        draw_report(Path(name))
        draw_comment(Path(name))


if __name__ == "__main__":
    main()
