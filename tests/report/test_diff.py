from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
import sympy

from ledger.books.compiled import Compiled
from ledger.books.resources import TRAFFIC
from ledger.books.results import Account, Check, Verdict
from ledger.books.what_if.conditions import condition
from ledger.model.causes import Cause
from ledger.report.diff import Diff, FormulaChange, TotalChange, VerdictChange, diff
from ledger.report.diff_views import DIFF_FORMATS, as_text, attribution_text
from ledger.report.gates import PlanOutcome, meets_condition, read_gates
from ledger.report.movements import Attribution
from ledger.spec.inputs import changes, mix_plans, violations
from ledger.spec.load import load_plan
from ledger.spec.paths import unit
from ledger.spec.plan import Origin, Parallelism, Plan, Recompute
from ledger.spec.problems import Location
from tests.layouts import TENSOR_PARALLEL

ROOT = Path(__file__).resolve().parents[2]


def closed(plan: Plan) -> Compiled:
    """Roles with one rule: peak = 10 B x micro-batch x sequence, step = 1 s x micro-batch + 3 s x ZeRO stage."""
    run, zero = plan.run, plan.parallelism.zero
    peak = 10 * run.micro_batch * run.seq_len
    verdict = Verdict(peak <= 200, "compute", "calibrated", f"peak {peak}", (Check("m", "Memory", "pass", "ok"),))
    step = float(run.micro_batch + 3 * zero)
    batch = sympy.Symbol("B")
    row = Account(Cause("decoder", "x"), "all", TRAFFIC, "forward", 1, 1, "2*B" if zero else "3*B", "rule", 2 * batch)
    totals = {"memory.peak": peak, "time.step": step, "parameters": 7}
    return Compiled(plan, totals, (row,), (), (), verdict, {})


def outcome(compiled: Compiled) -> PlanOutcome:
    """What the gates see of it; it keeps no headroom but when it holds at most half of what it may."""
    return PlanOutcome(compiled.totals, compiled.verdict.fits, keeps_headroom=compiled.totals["memory.peak"] <= 100)


@pytest.fixture
def base(compiled: Compiled) -> Plan:
    """A plan of two micro-batches of five tokens, written in a file of its own."""
    origins = {
        "plan": Origin(Location("a.yaml", 1, 1)),
        "run.micro_batch": Origin(Location("a.yaml", 3, 7)),
    }
    one = replace(compiled.plan, title="A", origins=origins, expect=())
    one = replace(one, run=replace(one.run, micro_batch=2, seq_len=5, global_batch=1280))
    mesh = Parallelism(data=64, tensor=8, pipeline=2)
    return replace(one, parallelism=mesh, recompute=Recompute("none"))


def other(base: Plan, micro_batch: int, seq_len: int, zero: int = 0) -> Plan:
    """The plan with other sizes, in another file."""
    origins = {**base.origins, "run.micro_batch": Origin(Location("b.yaml", 4, 9), "a paper")}
    run = replace(base.run, micro_batch=micro_batch, seq_len=seq_len)
    mesh = replace(base.parallelism, zero=zero)
    return replace(base, title="B", run=run, parallelism=mesh, origins=origins)


def test_a_plan_does_not_differ_from_itself(base: Plan) -> None:
    """Nothing is reported where nothing changed, in every format."""
    found = diff(closed(base), closed(base), closed)
    assert found.empty
    assert as_text(found) == "A\nNo difference.\n"


def test_effects_are_shared_between_inputs(base: Plan) -> None:
    """2 x 5 -> 4 x 10: of +300 B each makes 150: +100 B as the first, +200 B as the last."""
    found = diff(closed(base), closed(other(base, 4, 10)), closed)
    (peak, step) = (next(row for row in found.outputs if row.key == key) for key in ("memory.peak", "time.step"))
    assert (peak.old, peak.new, peak.by, peak.relative) == (100, 400, 300, 3.0)
    assert peak.causes == (Attribution(("run.micro_batch",), 100, 200), Attribution(("run.seq_len",), 100, 200))
    assert peak.joint == 0
    assert step.causes == (Attribution(("run.micro_batch",), 2.0, 2.0),)
    assert step.joint == 0
    assert "parameters" not in [row.key for row in found.outputs]


