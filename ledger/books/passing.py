"""What exists only while one unit runs: its steps, any of which may be the fullest, and what their tensors count as."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import sympy

from ledger.books.liveness import Alive, backward, forward
from ledger.model.program import LOSS, OUTPUT, Unit
from ledger.model.tensors import Tensor

TOKENS = "embedding/tokens.index"


def candidates(unit: Unit) -> Iterator[tuple[str, tuple[Alive, ...]]]:
    """The moments of a unit with the steps that run then; the sizes say at which of them most is alive."""
    if not unit.forward:
        return
    back = backward(unit)
    yield f"forward/{unit.name}", forward(unit)
    yield f"backward/{unit.name}", back
    if unit.count != sympy.Integer(1):
        yield f"backward/{unit.name}/end", back


def category(unit: Unit) -> str:
    """What the tensors that a unit keeps for backward count as."""
    return "logits" if unit.name in (OUTPUT, LOSS) else "activations"


def categories(unit: Unit) -> Callable[[Tensor], str]:
    """What each tensor that is alive while a unit runs counts as."""
    gradients = {f"{weight.name}.gradient" for weight in unit.weights}
    kept = {tensor.name for tensor in (*unit.kept.saved, *unit.kept.rebuilt)}

    def held(tensor: Tensor) -> str:
        if tensor.name in gradients:
            return "gradients"
        if tensor.name in kept:
            return category(unit)
        return "logits" if tensor.name.startswith(("head/", "cross_entropy/")) else "workspace"

    return held


def standing(tensor: Tensor) -> bool:
    """Whether a tensor belongs to the step and not to one unit: the batch, and tables that all layers share."""
    return tensor.role == "table" or tensor.name == TOKENS
