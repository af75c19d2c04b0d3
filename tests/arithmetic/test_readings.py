"""One arithmetic: exact numbers, a trace at a setting, and arrays over many settings say the same."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from ledger.arithmetic.algebra import Algebra
from ledger.arithmetic.formula_text import FormulaText
from ledger.arithmetic.operations import OPERATIONS
from ledger.arithmetic.tracing import Graph, Trace, evaluate
from ledger.arithmetic.values import (
    Amount,
    both,
    ceil_divide,
    divide,
    floor,
    largest,
    logarithm,
    maximum,
    minimum,
    next_power_of_two,
    pick,
    real,
    share,
    square_root,
    truncate,
    where,
)

SIZES = st.integers(min_value=1, max_value=10**6)


def rule(x: Amount, y: Amount) -> Amount:
    """A rule that uses what rules use."""
    shares = ceil_divide(x, y) + x // y + x % y
    longest = largest([x, 2 * y, shares], key=lambda item: item)
    chosen = pick(longest, [x + 1, y * y, divide(x, 3)])
    waits = where(x < y, square_root(x), maximum(x, y) / minimum(x, y + 1))
    return chosen - y / x + waits + truncate(divide(x * y, 4)) + abs(x - y) + next_power_of_two(x + y)


@given(SIZES, SIZES)
def test_a_trace_says_what_numbers_say(x: int, y: int) -> None:
    """At its own setting a trace has the very number that the rule gives for numbers, and takes nothing for granted."""
    trace = Trace(Graph())
    traced = rule(trace.input("x", x), trace.input("y", y))
    assert traced.sample == rule(x, y)
    assert not trace.guards


def test_arrays_say_what_numbers_say() -> None:
    """A graph traced at one setting holds at all of them, over axes that broadcast."""
    trace = Trace(Graph())
    traced = rule(trace.input("x", 3), trace.input("y", 7))
    xs, ys = np.arange(1, 60)[:, None], np.arange(1, 40)[None, :]
    (found,) = evaluate(trace.graph, [traced.place], {"x": xs, "y": ys})
    expected = [[float(rule(int(x), int(y))) for y in ys[0]] for x in xs[:, 0]]
    assert found == pytest.approx(np.array(expected), rel=1e-12)


def test_a_rule_reads_arrays_without_a_trace() -> None:
    """Given arrays, a rule says for each element what it says for that number; fits to measurements rest on it."""
    xs, ys = np.arange(1.0, 60.0)[:, None], np.arange(1.0, 40.0)[None, :]
    expected = [[float(rule(int(x), int(y))) for y in ys[0]] for x in xs[:, 0]]
    assert rule(xs, ys) == pytest.approx(np.array(expected), rel=1e-12)
    assert logarithm(xs)[:, 0] == pytest.approx([logarithm(float(x)) for x in xs[:, 0]])
    assert both(xs < ys, ys < 9).tolist() == [[bool(x < y < 9) for y in ys[0]] for x in xs[:, 0]]
    assert real(xs.astype(int)).dtype == np.float64


def test_powers_of_two_are_exact_in_every_reading() -> None:
    """A power of two is its own next one, and one more is followed by twice that, however large."""
    numbers = [1, 2, 3, *(2**power + more for power in (3, 10, 31, 40, 52) for more in (-1, 0, 1))]
    expected = [1, 2, 4, *(2 ** (power + (more == 1)) for power in (3, 10, 31, 40, 52) for more in (-1, 0, 1))]
    assert [next_power_of_two(number) for number in numbers] == expected
    assert next_power_of_two(np.array(numbers)).tolist() == expected
    trace = Trace(Graph())
    traced = [next_power_of_two(trace.input(f"n{number}", number)) for number in numbers]
    assert [one.sample for one in traced] == expected
    assert not trace.guards


# Each operation in a function of two letters, which is an amount.
USES: dict[str, Callable[[Amount, Amount], Amount]] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "divide": divide,
    "true_divide": lambda x, y: x / y,
    "floor_divide": lambda x, y: x // y,
    "ceil_divide": ceil_divide,
    "next_power_of_two": lambda x, y: next_power_of_two(ceil_divide(x, y)),
    "modulo": lambda x, y: x % y,
    "power": lambda x, y: (x + y) ** 3,
    "minimum": minimum,
    "maximum": maximum,
    "absolute": lambda x, y: abs(x - y),
    "square_root": lambda x, y: square_root(x * y),
    "logarithm": lambda x, y: logarithm(x + y),
    "truncate": lambda x, y: truncate(divide(x, y)),
    "floor": lambda x, y: floor(divide(x, y)),
    "share": share,
    "less": lambda x, y: where(x < y, x, y),
    "less_equal": lambda x, y: where(x <= y, x, y),
    "equal": lambda x, y: where(x == y, x, y),
    "not": lambda x, y: where(x != y, x, y),
    "both": lambda x, y: where(both(x < 100, y < x), x, y),
    "where": lambda x, y: where(x > y, x - y, y - x),
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize(("x", "y"), [(700, 3), (3, 700), (64, 2)])
def test_every_operation_has_a_text(name: str, x: int, y: int) -> None:
    """In the letters of its inputs, as Python reads it, an operation gives its number; so does a rule of many."""
    for function in (USES[name], rule):
        trace = Trace(Graph())
        place = function(trace.input("x", x), trace.input("y", y)).place
        algebra = Algebra(trace.graph, trace.setting)
        written = FormulaText(algebra, python=True, rank=lambda letter: (0, letter)).text(algebra.of(place))
        value = eval(written, {"x": x, "y": y, "math": math})  # noqa: S307 - a text of our own
        assert value == pytest.approx(function(x, y), rel=1e-12), written


def test_numbers_load_no_numpy() -> None:
    """Plain numbers are computed with by Python alone, so that a report starts without numpy."""
    code = "import sys; from ledger.arithmetic.values import maximum, where; maximum(1, 2); where(True, 1, 2)"
    subprocess.run([sys.executable, "-c", f"{code}; assert 'numpy' not in sys.modules"], check=True)


def test_asking_for_truth_leaves_a_guard() -> None:
    """Python's own branches are answered at the trace's setting, and the graph says for which settings that holds."""
    trace = Trace(Graph())
    degree = trace.input("degree", 4)
    assert degree > 1
    assert [int(index) for index in (degree,)] == [4]
    conditions = [(trace.graph.terms[place][0], truth) for place, truth in trace.conditions]
    assert conditions == [("less", True), ("equal", True)]


def test_values_of_two_traces_are_not_the_same() -> None:
    """A term at another setting is another value, also to what keeps its results by their arguments, as sympy does."""
    graph = Graph()
    three, seven = (Trace(graph).input("layers", layers) for layers in (3, 7))
    assert three.place == seven.place
    assert three != seven
    assert (sympy.Integer(three), sympy.Integer(seven)) == (3, 7)


def test_equal_terms_stand_once() -> None:
    """What two rules compute alike is one term, so that it is printed and evaluated once."""
    trace = Trace(Graph())
    x, y = trace.input("x", 5), trace.input("y", 6)
    assert (x * y + 1).place == (x * y + 1).place
    assert (x * 1).place == x.place
    assert (x + 0).place == x.place
    assert x * 0 == 0


def test_exact_numbers_stay_exact() -> None:
    """FLOPs of a run pass 2**53: a trace's own setting and plain numbers keep every digit."""
    many = 2**70 + 1
    assert divide(many * 3, 3) == many
    assert divide(1, 3) == Fraction(1, 3)
    assert divide(Trace(Graph()).input("n", many * 3), 3).sample == many
