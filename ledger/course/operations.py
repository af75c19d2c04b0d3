"""Operations, tensors and number formats: FLOPs, bytes and intensity as the model of operations counts them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

import sympy

from ledger.books.evaluate import exact
from ledger.books.notation import text
from ledger.course.answers import Figure, Found, Grid
from ledger.course.asks import ActivationAsk, AskedStep, DtypeAsk, OperationAsk, RidgeAsk, TensorAsk
from ledger.model import dtypes
from ledger.model.activations import activation as write_activation
from ledger.model.contraction import Contraction
from ledger.model.dims import Dim
from ledger.model.elementwise import Pointwise
from ledger.model.layout import WHOLE
from ledger.model.operations import Operation, total
from ledger.model.tape import Tape
from ledger.model.tensors import Tensor
from ledger.spec.kernel_classes import ELEMENTWISE, matmul
from ledger.spec.plan import Accelerator, Kernels

TINY = 1e-8  # the epsilon of Adam, and the small number of the notes
Form = tuple[str, str, str, sympy.Expr]  # name, title, unit, closed form
SPARSE = 2  # two of four values are left out: the rate that is printed is twice the dense one


def letter(name: str) -> sympy.Symbol:
    """The symbol of a dim of a question."""
    return sympy.Symbol(name, positive=True, integer=True)


# --- contractions and elementwise operations ----------------------------------------------------


def operation(ask: OperationAsk) -> Found:
    """FLOPs forward and backward, the exact count, bytes, and intensity against the ridge."""
    steps = written(ask)
    value = exact({letter(name): size for name, size in ask.sizes.items() if isinstance(size, int)})
    forms = (*_work(steps), *_traffic(steps))
    found = [Figure(name, title, value(form), unit, text(form)) for name, title, unit, form in forms]
    if ask.accelerator:
        found += against(ask.accelerator, ask.dtype, Fraction(value(forms[-1][3])))
    return Found(tuple(found))


def _work(steps: Sequence[Operation]) -> Iterator[Form]:
    """FLOPs of each pass."""
    contractions = [step for step in steps if isinstance(step, Contraction)]
    yield "forward", "FLOPs, forward", "FLOP", total(step.useful() + step.vector() for step in steps)
    if not contractions:
        return
    yield "exact", "multiplications and additions, exactly", "FLOP", total(_exactly(c) for c in contractions)
    backward = [gradient for step in contractions for gradient in step.gradients()]
    yield "backward", "FLOPs, backward", "FLOP", total(step.useful() for step in backward)
    first, *others = contractions[0].inputs
    data = [replace(contractions[0], inputs=(replace(first, role="data"), *others)), *contractions[1:]]
    less = total(gradient.useful() for step in data for gradient in step.gradients())
    yield "backward_of_data", "FLOPs, backward, where the input is data and needs no gradient", "FLOP", less


def _exactly(contraction: Contraction) -> sympy.Expr:
    """The first product of a sum is added to nothing: one addition less for each element of the result."""
    return contraction.useful() - contraction.output.elements()


def _traffic(steps: Sequence[Operation]) -> Iterator[Form]:
    """Bytes of all operations as one kernel each, and the intensity that gives."""
    moved = total(step.traffic() for step in steps)
    yield "bytes", "bytes read and written", "B", moved
    work = total(step.useful() + step.vector() for step in steps)
    yield "intensity", "arithmetic intensity", "FLOP/B", work / moved


def written(ask: OperationAsk) -> tuple[Operation, ...]:
    """The operations of a question, each reading the result of the one before it."""
    found: list[Operation] = []
    for index, step in enumerate(ask.steps):
        make = _contraction if step.einsum else _pointwise
        found.append(make(step, f"{index}", ask))
    return tuple(found)


def _dims(names: Sequence[str], ask: OperationAsk) -> tuple[Dim, ...]:
    """Dims by name; one that has the size of another has its symbol."""

    def size(name: str) -> sympy.Symbol:
        given = ask.sizes[name]
        return size(given) if isinstance(given, str) else letter(name)

    return tuple(Dim(name, size(name)) for name in names)


def _contraction(step: AskedStep, name: str, ask: OperationAsk) -> Contraction:
    operands, out = step.einsum.split("->")
    first, second = operands.split(",")
    left = Tensor(f"{name}.left", _dims(first.split(), ask), ask.dtype, step.left)
    right = Tensor(f"{name}.right", _dims(second.split(), ask), ask.dtype, step.right)
    result = Tensor(f"{name}.result", _dims(out.split(), ask), ask.dtype)
    return Contraction(name, matmul(ask.dtype), (left, right), (result,), einsum=step.einsum)


def _pointwise(step: AskedStep, name: str, ask: OperationAsk) -> Pointwise:
    x = Tensor(f"{name}.x", _dims(step.over, ask), ask.dtype)
    result = Tensor(f"{name}.result", _dims(step.into or step.over, ask), ask.dtype)
    return Pointwise(step.name or name, ELEMENTWISE, (x,), (result,), flops=step.flops)


def against(device: Accelerator, dtype: str, intensity: Fraction) -> Iterator[Figure]:
    """The ridge of a device, and on which side of it an intensity lies."""
    ridge = Fraction(device.peak[dtypes.rate(dtype)]) / Fraction(device.bandwidth)
    yield Figure("ridge", f"what {device.title} needs", ridge, "FLOP/B", "peak/bandwidth")
    yield Figure("bound", "limited by", "compute" if intensity >= ridge else "memory")
    yield Figure("reached", "of the peak, at best", min(Fraction(1), intensity / ridge), "%", "min(1, intensity/ridge)")


def activation(ask: ActivationAsk) -> Found:
    """The same arithmetic as one kernel, and as one kernel for each operator."""
    fused, eager = (_spelt(ask, way) for way in ("fused", "eager"))
    value = exact({letter("n"): ask.elements})
    work = value(total(step.vector() for step in eager))
    figures = [
        Figure("forward", "FLOPs", work, "FLOP"),
        Figure("per_element", "FLOPs an element", Fraction(work, ask.elements)),
    ]
    intensities = {}
    for name, title, steps in (("fused", "one kernel", fused), ("eager", "a kernel for each operator", eager)):
        moved = value(total(step.traffic() for step in steps))
        intensities[name] = Fraction(work) / Fraction(moved)
        figures.append(Figure(f"bytes.{name}", f"bytes, {title}", moved, "B"))
        figures.append(Figure(f"intensity.{name}", f"arithmetic intensity, {title}", intensities[name], "FLOP/B"))
    return Found((*figures, *against(ask.accelerator, ask.precision.compute, intensities["fused"])))


def _spelt(ask: ActivationAsk, way: str) -> tuple[Operation, ...]:
    tape = Tape(ask.precision, WHOLE, Kernels(activation=way))
    write_activation(tape, "x", Tensor("x", (Dim("n", letter("n")),), ask.precision.activations), ask.kind)
    return tuple(tape.operations)


# --- tensors and number formats -----------------------------------------------------------------


def tensor(ask: TensorAsk) -> Found:
    """Elements times bytes of one; against a device's memory, whether they fit."""
    dims = tuple(Dim(name, letter(name)) for name in ask.shape)
    each = Tensor("x", dims, ask.dtype)
    amount = ask.copies * each.bytes()
    value = exact({letter(name): size for name, size in ask.shape.items()})
    size = Fraction(value(amount))
    whole = Figure("bytes", "bytes", size, "B", text(amount))
    return Found((whole, Figure("gibibytes", "in units of 2³⁰ B", size / 2**30, "GiB"), *fitting(size, ask.memory)))


