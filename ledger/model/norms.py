"""Norms: RMSNorm and LayerNorm, as one kernel or spelt out in Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ledger.model.causes import BIAS, Module, Parameter
from ledger.model.tape import Tape
from ledger.model.tensors import Tensor
from ledger.spec.kernel_classes import NORM_BACKWARD, NORM_FORWARD, REDUCTION
from ledger.spec.plan import Norm


def norm(  # noqa: PLR0913 - the facts of one norm
    tape: Tape, module: Module, x: Tensor, spec: Norm, over: str = "d_model", along: int | None = None
) -> Tensor:
    """RMSNorm or LayerNorm of a tensor, like it, with a weight `over` its last dims, of which `along` are normed.

    Eager modules call one kernel for LayerNorm, unless the model writes it out (`wide`) or the plan has `operators`.
    """
    weight, name = tape.weight(Parameter(module, elementwise=True), over), str(module)
    along = along or len(weight.dims)
    by_operators = tape.kernels.norm in (("eager", "operators") if spec.kind == "rms" or spec.wide else ("operators",))
    if spec.kind == "rms" and by_operators:
        return _rms_eager(tape, name, x, weight, spec, along)
    if along < len(weight.dims) and not by_operators:
        plain = _one_kernel(tape, f"{name}.rows", x, (), spec, along)
        return tape.pointwise(name, plain, weight, dtype=plain.dtype, saves=[plain], scratch=1)
    weights = [weight, *([tape.weight(Parameter(module, BIAS), over)] if spec.bias else [])]
    write = _layer_eager if by_operators else _one_kernel
    return write(tape, name, x, weights, spec, along)


def _one_kernel(  # noqa: PLR0913 - as above
    tape: Tape, name: str, x: Tensor, weights: Sequence[Tensor], spec: Norm, along: int
) -> Tensor:
    source = tape.cast(x, "fp32") if tape.precision.autocast else x
    offset = [_offset(tape, name, weights[0])] if spec.unit_offset and weights else []
    weights = [*offset, *weights[len(offset) :]]
    statistics = ("rstd",) if spec.kind == "rms" else ("mean", "rstd")
    rows = x.dims[: len(x.dims) - along]
    extras = [Tensor(f"{name}.{s}", rows, "fp32", "statistic", x.split) for s in statistics]
    flops = 4 if spec.kind == "rms" else 7
    return tape.pointwise(
        name,
        source,
        *weights,
        dtype=source.dtype,
        kernel=NORM_FORWARD,
        backward_kernel=NORM_BACKWARD,
        flops=flops,
        saves=[source, *offset],
        extras=extras,
    )


def _offset(tape: Tape, name: str, weight: Tensor) -> Tensor:
    """1 + weight: a tensor of its own, which stands for the weight as a cast does."""
    return replace(tape.pointwise(f"{name}.offset", weight, add=True), role="cast")


def unweighted(tape: Tape, name: str, x: Tensor) -> Tensor:
    """RMSNorm of the last dim without a weight (Llama 4)."""
    if tape.kernels.norm == "eager":
        wide = tape.cast(x, "fp32")
        return tape.cast(over_rms(tape, name, wide, 1), x.dtype)
    source = tape.cast(x, "fp32") if tape.precision.autocast else x
    rstd = Tensor(f"{name}.rstd", x.dims[:-1], "fp32", "statistic", x.split)
    return tape.pointwise(
        name, source, kernel=NORM_FORWARD, backward_kernel=NORM_BACKWARD, flops=3, saves=[source], extras=[rstd]
    )


def over_rms(tape: Tape, name: str, wide: Tensor, over: int) -> Tensor:
    """x / rms(x) over the last `over` dims.

    The gradient of a factor that is one for many elements is a product as large as all of them, before it is summed.
    """
    rstd = _over_root(tape, name, wide, over)
    return tape.pointwise(f"{name}.scale", wide, rstd, saves=[wide, rstd], scratch=1)


def _over_root(tape: Tape, name: str, wide: Tensor, over: int) -> Tensor:
    """1 / rms(x) over the last `over` dims."""
    square = tape.pointwise(f"{name}.square", wide, saves=[wide], scratch=2)  # x^1, and twice that
    rows = wide.dims[: len(wide.dims) - over]
    mean = tape.pointwise(f"{name}.mean", square, dims=rows, kernel=REDUCTION)
    return tape.pointwise(f"{name}.rsqrt", mean, saves=["out"])


def _rms_of_input(tape: Tape, name: str, x: Tensor, weight: Tensor, along: int) -> Tensor:
    """RMSNorm that squares a copy in fp32 and scales the input itself, into fp32; narrow weights read a narrow result.

    transformers, T5LayerNorm.
    """
    rstd = _over_root(tape, name, tape.cast(x, "fp32"), along)
    normed = tape.pointwise(f"{name}.scale", x, rstd, saves=[x, rstd], scratch=1)
    source = tape.cast(normed, weight.dtype)
    return tape.pointwise(f"{name}.weigh", weight, source, like=source, saves=[source, weight], scratch=1)


def _layer_eager(tape: Tape, name: str, x: Tensor, weights: Sequence[Tensor], _: Norm, along: int) -> Tensor:
    """LayerNorm written in Python, in fp32, a bias last: what is centred is computed twice (transformers, Cohere)."""
    wide = tape.cast(x, "fp32")
    rows = wide.dims[: len(wide.dims) - along]
    mean = tape.pointwise(f"{name}.mean", wide, dims=rows, kernel=REDUCTION)
    centred = tape.pointwise(f"{name}.centre", wide, mean, add=True)
    square = tape.pointwise(f"{name}.square", centred, saves=[centred], scratch=2)
    variance = tape.pointwise(f"{name}.variance", square, dims=rows, kernel=REDUCTION)
    again = tape.pointwise(f"{name}.centre_again", wide, mean, add=True)
    rstd = tape.pointwise(f"{name}.rsqrt", variance, saves=["out"])
    normed = tape.pointwise(f"{name}.scale", again, rstd, saves=[again, rstd], scratch=1)
    factor, *shifts = (tape.cast(weight, "fp32") for weight in weights)
    result = tape.pointwise(f"{name}.weigh", normed, factor, saves=[normed, factor], scratch=1)
    for shift in shifts:
        result = tape.pointwise(f"{name}.shift", result, shift, add=True)
    return tape.cast(result, x.dtype)


def _rms_eager(  # noqa: PLR0913 - as above
    tape: Tape, name: str, x: Tensor, weight: Tensor, spec: Norm, along: int
) -> Tensor:
    """RMSNorm written in Python, in fp32, as transformers ships it."""
    if spec.scales_input:
        return _rms_of_input(tape, name, x, weight, along)
    normed = over_rms(tape, name, tape.cast(x, "fp32"), along)
    if spec.unit_offset:
        offset = _offset(tape, name, tape.cast(weight, "fp32"))
        scaled = tape.pointwise(f"{name}.weigh", normed, offset, saves=[normed, offset], scratch=1)
        return tape.cast(scaled, x.dtype)
    source = normed if spec.wide else tape.cast(normed, x.dtype)
    scaled = tape.pointwise(f"{name}.weigh", source, weight, saves=[source], scratch=1)
    return tape.cast(scaled, x.dtype) if spec.wide else scaled
