"""The kernels that run an einsum: products two at a time, a sum, a copy, or none where a view does."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import sympy

from ledger.model import strides
from ledger.model.contraction import Contraction
from ledger.model.dims import Dim
from ledger.model.einsums import Einsum, EinsumError, Sizes, best_order, pairwise, root, spaced
from ledger.model.elementwise import Pointwise
from ledger.model.operations import Operation
from ledger.model.tensors import Tensor
from ledger.spec.kernel_classes import COPY, REDUCTION, matmul
from ledger.spec.windows import Term, parse_einsum, window
from ledger.spec.windows import names as names_of

CONVOLUTION = "`n (h+r-1) (w+s-1) c, r s c k -> n h w k`: a window is a dim of the result and one of the filter"


def letter(name: str) -> sympy.Symbol:
    """The symbol of a dim that goes by its own name."""
    return sympy.Symbol(name, positive=True, integer=True)


@dataclass(frozen=True)
class SizedDims:
    """Sizes by dim, numbers or names of dims of the same size, and the dtype of tensors over them."""

    sizes: Sizes
    dtype: str

    def number(self, name: str) -> int:
        """The size of a dim; EinsumError where none is stated."""
        return int(self.sizes[root(name, self.sizes)])

    def tensor(self, name: str, names: Sequence[str], role: str = "activation") -> Tensor:
        """A tensor of these dims; one that has the size of another has its symbol."""
        dims = tuple(Dim(dim, letter(root(dim, self.sizes))) for dim in names)
        return Tensor(name, dims, self.dtype, role)


def convolution(text: str, name: str, sized: SizedDims, roles: tuple[str, str]) -> Contraction:
    """The product of a text with windows; raises EinsumError where it is none, or a size is missing."""
    indices = windowed(text)
    left, right, result = (
        Tensor(f"{name}.{label}", tuple(_read_dim(index, sized) for index in term), sized.dtype, role)
        for label, term, role in zip(("0", "1", "result"), indices, (*roles, "activation"), strict=True)
    )
    return Contraction(name, matmul(sized.dtype), (left, right), (result,), einsum=text)


def windowed(text: str) -> tuple[Term, Term, Term]:
    """The indices of a product with windows; raises EinsumError where a text is none."""
    indices = parse_einsum(text)
    if indices is None:
        raise EinsumError(f"`{text}` is no product of two operands with windows", CONVOLUTION)
    first, second, out = indices
    plain = {*out, *second} if any(map(window, first)) else {*out, *first}
    for index in (*names_of(first), *names_of(second)):
        if index not in plain:
            raise EinsumError(f"`{index}` stands in one operand alone", CONVOLUTION)
    for index in out:
        if index not in {*names_of(first), *names_of(second)}:
            raise EinsumError(f"`{index}` is in the result and in no operand", CONVOLUTION)
    return indices


def _read_dim(index: str, sized: SizedDims) -> Dim:
    """A dim by its name, or as long as what windows over it read."""
    over = window(index)
    if over is None:
        return Dim(index, letter(root(index, sized.sizes)))
    return Dim(index, over.least(*(letter(root(dim, sized.sizes)) for dim in (over.over, over.tap))))


class Sum(Pointwise):
    """A sum over dims, or the largest or least of them: the first element of each is joined to nothing."""


def einsum_kernels(
    einsum: Einsum, name: str, sized: SizedDims, roles: Sequence[str], by: str = "sum"
) -> Iterator[Operation]:
    """The kernels of an einsum whose operands have these roles; of one operand, `by` says how elements are joined."""
    if len(einsum.operands) > 1:
        yield from _product_kernels(einsum, name, sized, roles)
    elif einsum.summed:
        x, result = (sized.tensor(f"{name}.{label}", term.names) for label, term in
                     (("x", einsum.operands[0]), ("result", einsum.result)))  # fmt: skip
        yield (Pointwise if by == "mean" else Sum)(f"{name}.{by}", REDUCTION, (x,), (result,))
    else:
        yield from _copy_kernels(einsum, name, sized)


def _product_kernels(einsum: Einsum, name: str, sized: SizedDims, roles: Sequence[str]) -> Iterator[Operation]:
    """Two operands at a time in the cheapest order; what only one of them has is summed before."""
    sizes = {dim: sized.number(dim) for dim in einsum.names}
    tensors = [sized.tensor(f"{name}.{at}", term.names, role) for at, (term, role) in
               enumerate(zip(einsum.operands, roles, strict=True))]  # fmt: skip
    for index, (pair, a, b, out) in enumerate(pairwise(einsum, best_order(einsum, sizes))):
        operands = []
        for at, (names, partner) in zip(pair, ((a, b), (b, a)), strict=True):
            operand = tensors[at]
            needed = tuple(dim for dim in names if dim in partner or dim in out)
            if needed != names:
                operand = sized.tensor(f"{name}.{index}.{at}.part", needed)
                yield Sum(f"{name}.{index}.sum", REDUCTION, (tensors[at],), (operand,))
            operands.append(operand)
        result = sized.tensor(f"{name}.{index}.result", out)
        text = f"{', '.join(spaced([dim.name for dim in operand.dims]) for operand in operands)} -> {spaced(out)}"
        yield Contraction(f"{name}.{index}", matmul(sized.dtype), tuple(operands), (result,), einsum=text)
        tensors = [*(tensor for at, tensor in enumerate(tensors) if at not in pair), result]


def _copy_kernels(einsum: Einsum, name: str, sized: SizedDims) -> Iterator[Operation]:
    """A copy where the strides of a contiguous tensor do not allow the other order as a view; else nothing runs."""
    source, target = einsum.operands[0], einsum.result
    x = strides.fresh({dim: sized.number(dim) for dim in source.names}, sized.dtype)
    merged = {"_".join(names): math.prod(sized.number(dim) for dim in names) for names in target.dims}
    if strides.viewed(strides.permute(x, target.names), merged) is None:
        yield Pointwise(name, COPY, (sized.tensor(f"{name}.x", source.names),),
                        (sized.tensor(f"{name}.result", target.names),), flops=0)  # fmt: skip
