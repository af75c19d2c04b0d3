"""Lists of problems as other programs read them: nothing that a spec says can break their form."""

from __future__ import annotations

import json
from dataclasses import replace
from xml.etree import ElementTree as ET

import jsonschema
import pytest

from ledger.cli.options import as_record
from ledger.report.checked import CheckOutcome, judgement
from ledger.report.problem_formats import (
    FAILED,
    INVALID,
    PROBLEM_FORMATS,
    SKIPPED,
    JudgedSpec,
    Judgement,
    github,
    junit,
    sarif,
)
from ledger.spec.problems import Location, Problem
from ledger.spec.rules.table import RULES, WARNINGS, rule_meanings

BAD = Problem(Location("plans/bad spec.yaml", 9, 2), "100%, wrong: so", "write\nit: so", "layers_are_whole")
SMALL = Problem(Location("plans/odd.yaml", 1, 1), "too small")
ODD = Problem(Location("plans/odd.yaml", 3, 1), "odd batch", rule="headroom")
DEAR = Problem(Location("plans/dear.yaml", 5, 4), "+$5 k", rule="totals-change")
SPECS = (
    JudgedSpec("bad", "plans/bad spec.yaml", INVALID, (BAD,)),
    JudgedSpec("odd", "plans/odd.yaml", FAILED, (SMALL,), (ODD,), headline="fits: 1 GB of 2 GB"),
    JudgedSpec("good", "plans/good.yaml", headline="fits: 1 GB of 3 GB"),
    JudgedSpec("dear", "plans/dear.yaml", notes=(DEAR,)),
    JudgedSpec("gone", "plans/gone.yaml", SKIPPED, headline="deleted"),
)
JUDGED = Judgement("check", SPECS, {"headroom": "What must stay free."})
# What the standard's own schema asks of the parts that are written here: section 3 of SARIF 2.1.0 (OASIS, 2020), the
# properties that it says SHALL be there, with their types and least values.
SARIF_ESSENTIALS = {
    "type": "object",
    "required": ["version", "runs"],
    "properties": {
        "$schema": {"type": "string", "format": "uri"},
        "version": {"const": "2.1.0"},
        "runs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["tool", "results"],
                "additionalProperties": False,
                "properties": {
                    "tool": {
                        "type": "object",
                        "required": ["driver"],
                        "additionalProperties": False,
                        "properties": {
                            "driver": {
                                "type": "object",
                                "required": ["name"],
                                "properties": {
                                    "name": {"type": "string"},
                                    "rules": {
                                        "type": "array",
                                        "uniqueItems": True,
                                        "items": {
                                            "type": "object",
                                            "required": ["id"],
                                            "properties": {"shortDescription": {"required": ["text"]}},
                                        },
                                    },
                                },
                            }
                        },
                    },
                    "automationDetails": {"type": "object", "properties": {"id": {"type": "string"}}},
                    "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                    "results": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["message"],
                            "properties": {
                                "partialFingerprints": {"additionalProperties": {"type": "string"}},
                                "ruleId": {"type": "string"},
                                "ruleIndex": {"type": "integer", "minimum": -1},
                                "level": {"enum": ["none", "note", "warning", "error"]},
                                "message": {"type": "object", "required": ["text"]},
                                "locations": {
                                    "items": {
                                        "required": ["physicalLocation"],
                                        "properties": {
                                            "physicalLocation": {
                                                "required": ["artifactLocation"],
                                                "properties": {
                                                    "artifactLocation": {
                                                        "properties": {"uri": {"pattern": "^[A-Za-z0-9/%._~:-]+$"}}
                                                    },
                                                    "region": {
                                                        "properties": {
                                                            "startLine": {"type": "integer", "minimum": 1},
                                                            "startColumn": {"type": "integer", "minimum": 1},
                                                        }
                                                    },
                                                },
                                            }
                                        },
                                    }
                                },
                            },
                        },
                    },
                },
            },
        },
    },
}


def parsed(text: str) -> ET.Element:
    """A suite as a reader of XML has it."""
    return ET.fromstring(text)  # noqa: S314 - written by the test itself


