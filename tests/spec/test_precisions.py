"""The library's precisions, stacks and clusters: what each holds a parameter in, and that each can be read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ledger.spec.library import default_library
from ledger.spec.load import load_cluster, load_precision, load_stack

BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8_e4m3": 1, "fp8_e5m2": 1}


@pytest.mark.parametrize(
    ("name", "each"),
    [
        # Rajbhandari et al. 2020, section 3.1: 2 + 2 + K, K = 12 with Adam in mixed precision.
        ("bf16-mixed", 16),
        ("fp16-mixed", 16),
        # Weights, gradients and two states of 4 bytes.
        ("fp32", 16),
        ("bf16-autocast", 16),
        # 2 + 2 + two states of 4.
        ("bf16-pure", 12),
        # 2 + 2 + two states of 2.
        ("bf16-true", 8),
        ("fp16-pure", 8),
        # A master of 4, 1 + 1, two states of 4.
        ("fp8-mixed", 14),
    ],
)
def test_a_precision_holds_each_parameter_in_as_many_bytes_as_published(name: str, each: int) -> None:
    """The bytes of training with Adam follow from the formats, so a swapped format shows."""
    precision = load_precision(name)
    master = BYTES[precision.master] if precision.master else 0
    held = BYTES[precision.weights.every] + BYTES[precision.gradients] + master + 2 * BYTES[precision.states]
    assert held == each


def test_gradients_are_reduced_in_their_own_format() -> None:
    """No policy of the library adds gradients in another format than it keeps them in."""
    precisions = [load_precision(entry.name) for entry in default_library().entries("precision")]
    assert all(precision.reduction == precision.gradients for precision in precisions)


@pytest.mark.parametrize(("kind", "load"), [("stack", load_stack), ("cluster", load_cluster)])
def test_every_part_can_be_read_alone(kind: str, load: Callable[[str], object]) -> None:
    """A part that no plan names is held to the schema too."""
    entries = default_library().entries(kind)
    assert entries
    assert all(load(entry.name) for entry in entries)
