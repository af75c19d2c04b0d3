"""Every claim of the course notes against the lecture's specs, as the compiler answers them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from ledger.books.compiler import compile_plan
from ledger.course.answer import answers
from ledger.course.asks import InferenceAsk
from ledger.course.lecture import Answer, load_lecture
from ledger.course.subjects import inference
from ledger.spec.load import load_plan

LECTURE = Path(__file__).resolve().parents[2] / "specs" / "lecture" / "lecture.yaml"
H100_PEAK, H100_BANDWIDTH = 989.5e12, 3.35e12  # NVIDIA H100 data sheet, SXM, dense
DAY = 86400

PLACES = 32 * 56 * 56  # of 32 images


def resnet_50_products() -> int:
    """Products of one image in ResNet-50 (He et al. 2016, table 1, strides in 3 x 3), by filters and places."""
    found, channels = 112**2 * 64 * 3 * 7**2 + 2048 * 1000, 64
    for width, side, blocks in ((64, 56, 3), (128, 28, 4), (256, 14, 6), (512, 7, 3)):
        before = side if width == 64 else 2 * side
        found += before**2 * channels * width + side**2 * (9 * width**2 + 4 * width**2 + 4 * width * channels)
        found += (blocks - 1) * side**2 * (4 * width * width + 9 * width**2 + 4 * width**2)
        channels = 4 * width
    return found


# What the notes of Stanford CS336, lecture 2, claim, where they are right; derived anew where they are not.
NUMBERS: Mapping[str, Mapping[str, float]] = {
    "run.flops": {"flops": 6 * 70e9 * 15e12},
    "run.days": {"days": 6 * 70e9 * 15e12 / (1024 * H100_PEAK * 0.5) / DAY},
    "run.flops_day": {"flops_per_day": 1024 * H100_PEAK * 0.5 * DAY},
    "run.70b_state": {"total": 16 * 70e9},
    "run.sparse_peak": {"peak": H100_PEAK, "sparse": 1979e12},
    "fit.12": {"parameters": 8 * 80e9 / (2 + 2 + 4 + 4)},
    "fit.16": {"parameters": 8 * 80e9 / (4 + 4 + 4 + 4)},
    "fit.16_mixed": {"parameters": 8 * 80e9 / (2 + 2 + 4 + 4 + 4)},
    "state.fp32_adam": {"total": 16, "weights": 4, "gradients": 4, "first_moment": 4, "second_moment": 4},
    "state.bf16_adam": {"total": 12, "weights": 2, "gradients": 2, "first_moment": 4, "second_moment": 4},
    "state.mixed_adam": {
        "total": 16,
        "master": 4,
        "weights": 2,
        "gradients": 2,
        "first_moment": 4,
        "second_moment": 4,
    },
    "state.fp8_adam": {"total": 14, "master": 4, "weights": 1, "gradients": 1, "first_moment": 4, "second_moment": 4},
    "state.all_fp16_adam": {"total": 8, "weights": 2, "gradients": 2, "first_moment": 2, "second_moment": 2},
    "optimizer.sgd": {"per_parameter": 0},
    "optimizer.momentum": {"per_parameter": 4},
    "optimizer.adagrad": {"per_parameter": 4},
    "optimizer.rmsprop": {"per_parameter": 4},
    "optimizer.adam": {"per_parameter": 8},
    "optimizer.lion": {"per_parameter": 4},
    "optimizer.adafactor": {"matrix": 4 * (12288 + 49152)},
    "7b.simple": {"total": 56e9, "weights": 14e9, "gradients": 14e9, "optimizer": 28e9},
    "7b.precise": {"total": 112e9, "master": 28e9, "weights": 14e9, "gradients": 14e9, "optimizer": 56e9},
    "7b.fp8": {"total": 98e9},
    "7b.one_activation_per_layer": {"bytes": 32 * 2048 * 4096 * 2 * 32},
    "7b.offload": {"freed": 56e9, "out_and_back": 2 * 56e9, "visiting": 56e9 / 63e9},
    "ex.gpt3_ffn_fp32": {"bytes": 12288 * 49152 * 4, "gibibytes": 2.25},
    "ex.gpt3_ffn_bf16": {"bytes": 12288 * 49152 * 2},
    "ex.tensor_4x8_fp32": {"bytes": 128},
    "ex.tensor_1024x1024_fp32": {"bytes": 4194304},
    "ex.two_32x32_fp32": {"bytes": 2 * 32 * 32 * 4},
    "ex.70b_bf16_weights": {"bytes": 140e9},
    "ex.70b_adam": {"optimizer": 560e9},
    "ex.10b_fp16": {"bytes": 20e9, "missing": 4e9, "fits": 0},
    "fl.matmul": {"forward": 2 * 2 * 3 * 2, "exact": 2 * 2 * (2 * 3 - 1)},
    "fl.linear": {"forward": 2 * 7 * 11 * 13, "backward": 4 * 7 * 11 * 13},
    "fl.two_layer": {
        "forward": 2 * 7 * 11 * 11 + 2 * 7 * 11 * 13,
        "backward": 4 * 7 * 11 * 13 + 4 * 7 * 11 * 11,
        "backward_of_data": 4 * 7 * 11 * 13 + 2 * 7 * 11 * 11,
    },
    "fl.step": {"rule": 6 * 70553706496 * 15e12},
    "fl.matmul_16_32_2": {"forward": 2048},
    "fl.softmax": {"forward": 3 * 1024**2},
    "fl.softmax_stable": {"forward": 4 * 4096**2 + 4096},
    "fl.softmax_4096": {"forward": 3 * 4096**2},
    "fl.gpt2_small": {
        "matrices_of_a_layer": 24 * 768**2,
        "attention_of_a_layer": 2 * 768 * (1024 + 1),
        "output_head": 2 * 768 * 50257,
        "parameters": 124439808,
    },
    "fl.gpt3_training": {"flops": 3.15e23},
    "ai.h100": {"ridge": H100_PEAK / H100_BANDWIDTH},
    "ai.relu": {"intensity": 1 / (2 + 2)},
    "ai.matvec": {"intensity": 2 * 4096**2 / (2 * 4096**2 + 4 * 4096)},
    "ai.matmul": {"intensity": 4096 / 3},
    "ai.also": {"kv_cache": 2 * 32 * 8 * 128 * 2 * 8192},
    "dt.fp32": {"bytes": 4},
    "dt.fp16": {"bytes": 2},
    "dt.bf16": {"bytes": 2},
    "dt.fp8_e4m3": {"bytes": 1},
    "dt.fp8_e5m2": {"bytes": 1},
    "dt.nvfp4": {"bytes": 1 / 2 + 1 / 16},
    "inf.kv_cache": {"kv_cache": 2 * 32 * 8 * 128 * 2 * 8192},
    "inf.gpt2_theory": {"a_token": 2 * 124439808, "tokens_per_second": 10e12 / (2 * 124439808)},
    "tensor.create": {"bytes": 4096, "flops": 0},
    "tensor.offset": {"offset": 2 * 8 + 3, "address": 4 * (2 * 8 + 3)},
    "tensor.views": {"new_bytes": 8 * 4 + 8 * 4 + 8 * 4 + 8 * 2, "flops": 0},
    "dtype.tokens": {"bytes": 32 * 2048 * 8},
    "dt.int64": {"bytes": 8, "largest": 2**63 - 1, "smallest": -(2**63)},
    "dt.fp64": {"bytes": 8},
    "dt.tf32": {"bytes": 4},
    "dt.nf4": {"bytes": 1 / 2 + 4 / 64},
    "dt.nf4_double": {"bytes": 1 / 2 + 1 / 64 + 4 / (64 * 256)},
    "dt.e5m6": {"bytes": 12 / 8},
    "dt.e8m0": {"bytes": 1, "largest": 2.0**127, "smallest": 2.0**-127},
    "dt.int32": {"bytes": 4, "largest": 2**31 - 1, "smallest": -(2**31)},
    "dt.bool": {"bytes": 1},
    "dt.int8": {"bytes": 1, "largest": 127, "smallest": -128},
    "einops.attention": {"exact": 174456000},
    "einops.order": {"forward": 2 * 2048 * 16 * (4096 + 4096)},
    "q.resnet": {"ResNet-50.parameters": 25557032, "ResNet-50.work": 2 * resnet_50_products()},
    "ai.convolution": {"intensity": 2 * 9 * 64**2 * PLACES / (2 * (2 * 64 * PLACES + 9 * 64**2))},
    "q.gpt3_bill": {"cost": 6 * 175e9 * 300e9 / 28e12 / 3600 * 1.5, "utilisation": 28 / 125},
}
# Claims in prose, each with a test of its own below.
PROSE = (
    "fit.real",
    "7b.plans",
    "7b.checkpointing",
    "dt.policy",
    "life.moments",
    "tr.accumulation",
    "tr.checkpoint_none",
    "tr.checkpoint_sqrt",
    "tr.checkpoint_rule",
    "tr.checkpoint_all",
    "tr.zero1",
    "tr.zero2",
    "tr.zero3",
    "tr.tp_is_not_zero",
    "tr.offload",
    "tr.model_checkpoint",
    "check.list",
    "inf.decode",
    "inf.throughput_latency",
    "usd.budget",
    "inf.gpt2_measured",
    "q.ten_b_16gb",
    "q.sequence",
    "q.budget_split",
    "q.bf16_speed",
    "q.utilisation",
    "q.deployment",
    "q.forecast",
)


@pytest.fixture(scope="module")
def answered() -> dict[str, Answer]:
    """Every question of the lecture, answered once."""
    return {answer.question.name: answer for answer in answers(load_lecture(LECTURE))}


def value(answer: Answer, name: str) -> float:
    """A figure as a number."""
    figure = answer.figure(name)
    assert figure is not None, f"{answer.question.name} has no {name}"
    return float(figure.value)


# --- every claim --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NUMBERS)
def test_the_compiler_answers_what_was_claimed(answered: dict[str, Answer], name: str) -> None:
    """Each number of the notes that is right, and the right one where they print another."""
    for figure, expected in NUMBERS[name].items():
        assert value(answered[name], figure) == pytest.approx(expected, rel=1e-9), figure


@pytest.mark.parametrize("name", [*NUMBERS, *PROSE])
def test_expectations_of_the_spec_hold(answered: dict[str, Answer], name: str) -> None:
    """What the spec says of its own answer comes out, within the rounding that it prints."""
    missed = [(o.expected.figure, o.expected.text, o.value) for o in answered[name].outcomes if not o.holds]
    assert not missed


def test_no_question_is_left_unchecked(answered: dict[str, Answer]) -> None:
    """Whatever is not a claim of the notes states an expectation, or an explanation, of its own."""
    for name in set(answered) - set(NUMBERS) - set(PROSE):
        assert answered[name].holds
        assert answered[name].outcomes or answered[name].question.why, name


def test_names_are_unique() -> None:
    """A question can be cited by its name."""
    names = [question.name for chapter in load_lecture(LECTURE).chapters for question in chapter.questions]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", ["run.days", "run.flops_day", "run.sparse_peak", "7b.one_activation_per_layer"])
def test_what_the_notes_print_is_told_apart(answered: dict[str, Answer], name: str) -> None:
    """Where the notes print something else, the question holds what, and says how it comes."""
    assert answered[name].question.printed
    assert len(answered[name].question.why) > 40


# --- number formats -----------------------------------------------------------------------------


def test_risky_policies_are_warned_of(answered: dict[str, Answer]) -> None:
    """Pure fp16 and fp8 gradients are named by range, pure bf16 by the updates it loses; bf16 beside fp32 is not."""
    found = {figure.name: figure.value for figure in answered["dt.policy"].found.figures}
    assert {"fp16_pure/precision.gradients", "fp8_mixed/precision.gradients"} <= set(found)
    assert {"pure_bf16/precision.updates", "pure_bf16/precision.averages"} <= set(found)
    assert set(found.values()) == {"warn"}
    assert not [name for name in found if name.startswith("bf16")]


# --- memory -------------------------------------------------------------------------------------


def test_the_real_bound_lies_below_the_naive_one(answered: dict[str, Answer]) -> None:
    """The deepest model that fits does fit, one layer more does not, and state alone promises more than either."""
    answer = answered["fit.real"]
    layers = int(value(answer, "layers"))
    plan = LECTURE.parent / "plans" / "70b-on-8.yaml"
    (group,) = load_plan(plan).model.groups
    for count in (layers, layers + 1):
        model = replace(load_plan(plan).model, groups=(replace(group, repeat=count),))
        assert compile_plan(replace(load_plan(plan), model=model, expect=())).verdict.fits == (count == layers)
    assert value(answer, "as_deep_as_fits.naive") == 8 * 80e9 / 16
    assert value(answer, "real") < value(answer, "as_deep_as_fits.naive")


def test_planning_levels_are_peaks_and_what_stays_free(answered: dict[str, Answer]) -> None:
    """Two levels checkpoint and two do not; within a pair only the bytes kept free differ."""
    answer = answered["7b.plans"]
    levels = {name: value(answer, f"{name}.whole") for name in ("minimum", "production", "typical", "cloud")}
    assert levels["production"] - levels["minimum"] == 20e9
    assert levels["cloud"] - levels["typical"] == 40e9 - 10e9
    state = 16 * 6738415616  # Llama 2 7B
    assert state < levels["minimum"] < 1.3 * state
    assert levels["typical"] > 3 * levels["minimum"]


def test_checkpoints_save_activations_and_repeat_part_of_a_forward_pass(answered: dict[str, Answer]) -> None:
    """Every layer recomputed keeps one stream a layer; all but its last product is repeated, and never the head."""
    answer = answered["7b.checkpointing"]
    tokens, width, layers, hidden, vocab = 32 * 2048, 4096, 32, 11008, 32000
    streams = (layers + 2) * tokens * width * 2  # and what the last norm reads and gives to the head
    assert value(answer, "full.activations") == pytest.approx(streams, rel=1e-3)
    assert value(answer, "every_second.activations.ratio") == pytest.approx(0.5, abs=0.03)
    layer = 4 * width * width + 3 * width * hidden
    scores = 2 * width * (2048 + 1)  # a causal query sees (S + 1)/2 keys, twice, at 2 FLOP
    forward = layers * (2 * layer + scores) + 2 * width * vocab
    flash_again = layers * scores / 2
    repeated = layers * (2 * (layer - width * hidden) + scores)
    ratio = 1 + repeated / (3 * forward + flash_again)
    assert value(answer, "full.compute.ratio") == pytest.approx(ratio, rel=1e-9)
    assert value(answer, "keep_matmuls.compute.ratio") == 1


def test_the_peak_is_a_maximum_and_not_a_sum(answered: dict[str, Answer]) -> None:
    """No moment holds what each part reaches at some moment; gradients begin and activations end with backward."""
    answer = answered["life.moments"]
    assert answer.found.grid is not None
    totals = [row[-1] for row in answer.found.grid.rows]
    assert value(answer, "peak") == max(totals)
    assert value(answer, "peak") < value(answer, "sum_of_maxima")
    assert all(sum(row[1:-1]) == row[-1] for row in answer.found.grid.rows)


# --- trades -------------------------------------------------------------------------------------


def test_accumulation_divides_activations_and_keeps_flops(answered: dict[str, Answer]) -> None:
    """A quarter of the micro-batch keeps a quarter of the activations, and gathers four times as often.

    Not to the byte: with fewer activations the fullest moment is where more gradients are, two of 32 layers on.
    """
    answer = answered["tr.accumulation"]
    ratio = value(answer, "four_micro_batches.activations.ratio")
    assert 0.25 * 30 / 32 <= ratio <= 0.25 * 1.001  # tables of positions do not shrink
    assert value(answer, "four_micro_batches.compute.ratio") == 1
    assert value(answer, "four_micro_batches.gathers.ratio") == 4


def test_the_best_segment_is_whole_and_the_best_of_all(answered: dict[str, Answer]) -> None:
    """Of every whole length of segments none has a lower peak; its passes are what it repeats over a forward pass."""
    answer = answered["tr.checkpoint_sqrt"]
    best = answer.figure("best")
    assert best is not None
    assert isinstance(best.value, int)
    plan = str(LECTURE.parent / "plans" / "7b-in-one-place.yaml")
    tried = {
        k: compile_plan(load_plan(plan, [f"recompute={{segment: {k}}}"])).totals for k in (1, 2, 3, 4, 6, 8, 16, 32)
    }
    assert best.value == min(tried, key=lambda k: tried[k]["memory.peak"])
    assert value(answer, "best.peak") == tried[best.value]["memory.peak"]
    without = compile_plan(load_plan(plan)).totals
    again = tried[best.value]["flops.recompute"] - without["flops.recompute"]
    assert value(answer, "forwards") == pytest.approx(1 + again / without["flops.forward"])
    assert 1.7 < value(answer, "forwards") < 2
    rule = answered["tr.checkpoint_rule"]
    stream, layer = 2 * 32 * 2048 * 4096, without["saved.per_layer.decoder"]
    assert value(rule, "segment") == pytest.approx(math.sqrt(32 * stream / layer))
    kept = min(32 / k * stream + k * layer for k in (share / 100 for share in range(50, 400)))
    assert value(rule, "least") == pytest.approx(kept, rel=1e-4)
    assert value(answered["tr.checkpoint_none"], "none") == 32 * without["saved.per_layer.decoder"]
    assert value(answered["tr.checkpoint_all"], "forwards") == sum(range(1, 33)) / 32


@pytest.mark.parametrize(
    ("name", "sharded"),
    [
        ("tr.zero1", {"optimizer", "master"}),
        ("tr.zero2", {"optimizer", "master", "gradients"}),
        ("tr.zero3", {"optimizer", "master", "gradients", "weights"}),
    ],
)
def test_each_stage_of_zero_shards_what_its_name_says(
    answered: dict[str, Answer], name: str, sharded: set[str]
) -> None:
    """An eighth of what is sharded is left on each of eight devices, and all of the rest."""
    stage = name.replace("tr.zero", "zero_")
    for part in ("weights", "gradients", "optimizer", "master"):
        expected = 1 / 8 if part in sharded else 1
        assert value(answered[name], f"{stage}.{part}.ratio") == pytest.approx(expected, rel=1e-3), part


def test_zero_3_gathers_weights_in_forward_and_in_backward(answered: dict[str, Answer]) -> None:
    """Two gathers of every weight in a step of one micro-batch: 32 layers and the root, twice, all in 2 bytes."""
    answer = answered["tr.zero3"]
    assert value(answer, "zero_3.gathers") == 2 * (32 + 1)
    assert value(answer, "zero_3.gathered") == pytest.approx(2 * 2 * 6738415616, rel=1e-3)


def test_tensor_parallelism_is_not_zero(answered: dict[str, Answer]) -> None:
    """Both leave an eighth of the state, but one sends weights and the other activations."""
    answer = answered["tr.tp_is_not_zero"]
    assert value(answer, "tensor_parallel.state.ratio") == pytest.approx(1, abs=0.001)
    assert value(answer, "tensor_parallel.compute.ratio") == 1
    assert value(answer, "before.over_data") > 0 == value(answer, "before.over_tensor")
    assert value(answer, "tensor_parallel.over_tensor") > 0 == value(answer, "tensor_parallel.over_data")


def test_offloading_costs_the_host_link(answered: dict[str, Answer]) -> None:
    """Gradients out and weights back, 2 bytes a parameter each at once, over 63 GB/s each way."""
    assert value(answered["tr.offload"], "on_host") == pytest.approx(2 * 842301952 / 63e9)


def test_the_best_interval_between_saves_is_the_best(answered: dict[str, Answer]) -> None:
    """Young's rule: the root of twice the cost over the failure rate; more often and less often both lose more."""
    answer = answered["tr.model_checkpoint"]
    failures = 0.000474 * 1024 / DAY  # Grattafiori et al. 2024, section 3.3.4: 419 in 54 days on 16384
    seconds, interval = value(answer, "seconds"), value(answer, "interval")
    assert interval == pytest.approx(math.sqrt(2 * seconds / failures), rel=1e-6)

    def lost(every: float) -> float:
        return seconds / every + failures * (every / 2 + 20 * 60)  # the plan states a restart of 20 min

    assert value(answer, "goodput") == pytest.approx(1 - lost(interval))
    assert all(lost(interval) < lost(interval * factor) for factor in (0.25, 0.5, 2, 4))


