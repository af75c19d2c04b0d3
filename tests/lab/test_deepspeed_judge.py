"""DeepSpeed as the judge: what its ranks hold, save and send, against sums worked out here, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from ledger.lab.judges.deepspeed.configuration import fields, refusal
from ledger.lab.judges.deepspeed.flat_weights import FlatWeight, FlatWeights, call_sizes, flat_weights
from ledger.lab.judges.deepspeed.judge import DEEPSPEED
from ledger.lab.judges.metered_rank import RankFigures
from ledger.lab.judges.table import framework_of
from ledger.lab.verification.frameworks import verdicts
from ledger.spec.plan import Plan
from tests.model import plans

installed = pytest.mark.skipif(bool(DEEPSPEED.missing), reason=DEEPSPEED.unavailable())

D, F, V, H, K, E, S, L = 96, 160, 208, 8, 4, 12, 64, 3
MODEL = {
    **plans.layer(plans.LLAMA, repeat=L, attention={"heads": H, "kv_heads": K, "head_dim": E}, mlp={"d_ff": F}),
    "d_model": D,
    "vocab": V,
}
LAYER = 2 * D * E * (H + K) + 3 * D * F + 2 * D  # q and out, k and v; gate, up and down; two norms
PARAMETERS = L * LAYER + 2 * V * D + D
RANKS = 4
BUFFER = 50_000  # elements: less than a layer, more than any weight
STACK = {"base": "deepspeed-transformers-2026", "reduction_buffer": BUFFER}


def plan(zero: int = 2, micro_batches: int = 1, **changes: Any) -> Plan:
    """A small Llama on four ranks."""
    given: dict[str, Any] = {
        "model": MODEL,
        "precision": "bf16-mixed",
        "cluster": {"base": "h100-400g", "devices": RANKS, "devices_per_node": RANKS},
        "parallelism": {"data": RANKS, "zero": zero, **changes.pop("parallelism", {})},
        "run": {"seq_len": S, "micro_batch": 1, "global_batch": micro_batches * RANKS},
        "stack": STACK,
        **changes,
    }
    return plans.compiled(**given).plan


@cache
def judged(case: str) -> RankFigures:
    """The figures of the first rank of one of CASES, each asked for once."""
    return DEEPSPEED.judge(plan(**CASES[case]), 0)


CASES: dict[str, dict[str, Any]] = {
    "replicas": {"zero": 0},
    "zero 1": {"zero": 1},
    "zero 2": {"zero": 2},
    "accumulated": {"zero": 2, "micro_batches": 3},
    "full": {"zero": 2, "recompute": "full"},
    "on the host": {"zero": 2, "parallelism": {"offload": ["optimizer"]}},
    "zero 3": {"zero": 3, "stack": {**STACK, "base": "deepspeed-zero3-transformers-2026"}},
}


def calls(figures: RankFigures) -> dict[tuple[str, str], tuple[int, int]]:
    """Count and bytes of collectives, by kind and phase."""
    return {(one.kind, one.phase): (one.count, one.bytes) for one in figures.step.collectives}


@installed
@pytest.mark.parametrize(("case", "ranks"), [("replicas", 1), ("zero 1", RANKS), ("zero 2", RANKS)])
def test_masters_and_states_are_shared_from_zero_1_on(case: str, ranks: int) -> None:
    """2 bytes a weight everywhere; 4 and 8 of each share."""
    found = judged(case).lasting_tensors
    assert judged(case).parameters == PARAMETERS
    assert found["weights"] == 2 * PARAMETERS
    assert found["master"] == 4 * PARAMETERS // ranks
    assert found["optimizer"] == 8 * PARAMETERS // ranks


@installed
def test_a_layer_saves_what_transformers_saves() -> None:
    """Norms in fp32 with their statistics, what they scale and what projections read; rotated heads; the MLP's four."""
    norms = 2 * (4 * S * D + 4 * S + 2 * S * D + 2 * S * D)
    attention = 2 * S * (2 * H + 2 * K) * E + 4 * S * H + 24  # FlashAttention's random state and offset
    assert judged("zero 2").saved == {"decoder": norms + attention + 2 * S * 4 * F}
    assert judged("full").saved == {"decoder": 2 * S * D}


@installed
@pytest.mark.parametrize("case", ["replicas", "zero 1", "zero 2"])
def test_gradients_are_reduced_to_all_ranks(case: str) -> None:
    """use_multi_rank_bucket_allreduce is on by default: twice the traffic of a reduce-scatter."""
    assert calls(judged(case))["all_reduce", "backward"][1] == 2 * PARAMETERS


@installed
def test_every_micro_batch_is_reduced_under_zero_2() -> None:
    """Shares are kept from one to the next, so whole gradients never are; weights are gathered once, in one call."""
    one, three = calls(judged("zero 2")), calls(judged("accumulated"))
    assert three["all_reduce", "backward"] == tuple(3 * amount for amount in one["all_reduce", "backward"])
    assert three["all_gather", "optimizer"] == one["all_gather", "optimizer"] == (1, 2 * PARAMETERS)