def test_the_way_back_is_the_negative(base: Plan) -> None:
    """diff(a, b) = -diff(b, a), causes and joint effects included."""
    a, b = closed(base), closed(other(base, 4, 10, zero=1))
    assert diff(a, b, closed) == -diff(b, a, closed)


@pytest.mark.parametrize(
    "settings",
    [
        ["run.micro_batch=1", "run.seq_len=4096"],
        ["accelerator=h200-sxm", "recompute=selective"],
        [*TENSOR_PARALLEL, "parallelism.data=64", "parallelism.tensor=4", "parallelism.pipeline=4"],
        ["model=llama-3-8b", "model.layers.decoder.repeat=16", "stack=megatron-te-2024"],
    ],
)
def test_real_plans_differ_both_ways_alike(settings: list[str]) -> None:
    """The property holds of the compiler's own books; two causes leave nothing joint."""
    from ledger.books import compile_plan

    plan = str(ROOT / "specs" / "70b.yaml")
    a, b = compile_plan(load_plan(plan)), compile_plan(load_plan(plan, settings))
    found = diff(a, b)
    assert found == -diff(b, a)
    assert diff(b, b).empty
    for row in found.outputs:
        if len(row.causes) == 2:
            assert abs(row.joint) <= 1e-9 * max(abs(cause.mean) for cause in row.causes)


def test_inputs_that_undo_each_other_have_amounts(base: Plan) -> None:
    """2 x 10 and 4 x 5 are the same peak: twice the batch adds what half the sequence takes, and both are said.

    Batch first: +200 B (2 x 10 -> 4 x 10); batch last: +100 B (2 x 5 -> 4 x 5): 150 B in the mean.
    """

    def reserving(plan: Plan) -> Compiled:
        found = closed(plan)
        return replace(found, totals={**found.totals, "memory.reserved": found.totals["memory.peak"]})

    found = diff(reserving(other(base, 2, 10)), reserving(other(base, 4, 5)), reserving)
    (peak,) = (row for row in found.outputs if row.key == "memory.reserved")
    assert (peak.by, peak.causes) == (
        0,
        (Attribution(("run.micro_batch",), 200, 100), Attribution(("run.seq_len",), -100, -200)),
    )
    assert attribution_text(peak) == "run.micro_batch +150 B, run.seq_len −150 B".replace(" B", "\u202fB")


def test_inputs_have_both_places(base: Plan) -> None:
    """A reviewer finds both lines."""
    (change,) = diff(closed(base), closed(other(base, 4, 5)), closed).inputs
    assert (change.path, change.old, change.new) == ("run.micro_batch", "2", "4")
    places = change.old_origin, change.new_origin
    assert [str(place.where) for place in places if place] == ["a.yaml:3:7", "b.yaml:4:9"]


def test_degrees_that_need_each_other_are_one_cause() -> None:
    """Half the devices cannot have as many replicas: neither is changed without the other."""
    halved = ["cluster.devices=512", "parallelism.data=64", "run.seq_len=4096"]
    old = load_plan("70b", TENSOR_PARALLEL)
    new = load_plan("70b", [*TENSOR_PARALLEL, *halved])
    plans: list[Plan] = []

    def compiler(plan: Plan) -> Compiled:
        plans.append(plan)
        return closed(plan)

    found = diff(closed(old), closed(new), compiler)
    assert not any(violations(plan) for plan in plans)
    assert "cluster.devices, parallelism.data" in found.notes[0]
    (peak,) = (row for row in found.outputs if row.key == "memory.peak")
    assert [cause.inputs for cause in peak.causes] == [("run.seq_len",)]


def test_another_named_part_is_one_input_with_its_values() -> None:
    """Who names another accelerator changed one line; what differs in it stands below, and its price follows."""
    old = load_plan(str(ROOT / "specs" / "70b.yaml"))
    new = load_plan(str(ROOT / "specs" / "70b.yaml"), ["accelerator=h200-sxm"])
    change, price = changes(old, new)
    assert (change.path, change.old, change.new) == ("accelerator", "h100-sxm", "h200-sxm")
    assert (price.path, price.old, price.new) == ("assumptions.price", "2.5 USD, 2026-05", "3.5 USD, 2026-05")
    parts = [(part.path, part.old, part.new) for part in change.parts]
    assert ("accelerator.bandwidth", "3.35 TB/s", "4.8 TB/s") in parts
    assert not changes(mix_plans(old, new, change.fields | price.fields), new)


