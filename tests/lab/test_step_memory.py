"""Whole training steps on fake CUDA tensors, against measured bytes.

Measured with torch 2.13.0 and transformers 5.23, where a fake step equals a real CPU step byte for byte.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledger.lab.observed.device_step import DeviceStep
from ledger.lab.observed.one_device import one_device_step, saved_storages
from ledger.lab.reference.workload import Workload
from ledger.lab.verification.depth import Sample, samples, sum_weighted_figures, with_counts
from ledger.spec.plan import Kernels, Precision, Recompute
from tests.lab.reference_plans import AUTOCAST, BF16, GPT2_SMALL, LLAMA_3_8B, LLAMA_3_70B, SMALL_LLAMA

DEPTHS = pytest.mark.parametrize("depth", ["few", pytest.param("all", marks=pytest.mark.long)])
FULL = Recompute("full")
KEEP = Recompute("keep", keep=("matmul", "attention"))
SHIPPED = Kernels(norm="eager", activation="eager")  # the kernels of transformers' GPT-2
LLAMA_SHIPPED = Kernels(norm="eager")


def attention(kernels: Kernels, name: str) -> Kernels:
    """`kernels` with another attention."""
    return replace(kernels, attention=name)


GPT2_1x1024 = Workload(GPT2_SMALL, SHIPPED, BF16, 1, 1024)
LLAMA_1x8192 = Workload(LLAMA_3_8B, LLAMA_SHIPPED, BF16, 1, 8192)


def step(work: Workload, depth: str) -> DeviceStep:
    """One step of all layers; or of few, whose difference stands for each further one."""
    runs = samples(work.model) if depth == "few" else (Sample(tuple(g.repeat for g in work.model.groups), 1),)
    works = [(run.weight, replace(work, model=with_counts(work.model, run.layers))) for run in runs]
    return DeviceStep(sum_weighted_figures([(weight, one_device_step(one).moments) for weight, one in works]))


@DEPTHS
@pytest.mark.parametrize(
    ("work", "activations", "forward", "backward", "optimizer"),
    [
        pytest.param(GPT2_1x1024, 757_966_336, 1_813_392_384, 1_916_310_016, 1_244_406_784, marks=pytest.mark.long),
        (replace(GPT2_1x1024, precision=AUTOCAST), 1_270_844_416, 3_076_220_928, 3_175_826_944, 2_488_804_864),
        pytest.param(
            LLAMA_1x8192, 57_124_455_936, 111_610_128_896, 113_711_409_152, 80_302_679_552, marks=pytest.mark.long
        ),
        pytest.param(
            replace(LLAMA_1x8192, precision=AUTOCAST),
            82_942_494_208,
            185_743_952_384,
            187_711_014_912,
            160_605_292_032,
            marks=pytest.mark.long,
        ),
        (replace(LLAMA_1x8192, recompute=FULL), 6_622_971_392, 61_108_644_352, 65_126_222_848, 80_302_679_552),
        pytest.param(
            replace(LLAMA_1x8192, model=LLAMA_3_70B),
            265_299_346_944,
            694_925_691_392,
            697_026_971_648,
            705_537_132_032,
            marks=pytest.mark.long,
        ),
    ],
)
def test_phases_of_a_step(
    work: Workload, activations: int, forward: int, backward: int, optimizer: int, depth: str
) -> None:
    """Each phase holds what a real step holds, to the byte."""
    found = step(work, depth)
    assert (found.activations, found.peak("forward"), found.peak("backward"), found.peak("optimizer")) == (
        activations,
        forward,
        backward,
        optimizer,
    )


@DEPTHS
@pytest.mark.parametrize(
    ("work", "activations", "backward"),
    [
        (replace(GPT2_1x1024, kernels=attention(SHIPPED, "eager")), 1_512_338_944, 2_670_682_624),
        pytest.param(
            replace(LLAMA_1x8192, kernels=attention(LLAMA_SHIPPED, "efficient")),
            60_345_681_408,
            116_932_634_624,
            marks=pytest.mark.long,
        ),
        pytest.param(
            replace(LLAMA_1x8192, kernels=attention(LLAMA_SHIPPED, "math")),
            341_632_452_096,
            402_751_301_632,
            marks=pytest.mark.long,
        ),
        pytest.param(
            replace(LLAMA_1x8192, kernels=attention(LLAMA_SHIPPED, "eager")),
            472_628_954_624,
            529_452_836_864,
            marks=pytest.mark.long,
        ),
        (replace(LLAMA_1x8192, recompute=KEEP), 31_352_620_544, 87_939_573_760),
    ],
)
def test_kernels_and_recomputation(work: Workload, activations: int, backward: int, depth: str) -> None:
    """What lives between forward and backward, and the peak that follows, depend on the kernel and what is kept."""
    found = step(work, depth)
    assert (found.activations, found.peak("backward")) == (activations, backward)


@DEPTHS
def test_optimizer_temporaries(depth: str) -> None:
    """AdamW over one list of all parameters needs another copy of them; fused none; a loop two of the largest."""
    parameters, largest = 2 * 8_030_261_248, 2 * 128_256 * 4096
    before_largest = 2 * 4096  # the head comes after the final norm, whose denominator lives until it is replaced
    step_counts = 291 * 512  # the fused kernel keeps one per parameter tensor: 9 in each of 32 layers, 3 outside
    peaks = {
        kind: step(replace(LLAMA_1x8192, kernels=replace(LLAMA_SHIPPED, optimizer=kind)), depth).peak("optimizer")
        for kind in ("foreach", "fused", "loop")
    }
    assert peaks["foreach"] - peaks["fused"] == parameters - step_counts
    assert peaks["loop"] - peaks["fused"] == 2 * largest + before_largest - step_counts


@pytest.mark.parametrize("precision", [BF16, AUTOCAST])
def test_activations_are_the_saved_storages(precision: Precision) -> None:
    """Two ways to look at one step agree: hooks on autograd, and storages alive after forward."""
    work = Workload(SMALL_LLAMA, Kernels(), precision, 3, 37)
    saved = saved_storages(work)
    ids = next(storage for storage in saved if storage.users == ("EmbeddingBackward0.indices",))
    rounded = sum(-(-storage.bytes // 512) * 512 for storage in saved if storage is not ids)
    loss = 512  # the loss itself, a scalar
    assert one_device_step(work).activations == rounded + loss
