"""Transfers over a mesh axis, and what runs in backward where each ran in forward."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import sympy

from ledger.model.causes import ENDS, Purpose, Transfer
from ledger.model.elementwise import Pointwise
from ledger.model.operations import Operation, differentiable, handed_on
from ledger.model.tensors import Tensor
from ledger.spec.kernel_classes import COPY, REDUCTION, KernelClass
from ledger.spec.plan import Plan

# What runs in backward where this ran in forward.
ADJOINT = {
    "all_gather": "reduce_scatter",
    "reduce_scatter": "all_gather",
    "all_reduce": "none",
    "none": "all_reduce",
    "send": "send",
    "all_to_all": "all_to_all",
}


USED_WHOLE = ("all_gather", "none")  # what every device of an axis then has whole, and uses in its own way


@dataclass(frozen=True)
class Collective(Operation):
    """A transfer over one mesh axis. `none` marks a value that all its devices use: only its gradient is summed.

    `copied`: the whole exists twice while it is joined or cut along a dim that is not the outermost one in memory.
    """

    collective: str = ""
    axis: str = ""
    copied: bool = False
    buffered: bool = False  # into a buffer that lasts

    @property
    def transfer(self) -> Transfer:
        """The transfer that this is: of activations, by the axis."""
        return Transfer(self.collective, self.axis, content=self.axis)

    @property
    def runs(self) -> bool:
        """Whether anything is sent: a mark is no transfer."""
        return self.collective != "none"

    def payload(self) -> sympy.Expr:
        """Bytes: output of an all-gather, input of a reduce-scatter or all-reduce, payload of a send or all-to-all.

        An all-to-all takes as long as its busiest device, where what is cut over the axis may be uneven.
        """
        if self.collective == "all_to_all":
            cut = [t for t in (*self.inputs, *self.outputs) if self.axis in (axis for _, axis in t.split)]
            return (cut or self.inputs)[0].bytes()
        return self.output.bytes() if self.collective == "all_gather" else self.inputs[0].bytes()

    def passing(self) -> tuple[Tensor, ...]:
        """The copy of the whole tensor, where there is one."""
        return self.outputs[1:] if self.copied else ()

    def shared(self) -> tuple[tuple[str, str], ...]:
        """A value that is only marked as shared is summed in place."""
        return handed_on(self, *self.inputs) if self.collective == "none" else ()

    def gradients(self) -> tuple[Operation, ...]:
        """The adjoint transfer of the gradient, where there is one."""
        if not differentiable(self.inputs[0]):
            return ()
        source, result = self.output.gradient, self.inputs[0].gradient
        name, adjoint = f"{self.name}.gradient", ADJOINT[self.collective]
        purpose = Purpose.COLUMN_INPUT_GRADIENT if self.collective in USED_WHOLE else Purpose.RESULT
        moved = collective(name, adjoint, self.axis, source, result, copied=self.copied)
        return (replace(moved, purpose=purpose),)


def collective(  # noqa: PLR0913 - the arguments are the facts of one transfer
    name: str, kind: str, axis: str, source: Tensor, result: Tensor, *, copied: bool = False
) -> Collective:
    """A transfer of one tensor, with the copy of the whole where there is one, in the block that makes the tensor."""
    tensor = result if kind == "all_gather" else source
    copy = (replace(tensor, name=f"{name}.copy", view_of=""),) if copied else ()
    outputs, kernel = (result, *copy), KernelClass(kind)
    return Collective(name, kernel, (source,), outputs, block=source.block, collective=kind, axis=axis, copied=copied)


def executed(operations: Iterable[Operation]) -> Iterator[Operation]:
    """The operations that really run something."""
    return (operation for operation in operations if operation.runs)


# --- copies beside transfers of a sequence that is not the outermost dim in memory ---


def along(moved: Collective, operations: Sequence[Operation], unit: str, plan: Plan) -> Iterator[Operation]:
    """The kernel beside a transfer, of those that a pass of a unit runs.

    What a gather brings is joined, what is reduced cut (torch/distributed/_functional_collectives.py, chunk and cat); a
    compiled elementwise kernel writes parts where they are sent from. A matmul that moves what it multiplies leaves
    parts of a sum, which are added (torch/distributed/_symmetric_memory, _fused_matmul_reduce_scatter_impl).
    """
    if not moved.copied:
        return
    gathers = moved.collective == "all_gather"
    tensor = moved.output if gathers else moved.inputs[0]
    if plan.stack.overlap.tensor == "matmul" and not quantised_between(moved.collective, unit, plan):
        if not gathers:
            yield Pointwise(f"{moved.name}.sum", REDUCTION, (tensor,), moved.outputs[:1])
        return
    writers = [step for step in operations if tensor.storage in {output.storage for output in step.outputs}]
    compiled = plan.stack.compiled and unit not in ENDS
    if gathers or not compiled or not any(isinstance(step, Pointwise) for step in writers):
        yield Pointwise(f"{moved.name}.copy", COPY, (tensor,), moved.passing())


def quantised_between(collective: str, unit: str, plan: Plan) -> bool:
    """Whether rows are quantised between a gather and the matmul, which then cannot move them itself.

    pytorch/pytorch issue 149990: with scales of rows, gathers and matmuls are not joined.
    """
    recipe = plan.precision.matmul
    return recipe is not None and recipe.by_rows and collective == "all_gather" and unit not in ENDS