def test_many_inputs_are_attributed_by_part(base: Plan) -> None:
    """Above a dozen inputs each alone would take long and say little: those of a part count together, as is said."""
    new = other(base, 4, 10)
    kernels = replace(new.kernels, attention="eager", norm="eager", activation="eager", rotary="fused", loss="fused")
    given = replace(new.assumptions, mfu=0.1, headroom="cloud", power_usage_effectiveness=1.5)
    new = replace(new, operations=replace(new.operations, restart_time=1.0))
    new = replace(new, kernels=kernels, assumptions=given, recompute=Recompute("selective"))
    found = diff(closed(base), closed(new), closed)
    assert len(found.inputs) == 12
    assert found.outputs[-1].causes
    new = replace(new, operations=replace(new.operations, restart_time=1.0, warm_up=3.0))
    found = diff(closed(base), closed(new), closed)
    assert found.notes == (
        "13 inputs changed: more than the 12 that changes are attributed to one by one, so to parts of the plan",
    )
    (peak,) = (row for row in found.outputs if row.key == "memory.peak")
    assert peak.causes == (Attribution(("run.seq_len", "run.micro_batch"), 300, 300),)


@pytest.mark.parametrize(
    ("path", "base"),
    [
        ("parallelism.context", "1"),
        ("stack.allocator.context", "B"),
        ("accelerator.memory.driver", "B"),
        ("accelerator.peak.bf16", "FLOP/s"),
        ("cluster.scaleout.bandwidth", "B/s"),
        ("run.tokens", "tokens"),
        ("model.layers.decoder.repeat", "1"),
    ],
)
def test_inputs_are_said_in_their_units(path: str, base: str) -> None:
    """Degrees are counts, and what an allocator keeps are bytes, though both are called context."""
    assert unit(path) == base


HAND = Diff(
    "A",
    "B",
    (VerdictChange("answer", "fits", "does not fit"),),
    (
        TotalChange(
            "time.step",
            2.0,
            3.0,
            (Attribution(("run.seq_len",), 0.75, 0.75), Attribution(("run.micro_batch",), 0.2, 0.3)),
        ),
        TotalChange("cost.run", None, 5000000.0),
        TotalChange("mfu", 0.5, 0.4, (Attribution(("run.seq_len",), -0.1, -0.1),)),
        TotalChange("memory.peak", 2 * 10**9, 10**9, (Attribution(("recompute",), -(10**9), -(10**9)),)),
    ),
    (),
    (FormulaChange("decoder/x", "hbm", "forward", "2*B", ""),),
    ("A note",),
)
PRINTED = """\
A → B
answer: fits → does not fit

What changes first
total         old     new       change  relative  caused by
time.step  2.00 s  3.00 s      +1.00 s   +50.0 %  run.seq_len 75.0 %, run.micro_batch 25.0 %
cost.run        –  $5.0 M            –         –
mfu        50.0 %  40.0 %  −10.0 points   −20.0 %  run.seq_len

Memory
total            old      new    change  relative  caused by
memory.peak  2.00 GB  1.00 GB  −1.00 GB   −50.0 %  recompute

Formulas
account    resource  when     old  new
decoder/x  hbm       forward  2*B  –

A note.
"""


def test_the_text_is_what_its_numbers_say() -> None:
    """Three significant figures, signs, shares of each change, and columns that line up."""
    assert [line.split() for line in as_text(HAND).splitlines()] == [line.split() for line in PRINTED.splitlines()]
    table = as_text(HAND).split("\n\n")[1].splitlines()[1:]
    ends = {line.index("relative") + len("relative") for line in table[:1]}
    assert all(line[:end].endswith((" %", "–", "relative")) for line in table for end in ends)


