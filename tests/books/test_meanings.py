from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest

import ledger
from ledger.books.compiled import Compiled
from ledger.books.meanings import Meaning, meanings, value_of_input
from ledger.books.results import Number
from ledger.model import dtypes
from ledger.model.optimizers import per_parameter
from ledger.spec.expressions import ratio

SPECS = Path(__file__).resolve().parents[2] / "specs"
BARE = """spec: ledger/1
plan: bare
model: {parameters: 7.5e9}
accelerator: h100-sxm
cluster: {devices: 64, devices_per_node: 8}
precision: bf16-mixed
run: {tokens: 1e12 tokens}
assumptions: {price: {per_device_hour: 2 USD, date: 2026-05-01, source: assumed}}
"""


LARGEST = 2**200  # of any part of a formula
NAME = re.compile(r"(?:bytes|states)\([\w.]+\)|[a-z_]\w*(?:\.\w+)*")
ROUNDED_UP = re.compile(r"ceil\(([\w.]+) / (\([^()]*\))\)")


@pytest.fixture(scope="module", params=[*map(str, sorted(SPECS.glob("*.yaml"))), BARE], ids=lambda s: s[-12:].strip())
def compiled(request: pytest.FixtureRequest) -> Compiled:
    """Every plan of the library, and a parameter count alone."""
    return ledger.compile(request.param)


def evaluated(compiled: Compiled, meaning: Meaning) -> Fraction:
    """What an exact formula gives from its inputs."""
    numbers: dict[str, Fraction] = {}

    def named(match: re.Match[str]) -> str:
        name = f"n{len(numbers)}"
        numbers[name] = _number(compiled, match[0])
        return name

    text = NAME.sub(named, ROUNDED_UP.sub(r"-(-\1 // \2)", meaning.formula))
    return ratio(text, numbers.__getitem__, largest=LARGEST)


def _number(compiled: Compiled, written: str) -> Fraction:
    function, call, name = written.rstrip(")").rpartition("(")
    value: Number | str | None = value_of_input(compiled, name)
    if call and function == "bytes":
        return dtypes.size(str(value)) if value else Fraction(0)
    if call:
        return sum(per_parameter(compiled.plan.optimizer, compiled.plan.precision).values(), Fraction(0))
    return Fraction(value or 0)


def test_every_total_has_one_meaning_and_known_inputs(compiled: Compiled) -> None:
    """Each key has exactly one row, and every input it names is a total or a value of the plan."""
    for key in compiled.totals:
        (row,) = meanings(compiled.plan, key)
        for name in row.inputs:
            value_of_input(compiled, name)


def test_exact_formulas_give_their_totals(compiled: Compiled) -> None:
    """Arithmetic over the inputs is the total."""
    for key, value in compiled.totals.items():
        (row,) = meanings(compiled.plan, key)
        if row.exact:
            assert float(evaluated(compiled, row)) == pytest.approx(float(value), rel=1e-12), key
