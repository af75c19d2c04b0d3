"""The subjects that a lecture asks about beside plans: tensors, operations, states of training, serving."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate
from itertools import pairwise as in_pairs
from math import prod

import sympy

from ledger.books.evaluate import exact
from ledger.books.notation import text
from ledger.books.results import KernelTime
from ledger.books.serving.lengths import kept_tokens
from ledger.books.serving.memory import devices_memory, held_bytes
from ledger.books.serving.passes import ServedRole, Shape, prompt_shape, served_roles
from ledger.books.serving.totals import bytes_per_sequence
from ledger.course.answers import AnswerContent, Figure, Grid, Plot
from ledger.course.asks import AskedStep, InferenceAsk, OperationAsk, OptimizerAsk, StateAsk, TensorAsk
from ledger.model import dtypes, optimizers, strides
from ledger.model.activations import activation
from ledger.model.contraction import Contraction
from ledger.model.dims import Dim
from ledger.model.dtypes import BLOCKS, ROW
from ledger.model.einsum_kernels import Product, SizedDims, Sum, convolution, einsum_kernels, letter, widest
from ledger.model.einsums import Names, cost, orders, pairwise, parse, rest_of, spaced
from ledger.model.elementwise import Addition, Pointwise
from ledger.model.layout import WHOLE
from ledger.model.operations import Operation, differentiable, total
from ledger.model.tape import Tape
from ledger.model.tensors import CeilDiv, Tensor, sized
from ledger.spec.expressions import ExpressionError
from ledger.spec.kernel_classes import ELEMENTWISE
from ledger.spec.plan import Accelerator, Kernels, Lengths, Optimizer, Parallelism, Plan, Precision, Serve
from ledger.spec.precision import WeightFormats
from ledger.spec.windows import has_windows

SAID_IN_GIBIBYTES = 2**26  # bytes; below, GiB say nothing


# --- tensors ---


def tensor(ask: TensorAsk) -> AnswerContent:
    """Bytes of so many tensors; the place of an element; what each move shares, and what it copies."""
    dims = tuple(Dim(name, letter(name)) for name in ask.shape)
    start = strides.fresh(ask.shape, ask.dtype)
    size = ask.copies * start.bytes
    binary = "in units of 2³⁰ B" if size >= SAID_IN_GIBIBYTES else ""
    formula = text(ask.copies * _bytes_form(Tensor("x", dims, ask.dtype)))
    figures = [Figure("bytes", "bytes", size, "B", formula), Figure("gibibytes", binary, Fraction(size, 2**30), "GiB")]
    if (packed := dtypes.stored_bytes(ask.dtype, start.extent, start.row))[1]:
        figures.append(Figure("values", "of these of values", ask.copies * packed[0], "B"))
        said = "of these of scales, one for a block along the last dim, of which the last may be short"
        figures.append(Figure("scales", said, ask.copies * packed[1], "B"))
    if beside := _bytes_beside(ask):
        figures.append(Figure("as_weight", "with the scales that stand beside a weight", size + beside, "B"))
    figures += fitting(size, ask.memory)
    states = [*accumulate(ask.moves, moved, initial=start)]
    last = states[-1]
    if ask.moves:
        copies = sum(_new_bytes(*pair) for pair in in_pairs(states))
        figures.append(Figure("new_bytes", "bytes of copies", copies, "B"))
        figures.append(Figure("contiguous", "in order in the end", last.contiguous))
        figures.append(Figure("strides", "strides in the end", ", ".join(map(str, last.strides))))
    if ask.element:
        place = last.place(ask.element)
        form = " + ".join(f"{at}*{last.strides[last.at(name)]}" for name, at in ask.element.items())
        figures.append(Figure("offset", "place of the element, in elements", place, "1", form))
        address = place * dtypes.code_bits(last.dtype) // 8
        figures.append(Figure("address", "bytes from the start of the storage", address, "B"))
    figures.append(Figure("flops", "", 0, "FLOP"))
    return AnswerContent(tuple(figures), _move_table(ask, states) if ask.moves else None)


def _bytes_beside(ask: TensorAsk) -> int:
    """Bytes of the scales beside matrices in a format that weights are only stored in, each kind in whole bytes.

    A scale of a row is one for each of all dims but the last.
    """
    elements = prod(ask.shape.values())
    rows = prod([*ask.shape.values()][:-1])
    numbers = ((scales, {ROW: rows, dtypes.WHOLE: 1}.get(scales.block)) for scales in dtypes.DTYPES[ask.dtype].scales)
    return ask.copies * sum(
        dtypes.stored_bytes(scales.dtype, scales.count * (-(-elements // scales.block) if number is None else number))[
            0
        ]
        for scales, number in numbers
    )


def _bytes_form(x: Tensor) -> sympy.Expr:
    """Bytes of a tensor that is kept by itself: whole ones, and the scales of whole blocks."""
    if x.dtype not in BLOCKS:
        return CeilDiv(x.elements() * dtypes.code_bits(x.dtype), 8) if dtypes.code_bits(x.dtype) % 8 else x.bytes()
    block, scale = BLOCKS[x.dtype]
    blocks = CeilDiv(x.elements(), block)
    if len(x.dims) > 1:  # along the last dim
        row = replace(x, dims=x.dims[-1:])
        blocks = x.elements() / row.elements() * CeilDiv(row.elements(), block)
    values = replace(x, dtype="fp8_e4m3" if dtypes.code_bits(x.dtype) == 8 else "e2m1")
    return total((_bytes_form(values), sized(scale, blocks)))


def moved(x: strides.Strided, move: Mapping[str, object]) -> strides.Strided:
    """The tensor after one move; raises MoveError."""
    ((name, argument),) = move.items()
    return strides.MOVES[name](x, argument)


def _new_bytes(before: strides.Strided, after: strides.Strided) -> int:
    return after.bytes if after.storage != before.storage else 0


def _move_table(ask: TensorAsk, states: list[strides.Strided]) -> Grid:
    columns = (
        ("tensor", ""),
        ("sizes", ""),
        ("strides", ""),
        ("first element", ""),
        ("in order", "yes"),
        ("new memory", "B"),
    )
    names = ["new", *(_move_text(move) for move in ask.moves)]
    rows = []
    for name, before, x in zip(names, [None, *states], states, strict=False):
        sizes = ", ".join(f"{dim} {size}" for dim, size in zip(x.dims, x.sizes, strict=True))
        new = x.bytes if before is None else _new_bytes(before, x)
        rows.append((name, sizes, ", ".join(map(str, x.strides)), str(x.offset), x.contiguous, new))
    return Grid("What shares memory, and what copies it", columns, tuple(rows))


def _move_text(move: Mapping[str, object]) -> str:
    """A move in a few words: `transpose rows, columns`."""
    ((name, argument),) = move.items()
    if argument is True:
        return name
    if isinstance(argument, Mapping):
        return f"{name} {', '.join(f'{key} {value}' for key, value in argument.items())}"
    return f"{name} {argument if isinstance(argument, str) else ', '.join(map(str, argument))}"  # type: ignore[call-overload]


def fitting(size: int | Fraction, memory: int | None) -> Iterator[Figure]:
    """Figures on whether so many bytes fit a memory, and the bytes that are missing."""
    if memory is not None:
        yield Figure("memory", "memory of the device", memory, "B")
        yield Figure("fits", "fits", size <= memory)
        yield Figure("missing", "missing", max(Fraction(0), size - memory), "B")


# --- operations in a row: FLOPs, bytes and intensity ---

Form = tuple[str, str, str, sympy.Expr]  # name, title, unit, closed form


def value(sized: SizedDims, form: sympy.Expr) -> int | Fraction | float:
    """A closed form at the sizes."""
    number: int | Fraction | float = exact({symbol: sized.number(symbol.name) for symbol in form.free_symbols})(form)
    return number


@dataclass(frozen=True)
class Step:
    """One step as it is written, the dims of its result, and the kernels that run it: none for a view."""

    title: str
    result: Names
    kernels: tuple[Operation, ...]


def operation(ask: OperationAsk) -> AnswerContent:
    """FLOPs forward and backward, the exact count, bytes, and intensity against the ridge."""
    sized = SizedDims(ask.all_sizes, ask.dtype)
    steps = tuple(_step(step, f"{index}", replace(sized, stated=step.dtypes)) for index, step in enumerate(ask.steps))
    kernels = [kernel for step in steps for kernel in step.kernels]
    forms = [*_flops_forms(steps), *_traffic_forms(kernels)]
    figures = [Figure(name, title, value(sized, form), unit, text(form)) for name, title, unit, form in forms]
    if ask.accelerator and figures[-1].name == "intensity":
        products = [kernel for kernel in kernels if isinstance(kernel, Contraction)]
        dtype = widest(operand for kernel in products or kernels for operand in kernel.inputs)
        figures += against(ask.accelerator, dtype, Fraction(figures[-1].value))
    return AnswerContent(tuple(figures), _operation_table(ask, steps, sized))


# What runs for an operation of two operands that is called so: its gradient is that of a sum, or of a product.
JOINING: Mapping[str, type[Pointwise]] = {"add": Addition, "sub": Addition, "mul": Product}


def _flops_forms(steps: Sequence[Step]) -> Iterator[Form]:
    """FLOPs of each pass; of backward where anything has a gradient."""
    kernels = [kernel for step in steps for kernel in step.kernels]
    yield "forward", "FLOPs, forward", "FLOP", _total_flops(kernels)
    yield "exact", "multiplications and additions, exactly", "FLOP", total(_exact_flops(kernel) for kernel in kernels)
    if any(differentiable(x) for kernel in kernels for x in kernel.inputs):
        yield "backward", "FLOPs, backward", "FLOP", _total_flops(_gradients(kernels))
    if any(isinstance(kernel, Contraction | Product) for kernel in kernels):
        less = _total_flops(_gradients([*_of_data(steps)]))
        yield "backward_of_data", "FLOPs, backward, where the input is data and needs no gradient", "FLOP", less


def _gradients(kernels: Iterable[Operation]) -> list[Operation]:
    return [gradient for kernel in kernels for gradient in kernel.gradients()]


def _of_data(steps: Sequence[Step]) -> Iterator[Operation]:
    """The kernels of steps in a row whose first operand is data: what follows from it alone needs no gradient."""
    follows = True
    for index, step in enumerate(steps):
        data = {f"{index}.0"} if follows else set()
        for kernel in step.kernels:
            inputs = tuple(replace(x, role="data") if x.storage in data else x for x in kernel.inputs)
            if follows := not any(map(differentiable, inputs)):
                data |= {result.storage for result in kernel.outputs}
            yield replace(kernel, inputs=inputs)


def _total_flops(kernels: Sequence[Operation]) -> sympy.Expr:
    return total(kernel.useful() + kernel.vector() for kernel in kernels)


def _exact_flops(kernel: Operation) -> sympy.Expr:
    """The first term of a sum is added to nothing: one addition less for each element of the result."""
    flops = kernel.useful() + kernel.vector()
    return flops - kernel.output.elements() if flops != 0 and isinstance(kernel, Contraction | Sum) else flops


def _traffic_forms(kernels: Sequence[Operation]) -> Iterator[Form]:
    """Bytes of all kernels, and the intensity that gives where any move."""
    moved = total(kernel.traffic() for kernel in kernels)
    yield "bytes", "bytes read and written", "B", moved
    if moved != 0:
        yield "intensity", "arithmetic intensity", "FLOP/B", _total_flops(kernels) / moved


def against(device: Accelerator, dtype: str, intensity: Fraction) -> Iterator[Figure]:
    """The ridge of a device, and on which side of it an intensity lies; ExpressionError where it has no such rate."""
    if dtypes.rate(dtype) not in device.peak:
        raise ExpressionError(f"{device.title} does not multiply {dtype}", f"one of {', '.join(device.peak)}")
    ridge = Fraction(device.peak[dtypes.rate(dtype)]) / Fraction(device.bandwidth)
    yield Figure("ridge", f"what {device.title} needs", ridge, "FLOP/B", "peak/bandwidth")
    yield Figure("bound", "limited by", "compute" if intensity >= ridge else "memory")
    yield Figure("reached", "of the peak, at best", min(Fraction(1), intensity / ridge), "%", "min(1, intensity/ridge)")


def _operation_table(ask: OperationAsk, steps: Sequence[Step], sized: SizedDims) -> Grid | None:
    """A table of several steps with their results; or of one step with three operands or more, in every order."""
    if len(steps) > 1:
        columns = (("step", ""), ("result", ""), ("FLOPs", "FLOP"), ("backward", "FLOP"), ("bytes", "B"))
        rows = tuple(
            (
                step.title,
                " x ".join(f"{name} {sized.number(name)}" for name in step.result),
                value(sized, _total_flops(step.kernels)),
                value(sized, _total_flops(_gradients(step.kernels))),
                value(sized, total(kernel.traffic() for kernel in step.kernels)),
            )
            for step in steps
        )
        return Grid("Step by step", columns, rows)
    plain = ask.steps[0].einsum and not has_windows(ask.steps[0].pattern)
    einsum = parse(ask.steps[0].pattern, rest_of(ask.sizes)) if plain else None
    if einsum is None or len(einsum.operands) < 3:
        return None
    sizes = {name: sized.number(name) for name in einsum.names}
    cheapest_first = sorted(orders(len(einsum.operands)), key=lambda order: cost(einsum, order, sizes))
    rows_of_orders = tuple(
        (
            "; ".join(f"{spaced(a)}, {spaced(b)} -> {spaced(out)}" for _, a, b, out in pairwise(einsum, order)),
            cost(einsum, order, sizes),
        )
        for order in cheapest_first
    )
    return Grid("Every order of the products", (("order", ""), ("FLOPs", "FLOP")), rows_of_orders)


def _step(step: AskedStep, name: str, sized: SizedDims) -> Step:
    if step.over:
        return _elementwise(step, name, sized)
    if step.einsum and has_windows(step.pattern):
        product = convolution(step.pattern, name, sized, (step.left, step.right))
        return Step(step.name or step.pattern, tuple(dim.name for dim in product.output.dims), (product,))
    einsum = parse(step.pattern, rest_of(sized.sizes))
    roles = (step.left, *[step.right] * (len(einsum.operands) - 1))
    kernels = tuple(einsum_kernels(einsum, name, sized, roles, step.by))
    return Step(step.name or step.pattern, einsum.result.names, kernels)


def _elementwise(step: AskedStep, name: str, sized: SizedDims) -> Step:
    formats = sized.formats(len(step.operands))
    roles = (step.left, *[step.right] * (len(step.operands) - 1))
    operands = [
        sized.tensor(f"{name}.{at}", names, role, dtype)
        for at, (names, role, dtype) in enumerate(zip(step.operands, roles, formats[:-1], strict=True))
    ]
    if not step.activation:
        dims = step.into or step.dims
        result = sized.tensor(f"{name}.result", dims, dtype=formats[-1])
        inputs = tuple(sorted(operands, key=lambda operand: -len(operand.dims)))
        sums, joins = len(dims) < len(step.dims), step.joins if len(operands) > 1 else ""
        kind = Sum if sums else JOINING.get(joins, Pointwise)
        kernel = kind(step.name or name, ELEMENTWISE, inputs, (result,), flops=step.flops)
        return Step(step.name or ", ".join(map(spaced, step.over)), dims, (kernel,))
    (x,), dtype = operands, sized.dtype
    precision = Precision(dtype, WeightFormats.alike(dtype), dtype, None, dtype, dtype, dtype, dtype)
    tape = Tape(precision, WHOLE, Kernels(activation=step.kernel))
    activation(tape, name, x, step.activation)
    return Step(step.name or step.activation, step.dims, tuple(tape.operations))


# --- state: bytes a parameter, and what an optimizer keeps of one matrix ---

TITLES = {"weights": "weights", "gradients": "gradients", "master": "fp32 master weights"}


def per_parameter(precision: Precision, optimizer: Optimizer) -> dict[str, Fraction]:
    """Bytes a parameter of each copy that training keeps, states by their names in the optimizer's rule."""
    sizes = {"weights": dtypes.DTYPES[precision.weights.base].average, "gradients": dtypes.size(precision.gradients)}
    if precision.master:
        sizes["master"] = dtypes.size(precision.master)
    return {**sizes, **optimizers.per_parameter(optimizer, precision)}


