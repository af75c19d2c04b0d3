"""What the layouts of a plan recommend: held to every layout of a small space, one by one."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ledger.books.compiler import compile_plan
from ledger.report.recommendations import Recommendation, Recommendations
from ledger.search import pricing, recommendation_cache, tasks
from ledger.search import recommend as module
from ledger.search.edits import fewest_changes
from ledger.search.extent import Extent, OutOfTimeError, kept_values, time_limit
from ledger.search.near_layouts import near_layouts
from ledger.search.pricing import pieces, price_piece
from ledger.search.question import Question, kept_free
from ledger.search.recommend import Requirements, may_recommend, recommend
from ledger.search.recommendation_cache import as_record, from_record, recommendations
from ledger.search.space import Layout, Space, space_of, with_layout
from ledger.search.structures import prices_in_bulk
from ledger.search.tasks import Task, TaskQuestion, run_task
from ledger.spec.load import load_plan, read_with_overrides
from ledger.spec.overrides import assignments
from ledger.spec.plan import Plan

TIME, MEMORY = "time.step", "memory.reserved"
# A plan that a reader wrote: it fits its device, and its title is wrong. On it an advice once broke the plan's policy.
QWEN = """
spec: ledger/1
plan: Qwen2.5 7B on 12 A100
accelerator: a100-sxm-80gb
cluster: {base: a100-200g, devices: 16}
model: qwen2.5-7b
precision: bf16-mixed
optimizer: adamw
parallelism: {data: 8, tensor: 2, zero: 1, sequence: save_gathered}
recompute: none
run: {tokens: 37B tokens, seq_len: 3072, micro_batch: 2, global_batch: 96}
assumptions: {price: {per_device_hour: 1.37 USD, date: 2026-01-01, source: my own offer}, headroom: typical}
"""
SMALL: Mapping[str, tuple[Any, ...]] = {
    "parallelism.tensor": (1, 2),
    "parallelism.sequence": ("off", "save_gathered"),
    "parallelism.context": (1,),
    "parallelism.context_exchange": (None,),
    "parallelism.pipeline": (1,),
    "parallelism.interleave": (1,),
    "parallelism.schedule": (None,),
    "parallelism.replicate": (1,),
    "parallelism.offload": (None,),
    "parallelism.zero": (1, 3),
    "parallelism.reshard": (None, True),
    "recompute": ("none", "full"),
    "run.micro_batch": (1, 2, 6),
}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is found in the user's cache, and nothing is left in it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    recommendation_cache._process_cache.cache_clear()
    yield
    recommendation_cache._process_cache.cache_clear()


# One layout beside the plan's own: what there is to find does not matter.
LEAST = {
    **SMALL,
    "parallelism.tensor": (2,),
    "parallelism.zero": (1,),
    "recompute": ("none",),
    "run.micro_batch": (1, 2),
}


def searched(plan: Plan, values: Mapping[str, tuple[Any, ...]]) -> Recommendations:
    """What a space with these values recommends; no fewer devices are looked at."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "space_of", lambda plan, _: space_of(plan, values))
        patch.setattr(module, "fewer_devices", lambda _: {})
        return recommend(plan)


@pytest.fixture(scope="module")
def tight() -> Plan:
    """The plan with micro-batches that leave too little free."""
    return load_plan(QWEN, ["run.micro_batch=6"])


@pytest.fixture(scope="module")
def found(tight: Plan) -> Recommendations:
    """What is recommended instead."""
    return searched(tight, SMALL)


def compiled_layouts(space: Space, plan: Plan) -> list[tuple[Layout, float, float]]:
    """Every legal layout with its time and memory, compiled one by one."""
    found = []
    for layout in space.layouts():
        totals = compile_plan(with_layout(plan, layout)).totals
        found.append((layout, float(totals[TIME]), float(totals[MEMORY])))
    return found


