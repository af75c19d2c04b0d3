"""Attention sinks: one learned logit a head that takes part in each row of scores and is then dropped (GPT-OSS)."""

from __future__ import annotations

from ledger.model.dims import Dim
from ledger.model.modules import Module, Parameter
from ledger.model.tape import Tape
from ledger.model.tensors import Tensor
from ledger.spec.kernel_classes import REDUCTION, SOFTMAX


def sinks(tape: Tape) -> Tensor:
    """The logits, one a head."""
    return tape.weight(Parameter(Module("attention", "sinks"), kind=""), "heads")


def shares_beside_sinks(tape: Tape, scores: Tensor) -> Tensor:
    """Softmax of (batch heads seq key) beside the sink's logit, without its share, a kernel an operator."""
    *rows, key = scores.dims
    wide = (*rows, Dim("key_or_sink", key.symbol + 1))
    joint = tape.joined("attention/scores.joined", [scores, sinks(tape)], wide)
    place = Tensor("attention/largest.index", tuple(rows), "int64", "statistic", joint.split)
    largest = tape.pointwise("attention/largest", joint, dims=tuple(rows), kernel=REDUCTION, extras=[place])
    shifted = tape.pointwise("attention/shift", joint, largest, add=True)
    shares = tape.pointwise("attention/softmax", shifted, kernel=SOFTMAX, flops=5, saves=["out"])
    (rest,) = tape.taken(shares, {"attention/shares": scores.dims})
    return rest
