"""Inputs that nobody writes on purpose, to the verbs that run PyTorch: suites of plans, and the file of a benchmark."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

import pytest

from tests.fuzz import seeds
from tests.fuzz.mutants import Mutant, kind_of, mutant
from tests.fuzz.watch import quiet_room, run_warm

SEED = 15


@pytest.fixture(scope="module")
def room() -> Iterator[Path]:
    """An empty folder, in which mutants run."""
    with quiet_room() as folder:
        yield folder


def test_sound_inputs_are_sound(room: Path) -> None:
    """What is mutated is accepted as it is; else mutants would all be refused for one reason."""
    (suite,) = seeds.seeds()["suite"]
    plan = seeds.seeds()["plan"][0].text.encode()
    judged = Mutant("suite", "verify", (suite.name, "--quick"), {suite.name: suite.text.encode(), "other.yaml": plan})
    measured = seeds.measured().text.encode()
    resumed = Mutant("bench", "bench", (*seeds.MEASURED, "--out", "bench.yaml"), {"bench.yaml": measured})
    for one in (judged, resumed):
        outcome = run_warm(one, room)
        assert (outcome.code, outcome.fault) == (0, ""), one.verb


@pytest.mark.parametrize("kind", ["suite", "bench"])
def test_no_mutant_breaks_the_program(room: Path, kind: str) -> None:
    """Each ends in 0, 1 or 2 without a traceback; `make fuzz` runs many more."""
    for number in islice((number for number in count() if kind_of(SEED, number) == kind), 5):
        outcome = run_warm(mutant(SEED, number), room)
        assert outcome.fault == "", f"python -m tests.fuzz --seed {SEED} --only {number}\n{outcome.detail}"