def test_each_is_the_best_of_all_layouts_that_keep_the_headroom(tight: Plan, found: Recommendations) -> None:
    """The front, the fastest and the smallest edit are those of a search by compiling every layout."""
    room = tight.accelerator.memory - kept_free(tight)
    every = compiled_layouts(space_of(tight, SMALL), tight)
    fitting = [one for one in every if one[2] <= room]
    assert 0 < len(fitting) < len(every)
    assert (found.legal, found.fitting) == (len(every), len(fitting))
    points = [(memory, time) for _, time, memory in fitting]
    front = {one for one in points if not any(o != one and o[0] <= one[0] and o[1] <= one[1] for o in points)}
    assert [held for held, _ in sorted(found.points)] == [held for held, _ in sorted(front)]
    assert [time for _, time in sorted(found.points)] == pytest.approx([time for _, time in sorted(front)], rel=1e-9)
    assert found.fastest
    assert found.fastest.totals[TIME] == pytest.approx(min(time for _, time, _ in fitting), rel=1e-9)
    edits = min((len(fewest_changes(tight, layout)), time) for layout, time, _ in fitting)
    assert found.smallest
    assert (len(found.smallest.changes), found.smallest.totals[TIME]) == pytest.approx(edits, rel=1e-9)


def test_what_is_recommended_is_what_a_user_gets(tight: Plan, found: Recommendations) -> None:
    """The changes, as `--set` takes them, make the plan whose totals are told, and it keeps the plan's own headroom."""
    rows = [one for one in (found.smallest, found.fastest, found.cheapest, *found.front) if one]
    assert len(rows) > 3
    for one in rows:
        totals = compile_plan(load_plan(QWEN, ["run.micro_batch=6", *assignments(one.changes)])).totals
        assert one.totals == {key: float(totals[key]) for key in one.totals}
        assert totals[MEMORY] <= tight.accelerator.memory - 10e9


def test_what_is_kept_is_what_was_found(found: Recommendations) -> None:
    """Every field survives the file."""
    assert from_record(json.loads(json.dumps(as_record(found)))) == found


def test_a_plan_that_fits_needs_no_edit() -> None:
    """The smallest edit of a plan that keeps its headroom is none."""
    smallest = searched(load_plan(QWEN), LEAST).smallest
    assert smallest
    assert smallest.changes == {}


def test_where_nothing_fits_the_nearest_is_told(tight: Plan) -> None:
    """Micro-batches of 6 and 12 need more than the 75.9 GB that the policy leaves of a device of 80 GiB."""
    none = searched(tight, {**LEAST, "run.micro_batch": (6, 12)})
    assert (none.fitting, none.fastest, none.smallest, none.front) == (0, None, None, ())
    assert none.nearest
    assert none.nearest.totals[MEMORY] > 80 * 2**30 - 10e9


def test_keys_that_follow_are_no_edits() -> None:
    """`data` counts where the spec states it, and a key without effect stays as it is written."""
    plan = load_plan(QWEN)
    space = space_of(plan, {**SMALL, "parallelism.zero": (1,), "recompute": ("none",), "run.micro_batch": (2,)})
    alone = next(layout for layout in space.layouts() if layout["parallelism.tensor"] == 1)
    assert fewest_changes(plan, alone) == {"parallelism.data": 16, "parallelism.tensor": 1}
    free = load_plan(QWEN.replace("data: 8, ", ""))
    assert fewest_changes(free, alone) == {"parallelism.tensor": 1}


def test_fewer_devices_are_whole_nodes() -> None:
    """Of 16 devices in nodes of 8, a half are whole nodes, and a quarter are not."""
    assert list(module.fewer_devices(load_plan(QWEN))) == [8]


def test_a_plan_without_layouts_or_without_a_spec_is_not_searched() -> None:
    """A count of parameters has no layers to lay out; a plan made by hand has no lines to change."""
    plan = load_plan(QWEN)
    assert may_recommend(plan)
    assert not may_recommend(replace(plan, reading=None))
    bare = read_with_overrides(plan, ["model={parameters: 7e9 parameters}", "kernels={}"]).plan
    assert bare is not None
    assert not may_recommend(bare)


