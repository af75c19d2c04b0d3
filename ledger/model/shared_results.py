"""Results that layers of other units read: their gradients add up until the unit that made them runs backward."""

from __future__ import annotations

from dataclasses import dataclass, replace

import sympy

from ledger.model.elementwise import Pointwise
from ledger.model.operations import ONE, Operation, differentiable, handed_on
from ledger.model.tape import Tape
from ledger.model.tensors import SHARED, Tensor
from ledger.spec.kernel_classes import COPY, ELEMENTWISE


@dataclass(frozen=True)
class Shared(Operation):
    """A result under the name by which layers read it. It is written as often as gradients are added to the first."""

    @property
    def runs(self) -> bool:
        """Nothing runs until backward."""
        return False

    def shared(self) -> tuple[tuple[str, str], ...]:
        """The sum is the gradient of the result."""
        return handed_on(self, *filter(differentiable, self.inputs))

    def gradients(self) -> tuple[Operation, ...]:
        """One addition, in place, of the gradient of a layer to the sum of those before."""
        whole = self.output.gradient
        part = replace(whole, name=f"{whole.name}.part")
        return (Pointwise(f"{whole.name}.sum", ELEMENTWISE, (replace(whole, earlier=True), part), (whole,)),)


def shared(tape: Tape, result: Tensor, readers: sympy.Expr) -> Tensor:
    """The result as so many layers read it, each of which gives a gradient."""
    given = replace(result, name=f"{result.name}.shared", role=SHARED, view_of=result.storage)
    return replace(tape, times=readers - ONE).record(Shared(f"{result.name}.shared", COPY, (result,), (given,)))
