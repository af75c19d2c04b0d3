"""What exists only while one unit runs: its steps, any of which may be the fullest, and what their tensors count as."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ledger.books.memory.liveness import LiveTensors, backward, forward, storages
from ledger.model.images import PIXELS
from ledger.model.quantised import STAYING
from ledger.model.sound import FRAMES
from ledger.model.tensors import BUFFER, REMEMBERED, SHARED, Tensor
from ledger.model.units import Unit

BATCH = ("embedding/tokens.index", "source_embedding/tokens.index", FRAMES, PIXELS)  # what a step is given


def passes(unit: Unit, *, added: bool) -> Iterator[tuple[str, tuple[LiveTensors, ...]]]:
    """The two passes of a unit with what is alive at their steps; `added` as in `liveness.backward`."""
    yield "forward", forward(unit)
    yield "backward", backward(unit, added=added)


def categories(unit: Unit) -> Callable[[Tensor], str]:
    """What each tensor that is alive while a unit runs counts as: by what it is, wherever it is kept."""
    storage = storages(unit)
    weights = {weight.parameter for weight in unit.weights}
    summed = {storage(weight.gradient) for weight in unit.weights}
    kept = {tensor.name for tensor in (*unit.kept.saved, *unit.kept.rebuilt)}

    def held(tensor: Tensor) -> str:
        if storage(tensor) in summed or (tensor.earlier and tensor.parameter in weights):
            return "gradients"
        if scores(tensor):
            return "logits"
        return "activations" if tensor.name in kept else "workspace"

    return held


def scores(tensor: Tensor) -> bool:
    """Whether a tensor is scores of the vocabulary or of classes, or what the loss makes of them."""
    dims = {dim.name for dim in tensor.dims}
    return (bool(dims & {"vocab", "classes"}) and "d_model" not in dims) or tensor.of_loss


def standing(tensor: Tensor) -> bool:
    """Whether a tensor outlives a unit: the batch, tables, copies of weights that stay, what layers keep or get."""
    return tensor.role in ("table", BUFFER, REMEMBERED, SHARED, STAYING) or tensor.name in BATCH
