"""torchtitan as the judge: what its ranks hold, save and send, against sums worked out here, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib.metadata import version
from typing import Any

import pytest

from ledger.lab.judges.metered_rank import RankFigures
from ledger.lab.judges.table import framework_of
from ledger.lab.judges.torchtitan.configuration import parallelism, refusal, training
from ledger.lab.judges.torchtitan.judge import TORCHTITAN
from ledger.lab.verification.frameworks import verdicts
from ledger.lab.verification.suites import Depth, verify
from ledger.spec.plan import Plan
from tests.lab.small_llama import LAYER, MODEL, D, E, F, H, K, L, S, V
from tests.model import plans

installed = pytest.mark.skipif(bool(TORCHTITAN.missing), reason=TORCHTITAN.unavailable())

ENDS = 2 * V * D + D
FULL = {"recompute": "full"}
SPLIT = {"parallelism": {"data": 2, "tensor": 2, "sequence": "save_gathered"}}


def plan(devices: int = 4, **changes: Any) -> Plan:
    """A small Llama over four ranks of FSDP2, in bf16 with fp32 weights."""
    asked = {"data": 4, "zero": 3, **changes.pop("parallelism", {})}
    units = {"reshard": "layers", "reduce": "micro_batch"} if asked["zero"] == 3 else {}
    layout = {**units, **asked}
    batches = changes.pop("micro_batches", 1)
    given: dict[str, Any] = {
        "model": MODEL,
        "precision": "bf16-autocast",
        "cluster": {"base": "h100-400g", "devices": devices, "devices_per_node": devices},
        "parallelism": layout,
        "run": {"seq_len": S, "micro_batch": 1, "global_batch": batches * layout["data"]},
        "stack": "torchtitan-2026",
        **changes,
    }
    return plans.compiled(**given).plan


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "full": FULL,
    "accumulated": {"micro_batches": 3},
    "replicas": {"parallelism": {"replicate": 2}},
    "split": SPLIT,
    "split and rebuilt": {**SPLIT, **FULL},
}


@cache
def judged(case: str) -> RankFigures:
    """The figures of a rank of one of CASES, each asked for once."""
    return TORCHTITAN.judge(plan(**CASES[case]), 0)


def calls(figures: RankFigures) -> dict[tuple[str, str, str], tuple[int, int]]:
    """Count and bytes of collectives, by kind, axis and phase."""
    return {(one.kind, one.axis, one.phase): (one.count, one.bytes) for one in figures.step.collectives}


@installed
def test_a_rank_holds_a_quarter_of_the_rows() -> None:
    """Every weight has a number of rows that four divides; both moments are fp32, gradients are gone."""
    found = judged("plain")
    assert found.parameters == (L * LAYER + ENDS) // 4
    assert found.lasting_tensors == {
        "weights": 4 * found.parameters,
        "gradients": 0,
        "master": 0,
        "optimizer": 8 * found.parameters,
    }


@installed
def test_a_layer_saves_what_its_modules_read() -> None:
    """Norms' input, result and statistics; attention's four tensors, sums and state; rotations; four of SwiGLU."""
    norms = 2 * (2 * 2 * S * D + 4 * S)
    attention = 2 * S * (2 * H + 2 * K) * E + 4 * S * H + 16
    assert judged("plain").saved == {"decoder": norms + attention + 4 * S * E + 4 * 2 * S * F}


@installed
def test_a_rebuilt_layer_saves_its_input() -> None:
    """FullAC keeps one stream of tokens in bf16."""
    assert judged("full").saved == {"decoder": 2 * S * D}


@installed
def test_a_split_layer_saves_what_it_gathered() -> None:
    """Two ranks: streams and statistics by half, norms' results whole, what heads and hidden units give by half."""
    norms = 2 * (2 * (S // 2) * D + 4 * (S // 2) + 2 * S * D)
    attention = 2 * S * (H + K) * E + 4 * S * H // 2 + 16
    assert judged("split").saved == {"decoder": norms + attention + 4 * S * E + 4 * 2 * S * F // 2}


@installed
def test_weights_are_gathered_for_each_pass_and_gradients_reduced_in_fp32() -> None:
    """Units: the embedding, each layer, and the last norm with the head, which backward finds gathered."""
    sent, everything = calls(judged("plain")), L * LAYER + ENDS
    assert sent["all_gather", "data", "forward"] == (L + 2, 2 * everything)
    assert sent["all_gather", "data", "backward"] == (L + 1, 2 * (L * LAYER + V * D))
    assert sent["reduce_scatter", "data", "backward"] == (L + 2, 4 * everything)


@installed
def test_every_micro_batch_reduces_its_gradients() -> None:
    """torchtitan's loop never puts a reduction off."""
    plain, more = calls(judged("plain")), calls(judged("accumulated"))
    assert {key: (3 * count, 3 * size) for key, (count, size) in plain.items()} == more


@installed
def test_replicas_sum_their_shards() -> None:
    """Of 2 x 2 ranks, each sums its half of the gradients with the other that has it."""
    sent = calls(judged("replicas"))
    assert sent["all_reduce", "replicate", "backward"] == (L + 2, 4 * (L * LAYER + ENDS) // 2)


@installed
def test_a_split_sequence_is_gathered_and_scattered_twice_a_layer() -> None:
    """Once more before the head, and after the embedding; the loss sums three numbers of each token."""
    sent, stream = calls(judged("split")), 2 * S * D
    assert sent["all_gather", "tensor", "forward"] == (2 * L + 1, (2 * L + 1) * stream)
    assert sent["reduce_scatter", "tensor", "forward"] == (2 * L + 1, (2 * L + 1) * stream)
    assert sent["all_reduce", "tensor", "forward"] == (3, 3 * 4 * S)


@installed
def test_a_rebuilt_layer_runs_to_its_end() -> None:
    """`early_stop=False`: the last scatter of each layer runs again as well, and nobody reads its result."""
    plain, rebuilt = calls(judged("split")), calls(judged("split and rebuilt"))
    for kind in ("all_gather", "reduce_scatter"):
        assert rebuilt[kind, "tensor", "backward"][0] - plain[kind, "tensor", "backward"][0] == 2 * L


@installed
@pytest.mark.parametrize("case", CASES)
def test_the_ledger_agrees(case: str) -> None:
    """Parameters, standing and saved bytes and collectives are equal; a moment that is not has a named cause."""
    found = list(verdicts(plan(**CASES[case]), TORCHTITAN, lambda _: None))
    for one in found:
        if one.account.startswith(("parameters", "standing", "saved", "comm")):
            assert one.status == "equal", one
    assert {one.account.partition(".")[0] for one in found} == {
        *("parameters", "standing", "saved", "comm", "memory", "moment")
    }


@installed
def test_a_wrong_figure_stands_out() -> None:
    """One parameter more differs."""

    def wrong(asked: Plan, stage: int) -> RankFigures:
        return replace(TORCHTITAN.judge(asked, stage), parameters=1)

    found = verdicts(plan(), replace(TORCHTITAN, judge=wrong), lambda _: None)
    assert next(one for one in found if one.account == "parameters").status == "differs"


@installed
def test_a_verification_says_which_version_judged_and_what_was_asked() -> None:
    """The origin has the package, and the notes have what torchtitan was told beside the plan."""
    found = verify(plan(), Depth(), "ledger verify small", lambda _: None)
    assert found.origin.framework == f"torchtitan {version('torchtitan')}"
    assert any("spmd_backend" in note for note in found.judged_as)


def test_the_stack_names_its_judge() -> None:
    """Plans of this stack go to torchtitan."""
    assert framework_of(plan()) is TORCHTITAN


def test_a_plan_is_said_in_torchtitans_words() -> None:
    """Degrees and sizes go to its fields."""
    found = plan(parallelism={"replicate": 2, "reshard": "none"})
    fields = parallelism(found)
    assert (fields["data_parallel_replicate_degree"], fields["data_parallel_shard_degree"]) == (2, 2)
    assert fields["fsdp_reshard_after_forward"] == "never"
    assert training(found)["mixed_precision_param"] == "bfloat16"


REFUSED: dict[str, dict[str, Any]] = {
    "zero": {"parallelism": {"zero": 1}},
    "reduce": {"parallelism": {"reduce": "step"}, "micro_batches": 2},
    "regather": {"parallelism": {"data": 2, "tensor": 2, "sequence": "regather"}},
    "context": {"parallelism": {"data": 2, "context": 2}},
    "pipeline": {
        "parallelism": {"data": 2, "pipeline": 2},
        "model": {**MODEL, "layers": [{**MODEL["layers"][0], "repeat": 4}]},
    },
    "kernels.loss": {"kernels": {"loss": "chunked"}},
    "kernels.attention": {"kernels": {"attention": "math"}},
    "stack.ends": {"stack": {"base": "torchtitan-2026", "ends": "root"}},
    "recompute": {"recompute": {"every": 2}},
    "window": {"model": plans.layer(MODEL, attention={"window": 19})},
    "qkv_bias": {"model": plans.layer(MODEL, attention={"qkv_bias": True})},
    "optimizer": {"optimizer": "adafactor"},
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_torchtitan_does_not_run_is_told(name: str) -> None:
    """One sentence that names the input."""
    assert name in refusal(plan(**REFUSED[name]))
