"""The panel of a plan that serves: each setting that the page looks up is what the compiler says of it."""

from __future__ import annotations

import json
from functools import cache
from itertools import product
from math import isclose
from typing import Any

import pytest

import ledger
from ledger.report import live_service
from ledger.report.html import render
from ledger.report.views.live import LoadView
from ledger.report.views.parts import Report
from ledger.spec.load import load_plan
from tests.library_plans import SERVING
from tests.report.live_pages import EXACT, node

TEXT = """
spec: ledger/1
plan: requests that arrive
accelerator: h100-sxm
cluster: {devices: 4, devices_per_node: 8}
model: llama-3-8b
precision: bf16-true
parallelism: {data: 2, tensor: 2}
stack: vllm-2025
serve:
  prompt: 1024 tokens
  output: [{length: 64 tokens, share: 50 %}, {length: 256 tokens, share: 50 %}]
  arrival_rate: 8 requests/s
"""
PLANS = {**{path.stem: str(path) for path in SERVING}, "arrivals": TEXT}


@cache
def page(name: str) -> live_service.ServedPage:
    """What the page of a plan knows."""
    found = live_service.served_page(load_plan(PLANS[name]))
    assert found is not None
    return found


def asked(name: str, call: str, places: list[live_service.Places]) -> list[Any]:
    """What the page says of each setting."""
    text = f'"use strict";\n{live_service.served_calculator(page(name))}\nconst asked = {json.dumps(places)};\n'
    found: list[Any] = node(f"{text}console.log(JSON.stringify(asked.map((places) => {call}(places) ?? null)));")
    return found


@pytest.mark.parametrize("name", PLANS)
def test_a_setting_says_what_the_compiler_says(name: str) -> None:
    """The plan's own, each input moved alone both ways, and all of them at once: every total and the verdict."""
    known = page(name)
    settings = [known.plan_places]
    for index, one in enumerate(known.inputs):
        ends = {0, len(one.values) - 1} - {one.plan_place}
        settings += [(*known.plan_places[:index], place, *known.plan_places[index + 1 :]) for place in ends]
    settings.append(tuple(len(one.values) - 1 for one in known.inputs))
    settings = [places for places in settings if places in known.settings]
    assert len(settings) > len(known.inputs)
    for places, found in zip(settings, asked(name, "evaluate", settings), strict=True):
        compiled = ledger.compile(PLANS[name], live_service.overrides(known.plan, known.inputs, places))
        expected = {**compiled.totals, "devices": compiled.plan.cluster.devices}
        assert found["totals"].keys() == expected.keys() & {*live_service.TOTALS}
        for key, value in found["totals"].items():
            assert isclose(value, float(expected[key]), rel_tol=EXACT), (places, key)
        statuses = {check.name: check.status for check in compiled.verdict.checks}
        failed = [key for key in ("fits", "concurrency", "arrivals") if statuses.get(key) == "fail"]
        assert (found["answer"] == "Fits") == (not failed), (places, failed)


@pytest.mark.parametrize("name", PLANS)
def test_the_command_sets_what_the_page_shows(name: str) -> None:
    """What is copied are the keys that were compiled; of the plan itself none."""
    known = page(name)
    settings = list(known.settings)[:: max(1, len(known.settings) // 12)]
    for places, copied in zip(settings, asked(name, "settings", settings), strict=True):
        assert [f"{path}={text}" for path, text in copied] == live_service.overrides(known.plan, known.inputs, places)
    assert asked(name, "commandLine", [known.plan_places])[0].count("--set") == 0


def test_a_setting_that_is_not_in_the_page_is_not_made_up() -> None:
    """A degree of tensor parallelism that the model's heads do not share out was refused, and so the page has none."""
    known = page("serve-70b")
    assert asked("serve-70b", "evaluate", [(99, *known.plan_places[1:])]) == [None]
    assert set(product(*(range(len(one.values)) for one in known.inputs))) >= known.settings.keys()


def test_lengths_that_are_a_distribution_have_no_control() -> None:
    """Several lengths are no single value to move; requests that arrive stand in place of those in flight."""
    assert [one.name for one in page("arrivals").inputs] == ["arrival_rate", "prompt", "tensor"]


def test_the_page_has_the_panel() -> None:
    """A control for each input with its values, the plan's own chosen, and every number that a total has."""
    known = page("serve-70b")
    panel = LoadView(live_service.served_script(known), inputs=known.inputs, count=len(known.settings))
    html = render(Report(ledger.compile(PLANS["serve-70b"]), panel=lambda: panel))
    assert f"{len(known.settings)} settings around this plan were compiled" in html
    for one in known.inputs:
        assert f'<option value="{one.plan_place}" selected>{one.texts[one.plan_place]}</option>' in html
    assert 'data-key="serve.tokens_per_second"' in html
    assert panel.script in html


# As much of a browser as the panel asks for: elements by their selectors, made when they are first asked for.
DOCUMENT = """
const made = {}, listed = {};
const element = (name) => made[name] ??= { id: name, dataset: {}, textContent: "", hidden: true, heard: {},
  classList: { on: {}, toggle(word, on) { this.on[word] = on; } },
  addEventListener(event, act) { this.heard[event] = act; },
  querySelector: (selector) => element(`${name} ${selector}`), querySelectorAll: (selector) => listed[selector] ?? [] };
const document = { getElementById: element, querySelectorAll: (selector) => listed[selector] ?? [] };
const told = (key) => element(`number ${key} [data-value]`).textContent;
"""


def test_the_panel_follows_its_controls() -> None:
    """Another load shows its numbers and what the plan's were, the button brings the plan's back."""
    known = page("serve-70b")
    keys = [key for key, _ in live_service.NUMBERS]
    names = [one.name for one in known.inputs]
    (load, *rest) = known.plan_places
    moved = (load + 1, *rest)
    script = f"""
{DOCUMENT}
listed["[data-name]"] = {json.dumps(names)}.map(element);
const item = (key) => Object.assign(element(`number ${{key}}`), {{ dataset: {{ key }} }});
listed["[data-key]"] = {json.dumps(keys)}.map(item);
{live_service.served_script(known)}
const seen = [told("serve.concurrency")];
const move = (value) => {{ element("{names[0]}").value = String(value); element("{names[0]}").heard.change(); }};
move({load + 1});
seen.push(told("serve.concurrency"), element("number serve.concurrency [data-own]").textContent);
seen.push(element('load [data-part="answer"]').textContent);
move(99);
seen.push(element('load [data-part="answer"]').textContent);
element('load [data-part="reset"]').heard.click();
seen.push(told("serve.concurrency"));
console.log(JSON.stringify(seen));
"""
    assert node(script) == ["64", "128", "plan 64 (+100.0\u202f%)", known.answers[moved], "Not in this page", "64"]
