"""The kernels that run an einsum: products two at a time, a sum, a copy, or none where a view does."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import sympy

from ledger.model import dtypes, strides
from ledger.model.contraction import Contraction
from ledger.model.dims import Dim
from ledger.model.einsums import Einsum, EinsumError, Sizes, best_order, joined, pairwise, root, spaced
from ledger.model.elementwise import Pointwise, Weighed
from ledger.model.operations import Operation, differentiable
from ledger.model.tensors import Tensor
from ledger.spec.kernel_classes import COPY, ELEMENTWISE, REDUCTION, matmul
from ledger.spec.windows import Term, Window, parse_einsum, terms, window, without_inner_spaces
from ledger.spec.windows import names as names_of

CONVOLUTION = "`n (h+r-1) (w+s-1) c, r s c k -> n h w k`: a window is a dim of the result and one of the filter"


def letter(name: str) -> sympy.Symbol:
    """The symbol of a dim that goes by its own name."""
    return sympy.Symbol(name, positive=True, integer=True)


@dataclass(frozen=True)
class SizedDims:
    """Sizes by dim, numbers or names of dims of the same size, and the dtype of tensors over them.

    A window, as it stands in an einsum, may have a size too: the number of places that it reads. `stated` are the
    formats of the operands and of the result of one step, where they are not all alike.
    """

    sizes: Sizes
    dtype: str
    stated: tuple[str, ...] = ()

    def number(self, name: str) -> int:
        """The size of a dim; EinsumError where none is stated."""
        return int(self.sizes[root(name, self.sizes)])

    def tensor(self, name: str, names: Sequence[str], role: str = "activation", dtype: str = "") -> Tensor:
        """A tensor of these dims; one that has the size of another has its symbol."""
        return Tensor(name, tuple(_read_dim(index, self) for index in names), dtype or self.dtype, role)

    def formats(self, operands: int) -> tuple[str, ...]:
        """The formats of so many operands and of the result."""
        return self.stated or (self.dtype,) * (operands + 1)


def convolution(text: str, name: str, sized: SizedDims, roles: tuple[str, str]) -> Contraction | Product:
    """The product of a text with windows; raises EinsumError where it is none, or a size is missing."""
    rows = zip(("0", "1", "result"), windowed(text), (*roles, "activation"), sized.formats(2), strict=True)
    left, right, result = (sized.tensor(f"{name}.{label}", term, role, dtype) for label, term, role, dtype in rows)
    return _product(name, (left, right), result, text)


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
    if index in sized.sizes:
        return Dim(index, sympy.Integer(sized.number(index)))
    return Dim(index, over.least(*(letter(root(dim, sized.sizes)) for dim in (over.over, over.tap))))


def read_sizes(texts: Iterable[str], sizes: Sizes) -> Sizes:
    """Sizes with those of results that follow from what windows of these texts read: 112 of 224 at stride 2.

    A window is written as in the text, spaces aside; one that is alike over dims of the same sizes reads as much.
    Raises EinsumError where a size contradicts what a window reads.
    """
    complete = {window_name(name): window_name(size) if isinstance(size, str) else size for name, size in sizes.items()}
    indices = dict.fromkeys(index for text in texts for term in parse_einsum(text) or () for index in term)
    windows = {index: span for index in indices if (span := window(index))}
    alike: dict[Window, str] = {}

    def sized_alike(span: Window) -> Window:
        return replace(span, over=root(span.over, complete), tap=root(span.tap, complete))

    for index, span in windows.items():
        if index not in complete:
            continue
        places, tap = (int(complete[root(name, complete)]) for name in (index, span.tap))
        count = span.windows(places, tap)
        if count < 1:
            raise EinsumError(f"`{index}` reads {places} places, less than a window", "a larger input")
        over = int(complete[root(span.over, complete)]) if span.over in complete else count
        if not (span.fits(places, over, tap) or span.is_causal(places, over, tap)):
            message = f"`{span.over}` is {over}, and windows over {places} places are {count}"
            raise EinsumError(message, f"`{span.over}: {count}`, or leave it out")
        complete.setdefault(span.over, over)
        alike[sized_alike(span)] = index
    for index, span in windows.items() if alike else ():
        if index not in complete and (other := alike.get(sized_alike(span))):
            complete[index] = other
    return complete


def window_name(name: str) -> str:
    """A window as einsums have it, in parentheses and without spaces; all else as it is."""
    return f"({name.strip('() ').replace(' ', '')})" if "+" in name else name


class Sum(Pointwise):
    """A sum over dims, or the largest or least of them: the first element of each is joined to nothing.

    Its gradient is the upstream one, seen again along these dims, and no arithmetic.
    """

    def gradients(self) -> tuple[Operation, ...]:
        """The gradient of what is done to each element before the sum."""
        return tuple(replace(kernel, flops=2 * (self.flops - 1)) for kernel in super().gradients())  # type: ignore[call-arg]


class Mean(Pointwise):
    """A sum over dims, divided by the number of its terms."""

    def gradients(self) -> tuple[Operation, ...]:
        """The upstream gradient is divided, and then seen again along these dims."""
        return tuple(replace(kernel, outputs=(self.output.gradient,), flops=1) for kernel in super().gradients())  # type: ignore[call-arg]


class Product(Weighed):
    """A product of two tensors that sums nothing: one multiplication for each element of the result."""

    def factors(self) -> tuple[tuple[Tensor, ...], ...]:
        """Factors that are no data, each with the other one."""
        return tuple(pair for pair in super().factors() if differentiable(pair[0]))


def einsum_kernels(
    einsum: Einsum, name: str, sized: SizedDims, roles: Sequence[str], by: str = "sum"
) -> Iterator[Operation]:
    """The kernels of an einsum whose operands have these roles; of one operand, `by` says how elements are joined."""
    if len(einsum.operands) > 1:
        yield from _product_kernels(einsum, name, sized, roles)
        return
    read, written = sized.formats(1)
    x = sized.tensor(f"{name}.0", einsum.operands[0].names, next(iter(roles), "activation"), read)
    result = sized.tensor(f"{name}.result", einsum.result.names, dtype=written)
    if einsum.summed:
        yield (Mean if by == "mean" else Sum)(f"{name}.{by}", REDUCTION, (x,), (result,))
    elif read != written or not _is_view(einsum, sized):
        yield Pointwise(name, COPY, (x,), (result,), flops=0)


def _product(name: str, operands: tuple[Tensor, Tensor], result: Tensor, text: str) -> Contraction | Product:
    """The kernel of a product: on the matrix units, in the widest format of its operands, where it sums anything."""
    first, second, out = map(names_of, terms(text))
    if {*first, *second} <= {*out}:
        return Product(name, ELEMENTWISE, operands, (result,))
    return Contraction(name, matmul(widest(operands)), operands, (result,), einsum=without_inner_spaces(text))


def widest(tensors: Iterable[Tensor]) -> str:
    """The format in which tensors are multiplied: the widest, and of floats and integers a float."""
    return max((tensor.dtype for tensor in tensors), key=lambda name: (name in dtypes.FLOATS, dtypes.size(name)))


def _product_kernels(einsum: Einsum, name: str, sized: SizedDims, roles: Sequence[str]) -> Iterator[Operation]:
    """Two operands at a time in the cheapest order; what only one of them has is summed before."""
    formats = sized.formats(len(einsum.operands))
    sizes = {dim: sized.number(dim) for dim in einsum.names}
    tensors = [sized.tensor(f"{name}.{at}", term.names, role, dtype) for at, (term, role, dtype) in
               enumerate(zip(einsum.operands, roles, formats[:-1], strict=True))]  # fmt: skip
    for index, (pair, a, b, out) in enumerate(pairwise(einsum, best_order(einsum, sizes))):
        operands = []
        for at, (names, partner) in zip(pair, ((a, b), (b, a)), strict=True):
            operand = tensors[at]
            if (needed := joined(names, partner, out)) != names:
                operand = sized.tensor(f"{name}.{index}.{at}.part", needed, dtype=operand.dtype)
                yield Sum(f"{name}.{index}.sum", REDUCTION, (tensors[at],), (operand,))
            operands.append(operand)
        result = sized.tensor(f"{name}.{index}.result", out, dtype=formats[-1])
        text = f"{', '.join(spaced([dim.name for dim in operand.dims]) for operand in operands)} -> {spaced(out)}"
        yield _product(f"{name}.{index}", (operands[0], operands[1]), result, text)
        tensors = [*(tensor for at, tensor in enumerate(tensors) if at not in pair), result]


def _is_view(einsum: Einsum, sized: SizedDims) -> bool:
    """Whether the strides of a contiguous tensor allow the other order as a view, so that nothing runs."""
    source, target = einsum.operands[0], einsum.result
    x = strides.fresh({dim: sized.number(dim) for dim in source.names}, sized.dtype)
    merged = {"_".join(names): math.prod(sized.number(dim) for dim in names) for names in target.dims}
    return strides.viewed(strides.permute(x, target.names), merged) is not None
