"""Lists of problems as other programs read them: nothing that a spec says can break their form."""

from __future__ import annotations

import json
from dataclasses import replace
from xml.etree import ElementTree as ET

import jsonschema
import pytest

from ledger.cli.problem_formats import FORMATS, JudgedSpec, github, junit, sarif
from ledger.cli.problems import as_record
from ledger.report.annotations import annotation
from ledger.spec.problems import Location, Problem

BAD = Problem(Location("plans/bad spec.yaml", 9, 2), "100%, wrong: so", "write\nit: so", "layers_are_whole")
ODD = Problem(Location("plans/odd.yaml", 3, 1), "odd batch", rule="headroom")
TYPED = Problem(Location("--set run.micro_batch=0", 1, 7), "too small")
JUDGED = (
    JudgedSpec("plans/bad spec.yaml", (BAD,), invalid=True),
    JudgedSpec("odd", (TYPED,), (ODD,), "fits: 1 GB of 2 GB", path="plans/odd.yaml"),
    JudgedSpec("plans/good.yaml", headline="fits: 1 GB of 3 GB"),
)
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


def test_annotations_are_escaped() -> None:
    """GitHub's workflow commands: percent signs and line ends are encoded, and in properties `:` and `,` as well."""
    named = Problem(Location("a,b:c%\n::error::.yaml", 1, 1), "so\r\n::stop-commands::x")
    evil = "::error file=a%2Cb%3Ac%25%0A%3A%3Aerror%3A%3A.yaml,line=1,col=1::so%0D%0A::stop-commands::x"
    assert annotation(named, "error") == evil
    assert github([JudgedSpec("x", (BAD,), (ODD,))]).split("\n") == [
        "::error file=plans/bad spec.yaml,line=9,col=2::100%25, wrong: so%0Awrite%0Ait: so",
        "::warning file=plans/odd.yaml,line=3,col=1::odd batch",
        "",
    ]


@pytest.mark.parametrize("judged", [JUDGED, (), JUDGED[2:]])
def test_a_log_is_sarif(judged: tuple[JudgedSpec, ...]) -> None:
    """What the standard requires is there, also where nothing is wrong."""
    log = json.loads(sarif(judged))
    jsonschema.validate(log, SARIF_ESSENTIALS)
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert all(rules[result["ruleIndex"]]["id"] == result["ruleId"] for result in run["results"])
    assert len(run["results"]) == sum(len(one.errors) + len(one.warnings) for one in judged)


def test_results_have_rule_level_and_place() -> None:
    """Paths are URIs, and what was typed stands in the first line of the spec that it was typed for."""
    results = json.loads(sarif(JUDGED))["runs"][0]["results"]
    told = [(one["ruleId"], one["level"]) for one in results]
    assert told == [("layers_are_whole", "error"), ("spec", "error"), ("headroom", "warning")]
    places = [one["locations"][0]["physicalLocation"] for one in results]
    assert places[0] == {
        "artifactLocation": {"uri": "plans/bad%20spec.yaml"},
        "region": {"startLine": 9, "startColumn": 2},
    }
    assert places[1]["artifactLocation"] == {"uri": "plans/odd.yaml"}
    assert places[1]["region"] == {"startLine": 1, "startColumn": 1}
    assert results[1]["message"]["text"] == "too small (--set run.micro_batch=0)"


def test_a_revision_is_its_file_in_a_checkout() -> None:
    """Programs show a problem beside the line of a file, whatever revision of it was judged."""
    old = JudgedSpec("HEAD~1:plans/odd.yaml", (replace(ODD, where=Location("HEAD~1:plans/odd.yaml", 3, 1)),))
    assert github([old]).startswith("::error file=plans/odd.yaml,line=3,")
    assert '"uri": "plans/odd.yaml"' in sarif([old])
    assert 'name="HEAD~1:plans/odd.yaml" file="plans/odd.yaml"' in junit([old])


def test_a_suite_has_a_case_for_each_spec() -> None:
    """Readers of JUnit XML count cases: one that is no plan is an error, one that fails a failure, others pass."""
    suites = parsed(junit(JUDGED))
    (suite,) = suites
    for element in (suites, suite):
        assert [element.get(name) for name in ("tests", "failures", "errors")] == ["3", "1", "1"]
    bad, odd, good = suite
    assert [[child.tag for child in case] for case in (bad, odd, good)] == [
        ["error"],
        ["failure", "system-out"],
        ["system-out"],
    ]
    assert (odd.get("name"), odd.get("file")) == ("odd", "plans/odd.yaml")
    failure = odd.find("failure")
    assert failure is not None
    assert (failure.get("message"), failure.get("type")) == ("too small", "spec")
    assert "plans/odd.yaml:3:1: warning: odd batch" in (odd.findtext("system-out") or "")


def test_xml_holds_whatever_a_spec_says() -> None:
    """Markup is escaped, and what no XML can hold is replaced: a parser reads every suite."""
    evil = Problem(Location("a.yaml"), "]]> <b>&\x00\x1b[31m\ud800")
    (case,) = parsed(junit([JudgedSpec("<a>\x08", (evil,))])).iter("testcase")
    assert case.get("name") == case.get("file") == "<a>\ufffd"
    assert case.findtext("failure") == "a.yaml:1:1: ]]> <b>&\ufffd\ufffd[31m\ufffd"


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


@pytest.mark.parametrize("form", list(FORMATS))
def test_every_format_says_what_is_wrong(form: str) -> None:
    """A format that leaves out a problem would pass what fails."""
    text = FORMATS[form](JUDGED, "check")
    assert "odd batch" in text
    assert "too small" in text