def state(ask: StateAsk) -> AnswerContent:
    """Each copy, the optimizer's together, and all of it; of a single parameter where no count is given.

    Raises ExpressionError for an optimizer that keeps states by rows and columns.
    """
    if shaped := ask.optimizer.shaped_states:
        message = f"{ask.optimizer.title} needs shapes: its {shaped[0].replace('_', ' ')} is kept by rows and columns"
        ending = f"dtype: {ask.precision.states}, rows: 4096, columns: 4096}}` of one matrix, or a plan with layers"
        raise ExpressionError(message, f"`optimizer: {{name: {ask.optimizer.name}, {ending}")
    sizes, rule = per_parameter(ask.precision, ask.optimizer), ask.optimizer.name
    count, times = ask.parameters, "*N" if ask.parameters > 1 else ""
    unit = "B" if ask.parameters > 1 else "B each"
    figures = [
        Figure(name, TITLES.get(name, f"{rule}, {name.replace('_', ' ')}"), size * count, unit, f"{size}{times}")
        for name, size in sizes.items()
    ]
    states = [size for name, size in sizes.items() if name not in TITLES]
    figures.append(Figure("optimizer", "optimizer states together", sum(states) * count, unit, _sum(states, times)))
    everything = sum(sizes.values()) * count
    figures.append(
        Figure("total", "weights, gradients and states", everything, unit, _sum(list(sizes.values()), times))
    )
    figures.append(Figure("format", "", ask.precision.compute))
    parts = {**sizes, "optimizer": sum(states, Fraction(0))}
    needed = sum((parts.get(part, Fraction(0)) for part in ask.parts), Fraction(0)) * count if ask.parts else everything
    return AnswerContent((*figures, *fitting(Fraction(needed), ask.memory)))


