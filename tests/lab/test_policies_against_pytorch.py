"""What is kept, what is run again, and how full a step is, under every recompute policy and with frozen weights.

`make test` has every kind of policy, component, model, loss and choice of weights once, on a model cut to few layers;
`make test-long` all of them together, on more layers and on all.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import product
from typing import Any

import pytest

from tests.lab.policies import BLOCK, Compared, Judged, compared, trained
from tests.sampling import Choices, covering, parameter, values

RECOMPUTE: tuple[Any, ...] = (
    "selective",
    "full",
    "square_root",
    {"segment": 5},
    {"layers": 5},
    {"every": 3},
    {"components": ["attention"]},
    {"components": ["mlp"]},
    {"components": ["norm"]},
    {"components": ["attention", "mlp", "norm"]},
    {"components": ["core", "norm", "activation"]},
    {"keep": ["matmul", "attention"]},
    {"keep": ["matmul", "attention"], "matmuls": "every_second"},
)
TRAIN: tuple[tuple[str, Any], ...] = (
    ("llama-3-8b", {"lora": {"rank": 16, "targets": ["q", "k", "v", "out", "gate", "up", "down"]}}),
    ("llama-3-8b", {"lora": {"rank": 8, "targets": ["q", "v"]}}),
    ("llama-3-8b", {"lora": {"rank": 8, "targets": ["k", "down"], "dropout": 0.1}}),
    ("gpt2", {"lora": {"rank": 16, "targets": ["qkv", "out", "up", "down"]}}),
    ("llama-3-8b", {"only": ["head"]}),
    ("llama-3-8b", {"only": ["mlp_norm"]}),
    ("llama-3-8b", {"only": ["attention"]}),
    ("llama-3-8b", {"frozen": ["embedding"]}),
    ("gpt2", {"frozen": ["embedding", "attention"]}),
)
# GPT-2's byte masks outlive their reader by one operator; else storages are rounded.
PEAK = {"gpt2": 5e-3, "llama-3-8b": 1e-5}
CUT_PEAK = {"gpt2": 5e-3, "llama-3-8b": 3e-5}  # the same rounding of a step that is a tenth as full
# A graph made inside a backward pass holds its upstream gradient: 0.9 % of GPT-2's small step, 2.7 % of three layers.
DISCARDED = {"cut": 3e-2, "few": 1e-2, "all": 1e-2}
# The ledger is 71 MB over PyTorch where head and loss are one kernel: 1.05 % of three layers in forward.
FORWARD = {"cut": 1.5e-2, "few": 1e-2, "all": 1e-2}
LOSSES: tuple[tuple[str, int], ...] = (("fused", 0), ("chunked", 0), ("chunked", 4), ("fused_linear", 16))
LOSS_TRAIN: tuple[Any, ...] = ("all", {"only": ["final_norm"]}, {"only": ["head"]})
CORES = (("llama-3-8b", "flash"), ("gpt2", "flash"), ("gpt2", "eager"))


def at_depths(cases: Sequence[Any], choices: Choices = values) -> list[Any]:
    """The cases that have every choice on a cut model, for `make test`; all of them on few layers and on all, long."""
    cut = [parameter((*case, "cut"), long=False) for case in covering(cases, choices)]
    return [*cut, *(parameter((*case, depth), long=True) for case in cases for depth in ("few", "all"))]


def recomputations(case: Sequence[Any]) -> frozenset[Hashable]:
    """What is there once: every kind of policy, every core of a model, and what GPT-2 discards with its activation."""
    model, core, policy = case
    return frozenset({*parted(policy), (model, core), (model, discards(model, policy))})


def parted(choice: Any) -> frozenset[Hashable]:
    """A choice by its name; of those that list components or weights, each of these. A root is a length of segments."""
    if choice == "square_root":
        return frozenset({"segment"})
    if isinstance(choice, str):
        return frozenset({choice})
    listed = {(key, one) for key, value in choice.items() if isinstance(value, list) for one in value}
    return frozenset({*choice, *listed})


def discards(model: str, policy: Any) -> bool:
    """Whether a graph is made inside the backward pass, for GPT-2's eager activation alone."""
    return model == "gpt2" and "components" in policy and "activation" in policy["components"]


def weights_and_policy(case: Sequence[Any]) -> frozenset[Hashable]:
    """What is there once: every kind of choice of weights, all weights that are chosen, and every policy."""
    model, train, policy = case
    adapted = train.get("lora", {}).get("targets", ())
    return frozenset({model, policy, *parted(train), *adapted})


# Adapters with dropout in a layer that is rebuilt whole: the ledger is so much short of the peak, at most.
DROPPED = 0.005


def peak(model: str, depth: Judged) -> float:
    """How far the fullest moment may be off."""
    return (CUT_PEAK if depth == "cut" else PEAK)[model]


def agrees_on_what_is_kept(step: Compared) -> None:
    """Saved bytes are PyTorch's, but for the rounding of each storage and for what all layers share."""
    mine, found = step.saved()
    assert 0 <= found - mine <= step.storages() * BLOCK + step.tables()


def agrees_on_the_peak(step: Compared, tolerance: float, phase: str = "backward") -> None:
    """The fullest moment of a phase is PyTorch's."""
    mine, found = step.peak(phase)
    assert mine == pytest.approx(found, rel=tolerance)


