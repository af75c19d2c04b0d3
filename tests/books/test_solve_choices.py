"""`solve` for choices, sizes of the model and several inputs at once, each against plans read from the spec."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import product
from typing import Any

import pytest

import ledger
from ledger.books import compile_plan
from ledger.books.what_if import product as combinations
from ledger.books.what_if.answer import Solution
from ledger.books.what_if.ordered import LARGEST, SMALLEST
from ledger.books.what_if.sizes import SHAPE, WIDTHS, divisors
from ledger.books.what_if.solve import solve
from ledger.books.what_if.sought import with_settings
from ledger.books.what_if.unknowns import inputs, unknown
from ledger.spec.attention import ATTENTION_KINDS
from ledger.spec.inputs import changes
from ledger.spec.load import load_plan
from ledger.spec.options import listed_values
from ledger.spec.overrides import assignments
from ledger.spec.paths import type_of
from ledger.spec.plan import Plan
from ledger.spec.problems import SpecError
from ledger.spec.values import Choice

SMALL = """spec: ledger/1
plan: a small model on one node
accelerator: a100-sxm-80gb
cluster: {base: a100-200g, devices: 8}
model:
  model: small
  source: made for tests
  d_model: 1024
  vocab: 32000
  layers:
    - group: decoder
      repeat: 8
      attention: {heads: 8, kv_heads: 8, head_dim: 128, rotary: 1}
      mlp: {kind: gated, d_ff: 4 * d_model, activation: silu}
