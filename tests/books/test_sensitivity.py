from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import sympy

from ledger.books import compile_plan
from ledger.books.compiled_roles import compile_roles
from ledger.books.evaluate import exact
from ledger.books.what_if.sensitivity import Sensitivity, sensitivities, slopes
from ledger.model.schedule import roles
from ledger.model.tensors import CeilDiv
from ledger.spec.load import load_plan
from ledger.spec.plan import Plan

SPECS = Path(__file__).resolve().parents[2] / "specs"


@pytest.fixture(scope="module")
def plan() -> Plan:
    """Llama 2 7B on one node."""
    return load_plan(str(SPECS / "7b-8xh100.yaml"))


@pytest.fixture(scope="module")
def found(plan: Plan) -> dict[str, Sensitivity]:
    """Its sensitivities by path."""
    return {row.path: row for row in sensitivities(compile_plan(plan))}


def test_slopes_are_those_of_sympy(plan: Plan) -> None:
    """s * d(formula)/ds of every formula in the ledger equals sympy's own derivative at the same sizes."""
    (book,) = compile_roles(plan, roles(plan))
    slope = slopes(book.value)
    formulas = {entry.amount * entry.times for entry in book.entries}
    assert len(formulas) > 50
    for formula in formulas:
        smooth = formula.replace(CeilDiv, lambda rows, shards: rows / shards)
        for sign in formula.free_symbols:
            assert slope(formula).get(sign, 0) == book.value(sympy.expand(sign * smooth.diff(sign))), formula


def test_rounding_up_is_differentiated_as_a_quotient() -> None:
    """ceil(V/d) at V = 10, d = 4: V d/dV = 10/4, d d/dd = -10/4."""
    rows, shards = sympy.symbols("V d", positive=True, integer=True)
    slope = slopes(exact({rows: 10, shards: 4}))
    assert slope(3 * CeilDiv(rows, shards)) == {rows: sympy.Rational(15, 2), shards: -sympy.Rational(15, 2)}


def test_work_is_bilinear_in_layers_and_nearly_linear_in_width(found: dict[str, Sensitivity], plan: Plan) -> None:
    """All matmuls but the head's are in layers; the attention core grows with the square of the sequence."""
    totals = compile_plan(plan).totals
    run, model = plan.run, plan.model
    head = 3 * 2 * model.d_model * model.vocab * run.seq_len * run.global_batch  # forward, and both gradients
    layers = found["model.layers.decoder.repeat"].elasticities["flops.step"]
    assert layers == pytest.approx(1 - head / float(totals["flops.step"]), rel=1e-12)
    assert 1 < found["run.seq_len"].elasticities["flops.step"] < 2


def test_memory_of_activations_is_linear_in_the_batch(found: dict[str, Sensitivity]) -> None:
    """One per cent more sequences are one per cent more activations, but for tables of positions, and no more state."""
    batch = found["run.micro_batch"].elasticities
    assert batch["memory.activations"] == pytest.approx(1, rel=1e-4)
    assert batch["memory.optimizer"] == 0
    assert 0 < batch["memory.peak"] < 1


@pytest.mark.parametrize("path", ["accelerator.peak", "accelerator.bandwidth"])
def test_elasticities_predict_the_books_of_a_better_device(
    found: dict[str, Sensitivity], plan: Plan, path: str
) -> None:
    """A device that is one per cent better, compiled anew, is as much faster as the elasticity says."""
    device = plan.accelerator
    if path.endswith("bandwidth"):
        device = replace(device, bandwidth=device.bandwidth * 1.01)
    else:
        device = replace(device, peak={**device.peak, "bf16": device.peak["bf16"] * 1.01})
    before = float(compile_plan(plan).totals["time.step"])
    after = float(compile_plan(replace(plan, accelerator=device)).totals["time.step"])
    assert after / before == pytest.approx(1.01 ** found[path].elasticities["time.step"], rel=1e-5)


def test_no_price_buys_more_than_all_of_them(found: dict[str, Sensitivity]) -> None:
    """Time is made of what is priced and of latencies, so speeds together shorten it by at most their own share."""
    speeds = [row for path, row in found.items() if path.startswith(("accelerator.", "cluster."))]
    steps = [row.elasticities["time.step"] for row in speeds]
    assert all(-1 <= step <= 0 for step in steps)
    assert -1.0001 <= sum(steps) < -0.5


def test_a_run_costs_what_its_tokens_and_hours_cost(found: dict[str, Sensitivity]) -> None:
    """Cost is proportional to both; the price of an hour does not make it longer."""
    assert found["run.tokens"].elasticities["cost.run"] == 1
    price = found["assumptions.price.per_device_hour"].elasticities
    assert (price["time.run"], price["cost.run"]) == (0, 1)


def test_longer_sequences_make_steps_longer_but_fewer(found: dict[str, Sensitivity]) -> None:
    """Tokens in all are given: the run's elasticity is the step's less one, but for the last step being whole."""
    seq = found["run.seq_len"].elasticities
    assert seq["time.run"] == pytest.approx(seq["time.step"] - 1, abs=1e-4)


def test_a_count_alone_has_no_sensitivities(plan: Plan) -> None:
    """Nothing but the napkin follows from a parameter count."""
    bare = load_plan(str(SPECS / "7b-8xh100.yaml"), ["model={parameters: 7e9 parameters}"])
    assert sensitivities(compile_plan(bare)) == ()
