"""The panel of the live page: what is copied, linked, refused and shown, against the compiler and the command line."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import yaml

import ledger
from ledger import numbers
from ledger.books.compiler import compile_plan
from ledger.books.memory.holdings import CATEGORIES
from ledger.report import live, live_script
from ledger.report.html import render
from ledger.report.live import choices_of
from ledger.report.seals.opening import sealed
from ledger.report.views.live import LiveView
from ledger.report.views.memory import OVERHEAD
from ledger.report.views.parts import Report
from ledger.spec.load import load_plan
from tests.report.live_pages import FURTHER, LIBRARY, SPECS, calculator, differences, node, page, plan

READ = ("70b", "tensor parallel", "one device", "operated")  # by `make test`; others by `make test-long`
# Under each plan: what a reader says in words and amounts, with the sizes that go with it; devices stay as many.
SAID: Mapping[str, Sequence[dict[str, Any]]] = {
    "70b": (
        {"recompute": "none"},
        {"tensor": 2},
        {"tensor": 4, "accelerator": "h200-sxm"},
        {"accelerator": "b200", "tokens": 20_000_000_000_000},
        {"restart_time": 600, "storage_bandwidth": 1e11, "price": 2},
    ),
    "tensor parallel": (
        {"zero": 1},
        {"zero": 2, "micro_batch": 4},
        {"recompute": "none", "seq_len": 4096},
        {"recompute": "selective", "micro_batch": 2},
        {"accelerator": "h200-sxm", "micro_batch": 4},
        {"accelerator": "a100-sxm-80gb", "price": 1.05},
        {"tokens": 20_000_000_000_000, "price": 1.95},
        {"tensor": 4, "micro_batch": 4, "seq_len": 16384},
    ),
    "mixtral-8x7b": (
        {"micro_batch": 2},
        {"recompute": "full"},
        {"expert": 4},
        {"accelerator": "b200"},
        {"tokens": 10**12},
    ),
    "405b": ({"zero": 0}, {"recompute": "full"}, {"accelerator": "h200-sxm", "price": 3}, {"seq_len": 4096}),
    "one device": ({"recompute": "full"}, {"accelerator": "h200-sxm"}, {"micro_batch": 6}, {"tokens": 10**10}),
    "operated": (
        {"failure_rate": 0.001 / 86400, "checkpoint_interval": 90 * 60},
        {"restart_time": 2400, "storage_bandwidth": 5e9, "tokens": 2 * 10**12},
        {"accelerator": "h200-sxm", "zero": 2},
    ),
}


def readings(name: str, choices: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What the page has of each choice in words: problems, totals, warnings, and the setting as text."""
    script = """
    const reading = (words) => {
      const place = (key, value) => (isWord(key) ? PLAN.words[key].indexOf(value) : value);
      const named = Object.entries(words).map(([key, value]) => [key, place(key, value)]);
      const asked = { ...PLAN.own, ...Object.fromEntries(named) };
      if (!("price" in words) && "price" in asked) asked.price = PLAN.offers[asked.accelerator].price;
      const chosen = settled(asked, false), against = problems(chosen), link = fragment(chosen, false);
      const back = restored(link), again = { ...back, chosen: JSON.stringify(back.chosen) === JSON.stringify(chosen) };
      const texts = { settings: settings(chosen), yaml: yaml(chosen), line: commandLine(chosen), link, again };
      if (against.length) return { against, ...texts };
      return { against, ...texts, ...evaluate(chosen), warnings: warnings(chosen) };
    };"""
    text = f'"use strict";\n{calculator(name)}\n{script}\nconst choices = {json.dumps(choices)};\n'
    found: list[dict[str, Any]] = node(f"{text}console.log(JSON.stringify(choices.map(reading)));")
    return found