def test_the_checklist_has_the_lines_of_the_notes(answered: dict[str, Answer]) -> None:
    """Parameters, the run, state, activations, intensity, utilisation: each a line with an outcome."""
    lines = {figure.name: figure.value for figure in answered["check.list"].found.figures}
    assert {"parameters", "run", "state", "activations", "intensity", "mfu"} <= set(lines)
    assert set(lines.values()) <= {"pass", "warn", "fail"}


# --- serving and money --------------------------------------------------------------------------


def test_decoding_reads_every_weight_and_the_cache(answered: dict[str, Answer]) -> None:
    """One sequence costs the bytes of the weights it multiplies by and of the cache, over the bandwidth."""
    answer = answered["inf.decode"]
    multiplied = value(answer, "weights") - 2 * 128256 * 4096  # one row of the embedding is read, not all
    least = (multiplied + value(answer, "kv_cache")) / H100_BANDWIDTH
    assert least <= value(answer, "decode.time") <= 1.01 * least
    assert value(answer, "decode.intensity") < 2 < H100_PEAK / H100_BANDWIDTH < value(answer, "prefill.intensity")


def test_the_cache_is_that_of_the_books(answered: dict[str, Answer]) -> None:
    """The cache of the answer is the total that a compiled plan of the same sequence reports."""
    plan = load_plan(LECTURE.parent / "plans" / "serve-8b.yaml")
    assert value(answered["inf.kv_cache"], "kv_cache") == compile_plan(plan).totals["kv_cache"]


