"""Sharded steps on a fake process group, against measured bytes and counts.

Measured with torch 2.13.0 (FSDP2, DTensor); the fake group equals real processes over gloo, every collective and peak.
"""

from __future__ import annotations

import pytest

from ledger.lab.observed.device_step import DeviceStep
from ledger.lab.observed.one_device import one_device_step, parameter_count
from ledger.lab.observed.ranks import ShardedRank
from ledger.lab.reference.workload import Workload
from ledger.lab.transformers.config import NoReferenceError, with_layers
from ledger.lab.verification.depth import sum_weighted_figures
from ledger.lab.verification.stages import rank_step
from ledger.spec.plan import Kernels, Model, Recompute
from tests.lab.reference_plans import AUTOCAST, BF16, GPT2_SMALL, LLAMA_3_8B, LLAMA_3_70B

FULL = Recompute("full")


def step(model: Model, rank: ShardedRank, recompute: Recompute) -> DeviceStep:
    """One step at 8192 tokens: fp32 weights and reduction, bf16 compute."""
    return rank_step(Workload(model, Kernels(), AUTOCAST, 1, 8192, recompute), rank)


def extrapolated(two: DeviceStep, three: DeviceStep, layers: int) -> dict[tuple[str, str, str], tuple[int, int]]:
    """(count, bytes) of each collective with `layers` layers: what a third layer adds, times what is missing."""
    return {
        (a.kind, a.axis, a.phase): (
            a.count + (layers - 2) * (b.count - a.count),
            a.bytes + (layers - 2) * (b.bytes - a.bytes),
        )
        for a, b in zip(two.collectives, three.collectives, strict=True)
    }


@pytest.mark.long
def test_collectives_of_70b_on_1024_ranks() -> None:
    """Tensor parallelism with a split sequence inside FSDP2: how often it gathers and reduces, and how much."""
    two, three = (step(with_layers(LLAMA_3_70B, layers), ShardedRank(data=128, tensor=8), FULL) for layers in (2, 3))
    found = extrapolated(two, three, 80)
    assert found["all_gather", "data", "forward"] == (81, 17_643_880_448)
    assert found["all_gather", "data", "backward"] == (81, 17_643_880_448)
    assert found["reduce_scatter", "data", "backward"] == (81, 35_287_760_896)
    assert found["all_gather", "tensor", "forward"] == (161, 21_609_054_208)
    assert found["all_gather", "tensor", "backward"] == (321, 43_083_890_688)
    assert [found["reduce_scatter", "tensor", phase][0] for phase in ("forward", "backward")] == [161, 241]
    assert [found["all_reduce", "tensor", phase][0] for phase in ("forward", "backward")] == [3, 161]


FEW = {3: -28, 4: 29}  # layers, and how often they count in the sum for 32
# The measured module kept its rotary tables in other places and dtypes than transformers does.
ROTARY_TABLES = 2 * 8192 * 128 * 2


@pytest.mark.parametrize("depth", ["few", pytest.param("all", marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("rank", "recompute", "activations", "peak"),
    [
        (ShardedRank(data=8), Recompute(), 48_398_140_416, 68_853_177_344),
        pytest.param(ShardedRank(data=8, replicate=8), FULL, 6_486_524_928, 26_941_561_856, marks=pytest.mark.long),
        pytest.param(ShardedRank(data=8, tensor=8), Recompute(), 9_868_448_768, 12_955_012_608, marks=pytest.mark.long),
    ],
)
def test_memory_of_8b(rank: ShardedRank, recompute: Recompute, activations: int, peak: int, depth: str) -> None:
    """What forward leaves on a rank, gathered weights included where they are kept, and the peak of the step.

    Of all layers, or of few, whose difference stands for each further one.
    """
    layers = {"few": FEW, "all": {32: 1}}[depth]
    runs = [(weight, step(with_layers(LLAMA_3_8B, count), rank, recompute).moments) for count, weight in layers.items()]
    found = DeviceStep(sum_weighted_figures(runs))
    assert found.activations == pytest.approx(activations, abs=ROTARY_TABLES)
    assert found.peak("forward", "backward") == pytest.approx(peak, abs=ROTARY_TABLES)


def test_a_resharding_rank_saves_what_one_device_saves() -> None:
    """FSDP2 with bf16 compute leaves the activations of a pure bf16 step; without resharding, all weights as well."""
    model = with_layers(LLAMA_3_8B, 2)
    single = one_device_step(Workload(model, Kernels(), BF16, 1, 8192)).activations
    assert step(model, ShardedRank(data=8), Recompute()).activations == single
    kept = step(model, ShardedRank(data=8, reshard="none"), Recompute()).activations
    assert kept == single + 2 * parameter_count(model)


def test_replicas_reduce_each_shard_once() -> None:
    """With replicas, every FSDP unit adds one fp32 all-reduce of its shard."""
    found = step(with_layers(LLAMA_3_8B, 2), ShardedRank(data=8, replicate=8), FULL)
    units = {(c.kind, c.axis): c for c in found.collectives if c.phase == "backward"}
    reduced, replicated = units["reduce_scatter", "data"], units["all_reduce", "replicate"]
    assert reduced.count == replicated.count == 3
    assert replicated.bytes == reduced.bytes // 8


def test_only_laid_out_models_are_split() -> None:
    """A model whose layers the judge has not laid out is refused, not run unsplit."""
    with pytest.raises(NoReferenceError, match="splits Llama's"):
        rank_step(Workload(with_layers(GPT2_SMALL, 1), Kernels(), AUTOCAST, 1, 64), ShardedRank(tensor=2))
