"""Plans whose sizes are inputs: what a trace says at its own setting, and what it takes for granted."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.arithmetic.tracing import INPUT, Graph, Traced, needed
from ledger.books.compiler import compile_plan
from ledger.books.traced import AMOUNTS, setting, structure
from ledger.spec.load import load_plan
from tests.library_plans import TRAINING

SPECS = Path(__file__).resolve().parents[2] / "specs"
LIBRARY = [path.stem for path in TRAINING]
# What decides which operations there are: which axes are split, what ZeRO splits, and whether micro-batches accumulate.
DEGREES = {"data", "tensor", "pipeline", "context", "expert", "zero", "global_batch", "micro_batch"}


@pytest.mark.parametrize("name", LIBRARY)
def test_a_trace_says_at_its_own_setting_what_the_compiler_says(name: str) -> None:
    """Every total but what prices move: the very numbers, integers as integers."""
    plan = load_plan(str(SPECS / f"{name}.yaml"))
    compiled = {key: amount for key, amount in compile_plan(plan).totals.items() if not key.startswith("pace.")}
    traced = structure(plan, Graph(), setting(plan), every=True)
    for key, expected in compiled.items():
        value = traced.totals[key]
        sample = value.sample if isinstance(value, Traced) else value
        assert sample == pytest.approx(expected, rel=0 if isinstance(expected, int) else 1e-12), key


@pytest.mark.parametrize("name", LIBRARY)
def test_no_rule_of_the_books_branches_on_a_size(name: str) -> None:
    """What a structure takes for granted is about degrees, and whether an amount is nothing: others are seen here."""
    plan = load_plan(str(SPECS / f"{name}.yaml"))
    graph = Graph()
    found = structure(plan, graph, setting(plan))
    for place, _ in found.guards:
        asked = {graph.terms[term][1] for term in needed(graph, [place]) if graph.terms[term][0] == INPUT}
        stated = {name for names in AMOUNTS.values() for name in names}
        assert (
            asked <= DEGREES
            or (asked <= stated and graph.terms[place][0] == INPUT)
            or asked == {"accelerator.scaleup.bandwidth"}
        ), graph.terms[place]
    assert len(found.guards) <= 20