def test_batching_trades_latency_for_throughput(answered: dict[str, Answer]) -> None:
    """Along the curve both rise, and throughput ever less for each sequence."""
    curve = answered["inf.throughput_latency"].found.curve
    assert curve is not None
    rates, waits = [x for x, _, _ in curve.points], [y for _, y, _ in curve.points]
    assert rates == sorted(rates)
    assert waits == sorted(waits)
    sequences = [rate * wait for rate, wait in zip(rates, waits, strict=True)]
    each = [rate / count for rate, count in zip(rates, sequences, strict=True)]
    assert each == sorted(each, reverse=True)


def test_the_budget_is_spent(answered: dict[str, Answer]) -> None:
    """The model and its tokens cost what there is: 6 N D over the assumed rate, at the price of an hour."""
    answer = answered["usd.budget"]
    best, offers = answer.figure("best"), answer.question.cases
    assert best is not None
    assert offers is not None
    parameters, tokens = value(answer, "parameters"), value(answer, "tokens")
    assert tokens == pytest.approx(20 * parameters)
    rates = {
        "a100-sxm-80gb": (312e12, 1.10),
        "h100-sxm": (H100_PEAK, 2.50),
        "h200-sxm": (H100_PEAK, 3.50),
        "b200": (2250e12, 4.50),
    }
    peak, price = rates[str(best.value)]
    assert 6 * parameters * tokens / (peak * 0.4) / 3600 * price == pytest.approx(1000)
    assert best.value == max(rates, key=lambda name: rates[name][0] / rates[name][1])
    for plan in ("7b-8xh100", "gpt2-xl"):
        assert value(answer, f"{plan}.tokens") == pytest.approx(
            value(answer, f"{plan}.parameters") * value(answer, f"{plan}.per_parameter")
        )