def _sum(sizes: list[Fraction], factor: str) -> str:
    terms = " + ".join(str(size) for size in sizes) or "0"
    return f"({terms}){factor}" if factor and len(sizes) > 1 else f"{terms}{factor}"


def optimizer(ask: OptimizerAsk) -> AnswerContent:
    """States of one matrix; per element where each state is as large as the matrix."""
    dims = (Dim("rows", letter("rows")), Dim("columns", letter("columns")))
    weight = Tensor("x", dims, ask.dtype, "weight")
    value = exact({letter("rows"): ask.rows, letter("columns"): ask.columns})
    precision = Precision(
        ask.dtype, WeightFormats.alike(ask.dtype), ask.dtype, None, ask.dtype, ask.dtype, ask.dtype, ask.dtype
    )
    owned = optimizers.TrainedWeight("matrix", sympy.Integer(1), weight, ask.rule)
    amount = sympy.Add(*[entry.bytes() for entry in optimizers.states(owned, optimizers.WHOLE, precision, value)])
    size = Fraction(value(amount))
    share = Figure("per_parameter", "bytes a parameter", size / value(weight.elements()), "B each")
    form = text(sympy.expand_mul(amount))
    return AnswerContent(
        (share, Figure("matrix", f"states of a matrix of {ask.rows} x {ask.columns}", size, "B", form))
    )


