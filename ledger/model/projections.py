"""Projections of one input whose weights are one matrix."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ledger.model.contraction import Contraction
from ledger.model.operations import Operation
from ledger.model.quantised import PASSING, STAYING

# `projections` of a stack -> the parts of a layer in which what multiplies one input is one matrix.
JOINED: Mapping[str, tuple[str, ...]] = {"apart": (), "attention": ("attention",), "joined": ("attention", "mlp")}
# Products that have a matrix of their own whatever else reads their input: those into latents (Megatron-Core's
# linear_q_down_proj and linear_kv_down_proj, as in transformers), and that into scores of experts.
ALONE = ("attention/q_latent", "attention/kv_latent", "mlp/router")


def is_projection(operation: Operation) -> bool:
    """Whether it multiplies by a weight, or by a copy of one."""
    return isinstance(operation, Contraction) and operation.inputs[1].role in ("weight", "cast", STAYING, PASSING)


def matrix(operation: Operation, joined: Collection[str]) -> str:
    """What names the matrix that a projection multiplies by: its input where all weights that read it are one."""
    return operation.inputs[0].storage if is_joined(operation, joined) else operation.name


def is_joined(operation: Operation, joined: Collection[str]) -> bool:
    """Whether a projection is of one matrix with those that read the same input."""
    return operation.block in joined and operation.name not in ALONE