@installed
def test_zero_3_scatters_gradients() -> None:
    """reduce_scatter_coalesced; the shares have a buffer that lasts."""
    assert calls(judged("zero 3"))["reduce_scatter", "backward"][1] == 2 * PARAMETERS
    assert judged("zero 3").lasting_tensors["gradients"] == 2 * PARAMETERS // RANKS


@installed
def test_the_host_holds_masters_and_states() -> None:
    """The device has the weights, and a buffer for one gradient."""
    found = judged("on the host")
    assert (found.lasting_tensors["master"], found.lasting_tensors["optimizer"]) == (0, 0)
    held = found.step.moments["static"].requested - 2 * PARAMETERS
    assert held - 2 * max(V * D, D * F) == 4 * (E // 2) * 2  # and the frequencies of rotations


# Where a layer is as small as what its hooks hold, the order of both is not the ledger's.
IN_PASSES = ("moment", "memory.backward")


@installed
@pytest.mark.parametrize("case", [name for name in CASES if name != "zero 3"])
def test_every_figure_agrees_or_says_why(case: str) -> None:
    """Parameters, standing bytes, saved bytes, collectives, and what is held between passes and at the update."""
    found = list(verdicts(plan(**CASES[case]), DEEPSPEED, lambda _: None))
    kinds = {one.account.partition(".")[0] for one in found}
    assert kinds == {"parameters", "standing", "saved", "comm", "memory", "moment"}
    assert [one.account for one in found if not one.agrees and not one.account.startswith(IN_PASSES)] == []


@installed
def test_a_wrong_figure_stands_out() -> None:
    """One parameter more differs."""

    def wrong(asked: Plan, stage: int) -> RankFigures:
        return replace(DEEPSPEED.judge(asked, stage), parameters=1)

    found = verdicts(plan(), replace(DEEPSPEED, judge=wrong), lambda _: None)
    assert next(one for one in found if one.account == "parameters").status == "differs"


def test_a_stack_names_its_judge() -> None:
    """Both stacks of DeepSpeed do."""
    assert framework_of(plan()) is DEEPSPEED
    assert framework_of(plan(**CASES["zero 3"])) is DEEPSPEED


REFUSED = {
    "tensor": {"parallelism": {"data": 2, "tensor": 2}},
    "precision": {"precision": "bf16-true"},
    "recompute": {"recompute": {"layers": 2}},
    "optimizer": {"optimizer": "adafactor"},
    "offload": {"parallelism": {"offload": ["activations"]}},
    "kernels.attention": {"kernels": {"attention": "cudnn_grouped"}},
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_deepspeed_is_not_asked_is_told(name: str) -> None:
    """One sentence that names the input."""
    assert name in refusal(plan(**REFUSED[name]))


def test_a_plan_in_deepspeeds_words() -> None:
    """Batches, the stage, the buffer and where the optimizer is; what is not said has DeepSpeed's default."""
    said = fields(plan(micro_batches=3, parallelism={"offload": ["optimizer"]}))
    assert said["gradient_accumulation_steps"] == 3
    assert said["gradient_clipping"] == 1.0
    assert said["zero_optimization"] == {
        "stage": 2,
        "overlap_comm": False,
        "reduce_bucket_size": BUFFER,
        "offload_optimizer": {"device": "cpu"},
    }


def flat(*sizes: int, ranks: int = 2) -> FlatWeights:
    """Weights of these sizes, each in a layer of its own."""
    weights = tuple(FlatWeight(str(place), place, size) for place, size in enumerate(sizes))
    return FlatWeights(weights, tuple(reversed(range(len(sizes)))), ranks)


def test_a_stretch_is_cut_where_it_ends() -> None:
    """Two ranks of 11 elements: 6 each, one of which is padding; the first has parts of two weights."""
    found = flat(4, 5, 2)
    assert (found.share, found.rank_elements, found.largest_part, found.last_touched) == (6, 9, 4, 1)
    assert [list(found.parts(place)) for place in range(3)] == [[4], [2, 3], [2]]


def test_a_bucket_is_reduced_before_the_gradient_that_does_not_fit() -> None:
    """In the order of backward, with room for six: 2 and then 5 do not fit together; one beyond it is alone."""
    found = flat(4, 5, 2)
    assert found.buckets(found.backward, 6) == [[2], [1], [0]]
    assert found.buckets(found.backward, 7) == [[2, 1], [0]]
    assert found.buckets(found.backward, 3) == [[2], [1], [0]]
    assert found.reductions(found.backward, 6) == 3


def test_replicas_reduce_once_there_is_more_than_a_buffer() -> None:
    """What is left at the end is a call too."""
    assert list(call_sizes([4, 5, 2], 6)) == [9, 2]
    assert list(call_sizes([4, 5, 2], 20)) == [11]


def test_weights_lie_as_modules_have_them() -> None:
    """The embedding, layers with their norms last, the last norm and the head; backward reaches the head first."""
    found = flat_weights(plan())
    assert found.parameters == PARAMETERS
    assert found.sizes[0] == found.sizes[-1] == V * D
    assert found.sizes[8:10] == (D, D)
    assert found.weights[found.backward[0]].name == "output/head/logits.weight"
    assert found.weights[found.backward[-1]].name == "input/embedding/tokens.weight"