# --- prefill and decoding at the roof of the data sheet ---


@dataclass(frozen=True)
class ForwardPass:
    """Matmul FLOPs and bytes of a pass, and its seconds with each kernel at the roof of the data sheet."""

    flops: float
    bytes: float
    seconds: float

    @property
    def intensity(self) -> float:
        """FLOPs for each byte."""
        return self.flops / self.bytes


def inference(ask: InferenceAsk) -> AnswerContent:
    """Decoding at each batch size, prefill of the context, the cache; latency against throughput as a curve."""
    plan = as_served(ask.plan, one_prompt(ask.context))
    single, prompt = decode(plan, 1), prefill(plan)
    cache_bytes, ridge = bytes_per_sequence(as_served(ask.plan, one_prompt(ask.context - 1))), _ridge(plan)
    figures = (
        Figure("kv_cache", f"keys and values of {ask.context} tokens", cache_bytes, "B"),
        Figure("weights", "weights on a device", _held_bytes(plan, 1)[0], "B"),
        Figure("ridge", f"what {plan.accelerator.title} needs", ridge, "FLOP/B", "peak/bandwidth"),
        Figure("decode.intensity", "decoding, one sequence", single.intensity, "FLOP/B"),
        Figure("decode.bound", "decoding is limited by", _bound_by(single, ridge)),
        Figure("decode.time", "a token, one sequence", single.seconds, "s"),
        Figure("prefill.intensity", "prefill of the context", prompt.intensity, "FLOP/B"),
        Figure("prefill.bound", "prefill is limited by", _bound_by(prompt, ridge)),
        Figure("prefill.time", "prefill of the context", prompt.seconds, "s"),
    )
    rows, points = [], []
    for batch in ask.batches:
        decoding, bytes_held = decode(plan, batch), sum(_held_bytes(plan, batch))
        fits = bytes_held <= plan.accelerator.memory_labelled
        rows.append((batch, decoding.intensity, decoding.seconds, batch / decoding.seconds, bytes_held, fits))
        points.append((batch / decoding.seconds, decoding.seconds, f"{batch}" if fits else f"{batch}, does not fit"))
    columns = (
        ("sequences", "1"),
        ("intensity", "FLOP/B"),
        ("a token of each", "s"),
        ("all together", "tokens/s"),
        ("held by a device", "B"),
        ("fits", "yes"),
    )
    names = ("intensity", "time", "tokens_per_second", "held", "fits")
    title = "Decoding: time of a token against throughput, by the number of sequences"
    curve = Plot(title, ("tokens a second, all sequences", "tokens/s"), ("time of one token", "s"), tuple(points))
    return AnswerContent(figures, Grid("Decoding at the roof of the data sheet", columns, tuple(rows), names), curve)


