"""The sections of the report, in the order a reviewer asks: one function and one row each.

A view takes the `Report` and gives frozen tables, charts and texts (`parts.py`), which a template of its name prints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ledger.report.views.choices import alternatives, sensitivity
from ledger.report.views.evidence import assumptions, evidence
from ledger.report.views.formulas import formulas, glossary
from ledger.report.views.live import live
from ledger.report.views.memory import memory
from ledger.report.views.origin import files, origin
from ledger.report.views.parts import Report, Table
from ledger.report.views.plan import plan
from ledger.report.views.served import service as of_service
from ledger.report.views.served import verdict as of_verdict
from ledger.report.views.served.service import serving
from ledger.report.views.time import time
from ledger.report.views.verdict import VerdictView, checklist, verdict
from ledger.report.views.work import communication, roofline


@dataclass(frozen=True)
class Section:
    """A section: its anchor, which is also its template's name, its title, and the function that fills it.

    One that is a table needs no template. A `scripted` one is on the screen alone, hidden until its script runs;
    `brief` picks the tables of one that Markdown has as well.
    """

    name: str
    title: str
    view: Callable[[Report], object | None]
    scripted: bool = False
    brief: Callable[[Any], Iterable[Table | None]] | None = None


LAST_SECTIONS = (  # of every report
    Section("checklist", "Checklist", checklist, brief=lambda view: (view,)),
    Section("formulas", "Formulas", formulas),
    Section("assumptions", "Assumptions", assumptions),
    Section("glossary", "Symbols", glossary),
    Section("origin", "Origin", origin, brief=lambda view: (view,)),
    Section("files", "Files", files, brief=lambda view: (view,)),
)
SECTIONS = (
    Section("verdict", "Verdict", verdict),
    Section("plan", "The plan", plan),
    Section("memory", "Does it fit?", memory, brief=lambda view: (view.table,)),
    Section("time", "How long?", time, brief=lambda view: (view.run, view.conventions)),
    Section("roofline", "Roofline", roofline),
    Section("communication", "Communication", communication),
    Section("live", "What if?", live, scripted=True),
    Section("sensitivity", "Sensitivity", sensitivity),
    Section("alternatives", "Alternatives", alternatives),
    Section("serving", "Serving", serving),
    Section("evidence", "Evidence", evidence),
    *LAST_SECTIONS,
)
SERVED_SECTIONS = (
    Section("verdict", "Verdict", of_verdict.verdict),
    Section("plan", "The plan", plan),
    Section("service", "How fast?", of_service.service, brief=lambda view: (view.curve, view.rates)),
    Section("memory", "Does it fit?", memory, brief=lambda view: (view.table,)),
    Section("phases", "Rooflines of both passes", of_service.phases),
    Section("load", "What if?", live, scripted=True),
    *LAST_SECTIONS,
)


def first_page(report: Report) -> VerdictView:
    """What a reviewer reads first."""
    return of_verdict.verdict(report) if report.compiled.plan.serve else verdict(report)


def sections_of(report: Report) -> tuple[Section, ...]:
    """The sections of a plan that trains, or of one that serves."""
    return SERVED_SECTIONS if report.compiled.plan.serve else SECTIONS


def filled_sections(report: Report, *, screen: bool = False) -> tuple[tuple[Section, object], ...]:
    """The sections that have something to say, with their data; on paper without those that need a script."""
    sections = [section for section in sections_of(report) if screen or not section.scripted]
    # A scripted section waits for what another process makes, so it is filled when all others are.
    filled = {section.name: section.view(report) for section in sorted(sections, key=lambda section: section.scripted)}
    return tuple((section, filled[section.name]) for section in sections if filled[section.name] is not None)


def section_numbers(sections: Iterable[tuple[Section, object]]) -> dict[str, int]:
    """The number of each section by its name, the same on the screen and on paper: scripted ones have none."""
    names = (section.name for section, _ in sections if not section.scripted)
    return {name: number for number, name in enumerate(names, start=1)}


def brief_tables(report: Report) -> Iterator[Table]:
    """The tables of the sections that Markdown has."""
    for section in sections_of(report):
        data = section.view(report) if section.brief else None
        if section.brief and data is not None:
            yield from (table for table in section.brief(data) if table)
