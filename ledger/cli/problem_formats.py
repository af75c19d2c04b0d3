"""Problems of several specs for other programs: annotations of GitHub, SARIF 2.1.0, JUnit XML."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from ledger import __version__
from ledger.report.annotations import annotation
from ledger.spec.problems import FLAG, Location, Problem

# OASIS Standard "Static Analysis Results Interchange Format (SARIF) Version 2.1.0", 27 March 2020
SARIF_VERSION = "2.1.0"
SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"
NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # W3C, XML 1.0, production 2 (Char)
SPACED = str.maketrans("_.", "  ")  # the name of a rule is a sentence
UNNAMED = "spec"  # the rule of a problem that the type of a value found


@dataclass(frozen=True)
class JudgedSpec:
    """A spec as the user named it, with what is wrong with it.

    `errors` fail it and `warnings` do not; `invalid`: the errors are such that it could not be judged. `headline` is
    the verdict in a line, `path` the spec's file, where it was named otherwise.
    """

    spec: str
    errors: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    headline: str = ""
    invalid: bool = False
    path: str = ""

    @property
    def file(self) -> str:
        """The file that the spec stands in, in a checkout."""
        return checkout_path(self.path or self.spec)

    def problems(self) -> Iterator[tuple[str, Problem]]:
        """Every problem with its level, `error` or `warning`; one of what was typed stands in the spec's first line."""
        for level, found in (("error", self.errors), ("warning", self.warnings)):
            for problem in found:
                yield level, self._in_a_file(problem)

    def _in_a_file(self, problem: Problem) -> Problem:
        """The problem where a program finds it: what was typed is in no file, a revision is checked out."""
        where = problem.where
        if not where.file.startswith(FLAG):
            return replace(problem, where=replace(where, file=checkout_path(where.file)))
        return replace(problem, where=Location(self.file), message=f"{problem.message} ({where.file})")


def checkout_path(file: str) -> str:
    """The path of a file in a checkout, also of one at a revision (`HEAD~1:specs/70b.yaml`)."""
    _, colon, path = file.partition(":")
    return path if colon and path and not Path(file).exists() else file


def github(judged: Sequence[JudgedSpec], verb: str = "") -> str:  # noqa: ARG001 - every format is asked alike
    """GitHub's workflow commands, a line each, which its runner shows beside the lines of a pull request."""
    return "".join(f"{annotation(problem, level)}\n" for one in judged for level, problem in one.problems())


def text_of(problem: Problem) -> str:
    """The message, and below it what to type instead."""
    return f"{problem.message}\n{problem.help}".strip()


def sarif(judged: Sequence[JudgedSpec], verb: str = "check") -> str:
    """One run of a SARIF log with a result for each problem; columns are counted in characters."""
    found = [pair for one in judged for pair in one.problems()]
    rules = sorted({problem.rule or UNNAMED for _, problem in found})
    listed = [{"id": rule, "shortDescription": {"text": rule.translate(SPACED)}} for rule in rules]
    run = {
        "tool": {"driver": {"name": "ledger", "version": __version__, "rules": listed}},
        "automationDetails": {"id": f"ledger/{verb}/"},
        "columnKind": "unicodeCodePoints",
        "results": [_sarif_result(level, problem, rules) for level, problem in found],
    }
    log = {"$schema": SARIF_SCHEMA, "version": SARIF_VERSION, "runs": [run]}
    return f"{json.dumps(log, indent=2, ensure_ascii=False)}\n"


def _sarif_result(level: str, problem: Problem, rules: Sequence[str]) -> dict[str, Any]:
    where, rule = problem.where, problem.rule or UNNAMED
    place = {
        "artifactLocation": {"uri": _uri(where.file)},
        "region": {"startLine": where.line, "startColumn": where.column},
    }
    return {
        "ruleId": rule,
        "ruleIndex": rules.index(rule),
        "level": level,
        "message": {"text": text_of(problem)},
        "locations": [{"physicalLocation": place}],
    }


def _uri(file: str) -> str:
    """A file as a URI reference: relative as it was named, or absolute."""
    path = Path(file)
    return path.as_uri() if path.is_absolute() else quote(file, safe="/")


def junit(judged: Sequence[JudgedSpec], verb: str = "check") -> str:
    """A suite of JUnit XML, a case a spec: `error` of one that cannot be judged, `failure` of one that fails.

    Warnings and the verdict are the output of the case. Nothing is timed.
    """
    failed = [one for one in judged if one.errors and not one.invalid]
    counts = {"tests": str(len(judged)), "failures": str(len(failed))}
    counts["errors"] = str(sum(one.invalid for one in judged))
    suites = Element("testsuites", counts)
    suite = SubElement(suites, "testsuite", {"name": f"ledger {verb}", **counts, "skipped": "0"})
    for one in judged:
        _junit_case(suite, one, verb)
    indent(suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(suites, encoding="unicode")}\n'


def _junit_case(suite: Element, one: JudgedSpec, verb: str) -> None:
    """Adds the case of a spec; readers of JUnit XML show one failure of a case, so it has all of the text."""
    named = {"classname": f"ledger.{verb}", "name": xml_text(one.spec), "file": xml_text(one.file)}
    case = SubElement(suite, "testcase", named)
    if one.errors:
        first = one.errors[0]
        said = {"message": xml_text(first.message), "type": first.rule or UNNAMED}
        SubElement(case, "error" if one.invalid else "failure", said).text = _listed(one.errors)
    if output := "\n".join(filter(None, (one.headline, _listed(one.warnings, "warning: ")))):
        SubElement(case, "system-out").text = xml_text(output)


def _listed(problems: Sequence[Problem], level: str = "") -> str:
    return xml_text("\n".join(f"{problem.where}: {level}{text_of(problem)}" for problem in problems))


def xml_text(text: str) -> str:
    """The text without characters that XML cannot hold."""
    return NO_XML.sub("\ufffd", text)


# format -> what writes it of judged specs and the verb that judged them
FORMATS: Mapping[str, Callable[[Sequence[JudgedSpec], str], str]] = {"github": github, "sarif": sarif, "junit": junit}
