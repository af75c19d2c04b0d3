"""The number formats of a torchtitan job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ledger.spec.imports.torchtitan.job import TorchtitanJob
from ledger.spec.problems import Problem

RECIPES = {"tensorwise": "fp8-tensorwise", "rowwise": "fp8-rowwise", "rowwise_with_gw_hp": "fp8-rowwise"}
MX = ("mxfp8", "mxfp8_cublas", "mxfp8_emulated")
SWITCHES = ("float8.enable_float8_linear", "training.enable_float8_linear", "training.enable_fp8_linear")
GATHERED = ("float8.enable_fsdp_float8_all_gather", "quantize.linear.float8.enable_fsdp_float8_all_gather")
KEYS = {
    "float8": ("float8.recipe_name", "quantize.linear.float8.recipe_name"),
    "mx": ("mx.recipe_name", "quantize.linear.mx.recipe_name"),
}


def eight_bit_format(job: TorchtitanJob) -> str:
    """`float8` or `mx` where linear layers multiply in 8 bits, else nothing."""
    converters = _converters(job)
    if any("float8" in name for name in converters) or any(job.flag(key) for key in SWITCHES):
        return "float8"
    return "mx" if any(name.rpartition(".")[2] == "mx" for name in converters) else ""


def precision(job: TorchtitanJob, *, sharded: bool) -> Any:
    """FSDP2 gathers fp32 shards in bf16 (MixedPrecisionPolicy); weights may be bf16 or multiplied in 8 bits."""
    kind = eight_bit_format(job)
    if kind == "mx":
        base = "mxfp8-torchao"
    elif kind == "float8":
        base = RECIPES.get(_recipe(job, kind) or "tensorwise", "fp8-tensorwise")
    elif job.word("training.dtype") == "bfloat16":
        base = "bf16-true"
    else:
        base = "fp32" if job.word("training.mixed_precision_param") == "float32" else "bf16-autocast"
    own: dict[str, Any] = {}
    if job.word("training.mixed_precision_reduce") == "bfloat16" and base != "bf16-true":
        own["reduction"] = "bf16"
    if kind == "float8" and sharded and any(job.flag(key) for key in GATHERED):
        own["matmul"] = {"weights": "gathered"}
    return {"base": base, **own} if own else base


def formats_left_out(job: TorchtitanJob, tensor: int) -> Iterator[Problem]:
    """What of narrow formats is in no plan."""
    for name in _converters(job):
        if not ("float8" in name or name.rpartition(".")[2] == "mx") or "grouped" in name:
            message = f"the converter `{name}` is not carried over"
            yield Problem(job.place("model.converters"), message, "`precision: {matmul: ...}` says what is quantised")
    kind = eight_bit_format(job)
    if not kind:
        return
    asked, place = _recipe(job, kind), job.place(KEYS[kind][0])
    if kind == "float8" and asked and asked not in RECIPES:
        yield Problem(place, f"the recipe `{asked}` is taken as `tensorwise`", f"known are {', '.join(RECIPES)}")
    if kind == "mx" and asked and asked not in MX:
        yield Problem(place, f"the recipe `{asked}` is taken as `mxfp8`", f"known are {', '.join(MX)}")
    if asked == "rowwise_with_gw_hp":
        message = "`rowwise_with_gw_hp` is taken as `rowwise`: gradients of weights are multiplied in fp8"
        yield Problem(place, message, "the job multiplies them in bf16")
    if kind == "float8" and tensor > 1 and asked in ("", "tensorwise"):
        message = "float8 with tensor parallelism: the plan gathers sequences in bf16, the job in fp8"
        yield Problem(job.place("model.converters"), message, "half of those gathers' bytes are saved")


def _converters(job: TorchtitanJob) -> list[str]:
    given = job.settings.get("model.converters", "")
    names = given if isinstance(given, list) else str(given).split(",")
    return [str(name).strip() for name in names if str(name).strip()]


def _recipe(job: TorchtitanJob, kind: str) -> str:
    return next((job.word(key) for key in KEYS[kind] if key in job.settings), "")