# --- what the notes leave open ------------------------------------------------------------------


def test_ten_billion_parameters_fit_sixteen_gigabytes_in_some_ways(answered: dict[str, Answer]) -> None:
    """State alone is 16 bytes a parameter; what fits is adapters on 4-bit weights, shares of it, or the host."""
    answer = answered["q.ten_b_16gb"]
    parameters = 45 * (2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096) + 2 * 32000 * 4096 + 4096
    assert value(answer, "as_it_is.trained") == parameters
    assert value(answer, "as_it_is.weights") == 2 * parameters
    assert value(answer, "as_it_is.peak") > 16 * parameters
    fits = {
        figure.name.partition(".")[0]: figure.value for figure in answer.found.figures if figure.name.endswith(".fits")
    }
    assert [name for name, fit in fits.items() if not fit] == ["as_it_is", "states_on_the_host"]
    assert value(answer, "states_on_the_host.host") == pytest.approx(16 * parameters, rel=1e-3)


def test_scores_grow_by_the_square_of_the_sequence(answered: dict[str, Answer]) -> None:
    """4 times the tokens are 16 times the scores: 2 bytes for each of 32 heads and each pair of tokens."""
    answer = answered["q.sequence"]
    assert value(answer, "tokens_1024.scores") == 2 * 32 * 1024**2
    assert value(answer, "tokens_4096.scores.ratio") == 16
    assert value(answer, "tokens_4096.attention.ratio") == pytest.approx(4 * 4097 / 1025)
    width, hidden, seq = 4096, 11008, 4096
    scores = 2 * width * (seq + 1)
    layer = 2 * (4 * width**2 + 3 * width * hidden) + scores
    assert value(answer, "tokens_4096.share") == pytest.approx(scores / layer)
    stored = value(answer, "tokens_4096.kept") - value(answer, "tokens_4096,_flash.kept")
    assert stored >= value(answer, "tokens_4096.scores")


