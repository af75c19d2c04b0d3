"""Tensors taken apart and put together: views cost nothing forward, and one of the two directions is always a copy."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.model.elementwise import Pointwise
from ledger.model.operations import Operation, differentiable, handed_on
from ledger.spec.kernel_classes import COPY, REDUCTION


@dataclass(frozen=True)
class Taken(Operation):
    """A tensor as views of its parts: nothing runs, until backward puts the gradients of the parts together."""

    @property
    def runs(self) -> bool:
        """Views are no kernel."""
        return False

    def gradients(self) -> tuple[Operation, ...]:
        """One copy, from the gradients of all parts to that of the whole."""
        parts = tuple(part.gradient for part in self.outputs)
        return (Pointwise(f"{self.name}.gradient", COPY, parts, (self.inputs[0].gradient,)),)


@dataclass(frozen=True)
class Joined(Pointwise):
    """Tensors copied one beside the other: the gradient of each is a part of the upstream gradient, without a kernel.

    A weight is there once for many places, so its gradient is a sum over them.
    """

    def shared(self) -> tuple[tuple[str, str], ...]:
        """The gradient of an activation is a view."""
        return handed_on(self, *[t for t in self.inputs if differentiable(t) and t.role == "activation"])

    def gradients(self) -> tuple[Operation, ...]:
        """For each weight, a sum of the gradient over the places where it stands."""
        name, upstream = f"{self.name}.gradient", self.output.gradient
        weights = [tensor for tensor in self.inputs if differentiable(tensor) and tensor.role != "activation"]
        return tuple(Pointwise(name, REDUCTION, (upstream,), (weight.gradient,)) for weight in weights)