def decode(plan: Plan, batch: int) -> ForwardPass:
    """One token of each of `batch` sequences over all replicas, whose cache has the tokens of a prompt."""
    sequences = Fraction(batch, plan.parallelism.data * plan.parallelism.pipeline)
    tokens = _prompt_tokens(plan)
    shape = Shape(
        sequences, Fraction(1), sequences, *(2 * (lambda attention: Fraction(kept_tokens(attention, tokens)),))
    )
    return _pass(plan, lambda role: role.rows(role.decode, shape))


def prefill(plan: Plan) -> ForwardPass:
    """All tokens of one prompt at once."""
    shape = prompt_shape(plan.serve, _prompt_tokens(plan)) if plan.serve else None
    return _pass(plan, lambda role: role.rows(role.prefill, shape) if shape else ())


def _prompt_tokens(plan: Plan) -> int:
    return plan.serve.prompt.longest if plan.serve else 0


def _pass(plan: Plan, rows_of: Callable[[ServedRole], Sequence[KernelTime]]) -> ForwardPass:
    """A pass through all stages; FLOPs and bytes of the devices of one stage after the other."""
    flops = bytes_moved = seconds = 0.0
    for role in served_roles(plan):
        stages = len(role.role.stages)
        for row in rows_of(role):
            flops += stages * row.flops * row.times
            bytes_moved += stages * row.bytes * row.times
            seconds += stages * float(row.roofline) * row.times
    return ForwardPass(flops, bytes_moved, seconds)


