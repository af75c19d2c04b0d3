from __future__ import annotations

from pathlib import Path

import pytest

import ledger
from ledger.books import compile_plan
from ledger.books.price_changes import step_time
from ledger.books.what_if.alternatives import Alternative, Shelf, alternatives, fitting, front, layouts, merged
from ledger.model.schedule import roles
from ledger.spec.inputs import violations
from ledger.spec.load import load_plan
from ledger.spec.plan import Plan

SPEC = str(Path(__file__).resolve().parents[2] / "specs" / "gpt2.yaml")


@pytest.fixture(scope="module")
def plan() -> Plan:
    """GPT-2 on one node."""
    return load_plan(SPEC)


@pytest.fixture(scope="module")
def found(plan: Plan) -> tuple[Alternative, ...]:
    """Its other layouts."""
    return alternatives(plan)


def test_every_layout_is_legal_and_uses_the_same_devices(plan: Plan) -> None:
    """Degrees multiply to the devices, and no rule of the spec is broken."""
    everything = list(layouts(plan))
    assert len(everything) > 5
    for layout in everything:
        mesh = layout.parallelism
        assert mesh.data * mesh.tensor * mesh.pipeline * mesh.context == plan.cluster.devices
        assert not violations(layout)


def test_changes_can_be_typed(found: tuple[Alternative, ...]) -> None:
    """What an alternative says, given to `--set`, is the plan that was compiled."""
    for other in found[:2]:
        typed = ledger.compile(SPEC, [f"{key}={value}" for key, value in other.changes.items()])
        assert {key: typed.totals[key] for key in other.totals} == other.totals


def test_all_fit_and_none_beats_another(found: tuple[Alternative, ...]) -> None:
    """A Pareto front: faster ones need more memory. The order is by time."""
    assert 0 < len(found) <= 8
    steps = [other.totals["time.step"] for other in found]
    needs = [other.totals["memory.reserved"] for other in found]
    assert steps == sorted(steps)
    assert needs == sorted(needs, reverse=True)
    assert all(other.totals["memory.reserved"] <= other.totals["memory.capacity"] for other in found)


def test_no_layout_breaks_the_headroom_of_the_plan() -> None:
    """What a plan wants to keep free, its alternatives keep free too."""
    spec = str(Path(SPEC).with_name("8b.yaml"))
    careful = load_plan(spec, ("assumptions.headroom=cloud",))
    wanted = careful.accelerator.memory - 40e9
    found = alternatives(careful)
    assert found
    assert all(other.totals["memory.reserved"] <= wanted for other in found)
    free = alternatives(load_plan(spec, ("assumptions.headroom=minimum",)))
    assert any(other.totals["memory.reserved"] > wanted for other in free)


def test_shared_books_value_a_layout_as_its_own_do(plan: Plan) -> None:
    """A ledger closed for one micro-batch gives the step of another, and its memory to within the moment's choice."""
    shelf = Shelf()
    for layout in list(layouts(plan))[:4]:
        for candidate in fitting(layout, shelf):
            totals = compile_plan(candidate.plan).totals
            books = [shelf.spent(candidate.plan, role) for role in merged(roles(candidate.plan))]
            assert step_time(candidate.plan, books) == pytest.approx(totals["time.step"], rel=1e-9)
            assert candidate.reserved == pytest.approx(float(totals["memory.reserved"]), rel=0.05)


def test_the_front_drops_what_is_beaten(plan: Plan) -> None:
    """Of points (seconds, bytes), those with a point below and left of them go."""
    from ledger.books.what_if.alternatives import Candidate

    points = [(1.0, 9), (2.0, 5), (2.5, 6), (3.0, 5), (4.0, 1), (1.0, 8)]
    kept = front([Candidate(plan, reserved, seconds) for seconds, reserved in points])
    assert [(one.seconds, one.reserved) for one in kept] == [(1.0, 8), (2.0, 5), (4.0, 1)]


def test_a_count_alone_has_no_layouts() -> None:
    """Nothing is known that a layout could change but its state."""
    assert (
        alternatives(load_plan(SPEC, ["model={parameters: 7e9 parameters}", "kernels={}", "run.tokens=1B tokens"]))
        == ()
    )
