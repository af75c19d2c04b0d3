"""A comparison as a JUnit report: a test case a plan."""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement, indent, tostring

from ledger.numbers import THIN
from ledger.report.escape import one_line
from ledger.report.pull_request.plan_changes import (
    DELETED,
    Comparison,
    PlanChange,
)
from ledger.report.pull_request.wording import cause_texts, head_line

LONGEST = 1000  # characters of a message


def as_junit(comparison: Comparison) -> str:
    """Plans that do not compile are errors, plans on which a condition of --fail-on is met failures."""
    errors = sum(bool(change.problems) for change in comparison.changes)
    failures = sum(bool(change.failed) for change in comparison.changes)
    counts = {"tests": str(len(comparison.changes)), "failures": str(failures), "errors": str(errors)}
    top = Element("testsuites", {"name": "ledger ci", **counts})
    suite = SubElement(top, "testsuite", {"name": said(head_line(comparison, str)), **counts})
    for change in comparison.changes:
        add_case(suite, change)
    indent(top)
    return f"<?xml version='1.0' encoding='UTF-8'?>\n{tostring(top, encoding='unicode')}\n"


def add_case(suite: Element, change: PlanChange) -> None:
    """A plan with what fails it."""
    case = SubElement(suite, "testcase", {"classname": said(change.path), "name": said(change.label)})
    for problem in change.problems:
        body = SubElement(case, "error", {"message": said(problem.message), "type": "does not compile"})
        body.text = said(f"{problem} {problem.help}")
    for gate in change.failed:
        body = SubElement(case, "failure", {"message": said(gate), "type": "--fail-on"})
        body.text = said("; ".join(cause_texts(change, str)))
    if change.kind == DELETED:
        SubElement(case, "skipped", {"message": "deleted"})


def said(text: str) -> str:
    """A text on one line, of characters that XML takes."""
    return one_line(text.replace(THIN, " "), LONGEST)
