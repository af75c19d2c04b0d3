"""The reports of a plan as files, and the data that they are made from."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ledger.report.contract import show_record
from ledger.report.html import markdown_environment, render
from ledger.report.pdf import paper, pdf
from ledger.report.seals.seal import published_seal
from ledger.report.views import brief_tables, first_page
from ledger.report.views.parts import Report
from ledger.spec.version import short_digest
from ledger.whole_files import replace_files

if TYPE_CHECKING:
    from ledger.books.compiled import Compiled
    from ledger.report.recommendations import Recommendations
    from ledger.report.seals.seal import Seal
    from ledger.report.views.live import LiveView, LoadView


def write_report(
    report: Report, out_dir: Path, formats: Iterable[str], *, setting: Callable[..., Callable[[], bytes]] | None = None
) -> list[Path]:
    """The plan's reports in each of the formats (html, pdf, md, json), whole or not at all; KeyError for another.

    Files that would not change are left alone. `setting` begins to set what `paper` gives, in a process of its own,
    and what it returns waits for the PDF; without it everything is done here, one after the other.
    """
    makers: dict[str, Callable[[], bytes]] = {name: partial(REPORT_WRITERS[name], report) for name in formats}
    if setting and "pdf" in makers:
        makers["pdf"] = setting(*paper(report))
    contents = {name: maker() for name, maker in sorted(makers.items(), key=lambda item: item[0] == "pdf")}
    paths = [out_dir / f"{report.compiled.plan.name}.{name}" for name in makers]
    replace_files({path: contents[name] for path, name in zip(paths, makers, strict=True)})
    return paths


def as_html(report: Report) -> bytes:
    """The page as UTF-8."""
    return render(report).encode()


def as_markdown(report: Report) -> bytes:
    """Verdict, numbers, and what sections have in brief, in a page of Markdown."""
    plan = report.compiled.plan
    first = first_page(report)
    page = (
        markdown_environment()
        .get_template("report.md")
        .render(
            title=plan.title,
            name=plan.name,
            digest=short_digest(plan.digest),
            asked=first.asked,
            verdict=first,
            tables=tuple(brief_tables(report)),
        )
    )
    return page.encode()


def as_json(report: Report) -> bytes:
    """The published form of the compiled plan, as `show --json` prints it, with the seal."""
    compiled = report.compiled
    record = show_record(compiled, compiled.plan.name)
    if report.seal:
        record |= {"seal": published_seal(report.seal)}
    text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
    return f"{text}\n".encode()


REPORT_WRITERS: Mapping[str, Callable[[Report], bytes]] = {
    "html": as_html,
    "pdf": pdf,
    "md": as_markdown,
    "json": as_json,
}


# --- the data of a report ---


def assemble_report(
    compiled: Compiled,
    formats: Iterable[str],
    recommendations: Recommendations | None = None,
    seal: Seal | None = None,
    panel: Callable[[], LiveView | LoadView] | None = None,
) -> Report:
    """The report in these formats; those without charts show the plan and what is recommended, and nothing else.

    `recommendations` are those of a search of the plan's layouts; None: there was none, and the report says so.
    `seal` is what the plan was read from, which the report carries; `panel` gives the panel where it is already being
    made.
    """
    if compiled.plan.serve or not {"html", "pdf"} & set(formats):
        return Report(compiled, recommendations=recommendations, seal=seal, panel=panel)
    from ledger.evidence.nearest import nearest_microbenchmarks, nearest_runs

    return Report(
        compiled,
        sensitivities=run_elasticities(compiled),
        recommendations=recommendations,
        microbenchmarks=nearest_microbenchmarks(compiled),
        runs=nearest_runs(compiled),
        seal=seal,
        panel=panel,
    )


def run_elasticities(compiled: Compiled) -> tuple[tuple[str, str, float], ...]:
    """Path, name and elasticity of the run's length (of a step's, where the run has none) for every input with one."""
    from ledger.books.what_if.sensitivity import sensitivities

    length = "time.calendar" if compiled.plan.run.tokens else "time.step"
    effects = sensitivities(compiled, of_time_alone=True)
    rows = [(row.path, row.title, row.elasticities.get(length)) for row in effects]
    return tuple((path, title, by) for path, title, by in rows if by is not None and "price" not in path)
