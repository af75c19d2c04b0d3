"""The live page against the compiler: the emitted script runs in Node, and says what `ledger.compile` says."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from math import isclose
from pathlib import Path
from typing import Any

import pytest
import sympy

import ledger
from ledger import numbers
from ledger.books import passes, prices
from ledger.books.memory.holdings import CATEGORIES
from ledger.books.results import Compiled
from ledger.model.dims import symbol
from ledger.model.tensors import CeilDiv
from ledger.report import assets, html, live
from ledger.report.javascript import Formulas, literal
from ledger.report.views.parts import Report
from ledger.spec.plan import Plan
from ledger.spec.problems import SpecError

SPECS = Path(__file__).resolve().parents[2] / "specs"
PATHS = {**dict.fromkeys(live.RUN, "run"), **dict.fromkeys(live.AXES, "parallelism")}
BYTES = ("memory.peak", "memory.reserved", "memory.capacity", *(f"memory.{name}" for name in CATEGORIES))
FLOATS = ("time.step", "time.step.low", "time.step.high", "tokens_per_second", "time.run", "cost.run")
EXACT = 1e-12

# Under each plan: every control once up and once down, and moves that change which formulas hold: from one
# micro-batch a step to several and back, past the nodes of a mesh axis, other stages, two stages without an inner one.
CHOICES: Mapping[str, Sequence[dict[str, int]]] = {
    "70b": (
        {"micro_batch": 1},
        {"micro_batch": 4},
        {"seq_len": 1024},
        {"seq_len": 65536, "micro_batch": 1},
        {"global_batch": 8192},
        {"data": 64},
        {"data": 2, "micro_batch": 2},
        {"data": 192, "global_batch": 1536},
        {"tensor": 2},
        {"tensor": 4, "data": 256, "micro_batch": 4},
        {"tensor": 4, "seq_len": 2048, "global_batch": 4096},
        {"micro_batch": 3, "global_batch": 3072, "seq_len": 3072},
    ),
    "405b": (
        {"micro_batch": 3},
        {"seq_len": 4096},
        {"seq_len": 131072},
        {"global_batch": 2016},
        {"global_batch": 16},
        {"data": 8},
        {"data": 48},
        {"tensor": 4},
        {"tensor": 2, "pipeline": 18},
        {"pipeline": 2},
        {"pipeline": 3},
        {"pipeline": 18, "data": 8, "global_batch": 1024},
        {"context": 4},
        {"context": 8, "seq_len": 65536, "tensor": 4},
    ),
    "7b-8xh100": (
        {"micro_batch": 1},
        {"micro_batch": 2},
        {"micro_batch": 8, "global_batch": 64},
        {"seq_len": 512},
        {"seq_len": 256, "micro_batch": 1},
        {"seq_len": 16384, "micro_batch": 1},
        {"global_batch": 64},
        {"global_batch": 1024},
        {"data": 2},
        {"data": 4},
        {"data": 16, "global_batch": 64},
        {"data": 64, "global_batch": 4096, "micro_batch": 16},
    ),
    "gpt2": (
        {"micro_batch": 1},
        {"micro_batch": 60},
        {"micro_batch": 4},
        {"seq_len": 256},
        {"seq_len": 512},
        {"seq_len": 768, "micro_batch": 6},
        {"global_batch": 96},
        {"global_batch": 960},
        {"data": 2},
        {"data": 4},
        {"data": 40},
        {"data": 16, "global_batch": 1152, "micro_batch": 24},
    ),
}
ILLEGAL: Mapping[str, Sequence[dict[str, int]]] = {
    "70b": (
        {"tensor": 16},
        {"tensor": 3},
        {"micro_batch": 3},
        {"data": 3, "tensor": 4, "global_batch": 768},
        {"seq_len": 1020},
        {"data": 256},
    ),
    "405b": ({"pipeline": 4}, {"context": 3}, {"global_batch": 1000}, {"tensor": 16, "pipeline": 5}),
    "gpt2": ({"seq_len": 2048}, {"micro_batch": 7, "data": 12}),
}


def node(script: str) -> Any:
    """What a script prints, as JSON. Node is part of the tools that tests need: without it they fail."""
    program = shutil.which("node")
    assert program, "these tests run the page's script: install Node.js 18 or newer (`apt-get install nodejs`)"
    done = subprocess.run([program, "-"], input=script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@cache
def compiled_plan(name: str) -> Compiled:
    """A plan of the library with its books closed."""
    return ledger.compile(str(SPECS / f"{name}.yaml"))


def plan(name: str) -> Plan:
    """A plan of the library."""
    return compiled_plan(name).plan


def asked(name: str, call: str, choices: Sequence[Mapping[str, int]]) -> list[Any]:
    """What the page computes for each choice over the plan's own sizes."""
    script = f'"use strict";\n{live.calculator(plan(name))}\nconst choices = {json.dumps(choices)};\n'
    found: list[Any] = node(f"{script}console.log(JSON.stringify(choices.map((c) => {call}({{...PLAN.own, ...c}}))));")
    return found


