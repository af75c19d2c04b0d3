"""Transfers: those that components ask for, and those that an einsum makes necessary under the layout."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ledger.model.collectives import collective
from ledger.model.tensors import Tensor

if TYPE_CHECKING:
    from ledger.model.tape import Tape


def everywhere(tape: Tape, tensor: Tensor, axis: str) -> Tensor:
    """The tensor gathered over an axis that cuts its sequence, where one does."""
    held = tuple(pair for pair in tensor.split if pair[1] == axis)
    if not held:
        return tensor
    rest = tuple(pair for pair in tensor.split if pair[1] != axis)
    result = tensor.on(rest, f"{tensor.name}.gathered")
    return _transfer(tape, "all_gather", axis, tensor, result)


def used_by_all(tape: Tape, tensor: Tensor, axis: str) -> Tensor:
    """The tensor whole on every device of an axis, each of which uses it in its own way."""
    gathered = whole(tape, tensor, {axis})
    return gathered if gathered is not tensor else shared(tape, tensor, axis)


def summed(tape: Tape, partial: Tensor, axis: str) -> Tensor:
    """A sum over a mesh axis that every device of the axis keeps."""
    result = partial.on(partial.split, f"{partial.name}.sum")
    return _transfer(tape, "all_reduce", axis, partial, result)


def reduced(tape: Tape, partial: Tensor, axis: str) -> Tensor:
    """A sum over a mesh axis, left as the residual stream is held: whole, or scattered."""
    held = tuple((n, a) for n, a in tape.layout.stream if a == axis)
    kind = "reduce_scatter" if held else "all_reduce"
    result = partial.on((*partial.split, *held), f"{partial.name}.sum")
    return _transfer(tape, kind, axis, partial, result)


def clashing(tape: Tape, tensor: Tensor, axes: set[str]) -> list[tuple[str, str]]:
    """What of a held split clashes with axes that the einsum needs for other dims."""
    return [(n, a) for n, a in tensor.split if a in axes and n not in tape.layout.splits]


def whole(tape: Tape, tensor: Tensor, axes: set[str]) -> Tensor:
    """Gathers a held split that clashes with an axis the einsum needs for another dim."""
    for name, axis in clashing(tape, tensor, axes):
        known = tape.moved.get((tensor.name, f"gather.{axis}"))
        if known is None:
            rest = tuple(pair for pair in tensor.split if pair != (name, axis))
            known = tensor.on(rest, f"{tensor.name}.gathered")
            tape.moved[tensor.name, f"gather.{axis}"] = known
            _transfer(tape, "all_gather", axis, tensor, known)
        tensor = known
    return tensor


def shared(tape: Tape, tensor: Tensor, axis: str) -> Tensor:
    """Marks a value that every device of an axis uses in its own way, so that its gradient is summed."""
    known = tape.moved.get((tensor.name, f"share.{axis}"))
    if known is None:
        known = replace(tensor, name=f"{tensor.name}.shared", view_of=tensor.storage)
        tape.moved[tensor.name, f"share.{axis}"] = known
        _transfer(tape, "none", axis, tensor, known)
    return known


def kept(tape: Tape, used: Tensor, held: Tensor) -> Tensor:
    """What a contraction saves of its input: the tensor it read, or the shard it can gather it from again."""
    return held if tape.layout.regather and held.split != used.split and used.dtype == held.dtype else used


def _transfer(tape: Tape, kind: str, axis: str, source: Tensor, result: Tensor) -> Tensor:
    """Writes a transfer. DTensor joins and cuts a sequence, which is not the outermost dim, by way of a copy.

    (torch/distributed/_functional_collectives.py: chunk, then cat; Megatron-LM keeps the sequence outermost.)
    """
    sequence = ("seq", axis) in tape.layout.stream and axis == "tensor" and tape.keeps_gathered
    copied = sequence and kind in ("all_gather", "reduce_scatter")
    if kind == "all_reduce" and tape.stack.tensor_parallel == "explicit":  # in place, where DTensor's is functional
        result = replace(result, view_of=source.storage)
    name = f"{source.name}.{'share' if kind == 'none' else kind}"
    return tape.record(collective(name, kind, axis, source, result, copied=copied))
