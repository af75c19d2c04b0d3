"""What a change does to plans, in print: amounts that add up, the worst first, and text from files that stays text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from ledger.books import compile_plan, compile_totals
from ledger.report.escape import code, html_code
from ledger.report.gates import PlanOutcome
from ledger.report.movements import BundleTotals, Contribution, Movement
from ledger.report.problem_formats import LEVELS
from ledger.report.pull_request.comparison import compare_pair, flips, severity
from ledger.report.pull_request.markdown import MARKER, PULL_REQUEST_FORMATS, RULES, as_markdown, judgement
from ledger.report.pull_request.pairs import (
    BROKEN,
    CHANGED,
    DELETED,
    MOVED,
    NEW,
    SAME,
    Comparison,
    Flip,
    PlanChange,
    PlanPair,
    PlanVersion,
    plan_labels,
)
from ledger.report.pull_request.record import head_line
from ledger.spec.inputs import Change
from ledger.spec.load import load_plan
from ledger.spec.plan import Origin
from ledger.spec.problems import Location, Problem

ROOT = Path(__file__).resolve().parents[2]
GB, DAY = 10**9, 86400
EVIL = (
    "a|b `c` <img src=x onerror=alert(1)> @team #12 [l](http://evil.example) www.evil.example\n# h\n::error::x \u202e"
)


def outcome(dollars: float = 100e3, seconds: float = 10 * DAY, held: int = 60 * GB, wanted: int = 0) -> PlanOutcome:
    """A plan on a device of 80 GB, of which `wanted` must stay free."""
    totals = {"cost.run": dollars, "time.run": seconds, "memory.reserved": held, "memory.capacity": 80 * GB}
    return PlanOutcome(totals, held <= 80 * GB, held <= 80 * GB - wanted)


def version(name: str, path: str = "") -> PlanVersion:
    """A plan of that name, which nobody reads."""
    return PlanVersion(path or f"plans/{name}.yaml")


def changed(name: str, dollars: float = 0, seconds: float = 0, held: int = 0, **parts: object) -> PlanChange:
    """A plan that moved by so much, by one input."""
    old, new = outcome(), outcome(100e3 + dollars, 10 * DAY + seconds, 60 * GB + held)
    by = {"dollars": ("cost.run", dollars), "seconds": ("time.run", seconds), "bytes": ("memory.reserved", held)}
    moved = tuple(
        Movement(
            measure, key, old.totals[key], new.totals[key], (Contribution(("run.tokens",), amount),) if amount else ()
        )
        for measure, (key, amount) in by.items()
    )
    origin = Origin(Location(f"HEAD:plans/{name}.yaml", 3, 7))
    inputs = (Change("run.tokens", "1T tokens", "2T tokens", frozenset(), origin, origin),)
    change = PlanChange(name, PlanPair(version(name), version(name)), CHANGED, old, new, inputs, moved)
    return replace(change, **parts)  # type: ignore[arg-type]  # fields of the class


def comparison(*changes: PlanChange, count: int = 30) -> Comparison:
    """Some of thirty plans."""
    return Comparison("main", "HEAD", count, changes)


def test_the_first_line_decides() -> None:
    """How many plans change, the sums of what they cost and take, and what turned."""
    lost = replace(changed("70b", 300e3, 5 * DAY), flips=(Flip("headroom", holds=False, inputs=("run.seq_len",)),))
    found = comparison(lost, changed("8b", -2e3, -0.1 * DAY))
    assert head_line(found, str) == "2 of 30 plans change: +$298 k, +4.9 days; 70b no longer keeps its headroom"
    assert head_line(comparison(), str) == "None of 30 plans changes"
    assert head_line(comparison(changed("a", held=2 * GB)), str) == "1 of 30 plans changes: +2.00 GB a device"


def test_the_first_line_names_the_worst_and_counts_the_rest() -> None:
    """What does not compile comes before what turned; three names are read, a fourth is counted."""
    broken = PlanChange("x", PlanPair(None, version("x")), BROKEN, problems=(Problem(Location("HEAD:x.yaml"), "no"),))
    lost = [replace(changed(name), flips=(Flip("fits", holds=False),)) for name in "abcde"]
    rest = [PlanChange("n", PlanPair(None, version("n")), kind, new=outcome()) for kind in (NEW, DELETED, MOVED, SAME)]
    assert head_line(comparison(broken, *lost, *rest), str).partition("; ")[2] == (
        "x does not compile; a, b, c and 2 more no longer fit; 1 new; 1 deleted; 1 moved; 1 with the same totals"
    )


def test_the_worst_is_first() -> None:
    """What does not compile, then what fits no more, then headroom, then dollars; what moved or went comes last."""
    fits, headroom = Flip("fits", holds=False), Flip("headroom", holds=False)
    ordered = [
        PlanChange("broken", PlanPair(None, version("broken")), BROKEN),
        replace(changed("lost"), flips=(fits,)),
        PlanChange("unfit", PlanPair(None, version("unfit")), NEW, new=outcome(held=90 * GB)),
        replace(changed("tight"), flips=(headroom,)),
        replace(changed("gated", -5), failed=("cost.run < 0",)),
        changed("dear", 10),
        changed("late", 0, 10),
        changed("cheap", -10),
        PlanChange("new", PlanPair(None, version("new")), NEW, new=outcome()),
        PlanChange("gone", PlanPair(version("gone"), None), DELETED, old=outcome()),
        PlanChange("moved", PlanPair(version("m"), version("moved")), MOVED, outcome(), outcome()),
    ]
    shuffled = ordered[5:] + ordered[:5]
    assert [one.label for one in sorted(shuffled, key=severity)] == [one.label for one in ordered]


def test_thirty_plans_are_below_sixty_lines() -> None:
    """Though every plan changes by an input of its own, fails a gate, and one does not compile."""
    broken = PlanChange("x", PlanPair(None, version("x")), BROKEN, problems=(Problem(Location("x"), "no", "yes"),) * 9)
    rows = [replace(changed(f"p{number}", 5e3), failed=("cost.run > 0", "fits")) for number in range(29)]
    comment = as_markdown(replace(comparison(broken, *rows), gates=("cost.run > 0", "fits")))
    assert len(comment.splitlines()) < 60
    assert [f"| `p{number}` |" in comment for number in range(29)] == [True] * 29
    assert comment.endswith(f"\n{MARKER}\n")
    assert comment.count(MARKER) == 1


def test_many_plans_stay_within_what_a_service_takes() -> None:
    """GitHub takes 65536 characters; the marker is there whatever was cut."""
    names = [f"a-plan-with-a-long-name-{'x' * 80}-{number}" for number in range(500)]
    comment = as_markdown(comparison(*(changed(name, 5e3, 7 * DAY) for name in names), count=500))
    assert len(comment) < 65536
    assert comment.endswith(f"\n{MARKER}\n")
    assert comment.count("<details>") == comment.count("</details>")


@pytest.mark.parametrize("written", [code(EVIL), html_code(EVIL)])
def test_text_from_files_stays_text(written: str) -> None:
    """No tag, no link, no mention, no cell, no line, no reordering: it stands within code, its signs as references."""
    inner = re.fullmatch(r"<code>(.*)</code>", written)
    assert inner, "a text with a bar is code in HTML"
    assert not re.search(r"[|`<>@\[\]\n\u202e]|://|www\.|#(?!\d+;)", inner[1])


def test_plain_text_is_read_as_it_is() -> None:
    """What needs no reference is plain code, which a reader of the source can read too."""
    assert code("plans/70b.yaml @x <b>") == "`plans/70b.yaml @x <b>`"
    assert code("a\nb") == "`a b`"
    assert code("") == "`–`"
    assert code("no `a` and ``b``") == "``` no `a` and ``b`` ```"
    assert code("a `b` c") == "``a `b` c``"
    assert code("x" * 500) == f"`{'x' * 159}…`"


def evil(text: str = EVIL) -> Comparison:
    """Plans whose every text is malicious."""
    problem = Problem(Location(f"HEAD:{text}.yaml", 2, 3), text, text)
    broken = PlanChange(text, PlanPair(None, version(text)), BROKEN, problems=(problem,))
    one = changed(text, 5e3)
    inputs = (replace(one.inputs[0], path=text, old=text, new=text),)
    movements = (replace(one.movements[0], causes=(Contribution((text,), 5e3),)),)
    flip = Flip("fits", holds=False, inputs=(text,))
    return comparison(broken, replace(one, inputs=inputs, movements=movements, flips=(flip,)))


@pytest.mark.parametrize("text", [EVIL, EVIL.replace("|", " "), EVIL.replace("|", " ").replace("`", "")])
def test_comments_hold_no_markup_of_files(text: str) -> None:
    """Outside of code nothing of a file is left, and tables keep their columns."""
    comment = as_markdown(evil(text))
    ours = re.sub(r"<code>.*?</code>|(`+)[^\n]*?(?<!`)\1(?!`)", "", comment)
    assert not re.search(r"evil|team|onerror|img|error", ours), ours
    assert {line.count("|") for line in comment.splitlines() if line.startswith("|")} == {7}


def test_annotations_are_a_line_each() -> None:
    """A runner reads commands at the start of a line: no text of a file may begin one."""
    lines = PULL_REQUEST_FORMATS["github"](evil()).removesuffix("\n").split("\n")
    assert all(re.match(r"::(error|warning|notice) file=[^:]*::", line) for line in lines)
    assert len(lines) == len(judgement(evil()).problems()) > 1


def test_sarif_is_whole() -> None:
    """Each result has a rule that is listed, a level that SARIF knows, and a place within the repository."""
    log = json.loads(PULL_REQUEST_FORMATS["sarif"](replace(comparison(changed("a", 5e3)), new="HEAD")))
    assert (log["version"], len(log["runs"])) == ("2.1.0", 1)
    (result,) = log["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]) == ("plans/a.yaml", {"startLine": 3, "startColumn": 7})
    assert (result["ruleId"], result["level"]) == ("totals-change", "note")
    assert {level for level, _ in RULES.values()} <= set(LEVELS)
    uris = [
        one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        for one in json.loads(PULL_REQUEST_FORMATS["sarif"](evil()))["runs"][0]["results"]
    ]
    assert all(re.fullmatch(r"[\w.%/~-]+", uri) for uri in uris)


def test_junit_is_xml_whatever_files_say() -> None:
    """Control characters, which XML has no way to write, are spaces."""
    strange = replace(changed("a\0\x1b<b>"), failed=("cost.run > 0",))
    (suite,) = ET.fromstring(PULL_REQUEST_FORMATS["junit"](comparison(strange)))  # noqa: S314 - our own
    assert [(case.get("name"), case[0].tag) for case in suite] == [("a  <b>", "failure")]


def test_what_fails_a_case_is_what_fails_the_command() -> None:
    """A plan that does not compile is an error, one that meets a condition a failure; one that fits no more is told."""
    lost = replace(changed("lost"), flips=(Flip("fits", holds=False, inputs=("run.tokens",)),))
    broken = PlanChange("x", PlanPair(None, version("x")), BROKEN, problems=(Problem(Location("HEAD:x.yaml"), "no"),))
    gone = PlanChange("gone", PlanPair(version("gone"), None), DELETED, old=outcome())
    found = comparison(broken, lost, replace(lost, failed=("fits", "cost.run > 0")), gone, changed("dear", 5e3))
    (suite,) = ET.fromstring(PULL_REQUEST_FORMATS["junit"](found))  # noqa: S314 - our own
    assert suite.get("name") == head_line(found, str)
    assert [case[0].tag for case in suite] == ["error", "system-out", "failure", "skipped", "system-out"]
    failure = suite[2][0].text or ""
    assert [said for said in ("no longer fits", "meets `fits`", "meets `cost.run > 0`") if said not in failure] == []


@pytest.mark.parametrize(
    ("paths", "labels"),
    [
        (["plans/70b.yaml", "plans/8b.yaml"], ["70b", "8b"]),
        (["a/70b.yaml", "b/70b.yaml", "b/8b.yaml"], ["a/70b", "b/70b", "8b"]),
        (["a/x/70b.yaml", "b/x/70b.yaml"], ["a/x/70b", "b/x/70b"]),
        (["70b.yaml", "70b.yml"], ["70b", "70b"]),
    ],
)
def test_plans_are_called_by_what_tells_them_apart(paths: list[str], labels: list[str]) -> None:
    """The name of the file, with folders where two have one name."""
    assert list(plan_labels(paths).values()) == labels


def test_the_inputs_that_turn_the_verdict_are_those_that_do_it_alone() -> None:
    """First to change, each of two may turn it alone; where none does, those count without which it would not turn."""
    plan = load_plan("gpt2")
    good, bad = outcome(), outcome(held=90 * GB)

    def effect(name: str, first: PlanOutcome, last: PlanOutcome) -> BundleTotals:
        return BundleTotals((name,), plan, plan, first.totals, last.totals)

    (alone,) = flips(good, bad, [effect("a", bad, good), effect("b", good, bad)])
    assert alone == Flip("fits", holds=False, inputs=("a",))
    (both,) = flips(good, bad, [effect("a", good, good), effect("b", good, good), effect("c", good, bad)])
    assert both == Flip("fits", holds=False, inputs=("a", "b"))


def test_a_policy_may_be_what_takes_the_headroom() -> None:
    """18 GB are free: enough of 10 GB, too little of 20 GB; more tokens cost, and turn nothing."""
    text = str(ROOT / "specs" / "7b-8xh100.yaml")
    old = load_plan(text, ["assumptions.headroom=typical"])
    new = load_plan(text, ["assumptions.headroom=production", "run.tokens=200B tokens"])
    change = compare_pair(PlanPair(PlanVersion("a.yaml", old), PlanVersion("a.yaml", new)), "a")
    assert change.flips == (Flip("headroom", holds=False, inputs=("assumptions.headroom",)),)
    assert head_line(comparison(change), str).endswith("; a no longer keeps its headroom")


@pytest.mark.parametrize("name", ["gpt2", "mixtral-8x7b"])
def test_totals_alone_are_those_of_the_books(name: str) -> None:
    """What a comparison compiles is what every other verb says, but for the shares of resources."""
    plan = load_plan(name)
    whole: Mapping[str, object] = {key: one for key, one in compile_plan(plan).totals.items() if key[:5] != "pace."}
    assert compile_totals(plan) == whole


def test_a_bare_model_is_compared_by_what_it_has() -> None:
    """A parameter count has a napkin's time, and no memory but its state."""
    text = (
        "spec: ledger/1\nplan: Bare\naccelerator: h100-sxm\ncluster: {base: h100-400g, devices: 64}\n"
        "model: {parameters: 7e9}\nprecision: bf16-mixed\nparallelism: {zero: 3}\nrun: {tokens: 1T tokens}\n"
    )
    old, new = load_plan(text), load_plan(text, ["run.tokens=2T tokens"])
    pair = PlanPair(PlanVersion("b.yaml", old), PlanVersion("b.yaml", new))
    change = compare_pair(pair, "b")
    assert change.new is not None
    assert change.new.fits
    assert "| `b` | yes |" in as_markdown(comparison(change))


def test_only_a_citation_that_changed_changes_nothing() -> None:
    """Another source of a number is another document, and the same totals."""
    plan = load_plan("gpt2")
    pair = PlanPair(PlanVersion("a.yaml", plan), PlanVersion("a.yaml", replace(plan, digest="sha256:other")))
    assert pair.is_affected
    assert compare_pair(pair, "a").kind == SAME
    assert head_line(comparison(compare_pair(pair, "a")), str) == "None of 30 plans changes; 1 with the same totals"