def test_json_holds_base_units_and_every_cause() -> None:
    """Programs read numbers, not what is printed for people."""
    shown = json.loads(DIFF_FORMATS["json"](HAND))
    assert shown["schema"] == "ledger-diff/1"
    step = shown["outputs"][0]
    assert (step["old"], step["new"], step["change"], step["relative"]) == (2.0, 3.0, 1.0, 0.5)
    assert step["causes"][0] == {"inputs": ["run.seq_len"], "alone": 0.75, "last": 0.75, "mean": 0.75}
    assert shown["outputs"][1]["old"] is None


def test_markup_is_escaped() -> None:
    """A title cannot smuggle markup into a page."""
    page = DIFF_FORMATS["html"](replace(HAND, old="<script>"))
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_titles_are_text_in_markdown() -> None:
    """What a plan is called makes no row, no tag, no link and no mention in a pull request."""
    page = DIFF_FORMATS["md"](replace(HAND, old="a|b", new="<i> @team [x](http://e.example) *c* `d` #7 www.e.example"))
    assert page.splitlines()[0] == (
        "# a\\|b → &lt;i&gt; @&#8203;team \\[x\\](http:&#47;&#47;e.example) \\*c\\* \\`d\\` #&#8203;7 www&#46;e.example"
    )
    assert "| decoder/x | hbm | forward | 2\\*B |" in page


@pytest.mark.parametrize(
    ("written", "code"),
    [
        ("memory.peak > 0", True),  # 100 -> 200
        ("memory.peak > +5%", True),
        ("memory.peak > +100%", False),
        ("memory.peak >= 100 %", True),
        ("memory.peak > 99 B", True),
        ("memory.peak > 100 B", False),
        ("memory.peak < -1 B", False),
        ("time.step > 0 s", True),  # 2 s -> 4 s
        ("parameters != 0", False),
        ("fits", False),  # at 200 B it still fits
        ("headroom", True),  # and has less to spare than 100 B
        ("time.step < -50%", False),
    ],
)
def test_gates_compare_the_change(base: Plan, written: str, code: bool) -> None:
    """A gate is about new less old, or its share of old."""
    old, new = closed(base), closed(other(base, 4, 5))
    (gate,) = read_gates([written], new.totals)
    assert gate.trips(outcome(old), outcome(new)) is code


def test_the_gate_on_fit_is_about_losing_it(base: Plan) -> None:
    """Only a plan that fitted can stop to fit."""
    small, large = closed(base), closed(other(base, 4, 10))
    (gate,) = read_gates(["fits"], ())
    assert gate.trips(outcome(small), outcome(large))
    assert not gate.trips(outcome(large), outcome(large))
    assert not gate.trips(outcome(large), outcome(small))
    assert gate.trips(None, outcome(large)), "a new plan must fit"


def test_a_total_that_vanishes_trips_its_gate(base: Plan) -> None:
    """A limit on what is no longer counted would pass in silence."""
    old = closed(base)
    new = replace(old, totals={key: value for key, value in old.totals.items() if key != "time.step"})
    assert meets_condition(condition("time.step > 1 h", old.totals, changes=True), old.totals, new.totals)
    assert not meets_condition(condition("time.step > 1 h", old.totals, changes=True), new.totals, new.totals)


def test_limits_keep_their_precision() -> None:
    """A limit is a fraction: 0.1 s is a tenth."""
    assert condition("time.step <= 0.1 s", ["time.step"]).limit == Fraction(1, 10)


@pytest.mark.parametrize(
    ("by", "said"),
    [
        (300, "run.micro_batch 50.0 %, run.seq_len 50.0 %"),  # 2 x 5 -> 4 x 10: both halves of the joint 100 B
        (1, "run.micro_batch +150 B, run.seq_len +150 B, jointly −299 B"),
    ],
)
def test_shares_are_of_first_and_last(by: int, said: str) -> None:
    """Two inputs share what they do together evenly, and none has a share of a change far smaller than its own."""
    causes = tuple(Attribution((name,), 100, 200) for name in ("run.micro_batch", "run.seq_len"))
    row = TotalChange("memory.peak", 100, 100 + by, causes)
    assert attribution_text(row).replace("\u202f", " ") == said
