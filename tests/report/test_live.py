"""The live page against the compiler: the emitted script runs in Node, and says what `ledger.compile` says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Any

import pytest

from ledger import numbers
from ledger.arithmetic.tracing import Graph, Trace
from ledger.arithmetic.values import Amount, divide, maximum, next_power_of_two, share, truncate, where
from ledger.books.compiler import compile_plan
from ledger.report import assets, live, live_script
from ledger.report.live_script import literal, script
from ledger.spec.inputs import violations
from tests.report.live_pages import FURTHER, LIBRARY, asked, differences, moved, node, page, plan

FEW, SAMPLE = 4, 12  # random settings of each plan, in `make test` and in full; `benchmarks/live.py` takes thousands

# Under each plan: every control once up and once down, and moves that change which formulas hold: from one
# micro-batch a step to several and back, past the nodes of a mesh axis, other stages, two stages without an inner one.
CHOICES: Mapping[str, Sequence[dict[str, int]]] = {
    "tensor parallel": (
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
    "loss in parts": (  # of a power of two of rows, the last shorter: 4095 rows in 32 of 128, 15000 in 30 of 512
        {"seq_len": 4095},
        {"seq_len": 10007},
        {"seq_len": 5000, "micro_batch": 3, "global_batch": 192},
        {"seq_len": 16384, "context": 2},
    ),
}
ILLEGAL: Mapping[str, Sequence[dict[str, int]]] = {
    "tensor parallel": (
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


# Of whose settings `make test` draws some: what the choices above leave out. Others are drawn by `make test-long`.
DRAWN = ("mixtral-8x7b", "adapters", "optimizer on the host")
OPENED = ("405b", "gpt2", *DRAWN)


def further(names: Iterable[str]) -> Iterator[Any]:
    """Plans that `make test-long` looks at."""
    return (pytest.param(name, marks=pytest.mark.long) for name in names)


@pytest.mark.parametrize("name", ["405b", "7b-8xh100", "loss in parts", *further(("tensor parallel", "gpt2"))])
def test_the_page_says_what_the_compiler_says(name: str) -> None:
    """Bytes are equal, seconds, rates and dollars are to 1e-12; so are peak moment, limit, verdict and devices."""
    every = ({}, *CHOICES[name])
    told = asked(name, "problems", every)
    assert all(problem == [] or "does not hold" in problem[0][0] for problem in told)
    choices = [chosen for chosen, problem in zip(every, told, strict=True) if not problem]
    assert len(choices) > len(every) // 2
    for chosen, found in zip(choices, asked(name, "evaluate", choices), strict=True):
        compiled = compile_plan(moved(name, chosen))
        assert not differences(found, compiled), chosen


@pytest.mark.parametrize(
    ("name", "count"),
    [
        *((name, FEW) for name in DRAWN),
        *(pytest.param(name, SAMPLE, marks=pytest.mark.long) for name in (*LIBRARY, *FURTHER)),
    ],
)
def test_the_page_of_every_kind_of_plan_says_what_the_compiler_says(name: str, count: int) -> None:
    """Settings that cross structures, drawn from the page's controls: what it has is equal, what it lacks it says."""
    drawn = [{}, *random_settings(name, count)]
    held = []
    for chosen, problems in zip(drawn, asked(name, "problems", drawn), strict=True):
        other = moved(name, chosen)
        refused = [problem.message for problem in violations(other)]
        if refused or problems:
            assert (
                not problems
                or problems[0][0].startswith("This page does not hold")
                or {m for m, _ in problems} <= set(refused)
            )
            assert problems, (chosen, refused)
            continue
        held.append((chosen, other))
    assert len(held) > 1
    for (chosen, other), found in zip(held, asked(name, "evaluate", [chosen for chosen, _ in held]), strict=True):
        assert not differences(found, compile_plan(other)), chosen


def random_settings(name: str, count: int) -> list[dict[str, Any]]:
    """Some settings of a plan, most of which are legal."""
    random = Random(name)  # noqa: S311 - the same settings in every run
    offered, own = page(name).stops, page(name).plan_setting
    found = []
    for _ in range(count):
        names = random.sample(list(offered), random.choice((1, 2)))
        other = {**own, **{key: random.choice(offered[key]) for key in names}}
        chosen = live.with_legal_batch(page(name).choices, other, turned=random.random() < 0.2)
        found.append(live.difference(own, chosen))
    return found