@pytest.mark.parametrize(
    "name", [*(pytest.param(name, marks=pytest.mark.long) for name in ("mixtral-8x7b", "405b")), *READ]
)
def test_what_is_copied_gives_the_numbers_of_the_panel(name: str) -> None:
    """ZeRO, recomputation, devices, tokens, prices: the plan read with each `--set` is what the page says of it."""
    stem, overrides = FURTHER.get(name, (name, ()))
    for chosen, found in zip(SAID[name], readings(name, SAID[name]), strict=True):
        assert not found["against"], chosen
        sets = [f"{path}={text}" for path, text in found["settings"]]
        read = load_plan(str(SPECS / f"{stem}.yaml"), (*overrides, *sets))
        assert not differences(found, compile_plan(read)), chosen
        assert shlex.split(found["line"])[3:] == [part for text in (*overrides, *sets) for part in ("--set", text)]
        assert {message for message, _ in found["warnings"]} == {one.message for one in read.warnings}, chosen
        assert found["again"] == {"chosen": True, "follow": False, "faults": []}, found["link"]


class Words(yaml.SafeLoader):
    """YAML in which `off` is a word, as plans read it."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - a table of its base
        letter: [(tag, form) for tag, form in forms if not tag.endswith(":bool")]
        for letter, forms in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def words_kept(text: str) -> Any:
    """What a text of YAML says to a plan."""
    return yaml.load(text, Loader=Words)  # noqa: S506 - a safe loader with fewer types


def laid_over(document: dict[str, Any], piece: Mapping[str, Any]) -> None:
    """Puts the keys of a piece of a plan over those of its document."""
    for part, value in piece.items():
        there = document.get(part)
        document[part] = {**there, **value} if isinstance(there, dict) and isinstance(value, dict) else value


@pytest.mark.parametrize("name", READ)
def test_the_copied_yaml_is_a_piece_of_the_plan(name: str) -> None:
    """Keys laid over those of the plan's own text give the numbers of the panel, a price and a device among them."""
    stem, overrides = FURTHER.get(name, (name, ()))
    for chosen, found in zip(SAID[name], readings(name, SAID[name]), strict=True):
        document = words_kept((SPECS / f"{stem}.yaml").read_text())
        for path, _, text in (one.partition("=") for one in overrides):
            part, _, key = path.partition(".")
            if key:
                laid_over(document, {part: {key: words_kept(text)}})
            else:
                document[part] = words_kept(text)
        laid_over(document, words_kept(found["yaml"]))
        assert not differences(found, compile_plan(load_plan(yaml.safe_dump(document)))), chosen


def test_every_plan_of_the_library_has_a_panel_and_a_count_alone_says_why_it_has_none() -> None:
    """A reader who looks for the panel finds it, or the reason."""
    for name in LIBRARY:
        assert live.page_of(plan(name)), name
    bare = ledger.compile(str(SPECS / "7b-8xh100.yaml"), ["model={parameters: 7e9}", "recompute=none", "expect=null"])
    text = render(Report(bare))
    assert "only the number of its parameters is known" in text
    assert '<section id="live" aria-labelledby' in text  # not hidden: nothing would ever show it


def test_a_report_carries_the_devices_that_its_reader_may_choose() -> None:
    """A page is made from its seal alone, here and when it is made again: what it offers is in there."""
    offered = choices_of(plan("70b")).words("accelerator")
    assert offered == ("h100-sxm", "h200-sxm", "b200", "a100-sxm-80gb")
    with sealed(plan("70b")) as (same, seal):
        assert choices_of(same).words("accelerator") == offered
        assert seal
        carried = {file.name for file in seal.files}
    assert carried >= {f"specs/{part}/{name}.yaml" for name in offered for part in ("accelerators", "prices")}