def test_mixed_precision_saves_time_and_activations_but_no_state(answered: dict[str, Answer]) -> None:
    """16 bytes a parameter in each, an eighth of them on each device; the data sheet's rates are 14.8 apart."""
    answer = answered["q.bf16_speed"]
    for name in ("fp32", "bf16_autocast", "bf16_mixed"):
        assert value(answer, f"{name}.state") == pytest.approx(16 * 6738415616 / 8, rel=1e-3)
    assert value(answer, "bf16_mixed.kept") == pytest.approx(value(answer, "fp32.kept") / 2, rel=0.01)
    assert value(answer, "bf16_mixed.floor.ratio") == pytest.approx(67 / 989.5, rel=0.01)


def test_a_budget_splits_into_rent_storage_and_network(answered: dict[str, Answer]) -> None:
    """12 bytes a parameter of each checkpoint and 2 of each token, at their prices; all within the 1000 dollars."""
    answer = answered["q.budget_split"]
    checkpoint, tokens = 12 * 1557611200, value(answer, "tokens")  # GPT-2 XL; Radford et al. 2019, weights as released
    assert value(answer, "rent") <= 965
    assert value(answer, "storage") == pytest.approx((10 * checkpoint + 2 * tokens) / 1e9 * 0.023 * 2, rel=1e-3)
    assert value(answer, "network") == pytest.approx(checkpoint / 1e9 * 0.09, rel=1e-3)
    assert sum(value(answer, name) for name in ("rent", "storage", "network")) <= 1000