@pytest.mark.parametrize(
    ("model", "core", "policy", "depth"),
    at_depths([(*core, policy) for policy, core in product(RECOMPUTE, CORES)], recomputations),
)
def test_recomputation(model: str, core: str, policy: Any, depth: Judged) -> None:
    """Each policy keeps the bytes, repeats the FLOPs and is as full in backward as PyTorch's own checkpointing."""
    step = compared(model, core, recompute=policy, depth=depth)
    agrees_on_what_is_kept(step)
    mine, found = step.again()
    assert mine == found > 0 or (mine == found == 0 and policy in ({"components": ["norm"]}, RECOMPUTE[-2]))
    agrees_on_the_peak(step, DISCARDED[depth] if discards(model, policy) else peak(model, depth))


@pytest.mark.long  # what the core drops, `make test` sees in GPT-2 with eager attention
@pytest.mark.parametrize("depth", ["few", "all"])
@pytest.mark.parametrize("policy", RECOMPUTE[:3])
def test_recomputation_with_a_square_of_scores(policy: Any, depth: Judged) -> None:
    """The same where scores of all tokens with all tokens exist, which the core's own recomputation is for."""
    step = compared("llama-3-8b", "eager", recompute=policy, depth=depth)
    agrees_on_what_is_kept(step)
    assert step.again()[0] == step.again()[1]
    agrees_on_the_peak(step, 5e-3)


@pytest.mark.parametrize(
    ("loss", "chunks", "train", "depth"), at_depths([(*loss, train) for train, loss in product(LOSS_TRAIN, LOSSES)])
)
def test_losses(loss: str, chunks: int, train: Any, depth: Judged) -> None:
    """Every kind of loss saves, computes and holds what its own code does, at the width of a real vocabulary."""
    kernels = {"loss": loss} | ({"loss_chunks": chunks} if chunks else {})
    step = compared("llama-3-8b", "flash", 128_256, kernels=kernels, recompute="full", train=train, depth=depth)
    agrees_on_what_is_kept(step)
    assert step.run() == (0, 0)
    agrees_on_the_peak(step, 2e-4)
    agrees_on_the_peak(step, FORWARD[depth], "forward")


@pytest.mark.parametrize(
    ("loss", "chunks", "run"),
    [
        ("chunked", 0, {"seq_len": 8191}),  # 7 parts of 1024, and 1023
        ("chunked", 6, {"seq_len": 8200}),  # 5 of 1367, and 1365
        ("chunked", 7, {"seq_len": 8}),  # 4 of 2, fewer than asked for
        ("fused_linear", 12, {"seq_len": 8192}),  # 11 of 683, and 679
        ("fused_linear", 0, {"seq_len": 8000}),  # as Liger chooses: 31 of 256, and 64
        ("fused_linear", 0, {"seq_len": 2731, "micro_batch": 3, "global_batch": 3}),  # 32 of 256, and 1: over sequences
    ],
)
def test_a_loss_in_parts_of_unlike_length(loss: str, chunks: int, run: dict[str, int]) -> None:
    """The last part is shorter: what is saved, computed and held is what PyTorch's parts and Liger's are."""
    kernels = {"loss": loss} | ({"loss_chunks": chunks} if chunks else {})
    step = compared("llama-3-8b", "flash", 128_256, kernels=kernels, recompute="full", run=run)
    agrees_on_what_is_kept(step)
    assert step.run() == (0, 0)
    agrees_on_the_peak(step, 2e-4)
    agrees_on_the_peak(step, FORWARD["cut"], "forward")


@pytest.mark.parametrize(
    ("model", "train", "policy", "depth"),
    at_depths([(*row, policy) for policy, row in product(("none", "selective", "full"), TRAIN)], weights_and_policy),
)
def test_frozen_weights(model: str, train: Any, policy: str, depth: Judged) -> None:
    """What is not trained has no gradient, no state and no contraction for one, and saves nothing for it."""
    step = compared(model, "flash", recompute=policy, train=train, depth=depth)
    agrees_on_what_is_kept(step)
    mine, found = step.again()
    assert mine == found
    drops = "dropout" in train.get("lora", {})
    agrees_on_the_peak(step, max(peak(model, depth), DROPPED if drops and policy == "full" else 0.0))
    agrees_on_the_peak(step, 1e-4, "optimizer")
    if policy == "none":
        counted = step.flops()
        totals = step.compiled.totals
        assert (totals["flops.counter.forward"], totals["flops.counter.step"]) == (counted.forward, counted.step)


def test_adapters_are_counted() -> None:
    """Llama 3 8B with adapters of rank 16 on all projections trains 41 943 040 parameters, as peft prints."""
    train = {"lora": {"rank": 16, "targets": ["q", "k", "v", "out", "gate", "up", "down"]}}
    compiled = trained("llama-3-8b", "flash", train=train)
    d, f, kv, layers, rank = 4096, 14336, 1024, 32, 16
    each = rank * ((d + d) + 2 * (d + kv) + (d + d) + 3 * (d + f))
    assert compiled.totals["parameters.trainable"] == layers * each == 41_943_040