precision: bf16-mixed
parallelism: {data: 8, zero: 3}
run: {tokens: 1B tokens, seq_len: 2048, micro_batch: 1, global_batch: 64}
"""
EXPERTS = SMALL.replace("{kind: gated, d_ff: 4 * d_model, ", "{kind: experts, experts: 8, top_k: 2, d_ff: 512, ")
IN_STAGES = ("parallelism.data=2", "parallelism.pipeline=4", "parallelism.zero=1")
IN_PARTS = ("parallelism.data=4", "parallelism.context=2")
IN_SLICES = ("parallelism.data=4", "parallelism.tensor=2")
# Each key with what the plan needs for it to have other values.
CHOICES: Mapping[str, tuple[str, ...]] = {
    "parallelism.tensor": (),
    "parallelism.pipeline": (),
    "parallelism.context": (),
    "parallelism.zero": (),
    "parallelism.reshard": (),
    "parallelism.replicate": (),
    "parallelism.sequence": IN_SLICES,
    "parallelism.interleave": (*IN_STAGES, "parallelism.schedule=zero_bubble"),
    "parallelism.schedule": IN_STAGES,
    "parallelism.ends": IN_STAGES,
    "parallelism.context_exchange": IN_PARTS,
    "parallelism.offload": (),
    "recompute": ("model.layers.decoder.repeat=2",),
    "accelerator": (),
    "cluster": ("cluster.devices=16", "parallelism.data=16"),
    "precision": (),
    "optimizer": (),
    "stack": (),
    "kernels.attention": (),
    "kernels.loss": (),
    "kernels.optimizer": (),
    "model.norm.kind": (),
    "stack.compiled": (),
}
QUICK = (
    "parallelism.tensor",
    "parallelism.schedule",
    "parallelism.zero",
    "parallelism.offload",
    "kernels.loss",
    "precision",
)
# Values of keys of every kind, as they are typed behind `--set`.
TYPED: Mapping[str, tuple[tuple[Any, str], ...]] = {
    "run.micro_batch": ((4, "4"),),
    "run.seq_len": ((4096, "4096"),),
    "run.global_batch": ((128, "128"),),
    "run.tokens": ((3 * 10**9, "3B tokens"),),
    "parallelism.zero": ((0, "0"), (1, "1")),
    "parallelism.reshard": (("none", "none"), ("layers", "layers")),
    "parallelism.offload": ((["optimizer"], "[optimizer]"), ({"activations": 3}, "{activations: 3}")),
    "parallelism.bucket": (),
    "recompute": (("full", "full"), ({"layers": 4}, "{layers: 4}"), ({"keep": ["matmul"]}, "{keep: [matmul]}")),
    "recompute.layers": ((3, "3"),),
    "accelerator": (("h100-sxm", "h100-sxm"), ("mi300x", "mi300x")),
    "precision": (("bf16-true", "bf16-true"),),
    "optimizer": (("sgd", "sgd"),),
    "stack": (("megatron-te-2024", "megatron-te-2024"),),
    "kernels.attention": (("math", "math"),),
    "kernels.loss_chunks": ((4, "4"),),
    "model.d_model": ((512, "512"),),
    "model.layers.decoder.mlp.d_ff": ((3072, "3072"),),
    "model.layers.decoder.attention.heads": ((16, "16"),),
    "model.layers.decoder.repeat": ((12, "12"),),
    "model.norm.kind": (("layer", "layer"),),
    "accelerator.bandwidth": ((2.5e12, "2.5 TB/s"),),
    "accelerator.scaleup.bandwidth": ((225e9, "225 GB/s"),),
    "stack.launch.per_operation": ((1.5e-5, "15 us"),),
    "stack.compiled": ((True, "true"),),
    "assumptions.mfu": ((0.25, "25 %"),),
}


@pytest.fixture(scope="module")
def small() -> Plan:
    """Eight layers on eight devices."""
    return load_plan(SMALL)


def read(settings: Mapping[str, object], text: str = SMALL, *overrides: str) -> Plan:
    """The plan of a spec under settings, as `--set` puts them in."""
    return load_plan(text, [*overrides, *assignments(settings)])


def held(found: Solution, overrides: tuple[str, ...], text: str = SMALL) -> None:
    """What is said of an answer, of its runner-up and of what rules refuse is what the plans themselves say."""
    legal = [row for row in found.tried if row.totals is not None]
    (objective,) = found.goal.split()[1:]
    for row in legal[:2]:
        totals = compile_plan(read(row.changes, text, *overrides)).totals
        assert row.totals == {key: totals[key] for key in row.totals or {}}
    for row in [row for row in found.tried if row.totals is None][:2]:
        with pytest.raises(SpecError) as error:
            read(row.changes, text, *overrides)
        assert all(problem.message in row.why for problem in error.value.problems)
    meeting = [row.totals[objective] for row in legal if row.totals and row.verdict != "fails"]
    assert legal[0].totals is not None
    assert float(legal[0].totals[objective]) == pytest.approx(float(min(meeting)), rel=1e-11)


@pytest.mark.parametrize(
    "path", [path if path in QUICK else pytest.param(path, marks=pytest.mark.long) for path in CHOICES]
)
def test_of_a_choice_every_value_is_tried(path: str) -> None:
    """The shortest run that fits is the answer; all others are worse, fail, or are refused by the rule that says so."""
    overrides = CHOICES[path]
    plan = load_plan(SMALL, overrides)
    found = solve(plan, path)
    assert found.goal == "minimize time.calendar"
    assert any("no objective is named" in note for note in found.notes)
    assert found.values is not None
    assert len(found.tried) == found.counts["combinations"] == len(unknown(plan, path).legal_values)
    held(found, overrides)


def test_experts_are_split_over_devices() -> None:
    """Their degree is a choice where there are experts, and says why it is none where there are not."""
    held(solve(load_plan(EXPERTS), "parallelism.expert"), (), EXPERTS)
    with pytest.raises(SpecError) as error:
        solve(load_plan(SMALL), "parallelism.expert")
    (problem,) = error.value.problems
    assert problem.message == "`parallelism.expert` cannot vary in this plan"
    assert "no layer of the model has experts" in problem.help


@pytest.mark.parametrize(("path", "value", "typed"), [(path, *one) for path, some in TYPED.items() for one in some])
def test_a_value_is_put_in_as_set_does(small: Plan, path: str, value: Any, typed: str) -> None:
    """No input of the plan differs from that of the spec under the override, legal or not."""
    draft = with_settings(small, unknown(small, path).settings(value))
    assert draft.plan is not None
    if draft.problems:
        with pytest.raises(SpecError) as error:
            load_plan(SMALL, [f"{path}={typed}"])
        assert {problem.message for problem in draft.problems} == {problem.message for problem in error.value.problems}
        return
    assert changes(draft.plan, load_plan(SMALL, [f"{path}={typed}"])) == ()


def test_degrees_keep_the_number_of_devices(small: Plan) -> None:
    """Replicas are what is left of the devices, as where a spec says nothing of them."""
    draft = with_settings(small, unknown(small, "parallelism.tensor").settings(4))
    assert draft.plan is not None
    without = SMALL.replace("data: 8, ", "tensor: 4, ")
    assert changes(draft.plan, load_plan(without)) == ()
    found = solve(small, "parallelism.tensor", maximize="time.run")
    assert found.changes == {"parallelism.tensor": found.value, "parallelism.data": 8 // found.value}
    assert f"with it: parallelism.data = {8 // found.value}" in found.notes


def choices(plan: Plan) -> Iterator[tuple[str, Choice]]:
    """Every input that the field table has as one of a few words; where there is one alone, there is no choice."""
    for path in inputs(plan):
        kind = type_of(path)
        if isinstance(kind, Choice) and len(kind.options) > 1:
            yield path, kind


def test_values_are_those_of_the_field_table(small: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no second list: what a field's own row allows is tried, and a new word appears by itself."""
    checked = 0
    for path, kind in choices(small):
        plain = [option for option in kind.options if kind.means.get(option, option) not in {*kind.options} - {option}]
        assert [value for value in unknown(small, path).legal_values if value is not None] == plain, path
        checked += 1
    assert checked > 40
    kind = type_of("model.layers.decoder.attention.kind")
    before = listed_values(kind, 1)
    monkeypatch.setitem(ATTENTION_KINDS, "another", ATTENTION_KINDS["grouped_query"])  # type: ignore[arg-type]
    assert listed_values(kind, 1) == (*before, "another")