def fitting(size: Fraction, memory: int | None) -> Iterator[Figure]:
    """Whether so many bytes fit a memory, and what is missing or free."""
    if memory is not None:
        yield Figure("memory", "memory of the device", memory, "B")
        yield Figure("fits", "fits", size <= memory)
        yield Figure("missing", "missing", max(Fraction(0), size - memory), "B")


def dtype(ask: DtypeAsk) -> Found:
    """Bytes with scales, range, and whether 1e-8 survives."""
    row = dtypes.DTYPES[ask.name]
    return Found(
        (
            Figure("bytes", "bytes a value, scales included", row.size, "B each"),
            Figure("largest", "largest finite value", row.largest, "plain"),
            Figure("smallest_normal", "smallest normal value", row.smallest_normal, "plain"),
            Figure("smallest", "smallest positive value", row.smallest_subnormal, "plain"),
            Figure("holds_1e_8", "1e-8 survives", row.holds(TINY)),
        )
    )


def ridge(ask: RidgeAsk) -> Found:
    """Dense rate over bandwidth; the sparse rate that data sheets print first beside it."""
    device = ask.accelerator
    rate, width = Fraction(device.peak[dtypes.rate(ask.dtype)]), Fraction(device.bandwidth)
    figures = (
        Figure("peak", "dense peak", rate, "FLOP/s"),
        Figure("sparse", "with 2:4 sparsity, as data sheets print it", SPARSE * rate, "FLOP/s", "2*peak"),
        Figure("bandwidth", "memory bandwidth", width, "B/s"),
        Figure("ridge", "intensity from which it computes", rate / width, "FLOP/B", "peak/bandwidth"),
    )
    rows = tuple((name, size, size / float(width)) for name, size in sorted(device.peak.items()))
    columns = (("dtype", ""), ("dense peak", "FLOP/s"), ("ridge", "FLOP/B"))
    return Found(figures, Grid(f"{device.title}, dtype by dtype", columns, rows))
