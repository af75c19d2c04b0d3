"""A part of a layer that the model's author writes as steps: einsums over named dims, and what is between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ledger.model import dtypes
from ledger.model.activations import activation
from ledger.model.causes import Module, Parameter
from ledger.model.dims import Dim, component_dim, dim, symbol
from ledger.model.elementwise import Addition, Weighed
from ledger.model.operations import ONE
from ledger.model.tape import Tape
from ledger.model.tensors import BUFFER, Tensor
from ledger.spec.components import COMMON_DIMS, KEY
from ledger.spec.kernel_classes import COPY, ELEMENTWISE, NORM_BACKWARD, NORM_FORWARD, REDUCTION, SOFTMAX
from ledger.spec.plan import ComponentStep, CustomPart
from ledger.spec.windows import Term, has_windows, roles, sides, terms, window, without_padding


def convolution(tape: Tape, written: PlacedComponent, step: ComponentStep, operands: Sequence[Tensor]) -> Tensor:
    """The product of a tensor's windows with a filter; the tensor is copied first unless it lies as PyTorch reads it.

    Zeros that stand before a dim alone are written into a copy, since PyTorch pads alike at both ends.
    """
    axes = roles(step.einsum)
    if axes is None:
        raise TypeError(f"{step.einsum} is no convolution")
    (x,), einsum = operands, step.einsum
    read = terms(einsum)[0]
    names = dict(zip(read, (read_dim.name for read_dim in x.dims), strict=True))
    order = tuple(names[index] for index in (*axes.operand, *filter(window, read)))
    if written.component.pads(step):
        x, einsum = _pad_copy(tape, written, step, x), without_padding(einsum)
    elif written.laid[step.of[0]] != order:
        x = tape.pointwise(f"{written.module(step)}.copy", x, kernel=COPY, add=True)
    bias = written.weight(tape, step.bias) if step.bias else None
    over = tuple(written.dims[window_axis.over] for window_axis in axes.windows)
    written.laid[step.name] = axes.result
    weight = written.weight(tape, step.weight)
    return tape.contract(written.module(step), einsum, x, weight, bias=bias, sizes=over)


def _pad_copy(tape: Tape, written: PlacedComponent, step: ComponentStep, x: Tensor) -> Tensor:
    """A copy with zeros at the ends of what is read through windows."""
    pads = iter(written.component.pads(step))
    dims = []
    for index, read_dim in zip(terms(step.einsum)[0], x.dims, strict=True):
        zeros = sum(next(pads)) if window(index) else 0
        dims.append(Dim(f"{read_dim.name}_padded", read_dim.symbol + zeros, read_dim.suffix) if zeros else read_dim)
    return tape.pointwise(f"{written.module(step)}.padded", x, dims=tuple(dims), kernel=COPY, add=True)


def batch_norm(tape: Tape, written: PlacedComponent, step: ComponentStep, operands: Sequence[Tensor]) -> Tensor:
    """One kernel over all but the channels: it saves what it reads and the statistics of this batch.

    Running statistics and a count of batches are there all the time, and no part of a gradient (torch, BatchNorm).
    """
    (x,), name = operands, str(written.module(step))
    weights = [written.weight(tape, step.weight), written.weight(tape, step.bias)]
    channels = weights[0].dims
    wide = [Tensor(f"{name}.{kind}", channels, weights[0].dtype, BUFFER) for kind in ("running_mean", "running_var")]
    count = Tensor(f"{name}.batches", (Dim("one", ONE),), "int64", BUFFER)
    statistics = [Tensor(f"{name}.{kind}", channels, "fp32", "statistic") for kind in ("mean", "rstd")]
    written.laid[step.name] = written.laid[step.of[0]]
    return tape.inside("norm").pointwise(
        name,
        x,
        *weights,
        *wide,
        count,
        dtype=x.dtype,
        kernel=NORM_FORWARD,
        backward_kernel=NORM_BACKWARD,
        flops=7,
        saves=[x],
        extras=statistics,
    )


def largest(tape: Tape, written: PlacedComponent, step: ComponentStep, operands: Sequence[Tensor]) -> Tensor:
    """The largest in each window: what is read is saved, and the place of each result, in int64."""
    (x,), name = operands, str(written.module(step))
    dims = _reduced_dims(written, step, x, step.max)
    places = Tensor(f"{name}.places", dims, "int64", "statistic", x.split)
    return tape.pointwise(name, x, dims=dims, kernel=REDUCTION, saves=[x], extras=[places])


def mean(tape: Tape, written: PlacedComponent, step: ComponentStep, operands: Sequence[Tensor]) -> Tensor:
    """The mean over dims, which saves nothing, or in each window, which saves what it reads."""
    (x,), through = operands, any(map(window, sides(step.mean)[0]))
    dims = _reduced_dims(written, step, x, step.mean)
    return tape.pointwise(str(written.module(step)), x, dims=dims, kernel=REDUCTION, saves=[x] if through else [])


def _reduced_dims(written: PlacedComponent, step: ComponentStep, x: Tensor, pattern: str) -> tuple[Dim, ...]:
    """The dims of the result, which lie as those that were read."""
    read, out = sides(pattern)
    result_names = {index: over.over if (over := window(index)) else index for index in read}
    names = {read_dim.name: result_names[index] for read_dim, index in zip(x.dims, read, strict=True)}
    written.laid[step.name] = tuple(names[name] for name in written.laid[step.of[0]] if names[name] in out)
    read_dims = {read_dim.name: read_dim for read_dim in x.dims}
    return tuple(written.dims.get(name) or read_dims[name] for name in out)


@dataclass(frozen=True)
class PlacedComponent:
    """A component in a place of its layer (`attention`, `mlp`, `block`), or of the model (`embedding`).

    `laid` says how results lie: PyTorch's products lay the dims that both operands have outermost, then those of the
    left one, then the right one's.
    """

    component: CustomPart
    part: str
    dims: Mapping[str, Dim]
    laid: dict[str, Term]

    def weight(self, tape: Tape, name: str) -> Tensor:
        """A weight of the component, by the name that its author gives it."""
        parameter = Parameter(Module(self.part, name), kind="")
        return tape.weight(parameter, tuple(self.dims[index] for index in dict(self.component.weights)[name]))

    def module(self, step: ComponentStep) -> Module:
        """The module that a step is accounted to."""
        return Module(self.part, step.name)


def custom(tape: Tape, x: Tensor, component: CustomPart | None, part: str) -> Tensor:
    """The steps of a component in order, each from the results it names; the last one's is the component's."""
    if component is None:
        raise TypeError("a custom component has steps")
    dims = {name: dim(name) for name in (*COMMON_DIMS, KEY)} | {
        name: component_dim(name, tape.suffix) for name, _ in component.dims
    }
    cut = {name: axis for axis, names in component.split for name in names if axis in tape.layout.cuts}
    tape = replace(tape, layout=replace(tape.layout, splits={**tape.layout.splits, **cut}))  # as its author says
    if component.takes != COMMON_DIMS:
        x = replace(x, dims=tuple(dims[name] for name in component.takes))
    shapes, results = component.shapes, {"x": x}
    written = PlacedComponent(component, part, dims, {"x": component.takes})
    for step in component.steps:
        pairs = KEY in (*shapes[step.name], *(name for of in step.of for name in shapes[of]))
        inner = tape.inside("core") if pairs else tape
        written.laid[step.name] = shapes[step.name]
        results[step.name] = RUN[step.kind](inner, written, step, [results[name] for name in step.of])
    return _lay_out(tape, written, component.steps[-1].name, results)


def _lay_out(tape: Tape, written: PlacedComponent, name: str, results: Mapping[str, Tensor]) -> Tensor:
    """The result as the residual stream lies, or as the next block reads it."""
    result = results[name]
    if written.laid[name] == written.component.gives:
        return result
    return tape.pointwise(f"{result.name}.copy", result, kernel=COPY, add=True)


# --- steps ---


def _einsum(tape: Tape, written: PlacedComponent, step: ComponentStep, operands: list[Tensor]) -> Tensor:
    """A product with a weight, or of two results: each is copied first unless it lies as the product reads it."""
    if has_windows(step.einsum):
        return convolution(tape, written, step, operands)
    first, second, out = terms(step.einsum)
    shared = tuple(name for name in out if name in first and name in second)
    rows, columns = (tuple(n for n in out if n in term and n not in shared) for term in (first, second))
    summed = tuple(name for name in first if name in second and name not in out)
    left = _read_operand(tape, written, step, 0, operands[0], first, ((*shared, *rows, *summed),))
    if step.weight:
        right = written.weight(tape, step.weight)
    else:
        orders = (*shared, *columns, *summed), (*shared, *summed, *columns)
        right = _read_operand(tape, written, step, 1, operands[1], second, orders)
    seen = {"seq", KEY} <= {*first, *second}
    share = (symbol("seq") + 1) / (2 * symbol("seq")) if seen and written.component.causal else ONE
    bias = written.weight(tape, step.bias) if step.bias else None
    written.laid[step.name] = (*shared, *rows, *columns)
    return tape.contract(written.module(step), step.einsum, left, right, bias=bias, density=share)


def _read_operand(  # noqa: PLR0913 - which operand of which step, and how it lies and should
    tape: Tape,
    written: PlacedComponent,
    step: ComponentStep,
    index: int,
    x: Tensor,
    term: Term,
    orders: tuple[Term, ...],
) -> Tensor:
    """An operand under the names that the einsum has for its dims, copied where it lies in another order."""
    renamed = dict(zip((read_dim.name for read_dim in x.dims), term, strict=True))
    laid = tuple(renamed[name] for name in written.laid[step.of[index]])
    if laid not in orders:
        x = tape.pointwise(f"{written.module(step)}.copy.{index}", x, kernel=COPY, add=True)
    if KEY not in term or KEY in (read_dim.name for read_dim in x.dims):
        return x
    dims = tuple(replace(written.dims[KEY], name=KEY) if read_dim.name == "seq" else read_dim for read_dim in x.dims)
    return replace(x, dims=dims, view_of=x.storage)


def _activation(tape: Tape, written: PlacedComponent, step: ComponentStep, operands: list[Tensor]) -> Tensor:
    written.laid[step.name] = written.laid[step.of[0]]
    return activation(tape.inside("activation"), str(written.module(step)), operands[0], step.activation)


def _multiply(tape: Tape, written: PlacedComponent, step: ComponentStep, operands: list[Tensor]) -> Tensor:
    """A product of two results, both saved; the gradient of one that lacks dims of the other is a sum over those."""
    name, inner = str(written.module(step)), tape.inside("activation")
    if _have_same_dims(written, step, operands):
        return inner.pointwise(name, *operands, saves=operands)
    result = _broadcast_result(inner, written, step, operands)
    return inner.record(Weighed(name, ELEMENTWISE, tuple(operands), (result,), tuple(operands)))


def _add(tape: Tape, written: PlacedComponent, step: ComponentStep, operands: list[Tensor]) -> Tensor:
    """A sum, in a tensor of its own or over the first of both."""
    if _have_same_dims(written, step, operands) and not step.in_place:
        return tape.pointwise(str(written.module(step)), *operands, add=True)
    result = _broadcast_result(tape, written, step, operands)
    if step.in_place:
        result = replace(result, view_of=operands[0].storage)
    return tape.record(Addition(str(written.module(step)), ELEMENTWISE, tuple(operands), (result,)))


def _have_same_dims(written: PlacedComponent, step: ComponentStep, operands: list[Tensor]) -> bool:
    """Whether both have the same dims, so that the result lies as the first does."""
    written.laid[step.name] = written.laid[step.of[0]]
    return operands[0].dims == operands[1].dims


def _broadcast_result(tape: Tape, written: PlacedComponent, step: ComponentStep, operands: list[Tensor]) -> Tensor:
    """The result of two operands of which each may lack dims of the other."""
    shape = written.component.shapes[step.name]
    full = [of for of, operand in zip(step.of, operands, strict=True) if len(operand.dims) == len(shape)]
    written.laid[step.name] = written.laid[full[0]] if full else shape
    dims = tuple({dim_of.name: dim_of for operand in operands for dim_of in operand.dims}[name] for name in shape)
    split = tuple(dict.fromkeys(pair for operand in operands for pair in operand.split))
    dtype = dtypes.promote(*[operand.dtype for operand in operands])
    return tape.activation(str(written.module(step)), dims, dtype, split)


def _softmax(tape: Tape, written: PlacedComponent, step: ComponentStep, operands: list[Tensor]) -> Tensor:
    """Softmax of scores, after the mask is added where there is one; the result is saved."""
    name, (scores,) = str(written.module(step)), operands
    if step.mask == "causal":
        square = scores.named("seq", KEY)
        mask = Tensor(f"{name}.square", square, scores.dtype, "statistic")
        scores = tape.pointwise(f"{name}.mask", scores, mask, dtype=scores.dtype, add=True)
    scores = tape.cast(scores, "fp32") if tape.precision.autocast else scores
    return tape.pointwise(name, scores, kernel=SOFTMAX, flops=5, saves=["out"])


def _scan(tape: Tape, written: PlacedComponent, step: ComponentStep, operands: list[Tensor]) -> Tensor:
    """A kernel for each token (`addcmul`), which saves the state before it; at the end all states are put together."""
    name = str(written.module(step))
    decay, update = operands
    if step.dtype == "fp32":
        decay, update = tape.cast(decay, "fp32"), tape.cast(update, "fp32")
    before = Tensor(f"{name}.before", update.dims, update.dtype, "statistic", update.split)
    states = tape.repeated(symbol("seq")).pointwise(
        name, update, decay, dtype=update.dtype, flops=2, saves=[decay], extras=[before]
    )
    return tape.pointwise(f"{name}.states", states, kernel=COPY, add=True)


RUN: Mapping[str, Callable[[Tape, PlacedComponent, ComponentStep, list[Tensor]], Tensor]] = {
    "einsum": _einsum,
    "activation": _activation,
    "softmax": _softmax,
    "multiply": _multiply,
    "add": _add,
    "scan": _scan,
    "norm": batch_norm,
    "max": largest,
    "mean": mean,
}
