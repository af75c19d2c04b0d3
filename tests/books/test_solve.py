from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from ledger.books import compile_plan
from ledger.books.what_if.conditions import condition
from ledger.books.what_if.ordered import LARGEST, SMALLEST
from ledger.books.what_if.sizes import divisors
from ledger.books.what_if.solve import solve
from ledger.books.what_if.sought import with_settings
from ledger.books.what_if.unknowns import unknown
from ledger.spec.load import load_plan
from ledger.spec.plan import Plan
from ledger.spec.problems import SpecError
from tests.layouts import TENSOR_PARALLEL

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


def test_lengths_are_those_that_a_narrow_product_takes() -> None:
    """Products in fp8 take rows in multiples of 16: of two sequences a length in multiples of 8."""
    settings = ("precision=fp8-tensorwise", "run.micro_batch=2", "run.seq_len=1024")
    found = solve(load_plan("7b-8xh100", settings), "run.seq_len", ["memory.peak <= 60 GB"])
    assert found.value is not None
    assert (found.value > 1024, found.value % 8) == (True, 0)
    beyond = load_plan("7b-8xh100", (*settings, f"run.seq_len={found.value + 8}"))
    assert float(compile_plan(beyond).totals["memory.peak"]) > 60 * 10**9


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


def test_parameters_of_layers_name_what_changes_them(small: Plan) -> None:
    """The repeat of each layer group, or a bare count instead of the model."""
    with pytest.raises(SpecError) as error:
        solve(small, "model.parameters")
    help_text = error.value.problems[0].help
    assert "`model.layers.decoder.repeat`" in help_text
    assert "`--set 'model={parameters: 70e9}'`" in help_text
    assert "did you mean" not in help_text


@pytest.mark.parametrize(
    ("tokens", "most"), [pytest.param(10**15, 10**9, marks=pytest.mark.long), (8192 * 12345, 12345)]
)
def test_a_global_batch_is_one_that_a_spec_can_state(tokens: int, most: int) -> None:
    """At most 1e9 sequences, as the schema has it, and no more than the run has."""
    plan = load_plan(str(SPECS / "70b.yaml"), [f"run.tokens={tokens} tokens"])
    found = solve(plan, "run.global_batch", maximize="mfu")
    assert found.value == most // 1024 * 1024
    assert found.beyond is None
    assert found.notes[-1].startswith("the bound of the spec binds: ")
    assert f"at most global_batch = {most}" in found.notes[-1]
    load_plan(str(SPECS / "70b.yaml"), [f"run.tokens={tokens} tokens", f"run.global_batch={found.value}"])


@pytest.mark.parametrize("path", ["run.micro_batch", "run.seq_len", "run.global_batch", "run.tokens"])
def test_a_bare_count_has_no_activations(path: str) -> None:
    """Its state depends on the count and the devices alone, so no closed form in a batch exists."""
    with pytest.raises(SpecError) as error:
        solve(load_plan(BARE), path)
    assert f"depends on `{path}`" in error.value.problems[0].message
    assert solve(load_plan(BARE), "cluster.devices").closed_form == ""


def test_more_devices_than_micro_batches_lower_the_micro_batch() -> None:
    """The global batch is kept; 1024 sequences over 512 replicas leave two at a time for each."""
    plan = load_plan("70b", TENSOR_PARALLEL)
    found = solve(plan, "cluster.devices", ["time.run <= 100 d"])
    assert isinstance(found.value, int)
    batch = 1024 // (found.value // 8)
    assert batch < plan.run.micro_batch
    assert found.notes[0] == f"micro_batch is lowered from 8 to {batch} for this many devices, global_batch is kept"
    changes = [f"cluster.devices={found.value}", f"parallelism.data={found.value // 8}", f"run.micro_batch={batch}"]
    again = compile_plan(load_plan("70b", [*TENSOR_PARALLEL, *changes])).totals
    assert again["time.run"] == found.bounds[0].at


def test_the_largest_number_of_devices_says_what_caps_it() -> None:
    """Every replica needs a sequence of the step, so 1024 sequences occupy 1024 x 8 devices."""
    found = solve(load_plan("70b", TENSOR_PARALLEL), "cluster.devices", ["time.run <= 1 d"])
    assert found.value is None
    assert "no more than 8192 devices: data x micro_batch must divide global_batch = 1024" in found.notes[-1]
    assert "`--set run.global_batch=2048`" in found.notes[-1]


def test_money_is_written_as_reports_print_it() -> None:
    """Ten million dollars, in three spellings."""
    known = {"cost.run": 0}
    limits = {condition(f"cost.run <= {text}", known).limit for text in ("10M USD", "10 million USD", "10000000 USD")}
    assert limits == {10**7}


@pytest.mark.parametrize(
    ("path", "conditions", "said"),
    [
        ("run.micro_btch", [], "`run.micro_btch` is nothing to solve for"),
        ("run.micro_batch", ["memory.peek <= 1 GB"], "no total `memory.peek`"),
        ("run.micro_batch", ["memory.peak <= 80"], "`80` has no unit"),
        ("run.micro_batch", ["memory.peak <= 80 s"], "`80 s` is a time, not a size"),
        ("run.micro_batch", ["memory.peak"], "`memory.peak` is no condition"),
        ("run.tokens", ["fits"], "nothing that is asked for depends on `run.tokens`"),
        ("run.tokens", ["energy.run <= 1e23 J"], "nothing limits `run.tokens`"),
        ("model.parameters", [], "`model.parameters` of a model made of layers follows from its shapes"),
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


def test_a_link_is_solved_for_as_it_is_set() -> None:
    """Transfers that were measured follow the link that is looked for."""
    spec = str(SPECS / "70b.yaml")
    plan = load_plan(spec)
    path = "accelerator.scaleup.bandwidth"
    put = with_settings(plan, unknown(plan, path).settings(225e9)).plan
    assert put is not None
    typed = load_plan(spec, (f"{path}=225 GB/s",))
    assert compile_plan(put).totals["time.step"] == compile_plan(typed).totals["time.step"]


def test_a_rule_above_the_given_value_hides_no_answer(small: Plan) -> None:
    """Twice the peak of a known device is its sparse figure, and refused; the given one meets the condition."""
    step = float(compile_plan(small).totals["time.step"])
    for times in (1.5, 0.97):
        found = solve(small, "accelerator.peak.bf16", [f"time.step <= {times * step!r} s"])
        (bound,) = found.bounds
        assert found.goal == SMALLEST
        assert float(bound.at) <= times * step < float(bound.beyond)


def test_what_rises_on_both_sides_is_told_by_its_least(small: Plan) -> None:
    """A run's length has a least batch: fewer updates save time, and a last step that is not full takes it."""
    run = float(compile_plan(small).totals["time.run"])
    met = solve(small, "run.global_batch", [f"time.run <= {1.01 * run!r} s"])
    assert met.value is not None
    missed = solve(small, "run.global_batch", [f"time.run <= {0.5 * run!r} s"])
    assert missed.value is None
    (bound,) = missed.bounds
    assert float(bound.at) <= run


def test_a_share_is_a_share(small: Plan) -> None:
    """40 of what is at most 1 is 4000 %, and no plan has that; 40 % and 0.4 are conditions."""
    known = compile_plan(small).totals
    with pytest.raises(SpecError, match="`mfu` is a share"):
        condition("mfu >= 40", known)
    assert condition("mfu >= 40 %", known).limit == condition("mfu >= 0.4", known).limit == Fraction(2, 5)
