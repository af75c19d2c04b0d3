"""What no layout of a plan is below."""

from __future__ import annotations

from fractions import Fraction

import pytest

from ledger.books.what_if.sought import totals
from ledger.search.part_choice import least_flops, least_totals
from ledger.spec.load import load_plan

TWENTY = "run.tokens=20 a parameter"


@pytest.mark.parametrize(
    "settings", [(), ("recompute=full",), ("parallelism.tensor=8", "parallelism.data=8"), (TWENTY,)]
)
def test_no_layout_is_below_the_least(settings: tuple[str, ...]) -> None:
    """What is skipped for its least must be out of reach: it is the arithmetic of both passes, at the peak rate."""
    plan = load_plan("8b", settings)
    known, least = totals(plan), least_totals(plan)
    assert {"time.step", "time.run", "time.calendar", "cost.run", "memory.reserved"} <= least.keys()
    assert all(least[key] <= known[key] for key in least)
    assert least_flops(plan) == pytest.approx(float(known["flops.model"]), rel=1e-12)


@pytest.mark.parametrize("name", ["70b", "gpt2", "mixtral-8x7b", "deepseek-v3", "7b-8xh100"])
def test_no_plan_of_the_library_is_below_its_least(name: str) -> None:
    """Of dense models and of experts, whatever the layout."""
    plan = load_plan(name)
    known, least = totals(plan), least_totals(plan)
    assert all(float(least[key]) <= float(known[key]) * (1 + 1e-12) for key in least)


@pytest.mark.parametrize("weights", ["bf16", "nf4"])
@pytest.mark.parametrize("layout", [{"tensor": 8, "data": 1}, {"tensor": 2, "data": 4}, {"tensor": 1, "pipeline": 8}])
def test_a_service_holds_no_less_than_its_weights(layout: dict[str, int], weights: str) -> None:
    """Shared out over all devices, in their format: a service has no gradients, copies or states."""
    settings = [f"parallelism.{axis}={degree}" for axis, degree in ({"data": 1} | layout).items()]
    formats = f"precision={{base: bf16-true, weights: {{base: {weights}}}}}"
    plan = load_plan("serve-70b", [*settings, formats])
    known, least = totals(plan), least_totals(plan)
    assert set(least) == {"memory.peak", "memory.reserved", "memory.capacity"}
    assert least["memory.reserved"] <= known["memory.reserved"]
    if weights == "bf16":
        assert least["memory.reserved"] == pytest.approx(2 * float(known["parameters"]) / 8)


def test_a_plan_that_offloads_states_has_no_least_memory() -> None:
    """States on the host are no part of what a device must hold."""
    least = least_totals(load_plan("8b", ["parallelism.offload=[optimizer]"]))
    assert "memory.reserved" not in least
    assert Fraction(least["time.step"]) > 0