@pytest.mark.parametrize(
    ("link", "faults"),
    [
        ("#whatif:tensor=x", ["tensor=x"]),
        ("#whatif:colour=blue,zero=7", ["colour=blue", "zero=7"]),
        ("#whatif:accelerator=abacus", ["accelerator=abacus"]),
        ("#whatif:seq_len=-8,micro_batch=1.5,price=0", ["seq_len=-8", "micro_batch=1.5", "price=0"]),
        ("#whatif:tensor=%E0%A4%A", ["tensor=%E0%A4%A"]),
        ("#whatif:__proto__=1,constructor=2,tensor=", ["__proto__=1", "constructor=2", "tensor="]),
        ("#whatif:seq_len=1000000001", ["seq_len=1000000001"]),  # beyond what a plan may say
        ("#whatif:data=64", ["data=64"]),  # the number of devices is fixed, and says what it is
    ],
)
def test_a_bad_link_leaves_the_plan_as_it_is(link: str, faults: Sequence[str]) -> None:
    """What a link asks for and cannot be is named and left out."""
    text = f"{calculator('70b')}\nconst found = restored({json.dumps(link)});"
    found = node(f"{text}\nconsole.log(JSON.stringify([found.faults, found.chosen, PLAN.own]));")
    assert found[0] == faults
    assert found[1] == found[2]


def test_devices_stay_as_many_until_they_are_let_go() -> None:
    """Another degree leaves data parallelism the rest of the devices; one that leaves no whole number is refused."""
    call = "[settled({...PLAN.own, tensor: 4}, false), problems(settled({...PLAN.own, tensor: 3}, false))]"
    held, refused = node(f"{calculator('tensor parallel')}\nconsole.log(JSON.stringify({call}));")
    assert (held["data"], held["tensor"]) == (256, 4)
    assert refused[0][0] == "1024 devices are no multiple of tensor x pipeline x context = 3"
    free = "settings(settled({...PLAN.own, tensor: 4, micro_batch: 4}, true))"
    found = node(f"{calculator('tensor parallel')}\nconsole.log(JSON.stringify({free}));")
    assert ["cluster.devices", "512"] in found


# As much of a document as the panel touches: every selector finds an element, which remembers what is written to it.
DOCUMENT = """
const element = () => ({
  hidden: true, textContent: "", value: "0", max: "0", className: "", dataset: {}, children: [],
  attributes: {}, listeners: {}, found: {},
  classList: {
    names: {}, toggle(name, on) { this.names[name] = on; }, contains(name) { return Boolean(this.names[name]); },
  },
  setAttribute(name, value) { this.attributes[name] = value; },
  addEventListener(name, heard) { this.listeners[name] = heard; },
  querySelector(selector) { return (this.found[selector] ??= element()); },
  querySelectorAll(selector) { return (this.found[selector] ??= []); },
  replaceChildren(...made) { this.children = made; }, append(...made) { this.children.push(...made); },
  focus() {}, select() {}, scrollIntoView() {},
});
const panelElement = element(), section = element();
const control = (name, kind) => ({ ...element(), id: `live-${name}`, dataset: { name, kind } });
const sizes = ["micro_batch", "tensor", "data", "seq_len"];
const typing = Object.fromEntries(sizes.map((name) => [name, control(name, "size")]));
const range = control("micro_batch", "range");
const reserved = Object.assign(element(), { dataset: { key: "memory.reserved" } });
const length = Object.assign(element(), { dataset: { key: "time.calendar" } });
panelElement.found = { "[data-name]": [...Object.values(typing), range], "[data-key]": [reserved, length] };
const document = { getElementById: () => panelElement, querySelectorAll: () => [section], createElement: element };
const location = { hash: "" }, window = element();
const recalled = () => window.listeners.hashchange();
const history = { replaceState(state, title, hash) { location.hash = hash; } };
const type = (name, value) => { typing[name].value = String(value); typing[name].listeners.change(); };
const said = (part) => panelElement.querySelector(`[data-part="${part}"]`);
const words = (part) => said(part).children.map((child) => child.textContent).join("");
const broken = () => panelElement.classList.contains("broken");
const shown = () => reserved.querySelector("[data-value]").textContent;
const state = () => [said("answer").textContent, shown(), words("problems"), broken()];
"""


