"""Products with weights that are only stored quantised: a matrix is brought back before each product that reads it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import sympy

from ledger.model import dtypes
from ledger.model.contraction import Contraction, Grouped
from ledger.model.dims import Dim
from ledger.model.formats import first_scales, scale_bytes
from ledger.model.operations import Operation, total
from ledger.model.quantised import PASSING
from ledger.model.tensors import Tensor, product, sized
from ledger.spec.kernel_classes import QUANTISE

if TYPE_CHECKING:
    from ledger.model.tape import Tape

FLOPS = 2  # of an element: its value looked up, and scaled


@dataclass(frozen=True)
class Dequantise(Operation):
    """The kernels that bring a stored matrix back; the copy is gone once the product that it is for has run.

    The weight is frozen, so backward has nothing to do here (bitsandbytes, autograd/_functions.py, MatMul4Bit).
    """

    def traffic(self) -> sympy.Expr:
        """Bytes: what is stored is read, its scales with it; the copy, and scales in fp32 on the way, are written.

        Those scales are written once, then read and written as the offset is added, and read for the copy.
        """
        stored, (copy, *wide) = self.inputs[0], self.outputs
        passes = (product(4, scales.bytes()) for scales in wide)
        return total(
            (sized(stored.dtype, stored.elements()), *scale_bytes(stored.dtype, stored), copy.bytes(), *passes)
        )

    def vector(self) -> sympy.Expr:
        """A few operations on each element."""
        return product(FLOPS, self.outputs[0].elements())

    def learned(self) -> tuple[Tensor, ...]:
        """Nothing: what is only stored quantised is not trained."""
        return ()


@dataclass(frozen=True)
class Dequantised(Contraction):
    """A contraction with a copy of a `stored` weight, which is saved for backward in the place of the copy."""

    stored: tuple[Tensor, ...] = ()

    def gradients(self) -> tuple[Operation, ...]:
        """The gradient of the input is a product with the weight, which is brought back once more."""
        return tuple(self._gradients())

    def _gradients(self) -> Iterator[Operation]:
        copy = self.inputs[1]
        again = replace(copy, name=f"{copy.name}.again")
        for step in super().gradients():
            if copy in step.inputs:
                yield brought_back(f"{self.name}.dequantise_again", self.stored[0], again)
            yield replace(step, inputs=tuple(again if tensor == copy else tensor for tensor in step.inputs))


@dataclass(frozen=True)
class DequantisedGroups(Dequantised, Grouped):
    """Groups of rows, each with a matrix of its own, in one kernel."""


def brought_back(name: str, stored: Tensor, copy: Tensor) -> Dequantise:
    """The kernels that bring a weight back: one, or more of them with its scales in fp32 where those are quantised."""
    kernels = dtypes.DTYPES[stored.dtype].unpacking
    scales = Tensor(f"{copy.name}.scales", (Dim("scales", first_scales(stored.dtype, stored)),), "fp32", PASSING)
    outputs = (copy, scales) if kernels > 1 else (copy,)
    return Dequantise(name, QUANTISE, (stored,), outputs, pieces=sympy.Integer(kernels))


def copy_of(tape: Tape, weight: Tensor, dtype: str) -> Tensor:
    """A copy of a stored weight in the dtype that it is multiplied in, whose kernels are written on the tape."""
    copy = replace(weight, name=f"{weight.name}.{dtype}", dtype=dtype, role=PASSING, view_of="")
    made = brought_back(f"{weight.name}.dequantise", weight, copy)
    tape.repeated(product(tape.pieces, made.pieces)).record(made)
    return copy


def dequantised(plain: Contraction, stored: Tensor) -> Dequantised:
    """The same contraction, which keeps the weight as it is stored in the place of the copy that it multiplies."""
    kind = DequantisedGroups if isinstance(plain, Grouped) else Dequantised
    saves = tuple(stored if saved == plain.inputs[1] else saved for saved in plain.saves)
    return kind(
        plain.name,
        plain.kernel,
        plain.inputs,
        plain.outputs,
        saves,
        einsum=plain.einsum,
        density=plain.density,
        copies=plain.copies,
        stored=(stored,),
    )