def test_the_forecast_stands_beside_what_was_observed(answered: dict[str, Answer]) -> None:
    """6667 tokens a second on each of eight devices are 16 x 8192 in 2.457 s; errors are forecast over observed."""
    answer = answered["q.forecast"]
    observed = 16 * 8192 / (8 * 6667)
    assert value(answer, "observed_step") == pytest.approx(observed)
    assert value(answer, "step_error") == pytest.approx(value(answer, "step") / observed - 1)
    assert value(answer, "observed_memory") == 77 * 2**30
    assert value(answer, "cost") / value(answer, "observed_cost") == pytest.approx(1 + value(answer, "step_error"))


def test_the_monitor_is_told_from_work(answered: dict[str, Answer]) -> None:
    """One sequence at a time, not compiled, is limited by launches, and its MFU is a fraction of the plan's."""
    answer = answered["q.utilisation"]
    limit = answer.figure("not_compiled.limit")
    assert limit is not None
    assert limit.value == "kernel launches"
    assert value(answer, "not_compiled.mfu") < value(answer, "as_planned.mfu") / 3


def test_the_notes_throughputs_of_gpt2_have_a_concurrency(answered: dict[str, Answer]) -> None:
    """At the roof 50 thousand tokens a second take more than 8 sequences and at most 16; one is far from it."""
    grid = answered["inf.gpt2_measured"].found.grid
    assert grid is not None
    rates = {row[0]: float(row[3]) for row in grid.rows}  # type: ignore[arg-type]
    assert rates[8] < 50e3 < rates[16] < 100e3
    assert rates[1] < 1.555e12 * 1.32 / (2 * 124439808)  # 2.039 TB/s over the weights, and the cache besides