def test_the_lines_of_a_recommendation_are_yaml() -> None:
    """Grouped under their parts, as a spec has them; what must go is named."""
    one = Recommendation({"parallelism.tensor": 4, "parallelism.sequence": None, "recompute": {"every": 2}}, {})
    assert one.yaml == ("parallelism:", "  tensor: 4", "  # remove `sequence`", "recompute: {every: 2}")


def test_a_search_that_runs_out_of_time_goes_by_what_it_has(tight: Plan) -> None:
    """It says so; here there is no time at all, and so nothing to recommend."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "space_of", lambda plan, _: space_of(plan, LEAST))
        patch.setattr(module, "fewer_devices", lambda _: {})
        cut = recommend(tight, extent=Extent(seconds=1e-3))
    assert not cut.complete
    assert (cut.smallest, cut.legal) == (None, 0)
    assert cut.scope.startswith("no other layouts were looked at: ")


def test_layouts_that_take_long_come_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue of modules makes moments depend on every size: few layouts are priced before the time is looked at."""
    plan = load_plan("gpt2", ["stack=deepspeed-zero3-transformers-2026", "parallelism.zero=3"])
    assert not prices_in_bulk(plan)
    space = space_of(plan, {**SMALL, "parallelism.zero": (3,), "parallelism.tensor": (1,)})
    (piece,) = pieces(space)
    every = sorted(str(block.layout(row)) for block in price_piece(piece, (TIME,)) for row in range(len(block)))
    monkeypatch.setattr(pricing, "SLOW_CELLS", 1)
    monkeypatch.setattr(pricing, "SECONDS", 0.0)
    blocks = list(price_piece(piece, (TIME,)))
    assert every == sorted(str(block.layout(row)) for block in blocks for row in range(len(block)))
    assert len(blocks) == len(every) > 1
    times = iter([0.0, 2.0])  # as it is looked at before each block
    monkeypatch.setattr(pricing.time, "monotonic", lambda: 0.0)
    monkeypatch.setattr(pricing, "SECONDS", -1.0)
    monkeypatch.setattr(tasks, "time", SimpleNamespace(monotonic=lambda: next(times)))
    found = run_task(Task(0, piece, space, {}, ()), TaskQuestion(Question(), until=1.0))
    assert not found.complete
    assert found.legal == 1


# --- what is proposed is compiled, and held to all that the plan asks for -------------------------


def test_what_a_wrong_pass_proposes_is_what_the_compiler_says(tight: Plan) -> None:
    """A pass that takes every layout for one that fits puts misfits first; none is recommended, and no figure of it."""
    with pytest.MonkeyPatch.context() as patch:
        limits = Question.limits
        patch.setattr(Question, "limits", lambda self, plan, _, words: limits(self, plan, -1e15, words))
        patch.setattr(module, "TRIED", 100)
        found = searched(tight, SMALL)
    assert found.fitting == found.legal
    assert found.fastest
    assert found.smallest
    room = tight.accelerator.memory - kept_free(tight)
    for one in (found.smallest, found.fastest, *found.front):
        totals = compile_plan(load_plan(QWEN, ["run.micro_batch=6", *assignments(one.changes)])).totals
        assert one.totals == {key: float(totals[key]) for key in one.totals}
        assert totals[MEMORY] <= room


