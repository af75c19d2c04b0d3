"""What exists only while one unit runs: its steps, any of which may be the fullest, and what their tensors count as."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ledger.books.liveness import Alive, backward, forward
from ledger.model.quantised import STAYING
from ledger.model.tensors import Tensor
from ledger.model.units import Unit
from ledger.model.wrapping import LOSS, OUTPUT

TOKENS = "embedding/tokens.index"


def passes(unit: Unit, *, added: bool) -> Iterator[tuple[str, tuple[Alive, ...]]]:
    """The two passes of a unit with what is alive at their steps; `added` as in `liveness.backward`."""
    yield "forward", forward(unit)
    yield "backward", backward(unit, added=added)


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
    """Whether a tensor outlives a unit: the batch, tables that all layers share, copies of weights that stay."""
    return tensor.role in ("table", STAYING) or tensor.name == TOKENS
