"""Rules on the generation of a device: kernels and number formats that run on some architectures only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ledger.spec.places import Places
from ledger.spec.plan import Accelerator, Kernels, Model, Precision
from ledger.spec.problems import Problem
from ledger.spec.recipe import WHOLE_TENSOR, Recipe
from ledger.spec.rules.device import peak_key


@dataclass(frozen=True)
class Needs:
    """The architectures on which something runs, and who says so."""

    architectures: tuple[str, ...]
    source: str


TESTED = "PyTorch 2.13, torch/testing/_internal/common_cuda.py"
SM80 = ("ampere", "ada", "hopper", "blackwell")
TE = "NVIDIA/TransformerEngine, transformer_engine/pytorch"
# Attention kernels and ways to multiply; what is not listed runs everywhere, or where the table of peaks says so.
RUNS_ON: Mapping[str, Needs] = {
    "flash": Needs((*SM80, "cdna2", "cdna3", "cdna4"), f"{TESTED}, PLATFORM_SUPPORTS_FLASH_ATTENTION"),
    "flash_repeated": Needs((*SM80, "cdna2", "cdna3", "cdna4"), f"{TESTED}, PLATFORM_SUPPORTS_FLASH_ATTENTION"),
    "varlen": Needs((*SM80, "cdna2", "cdna3", "cdna4"), f"{TESTED}, PLATFORM_SUPPORTS_FLASH_ATTENTION"),
    "flash3": Needs(("hopper",), "Dao-AILab/flash-attention, README, requirements of FlashAttention-3: H100 / H800"),
    "triton": Needs(SM80, "Dao-AILab/flash-attention, flash_attn_triton.py, tested on A100"),
    "cudnn": Needs(SM80, f"{TESTED}, PLATFORM_SUPPORTS_CUDNN_ATTENTION"),
    "cudnn_grouped": Needs(SM80, f"{TESTED}, PLATFORM_SUPPORTS_CUDNN_ATTENTION"),
    "fp8": Needs(("ada", "hopper", "blackwell", "cdna3", "cdna4"), f"{TESTED}, PLATFORM_SUPPORTS_FP8"),
    "fp8 with scales of blocks": Needs(
        ("hopper", "blackwell"), f"{TE}/quantization.py, check_fp8_block_scaling_support: compute capability 9.0"
    ),
    "fp8 in one layout": Needs(
        ("blackwell", "cdna3", "cdna4"), f"{TE}/utils.py, is_non_tn_fp8_gemm_supported: compute capability 10.0"
    ),
    "mxfp8": Needs(("blackwell", "cdna4"), f"{TESTED}, PLATFORM_SUPPORTS_MX_GEMM"),
    "mxfp4": Needs(("blackwell", "cdna4"), f"{TESTED}, PLATFORM_SUPPORTS_MX_GEMM"),
    "nvfp4": Needs(("blackwell",), f"{TE}/quantization.py, check_nvfp4_support: compute capability 10.0"),
}
TESTED_KERNELS = ("flash", "flash_repeated", "varlen", "flash3", "triton", "cudnn", "cudnn_grouped")
EVERYWHERE = ("efficient", "math", "eager")
MULTIPLIED_AS: Mapping[str, str] = {"fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "e2m1": "nvfp4"}


def attention_has_its_architecture(
    accelerator: Accelerator, kernels: Kernels, model: Model, at: Places
) -> Iterator[Problem]:
    """An attention kernel is written for the generations that its authors name."""
    if not model.attends or _runs(kernels.attention, accelerator):
        return
    others = [name for name in TESTED_KERNELS if _runs(name, accelerator)]
    listed = " | ".join([*others, *EVERYWHERE])
    message = f"{kernels.attention} attention {_refusal(kernels.attention, accelerator)}"
    yield Problem(at("kernels.attention"), message, f"`kernels: {{attention: {listed}}}`")


def operands_have_their_architecture(accelerator: Accelerator, precision: Precision, at: Places) -> Iterator[Problem]:
    """The generation multiplies what the precision multiplies; formats that it has no peak for are told elsewhere."""
    recipe = precision.matmul
    if peak_key(precision.compute) in accelerator.peak:
        name = MULTIPLIED_AS.get(precision.compute, precision.compute)
        if not _runs(name, accelerator):
            yield _multiplied(name, accelerator, at)
    if recipe and peak_key(recipe.format) in accelerator.peak:
        name = _scaled(recipe)
        if not _runs(name, accelerator):
            yield _multiplied(name, accelerator, at)
        elif name == "fp8" and recipe.layouts == "one" and not _runs("fp8 in one layout", accelerator):
            yield _multiplied("fp8 in one layout", accelerator, at)


def _scaled(recipe: Recipe) -> str:
    """How a recipe multiplies: scales that are powers of two belong to the microscaling formats."""
    name = MULTIPLIED_AS[recipe.format]
    if recipe.scale == "e8m0":
        return {"fp8": "mxfp8", "nvfp4": "mxfp4"}[name]
    block = max(recipe.activation_block[1], recipe.weight_block[1])
    return f"{name} with scales of blocks" if name == "fp8" and block > WHOLE_TENSOR[1] else name


def _runs(name: str, accelerator: Accelerator) -> bool:
    needs = RUNS_ON.get(name)
    return needs is None or not accelerator.architecture or accelerator.architecture in needs.architectures


def _multiplied(name: str, accelerator: Accelerator, at: Places) -> Problem:
    fits = [way for way in RUNS_ON if way not in TESTED_KERNELS and _runs(way, accelerator)]
    help_text = f"{accelerator.architecture} multiplies {', '.join(fits) or 'none of the narrow formats'}"
    return Problem(at("precision"), f"{name} {_refusal(name, accelerator)}", help_text)


def _refusal(name: str, accelerator: Accelerator) -> str:
    *rest, last = RUNS_ON[name].architectures
    listed = f"{', '.join(rest)} or {last}" if rest else last
    return f"runs on {listed}, and {accelerator.title} is {accelerator.architecture}"