def test_a_pass_that_fails_leaves_what_is_near_the_plan(tight: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Why it failed is said in a line; the layouts that were compiled one by one are sound."""

    def broken(_: Space) -> None:
        raise ZeroDivisionError("of nothing\nby nothing")

    monkeypatch.setattr(module, "pieces", broken)
    monkeypatch.setattr(module, "NEAR_MOST", 3)
    found = recommend(tight)
    assert found.failure.startswith("a mistake of ledger itself, ZeroDivisionError: of nothing by nothing")
    assert (found.near, found.legal, found.complete) == (True, 3, False)
    assert found.smallest
    assert found.smallest.totals[MEMORY] <= tight.accelerator.memory - kept_free(tight)
    assert "3 legal layouts near the plan tried" in found.scope
    assert "no more layouts were looked at: a mistake" in found.scope


def test_a_plan_that_fits_keeps_its_own_layout_where_the_search_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is recommended against it, and the reason stands where the layouts would."""
    monkeypatch.setattr(module, "pieces", lambda _: 1 / 0)
    found = recommend(load_plan(QWEN))
    assert found.smallest == found.fastest
    assert found.smallest
    assert found.smallest.changes == {}
    assert found.scope.startswith("no other layouts were looked at: a mistake of ledger itself, ZeroDivisionError")


def test_a_search_of_a_second_compiles_what_frees_memory(tight: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of few layouts near the plan the best is named; the first that is tried changes one key, and fits.

    Activations are most of the memory, so that half of a micro-batch frees more than is missing.
    """
    monkeypatch.setattr(module, "NEAR_MOST", 4)
    monkeypatch.setattr(module, "PASS_FROM", 1e9)
    found = recommend(tight, extent=Extent(all_layouts=False, seconds=1e6))
    assert (found.near, found.legal, found.complete, found.failure) == (True, 4, False, "")
    assert found.smallest
    assert found.fastest
    assert len(found.smallest.changes) == 1
    assert found.fastest.totals[TIME] <= found.smallest.totals[TIME]
    own = compile_plan(tight).totals
    first = Requirements(tight, own).compiled(
        next(near_layouts(tight, own, tight.accelerator.memory - kept_free(tight)))
    )
    assert first
    assert first.is_sound
    assert len(first.changes) == 1


def test_what_does_not_help_corrects_what_is_tried_next(tight: Plan) -> None:
    """A layout that needs more than was thought makes others that were thought to fit as closely be tried later."""
    own = compile_plan(tight).totals
    room = float(own[MEMORY]) * 0.9

    def second(needed: float | None) -> dict[str, Any]:
        proposals = near_layouts(tight, own, room)
        next(proposals)
        return proposals.send(needed)

    assert len(second(None)) == 1
    assert len(second(room * 4)) > 1


@pytest.mark.parametrize(
    "cluster",
    ["cluster.host={memory: 64 GB, bandwidth: 400 GB/s, source: mine}", "cluster.devices_per_node=4"],
)
def test_no_host_is_given_more_than_it_is_known_to_hold(cluster: str) -> None:
    """Activations of tens of GB a device are not moved to a host of 64 GB, nor to one whose memory nobody states."""
    plan = load_plan(QWEN, [cluster])
    requirements = Requirements(plan, compile_plan(plan).totals)
    assert requirements.plan_as_it_is.is_sound
    candidate = requirements.compiled({"parallelism.offload": ["activations"]})
    assert candidate
    assert candidate.totals["memory.host"] > 64e9
    assert candidate.totals[MEMORY] < requirements.totals[MEMORY]
    assert not candidate.is_sound


def test_an_expectation_that_the_plan_meets_is_not_given_up() -> None:
    """And one that it misses already stops no other layout."""
    step = float(compile_plan(load_plan(QWEN)).totals[TIME])
    for seconds, sound in ((step, False), (10 * step, True)):
        plan = load_plan(QWEN, [f"expect=[{{time.step: {seconds} s, tolerance: 1 %}}]"])
        candidate = Requirements(plan, compile_plan(plan).totals).compiled({"recompute": "full"})
        assert candidate
        assert candidate.is_sound == sound


def wait_for_ever() -> None:
    """Ends by a limit of time alone."""
    while True:
        pass


def test_a_limit_of_time_within_another_keeps_it() -> None:
    """Whichever is reached first ends the block; the one around it still counts afterwards."""
    with pytest.raises(OutOfTimeError), time_limit(1e-3), time_limit(3600):
        wait_for_ever()
    with time_limit(3600):
        with pytest.raises(OutOfTimeError), time_limit(1e-3):
            wait_for_ever()
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


# --- the cache ----------------------------------------------------------------------------------


def stub(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """Searches that find a number of layouts, and are counted."""
    asked: list[Plan] = []

    def made(plan: Plan, *_: object, **__: object) -> Recommendations:
        asked.append(plan)
        return Recommendations(legal=len(asked), points=((1.0, 2.0),), fewer={8: 3})

    monkeypatch.setattr(recommendation_cache, "recommend", made)
    return asked


def test_a_plan_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process, and across processes by a file; another plan, or the same by other overrides, is its own."""
    asked = stub(monkeypatch)
    plan = load_plan(QWEN)
    first = recommendations(plan, extent=Extent())
    assert recommendations(load_plan(QWEN), extent=Extent()) == first
    recommendation_cache._process_cache.cache_clear()
    assert recommendations(plan, extent=Extent()) == first
    assert len(asked) == 1
    recommendations(load_plan(QWEN, ["run.micro_batch=1"]), extent=Extent())
    assert len(asked) == 2


def test_another_program_searches_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an older version found is not used."""
    asked = stub(monkeypatch)
    plan = load_plan(QWEN)
    recommendations(plan, extent=Extent())
    monkeypatch.setattr(recommendation_cache, "program_digest", lambda: "another")
    recommendations(plan, extent=Extent())
    assert len(asked) == 2


def test_a_quick_search_takes_what_a_whole_one_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not the other way round."""
    asked = stub(monkeypatch)
    plan = load_plan(QWEN)
    recommendations(plan, extent=Extent(all_layouts=False))
    found = recommendations(plan, extent=Extent())
    assert recommendations(plan, extent=Extent(all_layouts=False)) == found
    assert len(asked) == 2


def test_a_search_with_a_limit_of_time_does_not_serve_one_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks at fewer devices and compiles less of the front; what a thorough one found serves it."""
    asked = stub(monkeypatch)
    plan = load_plan(QWEN)
    brief = recommendations(plan, extent=Extent(all_layouts=False, seconds=30.0))
    assert recommendations(plan, extent=Extent(all_layouts=False, seconds=30.0)) == brief
    thorough = recommendations(plan, extent=Extent(all_layouts=False, thorough=True))
    assert thorough != brief
    assert recommendations(plan, extent=Extent(all_layouts=False, seconds=30.0)) == thorough
    assert len(asked) == 2


def test_a_search_that_was_stopped_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one may come to its end."""
    monkeypatch.setattr(recommendation_cache, "recommend", lambda *_, **__: Recommendations(complete=False))
    plan = load_plan(QWEN)
    recommendations(plan, extent=Extent())
    assert recommendation_cache.cached_recommendations(plan, whole=True, thorough=True) is None


SOUND = json.dumps(as_record(Recommendations(legal=99)))


@pytest.mark.parametrize("content", ["", "{", "[]", '{"legal": 3}', SOUND])
def test_a_damaged_file_is_searched_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str) -> None:
    """Silently: the cache saves time, and nothing depends on it; what somebody else wrote into it is no finding."""
    asked = stub(monkeypatch)
    plan = load_plan(QWEN)
    recommendations(plan, extent=Extent())
    (file,) = (tmp_path / "ledger" / "recommendations").iterdir()
    file.write_text(content, encoding="utf-8")
    recommendation_cache._process_cache.cache_clear()
    recommendations(plan, extent=Extent())
    assert len(asked) == 2


def test_a_folder_that_cannot_be_written_stops_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The next run searches again."""
    (tmp_path / "taken").write_text("", encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "taken"))
    stub(monkeypatch)
    assert recommendations(load_plan(QWEN)).legal == 1


@pytest.mark.parametrize(
    "settings",
    [
        ["cluster.devices=1", "parallelism={data: 1}"],
        ["parallelism={data: 8, zero: 1}", "train={lora: {rank: 4, targets: [q]}}"],
    ],
)
def test_one_device_and_frozen_weights_are_searched(settings: list[str]) -> None:
    """A plan without copies to keep, and one whose first layer is a unit of its own, have layouts too."""
    plan = load_plan("7b-8xh100", ["run.micro_batch=1", "run.global_batch=8", "recompute=none", "expect=[]", *settings])
    axes: dict[str, tuple[Any, ...]] = {
        f"parallelism.{axis}": (1,) for axis in ("tensor", "pipeline", "context", "expert")
    }
    axes["parallelism.zero"] = (0, 1)
    assert searched(plan, {**kept_values(plan), **axes, "run.micro_batch": (1,)}).legal > 0
