"""Norms: RMSNorm and LayerNorm, as one kernel or spelt out in Python."""

from __future__ import annotations

from dataclasses import replace

from ledger.model.tape import Tape
from ledger.model.tensors import Tensor
from ledger.spec.plan import Norm


def norm(tape: Tape, name: str, x: Tensor, spec: Norm, over: str = "d_model") -> Tensor:
    """RMSNorm or LayerNorm `over` the last dims of a tensor, like it; LayerNorm is one kernel in every stack."""
    weight = tape.weight(f"{name}.weight", over)
    if spec.kind == "rms" and tape.kernels.norm == "eager":
        return _rms_eager(tape, name, x, weight, spec)
    source = tape.cast(x, "fp32") if tape.precision.autocast else x
    offset = [_offset(tape, name, weight)] if spec.unit_offset else []
    weights = [*(offset or [weight]), *([tape.weight(f"{name}.bias", over)] if spec.bias else [])]
    statistics = ("rstd",) if spec.kind == "rms" else ("mean", "rstd")
    rows = x.dims[: len(x.dims) - len(weight.dims)]
    extras = [Tensor(f"{name}.{s}", rows, "fp32", "statistic", x.split) for s in statistics]
    flops = 4 if spec.kind == "rms" else 7
    return tape.pointwise(
        name,
        source,
        *weights,
        dtype=source.dtype,
        kernel="norm.forward",
        backward_kernel="norm.backward",
        flops=flops,
        saves=[source, *offset],
        extras=extras,
    )


def _offset(tape: Tape, name: str, weight: Tensor) -> Tensor:
    """1 + weight: a tensor of its own, which stands for the weight as a cast does."""
    return replace(tape.pointwise(f"{name}.offset", weight, add=True), role="cast")


def _rms_eager(tape: Tape, name: str, x: Tensor, weight: Tensor, spec: Norm) -> Tensor:
    """RMSNorm written in Python, in fp32, as transformers ships it.

    The gradient of a factor that is one for many elements is a product as large as all of them, before it is summed.
    """
    wide = tape.cast(x, "fp32")
    square = tape.pointwise(f"{name}.square", wide, saves=[wide], scratch=2)  # x^1, and twice that
    rows = x.dims[: len(x.dims) - len(weight.dims)]
    mean = tape.pointwise(f"{name}.mean", square, dims=rows, kernel="reduction")
    rstd = tape.pointwise(f"{name}.rsqrt", mean, saves=["out"])
    normed = tape.pointwise(f"{name}.scale", wide, rstd, saves=[wide, rstd], scratch=1)
    if spec.unit_offset:
        offset = _offset(tape, name, tape.cast(weight, "fp32"))
        scaled = tape.pointwise(f"{name}.weigh", normed, offset, saves=[normed, offset], scratch=1)
        return tape.cast(scaled, x.dtype)
    narrow = tape.cast(normed, x.dtype)
    return tape.pointwise(f"{name}.weigh", narrow, weight, saves=[narrow], scratch=1)
