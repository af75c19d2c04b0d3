"""A comparison of plans as files: HTML, PDF, Markdown and JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from markupsafe import Markup

from ledger.numbers import THIN
from ledger.report import assets
from ledger.report.compare.choice import PlanComparison, choice_sentences
from ledger.report.compare.page import comparison_view
from ledger.report.compare.record import comparison_record
from ledger.report.escape import code
from ledger.report.html import content_policy, environment, markdown_environment, stylesheet
from ledger.report.pdf import AttachedFile, render_pdf
from ledger.whole_files import replace_files


def write_comparison(comparison: PlanComparison, out: Path, formats: Iterable[str]) -> list[Path]:
    """The files of a comparison in each of the formats, whole or not at all; those that would not change stay."""
    files = {out / f"{comparison.file_name}.{name}": COMPARISON_FORMATS[name](comparison) for name in formats}
    replace_files(files)
    return list(files)


def as_html(comparison: PlanComparison) -> bytes:
    """One page that needs no network, as UTF-8."""
    return render(comparison, screen=True).encode()


def as_pdf(comparison: PlanComparison) -> bytes:
    """The comparison as a PDF, with the text of each plan attached."""
    texts = {plan.label: plan.compiled.plan.text for plan in comparison.plans}
    files = [
        AttachedFile(f"{label.replace('/', '-')}.yaml", text, "a plan that is compared")
        for label, text in texts.items()
    ]
    return render_pdf(render(comparison, screen=False), comparison.file_name, "", files)


def render(comparison: PlanComparison, *, screen: bool) -> str:
    """The page, for the screen with a script and its policy."""
    style = stylesheet() + assets.text("compare.css")
    script = assets.text("script.js") if screen else ""
    return (
        environment()
        .get_template("compare.html")
        .render(
            screen=screen,
            view=comparison_view(comparison),
            style=Markup(style),  # noqa: S704 - the project's own files
            script=Markup(script),  # noqa: S704 - the project's own file
            policy=content_policy(style, script),
        )
    )


def as_markdown(comparison: PlanComparison) -> bytes:
    """The comparison's tables as Markdown, in which no text of a plan is markup."""
    view = comparison_view(comparison)
    page = (
        markdown_environment()
        .get_template("compare.md")
        .render(
            view=view,
            sentences=[Markup(text) for text in choice_sentences(comparison.choice, code)],  # noqa: S704 - names are code
            figures=[figure.table for _, figure in view.figures],
            differences=view.differences,
            origin=view.origin,
        )
    )
    return f"{page.strip()}\n".replace(THIN, " ").encode()


def as_json(comparison: PlanComparison) -> bytes:
    """The published form, as `compare --json` prints it."""
    text = json.dumps(comparison_record(comparison), indent=1, ensure_ascii=False, allow_nan=False)
    return f"{text}\n".encode()


COMPARISON_FORMATS: Mapping[str, Callable[[PlanComparison], bytes]] = {
    "html": as_html,
    "pdf": as_pdf,
    "md": as_markdown,
    "json": as_json,
}
