"""Transfers over a mesh axis, and what runs in backward where each ran in forward."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import sympy

from ledger.model.operations import Operation, differentiable, gradient, handed_on

# What runs in backward where this ran in forward.
ADJOINT = {
    "all_gather": "reduce_scatter",
    "reduce_scatter": "all_gather",
    "all_reduce": "none",
    "none": "all_reduce",
    "send": "send",
    "all_to_all": "all_to_all",
}


@dataclass(frozen=True)
class Collective(Operation):
    """A transfer over one mesh axis. `none` marks a value that all its devices use: only its gradient is summed."""

    collective: str = ""
    axis: str = ""

    @property
    def runs(self) -> bool:
        """A mark is no transfer."""
        return self.collective != "none"

    def payload(self) -> sympy.Expr:
        """Bytes: output of an all-gather, input of a reduce-scatter or all-reduce, payload of a send or all-to-all.

        An all-to-all takes as long as its busiest device, where what is cut over the axis may be uneven.
        """
        if self.collective == "all_to_all":
            cut = [t for t in (*self.inputs, *self.outputs) if self.axis in (axis for _, axis in t.split)]
            return (cut or self.inputs)[0].bytes()
        return self.output.bytes() if self.collective == "all_gather" else self.inputs[0].bytes()

    def shared(self) -> tuple[tuple[str, str], ...]:
        """A value that is only marked as shared is summed in place."""
        return handed_on(self, *self.inputs) if self.collective == "none" else ()

    def gradients(self) -> tuple[Operation, ...]:
        """The adjoint transfer of the gradient, where there is one."""
        if not differentiable(self.inputs[0]):
            return ()
        adjoint = ADJOINT[self.collective]
        kernel = f"{adjoint}.{self.axis}"
        inputs, outputs = (gradient(self.output),), (gradient(self.inputs[0]),)
        return (Collective(f"{self.name}.gradient", kernel, inputs, outputs, collective=adjoint, axis=self.axis),)


def executed(operations: Iterable[Operation]) -> Iterator[Operation]:
    """The operations that really run something."""
    return (operation for operation in operations if operation.runs)