def alone(*problems: Problem, spec: str = "x", file: str = "x.yaml") -> Judgement:
    """One spec that fails for some problems."""
    return Judgement("check", (JudgedSpec(spec, file, FAILED, problems),))


def test_annotations_are_escaped() -> None:
    """GitHub's workflow commands: percent signs and line ends are encoded, and in properties `:` and `,` as well."""
    named = Problem(Location("a,b:c%\n::error::.yaml", 1, 1), "so\r\n::stop-commands::x")
    evil = "::error file=a%2Cb%3Ac%25%0A%3A%3Aerror%3A%3A.yaml,line=1,col=1::so%0A::stop-commands::x\n"
    assert github(alone(named)) == evil
    assert github(JUDGED).split("\n") == [
        "::error file=plans/bad spec.yaml,line=9,col=2::100%25, wrong: so%0Awrite%0Ait: so",
        "::error file=plans/odd.yaml,line=1,col=1::too small",
        "::warning file=plans/odd.yaml,line=3,col=1::odd batch",
        "::notice file=plans/dear.yaml,line=5,col=4::+$5 k",
        "",
    ]


@pytest.mark.parametrize("specs", [SPECS, (), SPECS[2:3]])
def test_a_log_is_sarif(specs: tuple[JudgedSpec, ...]) -> None:
    """What the standard requires is there, also where nothing is wrong."""
    log = json.loads(sarif(replace(JUDGED, specs=specs)))
    jsonschema.validate(log, SARIF_ESSENTIALS)
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert all(rules[result["ruleIndex"]]["id"] == result["ruleId"] for result in run["results"])
    assert len(run["results"]) == sum(len(one.errors) + len(one.warnings) + len(one.notes) for one in specs)


def test_results_have_rule_level_and_place() -> None:
    """Paths are URIs; a rule is described by its sentence, or by its name in words."""
    (run,) = json.loads(sarif(JUDGED))["runs"]
    results = run["results"]
    told = [(one["ruleId"], one["level"]) for one in results]
    assert told == [
        ("layers_are_whole", "error"),
        ("spec", "error"),
        ("headroom", "warning"),
        ("totals-change", "note"),
    ]
    assert {rule["id"]: rule["shortDescription"]["text"] for rule in run["tool"]["driver"]["rules"]} == {
        "headroom": "What must stay free.",
        "layers_are_whole": "layers are whole",
        "spec": "spec",
        "totals-change": "totals-change",
    }
    assert results[0]["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "plans/bad%20spec.yaml"},
        "region": {"startLine": 9, "startColumn": 2},
    }


def test_fingerprints_tell_results_apart_and_stay_when_lines_move() -> None:
    """Code scanning takes results with one fingerprint for one alert, over commits as within a log."""
    moved = replace(ODD, where=replace(ODD.where, line=30))
    elsewhere = replace(ODD, where=Location("plans/other.yaml", 3, 1))

    def fingerprints(*problems: Problem) -> list[str]:
        results = json.loads(sarif(alone(*problems)))["runs"][0]["results"]
        return [one["partialFingerprints"]["ledger/v1"] for one in results]

    assert fingerprints(ODD) == fingerprints(moved)
    distinct = (ODD, moved, elsewhere, replace(ODD, rule="other"), replace(ODD, message="even batch"))
    assert len(set(fingerprints(*distinct))) == len(distinct)


def test_every_rule_on_specs_has_a_sentence() -> None:
    """A list of rules says what each one means, by the name that its problems have."""
    meanings = rule_meanings()
    assert set(meanings) == {rule.__name__ for rule in (*RULES, *WARNINGS)}
    assert all(text and "\n" not in text for text in meanings.values())
    assert meanings["heads_split"].startswith("Tensor parallelism gives every device whole")