def _held_bytes(plan: Plan, batch: int) -> tuple[int, int]:
    """Bytes of weights, and of the cache of so many sequences, on the device that has most of both."""
    devices = devices_memory(served_roles(plan), batch)
    bytes_of_devices = [(held_bytes(device.weights), held_bytes(device.cache(Fraction(0)))) for device in devices]
    return max(bytes_of_devices, key=sum)


def _ridge(plan: Plan) -> float:
    return plan.accelerator.peak[dtypes.rate(plan.precision.multiplies)] / plan.accelerator.bandwidth


def _bound_by(run: ForwardPass, ridge: float) -> str:
    return "compute" if run.intensity >= ridge else "memory"


# --- any plan as one that serves ---


def as_served(plan: Plan, serve: Serve) -> Plan:
    """The plan as it would answer; of one that trains, replicas, tensor, pipeline and expert parallelism stay."""
    old = plan.parallelism
    mesh = Parallelism(old.data, old.tensor, old.pipeline, expert=old.expert, stages=old.stages)
    cluster = replace(plan.cluster, devices=mesh.data * mesh.replica)
    longest = serve.prompt.longest + serve.output.longest
    run = replace(plan.run, seq_len=longest, micro_batch=1, global_batch=mesh.data * mesh.pipeline)
    return replace(plan, serve=serve, parallelism=mesh, cluster=cluster, run=run)


def one_prompt(tokens: int) -> Serve:
    """One sequence whose prompt is read in one pass."""
    return Serve(Lengths.alike(tokens), Lengths.alike(1), concurrency=1, chunk=tokens)
