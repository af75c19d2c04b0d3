"""Random valid plans keep the laws: a few at each run of the tests, `make laws` thousands."""

from __future__ import annotations

from collections import Counter

import pytest

from ledger.books import compile_plan
from ledger.spec.load import load_plan
from tests.lawful import broken_laws
from tests.laws.__main__ import broken, main
from tests.laws.laws import (
    LAWS,
    Law,
    an_answer_is_the_last,
    arrays_agree,
    bounds_are_in_order,
    page_agrees,
    sharding_saves,
)
from tests.laws.random_plans import numbered_plan, text_of

SEED, PLANS, LAW_OF_EACH = 7, 12, 6
SLOW = (an_answer_is_the_last, arrays_agree, page_agrees)
QUICK = {law: 1 for law in LAWS if law not in SLOW}


@pytest.mark.parametrize("start", range(0, PLANS, LAW_OF_EACH))
def test_random_plans_keep_the_laws(start: int) -> None:
    """Tokens, devices, order of keys, ZeRO, bounds of a step, parts of the peak."""
    held: Counter[str] = Counter()
    told = [what for number in range(start, start + LAW_OF_EACH) for what in broken(SEED, number, QUICK, held)]
    assert told == []
    assert held == {law.__name__: LAW_OF_EACH for law in QUICK}


@pytest.mark.parametrize("number", [183, 190, 398, 546, 629, 864])
def test_plans_that_broke_a_law_once_keep_it(number: int) -> None:
    """Copies to the host beside other transfers that are waited for; experts that no gradient passes through."""
    held: Counter[str] = Counter()
    assert list(broken(1, number, {bounds_are_in_order: 1, sharding_saves: 1}, held)) == []


@pytest.mark.parametrize("law", SLOW, ids=lambda law: law.__name__)
def test_random_plans_keep_the_laws_of_searches(law: Law) -> None:
    """One plan each: what is solved for fits and the next does not, arrays and the page say what the compiler says."""
    held: Counter[str] = Counter()
    assert list(broken(SEED, 0, {law: 1}, held)) == []


def test_a_plan_is_the_same_each_time_and_no_other() -> None:
    """Its seed and number make it; twenty are of many models, devices and layouts."""
    several = [numbered_plan(SEED, number)[0] for number in range(20)]
    assert several[3] == numbered_plan(SEED, 3)[0]
    assert len({text_of(one) for one in several}) == len(several)
    for key in ("model", "accelerator", "stack", "precision", "optimizer"):
        assert len({one[key] for one in several}) > 3, key
    assert {one["parallelism"]["zero"] for one in several} == {0, 1, 2, 3}


def test_a_law_that_is_broken_is_seen() -> None:
    """An order that is wrong, an amount below zero, a number that is none; and the exit code says so."""
    sound = dict(compile_plan(load_plan(text_of(numbered_plan(1, 1)[0]))).totals)
    assert list(broken_laws(sound)) == []
    step, floor = float(sound["time.step"]), float(sound["time.floor"])
    assert list(broken_laws({**sound, "time.floor": 2 * step})) == [
        f"time.floor is {2 * step}, time.roofline is {sound['time.roofline']}"
    ]
    assert list(broken_laws({**sound, "time.serial": floor / 2}))
    assert list(broken_laws({**sound, "memory.peak": -1})) == ["memory.peak is -1, below zero"]
    assert list(broken_laws({**sound, "mfu": float("nan")})) == ["mfu is nan"]


def test_the_program_says_how_many_were_held(capsys: pytest.CaptureFixture[str]) -> None:
    """Each law with its plans and its violations."""
    assert main(["--plans", "1", "--first", "1", "--seed", str(SEED)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert len(told) == len(LAWS)
    assert told[0] == f"     1 plans     0 violations  {bounds_are_in_order.__doc__}"