def test_a_revision_is_its_file_in_a_checkout() -> None:
    """Programs show a problem beside the line of a file, whatever revision of it was judged."""
    old = replace(ODD, where=Location("HEAD~1:plans/odd.yaml", 3, 1))
    judged = judgement([CheckOutcome("HEAD~1:plans/odd.yaml", failures=(old,))])
    assert github(judged).startswith("::error file=plans/odd.yaml,line=3,")
    assert '"uri": "plans/odd.yaml"' in sarif(judged)
    assert 'name="HEAD~1:plans/odd.yaml" file="plans/odd.yaml"' in junit(judged)


def test_what_was_typed_stands_in_the_spec() -> None:
    """A value of `--set` is in no file: its problem is in the first line of the spec that it was typed for."""
    typed = Problem(Location("--set run.micro_batch=0", 1, 7), "too small")
    sources = {"--set run.micro_batch=0": "", "plans/odd.yaml": ""}
    judged = judgement([CheckOutcome("odd", problems=(typed,), sources=sources)])
    assert github(judged) == "::error file=plans/odd.yaml,line=1,col=1::too small (--set run.micro_batch=0)\n"


def test_a_suite_has_a_case_for_each_spec() -> None:
    """Readers of JUnit XML count cases: what is no plan is an error, what fails a failure, what is gone is skipped."""
    suites = parsed(junit(JUDGED))
    (suite,) = suites
    for element in (suites, suite):
        assert [element.get(name) for name in ("tests", "failures", "errors")] == ["5", "1", "1"]
    assert suite.get("skipped") == "1"
    bad, odd, good, dear, gone = suite
    assert [[child.tag for child in case] for case in suite] == [
        ["error"],
        ["failure", "system-out"],
        ["system-out"],
        ["system-out"],
        ["skipped"],
    ]
    assert (odd.get("name"), odd.get("file")) == ("odd", "plans/odd.yaml")
    failure = odd.find("failure")
    assert failure is not None
    assert (failure.get("message"), failure.get("type")) == ("too small", "spec")
    assert "plans/odd.yaml:3:1: warning: odd batch" in (odd.findtext("system-out") or "")
    assert (bad.findtext("error"), good.findtext("system-out")) == (
        "plans/bad spec.yaml:9:2: 100%, wrong: so\nwrite\nit: so",
        "fits: 1 GB of 3 GB",
    )
    assert dear.findtext("system-out") == "plans/dear.yaml:5:4: note: +$5 k"
    assert [child.get("message") for child in gone] == ["deleted"]


def test_errors_that_fail_no_case_are_told() -> None:
    """A verb may fail a spec by its conditions alone: its errors are then output of a case that passes."""
    (case,) = parsed(junit(Judgement("ci", (JudgedSpec("x", "x.yaml", errors=(SMALL,)),)))).iter("testcase")
    assert [child.tag for child in case] == ["system-out"]
    assert case.findtext("system-out") == "plans/odd.yaml:1:1: error: too small"


@pytest.mark.parametrize("form", list(PROBLEM_FORMATS))
def test_no_format_holds_what_is_not_seen(form: str) -> None:
    """Controls, reading order and what no XML can hold become spaces in texts and names: a parser reads them."""
    text = "]]> <b>&\x00\x1b[31m\u202e\ud800\ufffe"
    written = PROBLEM_FORMATS[form](alone(Problem(Location(f"{text}.yaml"), text, text), spec=text, file=text))
    assert not {"\x00", "\x1b", "\ud800", "\ufffe"} & set(written)
    if form == "junit":
        (case,) = parsed(written).iter("testcase")
        assert case.get("name") == case.get("file") == "]]> <b>&  [31m   "


def test_records_name_the_rule() -> None:
    """JSON has the place, the words, and what found it."""
    assert as_record(ODD) == {
        "file": "plans/odd.yaml",
        "line": 3,
        "column": 1,
        "message": "odd batch",
        "help": "",
        "rule": "headroom",
    }


@pytest.mark.parametrize("form", list(PROBLEM_FORMATS))
def test_every_format_says_what_is_wrong(form: str) -> None:
    """A format that leaves out a problem would pass what fails."""
    text = PROBLEM_FORMATS[form](JUDGED)
    assert [said for said in ("too small", "odd batch", "+$5 k") if said not in text] == []