# --- counting in general ------------------------------------------------------------------------


def test_backward_is_twice_forward(answered: dict[str, Answer]) -> None:
    """A contraction whose operands both need gradients has two more of its own size."""
    for name in ("fl.matmul", "fl.linear", "fl.two_layer", "fl.matmul_16_32_2", "ai.matmul", "ai.matvec"):
        assert value(answered[name], "backward") == 2 * value(answered[name], "forward")


def test_the_rule_leaves_attention_out(answered: dict[str, Answer]) -> None:
    """Counted over 6ND for Llama 3 70B: products of matrices, causal scores and their repetition in backward."""
    layers, width, heads_width, seq, vocab = 80, 8192, 64 * 128, 8192, 128256
    matrices = layers * (2 * width * width + 2 * width * 1024 + 3 * width * 28672) + width * vocab
    scores = layers * 2 * heads_width * (seq + 1)
    counted = 6 * matrices + 3.5 * scores
    steps = math.ceil(15e12 / (1024 * 8192)) * 1024 * 8192
    expected = counted * steps / (6 * 70553706496 * 15e12)
    assert value(answered["fl.step"], "counted_over_rule") == pytest.approx(expected, rel=1e-9)


def test_the_answer_follows_the_plan(answered: dict[str, Answer]) -> None:
    """Twice the devices take half the days: the answer is computed, not remembered."""
    plan = answered["run.days"].question.about.plan
    assert plan is not None
    cluster = replace(plan.cluster, devices=2048)
    wider = replace(plan, cluster=cluster, parallelism=replace(plan.parallelism, data=2048))
    halved = Fraction(compile_plan(wider).totals["napkin.days"]) * 2
    assert float(halved) == pytest.approx(value(answered["run.days"], "days"))


# Bytes of 8192 tokens: latents of 61 layers, windows of 52 layers of 62, windows of all 32 layers.
CACHES = {
    "deepseek-v3": 61 * (512 + 64) * 8192 * 2,
    "gemma-3-27b": (52 * 1024 + 10 * 8192) * 2 * 16 * 128 * 2,
    "mistral-7b": 32 * 4096 * 2 * 8 * 128 * 2,
}


@pytest.mark.parametrize("model", CACHES)
def test_the_cache_follows_the_kind_of_attention(model: str) -> None:
    """Latents are cached, not the keys and values of every head, and windows end what is kept."""
    plan = load_plan(str(LECTURE.parent / "plans" / "serve-8b.yaml"), [f"model={model}"])
    found = {figure.name: figure.value for figure in inference(InferenceAsk(plan, 8192, (1,))).figures}
    assert found["kv_cache"] == CACHES[model]