def overrides(name: str, chosen: Mapping[str, int]) -> list[str]:
    """The same choice as a user of the command line would type it; devices follow the degrees."""
    mesh = {axis: chosen.get(axis, getattr(plan(name).parallelism, axis)) for axis in live.AXES}
    devices = mesh["data"] * mesh["tensor"] * mesh["pipeline"] * mesh["context"]
    return [f"cluster.devices={devices}", *(f"{PATHS[key]}.{key}={value}" for key, value in chosen.items())]


@pytest.mark.parametrize("name", CHOICES)
def test_the_page_says_what_the_compiler_says(name: str) -> None:
    """Bytes are equal, seconds, rates and dollars are to 1e-12; so are peak moment, limit, verdict and devices."""
    choices = ({}, *CHOICES[name])
    for chosen, found in zip(choices, asked(name, "evaluate", choices), strict=True):
        compiled = ledger.compile(str(SPECS / f"{name}.yaml"), overrides(name, chosen))
        wrong = {
            key: (found["totals"][key], compiled.totals[key])
            for key in (*BYTES, *FLOATS)
            if not agrees(key, found, compiled.totals)
        }
        assert not wrong, (chosen, wrong)
        worst = max(compiled.roles, key=lambda role: role.peak.total)
        assert found["moment"] == worst.peak.title, chosen
        assert found["bottleneck"] == compiled.verdict.bottleneck, chosen
        assert found["fits"] == compiled.verdict.fits, chosen
        assert found["devices"] == compiled.plan.cluster.devices, chosen


def agrees(key: str, found: Mapping[str, Any], totals: Mapping[str, Any]) -> bool:
    """Whether one total of the page is the compiler's."""
    mine, theirs = found["totals"][key], totals[key]
    return mine == theirs if key in BYTES else isclose(mine, float(theirs), rel_tol=EXACT)


@pytest.mark.parametrize("name", ILLEGAL)
def test_the_page_refuses_what_the_spec_refuses(name: str) -> None:
    """An illegal choice has the compiler's own words against it, and no others."""
    for chosen, found in zip(ILLEGAL[name], asked(name, "(c => [...problems(c)])", ILLEGAL[name]), strict=True):
        with pytest.raises(SpecError) as refused:
            ledger.compile(str(SPECS / f"{name}.yaml"), overrides(name, chosen))
        assert {message for message, _ in found} == {problem.message for problem in refused.value.problems}, chosen


@pytest.mark.parametrize("name", CHOICES)
def test_what_controls_offer_is_legal_by_itself(name: str) -> None:
    """No control offers a value that a rule refuses whatever the other sizes are; the plan's own is among them."""
    offered = live.stops(plan(name))
    for key, values in offered.items():
        assert live.own(plan(name))[key] in values
        alone = [{key: value} for value in values]
        refused = [m for found in asked(name, "(c => [...problems(c)])", alone) for m, _ in found]
        joint = ("global_batch", "no whole number of nodes", "(sequence parallel)")
        assert all(any(words in message for words in joint) for message in refused), (key, refused)


