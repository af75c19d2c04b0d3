"""Expressions over quantities are bounded, and keep their units."""

from __future__ import annotations

import pytest

from ledger.spec.expressions import ExpressionError
from ledger.spec.quantity_expressions import LARGEST, LONGEST, ExpressionQuantity, Names, evaluate

KNOWN = {
    "n": ExpressionQuantity(6),
    "area": ExpressionQuantity(9, {"m": 2}),
    "held": ExpressionQuantity(16, {"B": 1}),
    "read": ExpressionQuantity(4, {"tokens": 1}),
}
QUANTITIES = Names(KNOWN.__getitem__)


@pytest.mark.parametrize(
    "text",
    [
        "sqrt(1e60) ** 64",
        "((1e-30 ** 64) ** 64) ** 64 * 1",
        "1e999 * n",
        "-1e999",
        "1e61",
        f"sqrt(1{'0' * 400})",
        f"{LARGEST} * n",
        "n ** 64 ** 64",
        f"1{' + 1' * LONGEST}",
    ],
)
def test_what_is_beyond_reason_is_refused(text: str) -> None:
    """Constants too, before anything is made of them."""
    with pytest.raises(ExpressionError):
        evaluate(text, QUANTITIES)


@pytest.mark.parametrize("text", ["min(area, held)", "max(n, held)", "sum('*')", "held == area", "held < area"])
def test_two_units_do_not_mix(text: str) -> None:
    """Neither in a choice, nor in a sum, nor beside each other."""
    sums = {"sum": lambda _: list(KNOWN.values())}
    with pytest.raises(ExpressionError, match="against"):
        evaluate(text, Names(KNOWN.__getitem__, sums))
    assert evaluate("min(read, n)", QUANTITIES).value == 4


def test_the_root_of_an_area_is_a_length() -> None:
    """What is no square has no root, and is left out: parameters are the root of a budget's FLOPs over 6 x 20."""
    assert evaluate("sqrt(area)", QUANTITIES) == ExpressionQuantity(3.0, {"m": 1})
    assert evaluate("sqrt(held)", QUANTITIES) == ExpressionQuantity(4.0)
