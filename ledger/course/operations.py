"""Operations in a row: FLOPs, bytes and intensity as the model of operations counts them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import sympy

from ledger.books.evaluate import exact
from ledger.books.notation import text
from ledger.course.answers import Figure, Found, Grid
from ledger.course.asks import AskedStep, OperationAsk
from ledger.model import dtypes
from ledger.model.activations import activation
from ledger.model.contraction import Contraction
from ledger.model.einsum_kernels import SizedDims, Sum, convolution, einsum_kernels
from ledger.model.einsums import (
    Names,
    cost,
    orders,
    pairwise,
    parse,
    rest_of,
    written,
)
from ledger.model.elementwise import Pointwise
from ledger.model.layout import WHOLE
from ledger.model.operations import Operation, total
from ledger.model.tape import Tape
from ledger.spec.expressions import ExpressionError
from ledger.spec.kernel_classes import ELEMENTWISE
from ledger.spec.plan import Accelerator, Kernels, Precision
from ledger.spec.precision import WeightFormats
from ledger.spec.windows import has_windows

Form = tuple[str, str, str, sympy.Expr]  # name, title, unit, closed form


def value(sized: SizedDims, form: sympy.Expr) -> int | Fraction | float:
    """A closed form at the sizes."""
    found: int | Fraction | float = exact({one: sized.number(one.name) for one in form.free_symbols})(form)
    return found


@dataclass(frozen=True)
class Step:
    """One step as it is written, the dims of its result, and the kernels that run it: none for a view."""

    title: str
    result: Names
    kernels: tuple[Operation, ...]


def operation(ask: OperationAsk) -> Found:
    """FLOPs forward and backward, the exact count, bytes, and intensity against the ridge."""
    sized = SizedDims(ask.sizes, ask.dtype)
    steps = tuple(_written(step, f"{index}", sized) for index, step in enumerate(ask.steps))
    kernels = [kernel for step in steps for kernel in step.kernels]
    forms = [*_work(kernels), *_traffic(kernels)]
    found = [Figure(name, title, value(sized, form), unit, text(form)) for name, title, unit, form in forms]
    if ask.accelerator and found[-1].name == "intensity":
        found += against(ask.accelerator, ask.dtype, Fraction(found[-1].value))
    return Found(tuple(found), _table(ask, steps, sized))


# --- what it costs ------------------------------------------------------------------------------


def _work(kernels: Sequence[Operation]) -> Iterator[Form]:
    """FLOPs of each pass."""
    contractions = [kernel for kernel in kernels if isinstance(kernel, Contraction)]
    yield "forward", "FLOPs, forward", "FLOP", _spent(kernels)
    yield "exact", "multiplications and additions, exactly", "FLOP", total(_exactly(kernel) for kernel in kernels)
    if not contractions:
        return
    backward = [gradient for kernel in contractions for gradient in kernel.gradients()]
    yield "backward", "FLOPs, backward", "FLOP", total(kernel.useful() for kernel in backward)
    first, *others = contractions[0].inputs
    data = [replace(contractions[0], inputs=(replace(first, role="data"), *others)), *contractions[1:]]
    less = total(gradient.useful() for kernel in data for gradient in kernel.gradients())
    yield "backward_of_data", "FLOPs, backward, where the input is data and needs no gradient", "FLOP", less


def _spent(kernels: Sequence[Operation]) -> sympy.Expr:
    return total(kernel.useful() + kernel.vector() for kernel in kernels)


def _exactly(kernel: Operation) -> sympy.Expr:
    """The first term of a sum is added to nothing: one addition less for each element of the result."""
    sums = isinstance(kernel, Contraction | Sum)
    return kernel.useful() + kernel.vector() - (kernel.output.elements() if sums else 0)


def _traffic(kernels: Sequence[Operation]) -> Iterator[Form]:
    """Bytes of all kernels, and the intensity that gives where any move."""
    moved = total(kernel.traffic() for kernel in kernels)
    yield "bytes", "bytes read and written", "B", moved
    if moved != 0:
        yield "intensity", "arithmetic intensity", "FLOP/B", _spent(kernels) / moved


def against(device: Accelerator, dtype: str, intensity: Fraction) -> Iterator[Figure]:
    """The ridge of a device, and on which side of it an intensity lies; ExpressionError where it has no such rate."""
    if dtypes.rate(dtype) not in device.peak:
        raise ExpressionError(f"{device.title} does not multiply {dtype}", f"one of {', '.join(device.peak)}")
    ridge = Fraction(device.peak[dtypes.rate(dtype)]) / Fraction(device.bandwidth)
    yield Figure("ridge", f"what {device.title} needs", ridge, "FLOP/B", "peak/bandwidth")
    yield Figure("bound", "limited by", "compute" if intensity >= ridge else "memory")
    yield Figure("reached", "of the peak, at best", min(Fraction(1), intensity / ridge), "%", "min(1, intensity/ridge)")


def _table(ask: OperationAsk, steps: Sequence[Step], sized: SizedDims) -> Grid | None:
    """Of several steps each with its result; of one with three operands or more, every order of it."""
    if len(steps) > 1:
        columns = (("step", ""), ("result", ""), ("FLOPs", "FLOP"), ("bytes", "B"))
        rows = tuple(
            (
                step.title,
                " x ".join(f"{name} {sized.number(name)}" for name in step.result),
                value(sized, _spent(step.kernels)),
                value(sized, total(kernel.traffic() for kernel in step.kernels)),
            )
            for step in steps
        )
        return Grid("Step by step", columns, rows)
    plain = ask.steps[0].einsum and not has_windows(ask.steps[0].pattern)
    einsum = parse(steps[0].title, rest_of(ask.sizes)) if plain else None
    if einsum is None or len(einsum.operands) < 3:
        return None
    sizes = {name: sized.number(name) for name in einsum.names}
    ways = sorted(orders(len(einsum.operands)), key=lambda order: cost(einsum, order, sizes))
    said = tuple(
        (
            "; ".join(f"{written(a)}, {written(b)} -> {written(made)}" for _, a, b, made in pairwise(einsum, order)),
            2 * cost(einsum, order, sizes),
        )
        for order in ways
    )
    return Grid("Every order of the products", (("order", ""), ("FLOPs", "FLOP")), said)


# --- as they are written ------------------------------------------------------------------------


def _written(step: AskedStep, name: str, sized: SizedDims) -> Step:
    rest = rest_of(sized.sizes)
    if step.over:
        return _elementwise(step, name, sized)
    if step.einsum and has_windows(step.pattern):
        product = convolution(step.pattern, name, sized, (step.left, step.right))
        return Step(step.name or step.pattern, tuple(dim.name for dim in product.output.dims), (product,))
    einsum = parse(step.pattern, rest)
    roles = (step.left, *[step.right] * (len(einsum.operands) - 1))
    kernels = tuple(einsum_kernels(einsum, name, sized, roles, step.by))
    return Step(step.name or step.pattern, einsum.result.names, kernels)


def _elementwise(step: AskedStep, name: str, sized: SizedDims) -> Step:
    x, made = sized.tensor(f"{name}.x", step.over), sized.tensor(f"{name}.result", step.into or step.over)
    if not step.activation:
        return Step(
            step.name or written(step.over),
            step.into or step.over,
            (Pointwise(step.name or name, ELEMENTWISE, (x,), (made,), flops=step.flops),),
        )
    dtype = sized.dtype
    precision = Precision(dtype, WeightFormats.alike(dtype), dtype, None, dtype, dtype, dtype, dtype)
    tape = Tape(precision, WHOLE, Kernels(activation=step.kernel))
    activation(tape, name, x, step.activation)
    return Step(step.name or step.activation, step.over, tuple(tape.operations))