def test_axes_that_are_one_stay_one() -> None:
    """Formulas hold within a structure: an axis that is not split is not offered, one that is stays split."""
    found = live.stops(plan("7b-8xh100"))
    assert found["tensor"] == found["pipeline"] == found["context"] == [1]
    assert min(found["data"]) == 2
    assert live.stops(plan("405b"))["pipeline"] == [2, 3, 6, 9, 18]  # 126 layers in chunks of seven a stage


def test_tables_of_the_script_name_what_the_books_name() -> None:
    """A form of price, a collective, an order of axes or a pass that the books gain is missed here first."""
    tables = "{forms: Object.keys(FORMS), factor: Object.keys(FACTOR), order: ORDER, passes: PASSES}"
    found = node(f"{live.calculator(plan('gpt2'))}\nconsole.log(JSON.stringify({tables}));")
    assert set(found["forms"]) == set(prices.FORMS)
    assert set(found["factor"]) == set(prices.FACTOR)
    assert found["order"] == list(prices.ORDER)
    assert found["passes"] == {name: list(phases) for name, phases in passes.PASSES.items()}


@pytest.mark.parametrize("name", CHOICES)
def test_the_script_stays_small_and_reads_nothing_from_text(name: str) -> None:
    """A strict policy forbids code from text, and a page should open at once: below 120 kB, without `eval`."""
    script = live.script(plan(name))
    assert len(script.encode()) < 120_000
    assert not re.search(r"\beval\b|new Function|setTimeout\(\s*[\"']|innerHTML|</", script)


def test_formulas_are_written_once_and_whole_numbers_stay_whole() -> None:
    """Products come before quotients, shared parts have a name, and integers beyond 2**53 become floats."""
    batch, seq, tensor = symbol("batch"), symbol("seq"), symbol("tensor")
    formulas = Formulas()
    shared = batch * seq + 1
    rows = [
        7 * batch * seq / tensor,
        sympy.Rational(3, 4) * shared**2,
        shared * tensor,
        CeilDiv(batch * seq, 2 * tensor),
        sympy.Integer(2**60),
        -batch,
        sympy.Rational(-2, 3),
        shared - tensor,
    ]
    assert [formulas.number(row) for row in (*rows, *rows)] == [*range(len(rows)), *range(len(rows))]
    script = formulas.function("formulas")
    found = node(f"{script}\nconsole.log(JSON.stringify(formulas({{B: 3, S: 5, tp: 7}})));")
    assert found == [15, 0.75 * 256, 112, 2, pytest.approx(2**60, rel=1e-15), -3, -2 / 3, 9]
    assert script.count("B * S + 1") + script.count("1 + B * S") + script.count("1 + _0") + script.count("_0 + 1") == 1


def test_data_cannot_end_its_script() -> None:
    """A title from a plan may hold markup; inside a script it is text."""
    assert "<" not in literal({"title": "</script><b>"})
    assert node(f"console.log(JSON.stringify({literal({'title': '</script>'})}));") == {"title": "</script>"}


# As much of a document as the panel touches: every selector finds an element, which remembers what is written to it.
DOCUMENT = """
const element = () => ({
  hidden: true, textContent: "", value: "0", max: "0", className: "", dataset: {},
  attributes: {}, listeners: {}, found: {},
  labels: [{ classList: { toggle() {} } }], classList: { names: {}, toggle(name, on) { this.names[name] = on; } },
  setAttribute(name, value) { this.attributes[name] = value; },
  addEventListener(name, heard) { this.listeners[name] = heard; },
  querySelector(selector) { return (this.found[selector] ??= element()); },
  querySelectorAll(selector) { return (this.found[selector] ??= []); },
});
const panelElement = element(), section = element();
const names = ["micro_batch", "seq_len", "global_batch", "data"];
const ranges = names.map((name) => ({ ...element(), id: name, dataset: { name } }));
const reserved = Object.assign(element(), { dataset: { key: "memory.reserved" } });
panelElement.found = { "input[type=range]": ranges, "[data-key]": [reserved] };
const document = { getElementById: () => panelElement, querySelectorAll: () => [section] };
const move = (index, by) => {
  ranges[index].value = String(Number(ranges[index].value) + by);
  ranges[index].listeners.input();
};
const said = (part) => panelElement.querySelector(`[data-part="${part}"]`).textContent;
const state = () => [said("answer"), reserved.querySelector("[data-value]").textContent, said("problems")];
"""


