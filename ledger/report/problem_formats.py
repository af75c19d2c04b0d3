"""What verbs find of specs, for other programs: annotations of GitHub, SARIF 2.1.0, JUnit XML."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from ledger.numbers import THIN
from ledger.report.escape import with_visible_spaces
from ledger.spec.problems import Problem
from ledger.spec.version import VERSION

# OASIS Standard "Static Analysis Results Interchange Format (SARIF) Version 2.1.0", 27 March 2020
SARIF_VERSION = "2.1.0"
SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"
ERROR, WARNING, NOTE = LEVELS = ("error", "warning", "note")
PASSED, FAILED, INVALID, SKIPPED = "passed", "failed", "invalid", "skipped"
ELEMENTS = {FAILED: "failure", INVALID: "error"}  # of JUnit XML, what fails a case
GITHUB_COMMANDS = {ERROR: "error", WARNING: "warning", NOTE: "notice"}
GITHUB_ESCAPES = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
GITHUB_PROPERTY_ESCAPES = GITHUB_ESCAPES | str.maketrans({":": "%3A", ",": "%2C"})
SPACED = str.maketrans("_.", "  ")  # the name of a rule is a sentence
UNNAMED = "spec"  # the rule of a problem that the type of a value found


@dataclass(frozen=True)
class JudgedSpec:
    """A spec as the user named it, its file in a checkout, and what is said of it, each problem at its place there.

    `status`: `passed`; `failed`, for its errors; `invalid`, where they are such that it could not be judged; `skipped`.
    `headline` is the verdict in a line, or why the spec was skipped.
    """

    spec: str
    file: str
    status: str = PASSED
    errors: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    notes: tuple[Problem, ...] = ()
    headline: str = ""

    def problems(self) -> Iterator[tuple[str, Problem]]:
        """Every problem with its level, the gravest first."""
        for level, problems in zip(LEVELS, (self.errors, self.warnings, self.notes), strict=True):
            for problem in problems:
                yield level, problem


@dataclass(frozen=True)
class Judgement:
    """What a verb says of specs: `headline` of all of them, `meanings` a sentence of each rule, by its name."""

    verb: str
    specs: tuple[JudgedSpec, ...]
    meanings: Mapping[str, str] = field(default_factory=dict)
    headline: str = ""

    def problems(self) -> list[tuple[str, Problem]]:
        """Every problem of every spec with its level."""
        return [pair for spec in self.specs for pair in spec.problems()]

    def meaning(self, rule: str) -> str:
        """What a rule says; of one without a sentence, its name in words."""
        return self.meanings.get(rule, rule.translate(SPACED))


def readable(text: str) -> str:
    """The text in its lines, without other characters that are not seen: these are all that XML cannot hold."""
    return "\n".join(with_visible_spaces(line.rstrip("\r")) for line in text.replace(THIN, " ").split("\n"))


def text_of(problem: Problem) -> str:
    """The message, and below it what to type instead."""
    return readable(f"{problem.message}\n{problem.help}".strip())


def github(judgement: Judgement) -> str:
    """GitHub's workflow commands, a line each, which its runner shows beside the lines of a pull request."""
    lines = []
    for level, problem in judgement.problems():
        where, text = problem.where, text_of(problem).translate(GITHUB_ESCAPES)
        file = readable(where.file).translate(GITHUB_PROPERTY_ESCAPES)
        lines.append(f"::{GITHUB_COMMANDS[level]} file={file},line={where.line},col={where.column}::{text}\n")
    return "".join(lines)


def sarif(judgement: Judgement) -> str:
    """One run of a SARIF log with a result for each problem; columns are counted in characters."""
    problems = judgement.problems()
    rules = sorted({problem.rule or UNNAMED for _, problem in problems})
    listed = [{"id": rule, "shortDescription": {"text": judgement.meaning(rule)}} for rule in rules]
    fingerprints = _fingerprints([problem for _, problem in problems])
    run = {
        "tool": {"driver": {"name": "ledger", "version": VERSION, "rules": listed}},
        "automationDetails": {"id": f"ledger/{judgement.verb}/"},
        "columnKind": "unicodeCodePoints",
        "results": [
            {**_sarif_result(level, problem, rules), "partialFingerprints": {"ledger/v1": fingerprint}}
            for (level, problem), fingerprint in zip(problems, fingerprints, strict=True)
        ],
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


def _fingerprints(problems: Sequence[Problem]) -> Iterator[str]:
    """What stays of each problem when lines move: its rule, file and words, and which of its equals it is."""
    counts: Counter[str] = Counter()
    for problem in problems:
        words = "\0".join((problem.rule or UNNAMED, problem.where.file, text_of(problem)))
        counts[words] += 1
        digest = sha256(words.encode("utf-8", "surrogatepass"))
        yield f"{digest.hexdigest()}:{counts[words]}"


def _uri(file: str) -> str:
    """A file as a URI reference: relative as it was named, or absolute."""
    quoted = quote(file, safe="/", errors="surrogatepass")
    return f"file://{quoted}" if Path(file).is_absolute() else quoted


def junit(judgement: Judgement) -> str:
    """A suite of JUnit XML, a case a spec: `error` of one that cannot be judged, `failure` of one that fails.

    What does not fail a case is its output, with the verdict. Nothing is timed.
    """
    statuses = Counter(spec.status for spec in judgement.specs)
    counts = {"tests": str(len(judgement.specs)), "failures": str(statuses[FAILED]), "errors": str(statuses[INVALID])}
    suites = Element("testsuites", {"name": f"ledger {judgement.verb}", **counts})
    name = readable(judgement.headline) or f"ledger {judgement.verb}"
    suite = SubElement(suites, "testsuite", {"name": name, **counts, "skipped": str(statuses[SKIPPED])})
    for spec in judgement.specs:
        _junit_case(suite, spec, judgement.verb)
    indent(suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(suites, encoding="unicode")}\n'


def _junit_case(suite: Element, spec: JudgedSpec, verb: str) -> None:
    """Adds the case of a spec; readers of JUnit XML show one failure of a case, so it has all of the text."""
    named = {"classname": f"ledger.{verb}", "name": readable(spec.spec), "file": readable(spec.file)}
    case = SubElement(suite, "testcase", named)
    headline, output_problems = spec.headline, list(spec.problems())
    if spec.status in ELEMENTS:
        first = spec.errors[0]
        said = {"message": readable(first.message), "type": first.rule or UNNAMED}
        failure = SubElement(case, ELEMENTS[spec.status], said)
        failure.text = "\n".join(_problem_line("", problem) for problem in spec.errors)
        output_problems = output_problems[len(spec.errors) :]
    elif spec.status == SKIPPED:
        SubElement(case, "skipped", {"message": readable(headline)})
        headline = ""
    lines = (readable(headline), *(_problem_line(f"{level}: ", problem) for level, problem in output_problems))
    if output := "\n".join(filter(None, lines)):
        SubElement(case, "system-out").text = output


def _problem_line(level: str, problem: Problem) -> str:
    return f"{readable(str(problem.where))}: {level}{text_of(problem)}"


# format -> what writes it
PROBLEM_FORMATS: Mapping[str, Callable[[Judgement], str]] = {"github": github, "sarif": sarif, "junit": junit}
