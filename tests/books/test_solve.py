from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from ledger.books import compile_plan
from ledger.books.conditions import condition
from ledger.books.solve import LARGEST, SMALLEST, solve
from ledger.books.unknowns import divisors
from ledger.spec import load_plan
from ledger.spec.plan import Plan
from ledger.spec.problems import SpecError

SPECS = Path(__file__).resolve().parents[2] / "specs"
BARE = """spec: ledger/1
plan: a count
accelerator: h100-sxm
cluster: {base: h100-400g, devices: 8}
model: {parameters: 7e9 parameters}
precision: bf16-mixed
parallelism: {zero: 3}
run: {tokens: 1T tokens}
"""


@pytest.fixture(scope="module")
def small() -> Plan:
    """Llama 2 7B on one node."""
    return load_plan(str(SPECS / "7b-8xh100.yaml"), ["run.global_batch=4096"])


def peak(plan: Plan, **run: int) -> int:
    """The peak under another run."""
    return int(compile_plan(replace(plan, run=replace(plan.run, **run))).totals["memory.peak"])


def test_the_largest_micro_batch_fits_and_the_next_does_not(small: Plan) -> None:
    """Micro-batches divide 4096 / 8 = 512; the books of the answer and of its double are closed here once more."""
    limit = 70 * 10**9
    found = solve(small, "run.micro_batch", ["memory.peak <= 70 GB"])
    assert isinstance(found.value, int)
    assert (found.goal, found.beyond) == (LARGEST, 2 * found.value)
    assert peak(small, micro_batch=found.value) <= limit < peak(small, micro_batch=2 * found.value)
    (bound,) = found.bounds
    assert (bound.at, bound.beyond, bound.binds) == (
        peak(small, micro_batch=found.value),
        peak(small, micro_batch=2 * found.value),
        True,
    )
    assert found.closed_form.startswith("memory.peak = ")


def test_the_longest_sequence_is_exact_to_a_token(small: Plan) -> None:
    """Without sequence parallelism every length is legal, so one token more must break the limit."""
    found = solve(small, "run.seq_len", ["memory.peak <= 60 GB"])
    assert isinstance(found.value, int)
    assert peak(small, seq_len=found.value) <= 60 * 10**9 < peak(small, seq_len=found.value + 1)


def test_of_several_conditions_the_tightest_binds(small: Plan) -> None:
    """The other one still holds one step beyond."""
    found = solve(small, "run.micro_batch", ["memory.peak <= 70 GB", "memory.peak <= 600 GB"])
    assert [bound.binds for bound in found.bounds] == [True, False]


def test_a_bare_count_is_inverted_exactly() -> None:
    """bf16 weights and gradients, fp32 master and two states are 16 B a parameter; eight devices share them."""
    found = solve(load_plan(BARE), "model.parameters", ["memory.peak <= 80 GB"])
    assert found.value == 8 * 80 * 10**9 // 16
    assert found.closed_form == "memory.static = 2*N"


def test_devices_for_a_deadline_keep_the_batch_whole() -> None:
    """The fewest replicas that divide the step's micro-batches and meet the deadline; half as many miss it."""
    plan = load_plan(str(SPECS / "70b.yaml"))
    found = solve(plan, "cluster.devices", ["time.run <= 500 d"])
    assert found.goal == SMALLEST
    assert isinstance(found.value, int)
    replicas = plan.run.global_batch // plan.run.micro_batch
    assert found.value in [8 * data for data in divisors(replicas)]
    (bound,) = found.bounds
    assert bound.at is not None
    assert bound.beyond is not None
    assert float(bound.at) <= 500 * 86400 < float(bound.beyond)


def test_tokens_for_a_budget_spend_all_of_it() -> None:
    """Cost grows with whole steps, so what is left is less than a step costs."""
    plan = load_plan(str(SPECS / "70b.yaml"))
    found = solve(plan, "run.tokens", ["cost.run <= 1000000 USD"])
    (bound,) = found.bounds
    assert bound.at is not None
    totals = compile_plan(plan).totals
    step = float(totals["cost.run"]) * float(totals["time.step"]) / float(totals["time.run"])
    assert 10**6 - step * 1.001 < float(bound.at) <= 10**6


def test_a_real_input_is_found_to_nine_figures() -> None:
    """Napkin days are inversely proportional to the assumed MFU: the MFU for 120 days follows by the rule of three."""
    plan = load_plan(str(SPECS / "70b.yaml"))
    days = float(compile_plan(plan).totals["napkin.days"])
    found = solve(plan, "assumptions.mfu", ["napkin.days <= 120 d"])
    assert found.value == pytest.approx(plan.assumptions.mfu * days / 120, rel=1e-8)


def test_what_cannot_be_met_is_a_result(small: Plan) -> None:
    """The nearest miss is told, with the conditions that fail there."""
    found = solve(small, "run.micro_batch", ["memory.peak <= 1 GB"])
    assert (found.value, found.nearest) == (None, 1)
    assert [bound.binds for bound in found.bounds] == [True]


def test_rules_of_the_spec_limit_as_well() -> None:
    """GPT-2 has 1024 learned positions, whatever the memory allows."""
    found = solve(load_plan(str(SPECS / "gpt2.yaml")), "run.seq_len")
    assert found.value == 1024
    assert "1024 learned positions" in found.notes[0]


def test_an_objective_chooses_among_solutions(small: Plan) -> None:
    """The best of all divisors that fit, found by closing the books of each."""
    found = solve(small, "run.micro_batch", ["memory.peak <= 70 GB"], minimize="time.step")
    assert found.value is not None
    steps = {
        batch: compile_plan(replace(small, run=replace(small.run, micro_batch=batch))).totals
        for batch in divisors(512)
        if batch <= 8
    }
    fitting = {batch: totals["time.step"] for batch, totals in steps.items() if totals["memory.peak"] <= 70e9}
    assert found.value == min(fitting, key=lambda batch: fitting[batch])


@pytest.mark.parametrize(
    ("path", "conditions", "said"),
    [
        ("run.micro_btch", [], "`run.micro_btch` is nothing to solve for"),
        ("run.micro_batch", ["memory.peek <= 1 GB"], "no total `memory.peek`"),
        ("run.micro_batch", ["memory.peak <= 80"], "`80` has no unit"),
        ("run.micro_batch", ["memory.peak <= 80 s"], "`80 s` is a time, not a size"),
        ("run.micro_batch", ["memory.peak"], "`memory.peak` is no condition"),
        ("run.tokens", ["fits"], "nothing limits `run.tokens`"),
    ],
)
def test_a_question_that_makes_no_sense_is_a_problem(small: Plan, path: str, conditions: list[str], said: str) -> None:
    """Each with its place in what was typed."""
    with pytest.raises(SpecError) as error:
        solve(small, path, conditions)
    assert error.value.problems[0].message == said


def test_a_condition_knows_its_slack() -> None:
    """What may still be added to, or taken from, the total."""
    known = {"time.step": 2.5}
    assert condition("time.step <= 3 s", known).slack(known) == Fraction(1, 2)
    assert condition("time.step >= 3 s", known).slack(known) == Fraction(-1, 2)
    assert not condition("time.step < 2.5 s", known).holds(known)