@pytest.mark.parametrize("name", [*further(("tensor parallel",)), "405b", "gpt2"])
def test_the_page_refuses_what_the_spec_refuses(name: str) -> None:
    """An illegal choice has the compiler's own words against it, and no others."""
    for chosen, found in zip(ILLEGAL[name], asked(name, "problems", ILLEGAL[name]), strict=True):
        refused = violations(moved(name, chosen))
        assert {tuple(pair) for pair in found} == {(problem.message, problem.help) for problem in refused}, chosen


@pytest.mark.parametrize("name", ["405b", *further(("70b", "7b-8xh100")), "gpt2"])
def test_what_controls_offer_is_held_by_the_page(name: str) -> None:
    """A control moved alone leads to numbers, once the batch follows; the plan's own value is among its values."""
    offered, own = page(name).stops, page(name).plan_setting
    alone = [{**own, key: value} for key, values in offered.items() for value in values]
    ways = [live.with_legal_batch(page(name).choices, one, turned=turned) for one in alone for turned in (False, True)]
    told = asked(name, "problems", ways)
    for one, both in zip(alone, zip(told[::2], told[1::2], strict=True), strict=True):
        assert [] in both, live.difference(own, one)
    assert all(own[key] in values for key, values in offered.items())


def test_a_split_axis_can_be_whole_and_a_whole_one_split() -> None:
    """The page crosses structures: tensor parallelism of a plan that has none, stages, and back."""
    assert 2 in page("gpt2").stops["pipeline"]
    assert 1 in page("405b").stops["tensor"]
    assert page("405b").stops["pipeline"][0] < plan("405b").parallelism.pipeline
    assert 2 in page("mixtral-8x7b").stops["expert"]


@pytest.mark.parametrize("name", [*OPENED, *further(name for name in (*LIBRARY, *FURTHER) if name not in OPENED)])
def test_the_script_stays_below_three_megabytes_and_reads_nothing_from_text(name: str) -> None:
    """A strict policy forbids code from text, and a page should open at once."""
    text = live_script.page_script(page(name))
    assert len(text.encode()) < 3_000_000
    assert not re.search(r"\beval\b|new Function|setTimeout\(\s*[\"']|innerHTML|</", text)


def test_what_a_page_does_not_hold_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Structures that a page has no room for are counted, and none of them is answered with a number."""
    monkeypatch.setattr(live, "MOST_TERMS", 1)
    small = live.page_of(plan("gpt2"))
    assert small is not None
    assert len(small.structures) == 1
    assert {"pipeline": 2} in [{key: one[key] for key in one if key != "global_batch"} for one in small.left_out]
    text = f"{live_script.calculator(small)}\nconsole.log(JSON.stringify(problems({{...PLAN.own, pipeline: 2}})));"
    assert "does not hold" in node(text)[0][0]


def rule(x: Amount, y: Amount) -> Amount:
    """What the printer must write: precedence, whole numbers, choices, shared parts."""
    both = x * y + 1
    less = where(both - (x - y) < y - x, both / x - 3, -both)
    return (
        less
        + divide(7 * x * y, x + y) * both
        - maximum(x - (y - 2), 0.25)
        + truncate(both / 4)
        + share(x, y - y * 1)
        + next_power_of_two(x + y - 1) / next_power_of_two(where(x < y, x, y) + 1)
    )


@pytest.mark.parametrize(("x", "y"), [(3, 5), (7, 2), (1, 1), (1000, 3)])
def test_a_graph_is_printed_as_what_it_computes(x: int, y: int) -> None:
    """JavaScript has the operations, the precedence and the doubles of Python."""
    graph = Graph()
    trace = Trace(graph)
    traced = rule(trace.input("x", 2), trace.input("y", 9))
    written = script(graph, ["x", "y", "unread"], [[], [traced.place]])
    assert written.size > max(written.slots.values())
    lines = [f"const v = new Float64Array({written.size}), share = (part, of) => (of ? part / of : 0);"]
    lines += [f"v[0] = {x}; v[1] = {y};", *(written.blocks[index] for index in written.blocks_of[1])]
    lines.append(f"console.log(JSON.stringify(v[{written.slots[traced.place]}]));")
    assert node("\n".join(lines)) == pytest.approx(float(rule(x, y)), rel=1e-15)


def test_data_cannot_end_its_script() -> None:
    """A title from a plan may hold markup; inside a script it is text."""
    assert "<" not in literal({"title": "</script><b>"})
    assert node(f"console.log(JSON.stringify({literal({'title': '</script>'})}));") == {"title": "</script>"}


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
        numbers.amount_text(value, unit) for value in values
    ]