def test_lists_and_mappings_are_listed_too() -> None:
    """Three kinds of things may be offloaded: seven lists that are not empty, and activations of so many layers."""
    listed = listed_values(type_of("parallelism.offload"), 2)
    assert sum(isinstance(value, list) for value in listed) == 7
    assert [value for value in listed if isinstance(value, dict) and value.get("activations") in (1, 2)] == [
        {"activations": True},
        {"activations": 1},
        {"activations": 2},
    ]


def test_two_inputs_are_the_best_of_all_pairs(small: Plan) -> None:
    """Every tensor degree with every micro-batch, read from the spec and compiled here once more."""
    times: dict[tuple[int, int], Fraction] = {}
    for tensor, batch in product(divisors(8), divisors(64)):
        settings = {"parallelism.tensor": tensor, "parallelism.data": 8 // tensor, "run.micro_batch": batch}
        try:
            totals = compile_plan(read(settings)).totals
        except SpecError:
            continue
        if totals["memory.peak"] <= 8 * 10**9:
            times[tensor, batch] = Fraction(totals["time.run"])
    found = solve(small, ["run.micro_batch", "parallelism.tensor"], ["memory.peak <= 8 GB"])
    assert found.values is not None
    first, second = sorted(times, key=lambda pair: times[pair])[:2]
    assert (found.values["parallelism.tensor"], found.values["run.micro_batch"]) == first
    assert found.value == dict(found.values)
    assert (found.beyond["parallelism.tensor"], found.beyond["run.micro_batch"]) == second
    assert found.counts["meeting"] == len(times)
    again = compile_plan(read(found.changes)).totals["memory.peak"]
    assert found.bounds[0].at == again <= 8 * 10**9


def test_values_without_an_end_are_bisected_for_each_choice() -> None:
    """The longest sequence over the stages of ZeRO is that of the best one, and the runner-up that of the next."""
    limit = ["memory.peak <= 12 GB"]
    lengths = {
        zero: solve(load_plan(SMALL, [f"parallelism.zero={zero}"]), "run.seq_len", limit).value for zero in range(4)
    }
    found = solve(load_plan(SMALL), ["parallelism.zero", "run.seq_len"], limit)
    assert found.goal == LARGEST
    assert found.values is not None
    best = max(lengths, key=lambda zero: lengths[zero])
    assert dict(found.values) == {"parallelism.zero": best, "run.seq_len": lengths[best]}
    rest = sorted((length for zero, length in lengths.items() if zero != best), reverse=True)
    assert found.beyond["run.seq_len"] == rest[0]


def test_more_combinations_than_are_tried_are_told(small: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search without an end is no answer."""
    monkeypatch.setattr(combinations, "MOST", 3)
    with pytest.raises(SpecError, match="more than 3 combinations"):
        solve(small, "parallelism.zero")


def test_recomputed_layers_are_the_fewest_that_fit() -> None:
    """More of them hold less memory, so conditions limit them from below, whatever policy the plan has."""

    def peak(layers: int) -> int:
        return int(compile_plan(load_plan(SMALL, [*given, f"recompute={{layers: {layers}}}"])).totals["memory.peak"])

    given = ("run.micro_batch=8", "recompute={keep: [matmul]}")
    limit = (peak(1) + peak(8)) // 2
    found = solve(load_plan(SMALL, given), "recompute.layers", [f"memory.peak <= {limit} B"])
    assert found.goal == SMALLEST
    assert peak(found.value) <= limit < peak(found.value - 1)
    assert found.changes == {"recompute": {"layers": found.value}}


@pytest.mark.parametrize(
    ("keep", "follow"),
    [
        (WIDTHS, {"attention.heads", "mlp.d_ff", "attention.kv_heads"}),
        (SHAPE, {"attention.heads", "mlp.d_ff", "repeat"}),
    ],
)
def test_a_model_grows_in_proportion(small: Plan, keep: str, follow: set[str]) -> None:
    """All that follows has the ratio of the width that is looked for, and the next model of that shape does not fit."""
    found = solve(small, "model.d_model", ["memory.peak <= 30 GB"], keep=keep)
    ratio = Fraction(found.value, 1024)
    grown = read(found.changes)
    group, given = grown.model.groups[0], small.model.groups[0]
    assert {path.removeprefix("model.layers.decoder.") for path in found.changes} >= follow
    assert (group.attention.heads, group.mlp.d_ff) == (given.attention.heads * ratio, given.mlp.d_ff * ratio)
    assert group.repeat == (given.repeat * ratio if keep == SHAPE else given.repeat)
    assert group.attention.head_dim == given.attention.head_dim
    further = read(unknown(small, "model.d_model", keep).settings(found.beyond))
    assert compile_plan(grown).totals["memory.peak"] <= 30 * 10**9 < compile_plan(further).totals["memory.peak"]


def test_a_width_alone_moves_what_is_stated_by_it(small: Plan) -> None:
    """`d_ff: 4 * d_model` follows, as under `--set`, and one more does not fit."""
    found = solve(small, "model.d_model", ["memory.peak <= 30 GB"])
    grown, further = (compile_plan(read({"model.d_model": width})) for width in (found.value, found.value + 1))
    assert grown.plan.model.groups[0].mlp.d_ff == 4 * found.value
    assert grown.totals["memory.peak"] <= 30 * 10**9 < further.totals["memory.peak"]


@pytest.mark.parametrize("limit", [0.01, 1, 4, 40])
def test_the_closed_form_is_that_of_the_answer(small: Plan, limit: float) -> None:
    """At the answer, and at the nearest miss, it gives the peak of the books; no other moment does."""
    found = solve(small, "run.seq_len", [f"memory.peak <= {limit} GB"])
    polynomial = re.match(r"memory.peak = (.*) \(", found.closed_form)
    if polynomial is None:
        assert not found.closed_form
        return
    text = re.sub(r"\b(\d+)\b", r"Fraction(\1)", polynomial[1].replace("^", "**"))
    value = eval(text, {"Fraction": Fraction, "S": Fraction(found.nearest)})  # noqa: S307 - a polynomial of our own
    assert float(value) == pytest.approx(float(found.bounds[0].at or 0), rel=1e-3)
    reached = re.search(r"at the limit where S = (.*)", found.closed_form)
    assert (reached is None) == ("above the limit at every S" in found.closed_form)


def test_the_smallest_memory_that_fits_is_one_that_the_rules_allow(small: Plan) -> None:
    """What a device reports lies near what its label says, so its memory has a least value above zero."""
    found = solve(small, "accelerator.memory.driver")
    assert found.values is not None
    with pytest.raises(SpecError):
        load_plan(SMALL, [f"accelerator.memory.driver={found.value - 1} B"])


@pytest.mark.parametrize(
    ("paths", "conditions", "options", "said"),
    [
        (["parallelism.tensr"], [], {}, "`parallelism.tensr` is nothing to solve for"),
        (["parallelism.data"], [], {}, "`parallelism.data` follows from the number of devices and the other degrees"),
        (["parallelism.zero", "parallelism.zero"], [], {}, "`parallelism.zero` is asked for twice"),
        (
            ["run.seq_len", "run.global_batch"],
            [],
            {},
            "`run.seq_len` and `run.global_batch` have values without an end",
        ),
        (["kernels.experts"], [], {}, "nothing that is asked for depends on `kernels.experts`"),
        (["model.layers.decoder.mlp.top_k"], [], {}, "`model.layers.decoder.mlp.top_k` cannot vary in this plan"),
        (["operations.restart_time"], [], {}, "`operations.restart_time` has no value in this plan to begin from"),
        (["run.seq_len"], [], {"keep": SHAPE}, "`run.seq_len` is no size that `--keep shape` keeps in proportion"),
        (
            ["model.d_model", "model.layers.decoder.repeat"],
            [],
            {"keep": SHAPE},
            "`model.layers.decoder.repeat` is in proportion to `model.d_model` under `--keep shape`",
        ),
        (
            ["parallelism.zero"],
            ["memory.peak <= 1 GB", "memory.peak > 2 GB"],
            {},
            "`memory.peak > 2 GB` contradicts `memory.peak <= 1 GB`: no value is both",
        ),
    ],
)
def test_a_question_without_an_answer_says_why(
    small: Plan, paths: list[str], conditions: list[str], options: dict[str, str], said: str
) -> None:
    """Each with its place in what was typed."""
    with pytest.raises(SpecError) as error:
        solve(small, paths, conditions, **options)
    assert error.value.problems[0].message == said


def test_what_no_choice_meets_is_a_result(small: Plan) -> None:
    """The nearest miss is the one that holds least, and conditions that exclude each other are told."""
    found = solve(small, "parallelism.zero", ["memory.peak <= 1 MB"])
    peaks = {row.values["parallelism.zero"]: row.totals["memory.peak"] for row in found.tried if row.totals}
    assert (found.values, found.value) == (None, None)
    assert peaks[found.nearest] == min(peaks.values())
    assert {row.verdict for row in found.tried} == {"fails"}
    least = [f"memory.peak <= {min(peaks.values())} B", f"memory.peak >= {max(peaks.values())} B"]
    with pytest.raises(SpecError, match="contradicts"):
        solve(small, "parallelism.zero", least)
    apart = solve(small, "parallelism.zero", [least[0], "time.calendar <= 1 h", "time.calendar > 100 s", "mfu > 0.9"])
    assert not any("exclude each other" in note for note in apart.notes)  # no value has that MFU at all
    fastest = min(row.totals["time.calendar"] for row in solve(small, "parallelism.zero").tried if row.totals)
    apart = solve(small, "parallelism.zero", [least[0], f"time.calendar <= {1.0001 * float(fastest)!r} s"])
    assert apart.values is None
    assert any("exclude each other" in note for note in apart.notes)


def test_devices_without_a_price_cost_nothing_that_is_known() -> None:
    """A total that a value does not have is no total of zero: what has no price is left out, and told."""
    found = solve(load_plan(SMALL), "accelerator", minimize="cost.run")
    priced = {row.values["accelerator"] for row in found.tried if row.totals is not None}
    unpriced = [row for row in found.tried if row.totals is None]
    assert found.value in priced
    assert unpriced
    assert any(row.why == "the plan then has no cost.run: state `assumptions.price`" for row in unpriced)
    costs = {name: compile_plan(load_plan(SMALL, [f"accelerator={name}"])).totals["cost.run"] for name in priced}
    assert found.value == min(costs, key=lambda name: costs[name])


def test_layers_come_in_the_steps_that_stages_allow() -> None:
    """Where both ends count as a layer, four stages hold 4 n - 2 layers, and a step beyond is the next such number."""
    plan = load_plan(SMALL, [*IN_STAGES, "parallelism.ends=layer", "model.layers.decoder.repeat=10"])
    found = solve(plan, "model.layers.decoder.repeat", ["memory.peak <= 12 GB"])
    assert (found.value + 2) % 4 == 0
    assert found.beyond == found.value + 4
    assert found.bounds[0].binds


def test_a_part_that_is_written_out_is_not_the_one_it_is_based_on() -> None:
    """The plan's own formats have a name of their own among those tried, and their base is tried beside them."""
    found = ledger.solve("serve-70b", "precision", ["fits"], maximize="serve.tokens_per_second_per_device")
    tried = {str(one.values["precision"]): one for one in found.tried}
    assert found.plan_value == "bf16-true-changed"
    assert {"bf16-true", "bf16-true-changed"} <= tried.keys()