def test_the_panel_follows_its_controls() -> None:
    """A moved control moves verdict and numbers; an illegal choice is explained and the last numbers stay."""
    moves = "const seen = [state()]; move(0, -1); seen.push(state()); move(3, 1); seen.push(state(), section.hidden);"
    seen = node(f"{DOCUMENT}\n{live.script(plan('7b-8xh100'))}\n{moves}\nconsole.log(JSON.stringify(seen));")
    own = compiled_plan("7b-8xh100").totals["memory.reserved"]
    assert seen[0] == ["Fits", numbers.size(own), ""]
    assert seen[1][0] == "Not possible"  # 32 sequences are no multiple of 8 x 3
    assert "global_batch = 32 is no multiple of data x micro_batch = 8 x 3 = 24" in seen[1][2]
    assert seen[1][1] == seen[0][1]
    assert seen[3] is False


@pytest.mark.parametrize(
    ("function", "unit", "values"),
    [
        ("size", "B", (0, 7, 999, 1000, 512_000, 7_973_000_000, 61_340_000_000, 135_712_000_000, 999_996_000_000)),
        ("duration", "s", (2.43e-6, 0.0384, 1, 18.34, 119.9, 121, 7199, 7201, 172799, 172801, 12_441_600, 2e9)),
        ("money", "USD", (0.994, 2.5, 99.5, 526.94, 50_301_579, 999_940, 13_711_841, 2_345_678_901)),
        ("rate", "token/s", (12.345, 777_916.7, 3_109_260.02)),
        ("percent", "%", (0.0009, 0.412, 1.728)),
    ],
)
def test_the_page_writes_numbers_as_the_report_does(function: str, unit: str, values: Sequence[float]) -> None:
    """What moves is written like what is printed: the same figures, prefixes and spaces."""
    written = f"{json.dumps(values)}.map((value) => {function}(value))"
    assert node(f"{assets.text('format.js')}\nconsole.log(JSON.stringify({written}));") == [
        numbers.written(value, unit) for value in values
    ]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (["parallelism.schedule=zero_bubble", "parallelism.interleave=1", "parallelism.ends=own"], "weights apart"),
        (["parallelism.interleave=1", "parallelism.ends=own"], "unequal size"),
        (["parallelism.context_exchange=ring"], "than by gathering"),
    ],
)
def test_a_plan_beyond_the_script_says_so(changes: list[str], reason: str) -> None:
    """Where the page has no rules for a layout, the reason stands in the panel's place, and no script is there."""
    layout = ["parallelism.pipeline=9", "kernels.attention=flash", *changes]
    compiled = ledger.compile(str(SPECS / "405b.yaml"), layout)
    assert reason in live.unported(compiled.plan)
    assert live.script(compiled.plan) == ""
    page = html.render(Report(compiled))
    assert live.unported(compiled.plan) in page
    assert '<section id="live" aria-labelledby' in page


def test_gpipe_holds_every_micro_batch_on_the_page_too() -> None:
    """The page follows the schedule of its plan."""
    layout = ["parallelism.interleave=1", "parallelism.schedule=gpipe"]
    compiled = ledger.compile(str(SPECS / "405b.yaml"), layout)
    script = f"{live.calculator(compiled.plan)}\nconsole.log(JSON.stringify(evaluate(PLAN.own)));"
    found = node(f'"use strict";\n{script}')
    assert all(agrees(key, found, compiled.totals) for key in (*BYTES, *FLOATS))


def test_the_panel_needs_its_script() -> None:
    """It is hidden until the script runs, has a control for each axis that is split, and is not printed."""
    report = Report(compiled_plan("gpt2"))
    page = html.render(report)
    assert '<section id="live" hidden data-live' in page
    assert re.findall(r'<input type="range" id="live-(\w+)"', page) == [
        "micro_batch",
        "seq_len",
        "global_batch",
        "data",
    ]
    paper = html.render(report, screen=False)
    assert 'id="live"' not in paper
    assert "#live" not in paper
