"""Projections of one input whose weights are one matrix."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ledger.model.contraction import Contraction
from ledger.model.operations import Operation
from ledger.model.quantised import PASSING, STAYING

# `projections` of a stack -> the parts of a layer in which what multiplies one input is one matrix.
JOINED: Mapping[str, tuple[str, ...]] = {"apart": (), "attention": ("attention",), "joined": ("attention", "mlp")}


def is_projection(operation: Operation) -> bool:
    """Whether it multiplies by a weight, or by a copy of one."""
    return isinstance(operation, Contraction) and operation.inputs[1].role in ("weight", "cast", STAYING, PASSING)


def matrix(operation: Operation, joined: Collection[str]) -> str:
    """What names the matrix that a projection multiplies by: its input where all weights that read it are one."""
    return operation.inputs[0].storage if operation.block in joined else operation.name
