"""Megatron-Core as the judge: what its ranks hold, save and send, against sums worked out here, and what it refuses."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

from ledger.evidence.verification import every, folder
from ledger.lab.judges.megatron.causes import chunk_passes
from ledger.lab.judges.megatron.configuration import recipe_name, refusal, transformer
from ledger.lab.judges.megatron.judge import MEGATRON, filled
from ledger.lab.judges.metered_rank import RankFigures
from ledger.lab.judges.protocol import REQUIREMENTS
from ledger.lab.judges.table import FRAMEWORKS, framework_of
from ledger.lab.observed.fresh_process import run_in_fresh_process
from ledger.lab.verification.frameworks import verdicts
from ledger.lab.verification.suites import Depth, verify
from ledger.model.schedule import PIPELINES, PipelinePosition
from ledger.spec.plan import Plan
from ledger.spec.stack import Stack
from tests.lab.small_llama import LAYER, MODEL, D, E, F, H, K, L, S, V
from tests.model import plans

installed = pytest.mark.skipif(bool(MEGATRON.missing), reason=MEGATRON.unavailable())
ROOT = Path(__file__).resolve().parents[2]

EXPERTS, ACTIVE = 4, 2


def plan(devices: int = 4, **changes: Any) -> Plan:
    """A small Llama: tensor 2 with its sequence, data 2, in bf16 with fp32 gradients."""
    layout = {"data": 2, "tensor": 2, "zero": 1, "sequence": "regather", **changes.pop("parallelism", {})}
    batches = changes.pop("micro_batches", 1)
    given: dict[str, Any] = {
        "model": MODEL,
        "precision": "bf16-fp32-gradients",
        "cluster": {"base": "h100-400g", "devices": devices, "devices_per_node": devices},
        "parallelism": layout,
        "run": {"seq_len": S, "micro_batch": 1, "global_batch": batches * layout["data"]},
        "stack": "megatron-core-2025",
        **changes,
    }
    return plans.compiled(**given).plan


@cache
def judged(case: str, stage: int = 0) -> RankFigures:
    """The figures of a rank of one of CASES, each asked for once."""
    return MEGATRON.judge(plan(**CASES[case]), stage)


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "full": {"recompute": "full"},
    "accumulated": {"micro_batches": 3},
    "pipeline": {"devices": 12, "parallelism": {"pipeline": 3}, "micro_batches": 6},
    "interleaved": {
        "devices": 8,
        "parallelism": {"pipeline": 2, "interleave": 2},
        "micro_batches": 4,
        "model": {**MODEL, "layers": [{**MODEL["layers"][0], "repeat": 4}]},
    },
    "fp8": {"precision": "fp8-delayed", "parallelism": {"tensor": 1, "sequence": "off", "data": 4}},
    "experts": {
        "model": {
            **MODEL,
            "layers": [
                {
                    **MODEL["layers"][0],
                    "mlp": {
                        "kind": "experts",
                        "d_ff": F,
                        "activation": "silu",
                        "experts": EXPERTS,
                        "top_k": ACTIVE,
                    },
                }
            ],
        },
        "parallelism": {"tensor": 1, "sequence": "off", "data": 4, "expert": 4},
        "kernels": {"weighing": "activation"},
    },
}


def calls(figures: RankFigures) -> dict[tuple[str, str, str], tuple[int, int]]:
    """Count and bytes of collectives, by kind, axis and phase."""
    return {(one.kind, one.axis, one.phase): (one.count, one.bytes) for one in figures.step.collectives}


@installed
def test_a_rank_holds_half_of_the_matrices_and_its_part_of_the_states() -> None:
    """Norms are whole on each of two tensor ranks; master weights and both moments are split over two data ranks."""
    norms = (2 * L + 1) * D
    parameters = (L * (LAYER - 2 * D) + 2 * V * D) // 2 + norms
    found = judged("plain")
    assert found.parameters == parameters
    assert found.lasting_tensors["weights"] - found.padding["weights"] == 2 * parameters
    assert found.lasting_tensors["master"] - found.padding["master"] == 4 * parameters / 2
    assert found.lasting_tensors["optimizer"] == 2 * found.lasting_tensors["master"]


@installed
def test_a_layer_saves_what_its_modules_read() -> None:
    """Both norms' input, result and statistics of half the rows; queries, keys, values and SwiGLU of half the width.

    transformer_engine/pytorch/module/layernorm_linear.py and linear.py (what is saved for backward), cuDNN's attention
    with its statistics and 16 bytes of random state, megatron/core/fusions/fused_bias_swiglu.py.
    """
    rows = S // 2
    norms = 2 * (2 * 2 * rows * D + 4 * rows)
    attention = 2 * S * (2 * H + 2 * K) * E // 2 + 4 * S * H // 2 + 16
    assert judged("plain").saved == {"decoder": norms + attention + 2 * S * 3 * F // 2}


@installed
def test_a_layer_that_is_rebuilt_saves_its_input() -> None:
    """CheckpointFunction keeps what the layer was given: this rank's rows of the stream."""
    assert judged("full").saved == {"decoder": 2 * (S // 2) * D}


@installed
def test_tensor_parallelism_gathers_and_scatters_twice_a_layer() -> None:
    """Forward gathers for both parts of a layer and the head, backward for these again and once for each gradient."""
    sent, stream = calls(judged("plain")), 2 * S * D
    loss = 12 * S * 2  # three fp32 numbers a token from each of two ranks (transformer_engine/pytorch/cross_entropy.py)
    assert sent["all_gather", "tensor", "forward"] == (2 * L + 2, (2 * L + 1) * stream + loss)
    assert sent["reduce_scatter", "tensor", "forward"] == (2 * L + 1, (2 * L + 1) * stream)
    assert sent["all_gather", "tensor", "backward"][0] == 2 * (2 * L + 1)
    assert sent["reduce_scatter", "tensor", "backward"] == (2 * L + 1, (2 * L + 1) * stream)


@installed
def test_gradients_are_reduced_once_a_step() -> None:
    """Three micro-batches reduce no more than one, in the gradients' own dtype; updated weights come back once."""
    plain, more = judged("plain"), judged("accumulated")
    for key in (("reduce_scatter", "data", "backward"), ("all_gather", "data", "optimizer")):
        assert calls(plain)[key] == calls(more)[key]
    assert calls(plain)["reduce_scatter", "data", "backward"][1] == 4 * plain.parameters + plain.padding["gradients"]
    assert calls(plain)["all_gather", "data", "optimizer"][1] == 2 * plain.parameters + plain.padding["weights"]


@installed
def test_a_stage_sends_every_micro_batch_both_ways() -> None:
    """The middle one of three stages sends six results on and six gradients back, its rows of the stream each."""
    sent, rows = calls(judged("pipeline", stage=1)), 2 * (S // 2) * D
    assert sent["send", "pipeline", "forward"] == sent["send", "pipeline", "backward"] == (6, 6 * rows)
    assert judged("pipeline", stage=1).parameters == (LAYER - 2 * D) // 2 + 2 * D


@installed
def test_a_stage_holds_as_many_micro_batches_as_stages_follow() -> None:
    """1F1B (Narayanan et al. 2021, figure 4): three in flight on the first of three stages, one on the last."""
    first, last = (judged("pipeline", stage).step.moments for stage in (0, 2))
    held = first["forward/decoder"].requested - first["static"].requested
    saved = judged("pipeline").saved["decoder"]
    assert 3 * saved < held < 5 * saved
    assert last["backward/decoder"].requested - last["static"].requested < 3 * saved


@installed
def test_chunks_of_a_stage_send_each() -> None:
    """Two chunks of two stages, four micro-batches: the first one sends both chunks' results, one chunk's gradients."""
    sent = calls(judged("interleaved"))
    assert sent["send", "pipeline", "forward"][0] == 2 * 4
    assert sent["send", "pipeline", "backward"][0] == 4


@installed
def test_narrow_matmuls_save_narrow_inputs() -> None:
    """Delayed scaling: the norms' results and the inputs of both output projections are one byte a value, not two."""
    bf16 = 2 * (2 * 2 * S * D + 4 * S) + 2 * S * (2 * H + 2 * K) * E + 4 * S * H + 16 + 2 * S * 3 * F
    narrowed = 2 * S * D + S * F  # of the two norms and of SwiGLU; attention keeps its own result as well
    copied = S * H * E
    scales = 4 * 4
    assert judged("fp8").saved == {"decoder": bf16 - narrowed + copied + scales}


@installed
def test_experts_are_split_and_rows_go_to_them() -> None:
    """Each of four ranks has one of four experts; rows and their scores go there and back, in both passes."""
    found = judged("experts")
    dense = L * (LAYER - 3 * D * F + EXPERTS * D) + 2 * V * D + D
    assert found.parameters == dense + L * 3 * D * F
    sent = calls(found)
    assert sent["all_to_all", "expert", "forward"][0] == sent["all_to_all", "expert", "backward"][0] == 3 * L
    assert sent["all_to_all", "expert", "forward"][1] >= L * 2 * (2 * ACTIVE * S * D)


RANKS, PLACE = 64, 37


def members(*, alone: bool) -> dict[str, list[int]]:
    """The ranks of each group of one rank, in this process; `alone`: made as the judge makes them."""
    from ledger.lab.judges.fakes import fake_group
    from ledger.lab.judges.imaginary_cuda import ImaginaryDevice, imaginary_cuda
    from ledger.lab.judges.megatron.kernels import install

    with imaginary_cuda(ImaginaryDevice()), fake_group(RANKS, PLACE):
        install()
        from megatron.core import parallel_state
        from torch import distributed

        from ledger.lab.judges.megatron import step

        with step.own_groups_alone() if alone else nullcontext():
            parallel_state.initialize_model_parallel(
                2, 4, context_parallel_size=2, expert_model_parallel_size=2, create_gloo_process_groups=False
            )
        found = {f"{name} {options}": getattr(parallel_state, name)(**options) for name, _, options in step.GROUPS}
        return {name: distributed.get_process_group_ranks(group) for name, group in found.items()}


@installed
def test_groups_of_other_ranks_are_not_made_and_its_own_are_the_same() -> None:
    """Tensor 2, pipeline 4, context 2, data 4 of 64 ranks: this rank's groups are those of Megatron-Core's own way."""
    own, plain = (run_in_fresh_process(members, alone=alone) for alone in (True, False))
    assert own == plain
    assert all(PLACE in group for group in own.values())
    assert own["get_pipeline_model_parallel_group {}"] == [5, 21, 37, 53]


@installed
def test_every_figure_is_compared_and_a_wrong_one_stands_out() -> None:
    """Parameters, standing bytes, saved bytes, collectives and moments are there; one parameter more differs."""
    right = list(verdicts(plan(), MEGATRON, lambda _: None))
    kinds = {one.account.partition(".")[0] for one in right}
    assert kinds == {"parameters", "standing", "saved", "comm", "memory", "moment"}
    held = {one.status for one in right if one.account.startswith(("parameters", "standing", "saved"))}
    assert held <= {"equal", "explained"}  # buffers are padded

    def wrong(asked: Plan, stage: int) -> RankFigures:
        return replace(MEGATRON.judge(asked, stage), parameters=1)

    found = verdicts(plan(), replace(MEGATRON, judge=wrong), lambda _: None)
    assert next(one for one in found if one.account == "parameters").status == "differs"


@installed
def test_a_verification_says_which_versions_judged() -> None:
    """The origin has every package of the framework, and the sentence names them."""
    found = verify(plan(), Depth(), "ledger verify small", lambda _: None)
    packages = ("megatron-core", "transformer-engine")
    assert found.origin.framework == ", ".join(f"{name} {version(name)}" for name in packages)
    assert found.origin.framework in found.sentence


def test_a_record_is_of_the_pinned_judge() -> None:
    """A judge whose version changed is seen: records are written anew, or say what they were judged by."""
    pinned = (line.split()[0] for line in (ROOT / REQUIREMENTS).read_text().splitlines() if "==" in line)
    pins = dict(entry.split("==") for entry in pinned)
    for record in every(folder()):
        for package in filter(None, record.origin.framework.split(", ")):
            name, _, found = package.partition(" ")
            assert pins[name] == found, record.name


def test_a_missing_framework_is_told_with_what_installs_it() -> None:
    """No figure is checked, so the plan does not agree; the reason says what to type."""
    absent = replace(MEGATRON, packages=("no-such-framework",))
    (verdict,) = verdicts(plan(), absent, lambda _: None)
    assert verdict.skipped == (
        "no judge: no-such-framework not installed: `pip install --no-deps -r requirements/judges.txt`"
    )


def test_a_stack_names_its_judge() -> None:
    """What judges is said in the stack's file, and is one of the frameworks there are, or PyTorch."""
    (choice,) = (rule for rule in Stack.__annotations__.items() if rule[0] == "judge")
    assert all(name in str(choice) for name in FRAMEWORKS)
    assert framework_of(plan()) is MEGATRON
    assert framework_of(plans.compiled(stack="pytorch-fsdp2-2025").plan) is None


REFUSED = {
    "zero": {"parallelism": {"zero": 3}},
    "save_gathered": {"parallelism": {"sequence": "save_gathered"}},
    "kernels.attention": {"kernels": {"attention": "flash"}},
    "precision": {"precision": "bf16-true"},
    "recompute": {"recompute": {"every": 2}},
    "window": {"model": plans.layer(MODEL, attention={"window": 19})},
    "optimizer": {"optimizer": "adafactor"},
    "schedule": {"devices": 12, "parallelism": {"pipeline": 3, "schedule": "gpipe"}, "micro_batches": 6},
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_megatron_does_not_run_is_told(name: str) -> None:
    """One sentence that names the input."""
    assert name in refusal(plan(**REFUSED[name]))


@pytest.mark.parametrize(
    ("precision", "recipe"),
    [("fp8-delayed", "delayed"), ("fp8-current", "tensorwise"), ("fp8-block", "blockwise"), ("mxfp8", "mxfp8")],
)
def test_recipes_have_transformer_engines_names(precision: str, recipe: str) -> None:
    """A recipe is known by what shares a scale, not by its name."""
    text = yaml.safe_load((ROOT / "specs" / "precisions" / f"{precision}.yaml").read_text())
    accelerator = {"accelerator": "b200"} if precision == "mxfp8" else {}
    alone = {"parallelism": {"tensor": 1, "sequence": "off", "data": 4}}
    found = plan(precision=precision, **alone, **accelerator)
    assert found.precision.matmul is not None
    assert recipe_name(found.precision.matmul) == recipe
    assert transformer(found)["fp8"] == ("hybrid" if text["matmul"].get("gradient") == "fp8_e5m2" else "e4m3")


def test_a_bucket_is_full_once_it_holds_enough() -> None:
    """Parameters come as backward has their gradients; what is left at the end is a bucket too."""
    assert filled([50, 10, 20, 15, 3], least=40) == 3
    assert filled([50, 10, 20, 15], least=40) == 2
    assert filled([], least=40) == 0


@pytest.mark.parametrize(("stages", "chunks", "count"), [(2, 4, 8), (4, 2, 8), (4, 3, 4), (4, 5, 8)])
def test_the_replayed_schedule_has_as_many_in_flight_as_the_ledger(stages: int, chunks: int, count: int) -> None:
    """What Megatron-Core's lists hold is counted in passes that the rule of the interleaved schedule knows."""
    for place in range(stages):
        fullest = max(visit.flying for visit in chunk_passes(place, stages, chunks, count))
        assert fullest == sum(PIPELINES["interleaved"].in_flight(PipelinePosition(place, stages, chunks, count)))