def acted(name: str, moves: str) -> Any:
    """What a reader sees of a panel, by what `moves` keeps in `seen`."""
    script = f"{DOCUMENT}\n{live_script.page_script(page(name))}\nconst seen = [state()];\n{moves}"
    return node(f"{script}\nconsole.log(JSON.stringify(seen));")


def test_the_panel_follows_its_controls() -> None:
    """What is typed or moved moves verdict, numbers and address; what cannot be is marked, with what can."""
    first, slid, refused, button, taken, address, shown = acted(
        "7b-8xh100",
        """
        range.value = String(Number(range.value) - 1); range.listeners.input(); seen.push(state());
        type("tensor", 3); seen.push([...state(), typing.tensor.attributes["aria-invalid"], said("set").disabled]);
        const buttons = said("problems").children.filter(({ listeners }) => listeners.click);
        seen.push(buttons.map(({ textContent }) => textContent));
        buttons[0].listeners.click(); seen.push([...state(), typing.tensor.value]);
        seen.push(location.hash, section.hidden);
        """,
    )
    own = compile_plan(plan("7b-8xh100")).totals["memory.reserved"]
    assert first == ["Fits", numbers.size(own), "", False]
    assert slid[0] == "Fits"
    assert slid[1] != first[1]
    assert refused[0] == "Not possible"
    assert "8 devices are no multiple of tensor x pipeline x context = 3" in refused[2]
    assert refused[3:] == [True, "true", True]  # numbers are hidden, the control is marked, nothing is copied
    assert [label.split()[-1] for label in button] == ["2", "4"]
    assert taken[3:] == [False, "2"]
    assert address.startswith("#whatif:micro_batch=")
    assert address.endswith(",tensor=2")
    assert shown is False


def test_the_panel_opens_as_its_address_says() -> None:
    """A link restores the setting; another one on the same page too; one that is wrong says so and shows the plan."""
    _, opened, bad = acted(
        "7b-8xh100",
        """
        location.hash = "#whatif:tensor=2"; recalled();
        seen.push([typing.tensor.value, typing.data.value]);
        location.hash = "#whatif:tensor=two"; recalled(); seen.push([typing.tensor.value, said("faults").textContent]);
        """,
    )
    assert opened == ["2", "4"]
    assert bad[0] == "1"
    assert "tensor=two" in bad[1]


def test_what_does_not_fit_has_no_length_in_the_panel() -> None:
    """Neither days nor ends, though the plan has them; a plan that does not fit itself has none to be held against."""
    read = 'seen.push(["value", "ends", "own"].map((name) => length.querySelector(`[data-${name}]`).textContent));'
    _, first, moved = acted("7b-8xh100", f"{read} type('seq_len', 65536); {read}")
    days = numbers.duration(compile_plan(plan("7b-8xh100")).totals["time.calendar"])
    assert first[0] == days
    assert " to " in first[1]
    assert moved == ["–", "", f"plan {days}"]
    _, own = acted("llama-3.1-405b-meta", read)
    assert own == ["–", "", "the plan has none"]


def test_a_link_cannot_move_what_has_no_control() -> None:
    """GPT-2's vocabulary splits over no number of devices, so that the panel has no tensor parallelism to set."""
    text = calculator("gpt2")
    seen = (
        'const found = restored("#whatif:tensor=2"); console.log(JSON.stringify([found.faults, found.chosen.tensor]));'
    )
    found = node(f"{text}\n{seen}")
    assert found == [["tensor=2"], 1]


def test_the_bar_of_memory_has_a_length_for_each_part() -> None:
    """A category that training does not have would leave all that follow it without a place."""
    (*stacked, overhead) = LiveView.bar
    assert overhead == OVERHEAD[0]
    assert {*stacked} == {name for name, _ in LiveView.categories} == {*CATEGORIES}
