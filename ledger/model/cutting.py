"""What a transfer of a sequence brings along where the sequence is not the outermost dim in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ledger.model.collectives import Collective
from ledger.model.elementwise import Pointwise
from ledger.model.fsdp_units import ENDS
from ledger.model.operations import Operation
from ledger.spec.kernel_classes import COPY, REDUCTION
from ledger.spec.plan import Plan


def along(moved: Collective, operations: Sequence[Operation], unit: str, plan: Plan) -> Iterator[Operation]:
    """The kernel beside a transfer, of those that a pass of a unit runs.

    What a gather brings is joined, what is reduced cut (torch/distributed/_functional_collectives.py, chunk and cat); a
    compiled elementwise kernel writes parts where they are sent from. A matmul that moves what it multiplies leaves
    parts of a sum, which are added (torch/distributed/_symmetric_memory, _fused_matmul_reduce_scatter_impl).
    """
    if not moved.copied:
        return
    gathers = moved.collective == "all_gather"
    whole = moved.output if gathers else moved.inputs[0]
    if plan.stack.overlap.tensor == "matmul" and not quantised_between(moved.collective, unit, plan):
        if not gathers:
            yield Pointwise(f"{moved.name}.sum", REDUCTION, (whole,), moved.outputs[:1])
        return
    writers = [step for step in operations if whole.storage in {made.storage for made in step.outputs}]
    compiled = plan.stack.compiled and unit not in ENDS
    if gathers or not compiled or not any(isinstance(step, Pointwise) for step in writers):
        yield Pointwise(f"{moved.name}.copy", COPY, (whole,), moved.passing())


def quantised_between(collective: str, unit: str, plan: Plan) -> bool:
    """Whether rows are quantised between a gather and the matmul, which then cannot move them itself.

    pytorch/pytorch issue 149990: with scales of rows, gathers and matmuls are not joined.
    """
    recipe = plan.precision.matmul
    return recipe is not None and recipe.by_rows and collective == "all_gather" and unit not in ENDS
