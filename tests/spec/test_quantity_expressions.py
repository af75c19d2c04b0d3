"""Expressions over quantities are bounded, and keep their units."""

from __future__ import annotations

import pytest

from ledger.spec.expressions import ExpressionError
from ledger.spec.quantity_expressions import LARGEST, LONGEST, Names, Quantity, evaluate

KNOWN = {
    "n": Quantity(6),
    "area": Quantity(9, {"m": 2}),
    "held": Quantity(16, {"B": 1}),
    "read": Quantity(4, {"tokens": 1}),
}
QUANTITIES = Names(KNOWN.__getitem__)


@pytest.mark.parametrize(
    "text",
    ["1e999 * n", "-1e999", "1e61", f"sqrt(1{'0' * 400})", f"{LARGEST} * n", "n ** 64 ** 64", f"1{' + 1' * LONGEST}"],
)
def test_what_is_beyond_reason_is_refused(text: str) -> None:
    """Constants too, before anything is made of them."""
    with pytest.raises(ExpressionError):
        evaluate(text, QUANTITIES)


def test_the_root_of_a_unit_is_a_unit_or_refused() -> None:
    """Of an area a length; bytes have none, and what is only counted is a number."""
    assert evaluate("sqrt(area)", QUANTITIES) == Quantity(3.0, {"m": 1})
    assert evaluate("sqrt(read)", QUANTITIES).value == 2.0
    with pytest.raises(ExpressionError, match="takes the root of B"):
        evaluate("sqrt(held) + 1", QUANTITIES)
