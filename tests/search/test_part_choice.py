"""Which model a budget allows and which device is cheapest: held to each of them compiled by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ledger.books.compiler import compile_totals
from ledger.books.what_if.answer import Solution, Tried
from ledger.books.what_if.conditions import fault
from ledger.books.what_if.ordered import Objective
from ledger.books.what_if.product import Candidate, Refused
from ledger.books.what_if.solve import asked_of
from ledger.books.what_if.unknowns import library_part
from ledger.search import part_choice
from ledger.search.found import nothing
from ledger.search.part_choice import PartLayouts, solve, unmeasured_links
from ledger.search.tasks import Task, TaskQuestion
from ledger.search.workers import Done, in_this_process
from ledger.spec.library import default_library
from ledger.spec.load import load_accelerator, load_plan
from ledger.spec.overrides import assignments
from ledger.spec.problems import SpecError

SPEC = "7b-8xh100"
TWENTY = "run.tokens=20 a parameter"
PRICED = (
    "a100-sxm-80gb",
    "b200",
    "gb200",
    "h100-sxm",
    "h200-sxm",
    "l40s",
    "mi300x",
    "rtx-4090",
)  # files of specs/prices


def rows(found: Solution) -> Mapping[str, Tried]:
    """What was tried, by name."""
    return {next(iter(row.values.values())): row for row in found.tried}


def by_themselves(key: str, *settings: str) -> dict[str, Mapping[str, Any]]:
    """The totals of the plan with each part of the library that rules allow in its layout, compiled one at a time."""
    known = {}
    for name in default_library().names(key):
        try:
            known[name] = compile_totals(load_plan(SPEC, [*settings, f"{key}={name}"]))
        except SpecError:
            continue
    return known


def test_the_largest_model_is_that_of_all_compiled_one_at_a_time() -> None:
    """In the plan's layout: the largest that fits and costs no more, and the smallest of the larger ones beyond it."""
    limit, budget = "cost.run <= 12000 USD", 12000
    found = solve(load_plan(SPEC, [TWENTY]), "model", [limit, "fits"], run=None)
    alone = by_themselves("model", TWENTY)
    meeting = {
        name: totals["parameters"]
        for name, totals in alone.items()
        if totals["cost.run"] <= budget and totals["memory.reserved"] <= totals["memory.capacity"]
    }
    assert found.value == max(meeting, key=lambda name: meeting[name])
    larger = {
        name: totals["parameters"] for name, totals in alone.items() if totals["parameters"] > meeting[found.value]
    }
    assert found.beyond == min(larger, key=lambda name: larger[name])
    assert found.bounds[0].at == pytest.approx(float(alone[found.value]["cost.run"]), rel=1e-12)
    assert found.bounds[0].beyond == pytest.approx(float(alone[found.beyond]["cost.run"]), rel=1e-12)
    assert any(f"the next larger, {found.beyond} with" in note for note in found.notes)


def test_what_is_skipped_misses_the_conditions_in_fact() -> None:
    """Its least is above the limit, and what it costs in the plan's layout more so."""
    found = solve(load_plan(SPEC, [TWENTY]), "model", ["cost.run <= 12000 USD"], run=None)
    alone = by_themselves("model", TWENTY)
    skipped = [name for name, row in rows(found).items() if row.verdict == "skipped"]
    assert "llama-3-70b" in skipped
    assert all(alone[name]["cost.run"] > 12000 for name in skipped if name in alone)
    assert "cost.run <= 12000 USD" in rows(found)["llama-3-70b"].why


def test_models_that_the_stack_cannot_run_are_named_with_the_rule() -> None:
    """Flash attention has no sinks, which gpt-oss has; and no sequence is longer than a model was made for."""
    found = solve(load_plan(SPEC), "model", run=None)
    assert rows(found)["gpt-oss-20b"].verdict == "refused"
    assert "no sinks" in rows(found)["gpt-oss-20b"].why
    short = solve(load_plan(SPEC, [TWENTY]), "model", ["cost.run <= 1000 USD"], run=None)
    assert short.value == "gpt2-xl"
    assert short.changes == {"model": "gpt2-xl", "run.seq_len": 1024}  # n_positions of its config.json
    assert any("no longer than it was made for" in note for note in short.notes)


def test_where_nothing_meets_a_budget_the_smallest_is_the_nearest_miss() -> None:
    """What was skipped is compiled in the plan's own layout where that is legal, so that the nearest is the nearest."""
    found = solve(load_plan(SPEC), "model", ["cost.run <= 1 USD"], run=None)
    assert found.values is None
    assert found.nearest == "gpt2"
    assert rows(found)["gpt2"].verdict == "fails"
    assert {row.verdict for name, row in rows(found).items() if name != "gpt2"} <= {"skipped", "refused", "fails"}


def test_where_no_device_is_fast_enough_the_fastest_is_the_nearest_miss() -> None:
    """Every device is hopeless by arithmetic alone, and the miss is that of the least time among those that fit."""
    found = solve(load_plan(SPEC), "accelerator", ["fits", "time.calendar <= 1 s"], minimize="cost.run", run=None)
    alone = by_themselves("accelerator")
    days = {
        name: totals["time.calendar"]
        for name, totals in alone.items()
        if "cost.run" in totals and totals["memory.reserved"] <= totals["memory.capacity"]
    }
    assert found.nearest == min(days, key=lambda name: float(days[name]))


def test_a_device_without_the_dtype_is_refused_and_said_so() -> None:
    """Its least time would be work over a rate that its data sheet does not have."""
    found = solve(load_plan(SPEC, ["precision=fp8-tensorwise"]), "accelerator", ["fits"], run=None)
    told = {name: row for name, row in rows(found).items() if name.startswith("a100-sxm-80gb")}
    assert {row.verdict for row in told.values()} == {"refused"}
    assert all("has no fp8_e4m3 peak" in row.why for row in told.values())
    assert told


def test_the_cheapest_device_is_that_of_all_priced_one_at_a_time() -> None:
    """Each at its own price in as many devices; those without a price are listed, and so are those that do not fit."""
    found = solve(load_plan(SPEC), "accelerator", minimize="cost.run", run=None)
    alone = by_themselves("accelerator")
    priced = {name: totals for name, totals in alone.items() if "cost.run" in totals}
    assert sorted(priced) == sorted(PRICED)
    fitting = {
        name: totals["cost.run"]
        for name, totals in priced.items()
        if totals["memory.reserved"] <= totals["memory.capacity"]
    }
    assert found.value == min(fitting, key=lambda name: fitting[name])
    for name, row in rows(found).items():
        if name in priced:
            assert row.totals is not None
            for key in ("cost.run", "cost.run.low", "cost.run.high", "time.calendar"):
                assert row.totals[key] == pytest.approx(float(priced[name][key]), rel=1e-12)
            assert (row.verdict == "fails") == (name not in fitting)
        else:
            assert row.verdict == "refused"
            assert "assumptions.price" in row.why
            assert row.details["price"] == "none on file"
    assert rows(found)["h100-sxm"].details["price"] == "$2.50, 2026-05"  # specs/prices/h100-sxm.yaml


def test_a_part_that_misses_in_the_plans_layout_has_one_of_its_own() -> None:
    """A card of 24 GB needs its weights split further; what is said of it is what its own plan compiles to."""
    plan = load_plan(SPEC)
    question = asked_of(plan, (), "", "cost.run")
    layouts = PartLayouts(question, library_part(plan, "accelerator"), in_this_process)
    entrant = layouts.entrant("rtx-4090")
    assert isinstance(PartLayouts(question, layouts.unknown, None).judged(entrant), Candidate)
    found = layouts.judged(entrant)
    assert isinstance(found, Candidate)
    assert found.met
    assert found.settings["accelerator"] == "rtx-4090"
    assert len(found.settings) > 1
    alone = compile_totals(load_plan(SPEC, assignments(found.settings)))
    assert {key: found.totals[key] for key in alone} == alone
    assert alone["memory.reserved"] <= 0.9 * alone["memory.capacity"]


def test_a_search_that_is_cut_short_is_told_apart_from_one_that_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was found in time counts, and the answer says that it is not all; who presses Ctrl-C wants no answer."""
    whole = part_choice.search_spaces
    found: list[Any] = []

    def cut_short(*asked: Any) -> tuple[Any, bool, None]:
        found[:] = found or [whole(*asked)[0]]
        return found[0], False, None

    monkeypatch.setattr(part_choice, "search_spaces", cut_short)
    plan = load_plan(SPEC, ["accelerator=rtx-4090"])
    question = asked_of(plan, (), "", "cost.run")
    layouts = PartLayouts(question, library_part(plan, "accelerator"), in_this_process)
    told = layouts.judged(layouts.entrant("rtx-4090")).details["search stopped"]
    assert told == f"after {part_choice.SECONDS:g} s"
    monkeypatch.setattr(part_choice, "search_spaces", whole)

    def interrupted(tasks: Sequence[Task], job: TaskQuestion) -> Iterator[Done]:
        yield tasks[0], replace(nothing(job.question), complete=False)

    layouts = PartLayouts(question, library_part(plan, "accelerator"), interrupted)
    with pytest.raises(KeyboardInterrupt):
        layouts.judged(layouts.entrant("rtx-4090"))


def test_an_objective_that_is_named_tries_every_model() -> None:
    """Who asks for the cheapest of all models is given that, and nothing is left out for its size."""
    plan = load_plan(SPEC, [TWENTY])
    found = solve(plan, "model", minimize="cost.run", run=None)
    assert found.goal == str(Objective("cost.run", -1))
    assert len(found.tried) == len(default_library().names("model"))
    assert not any("not tried" in note for note in found.notes)


def test_other_keys_are_solved_as_ever() -> None:
    """Only one part alone has layouts of its own."""
    plan = load_plan(SPEC)
    assert solve(plan, "run.seq_len", ["memory.peak <= 60 GB"]).closed_form
    assert solve(plan, ["accelerator", "parallelism.zero"], run=None).paths == ("accelerator", "parallelism.zero")


def test_a_condition_that_no_plan_knows_is_refused_as_ever() -> None:
    """With its place in what was typed."""
    with pytest.raises(type(fault("", 1, ""))):
        solve(load_plan(SPEC), "model", ["cost.rn <= 1 USD"])


def test_what_is_refused_is_no_candidate() -> None:
    """A name whose file cannot be read beside the plan is listed with the reason, and ends nothing."""
    plan = load_plan(SPEC)
    layouts = PartLayouts(asked_of(plan, (), "", "cost.run"), library_part(plan, "accelerator"), None)
    refused = layouts.judged(layouts.entrant("l4"))
    assert isinstance(refused, Refused)
    assert "assumptions.price" in refused.why


def test_devices_whose_links_nobody_measured_are_named() -> None:
    """A data sheet is the best that a link can do: beside measured ones, those that go by it are told."""
    devices = {name: load_accelerator(name) for name in ("l40s", "rtx-4090", "h100-sxm")}
    (note,) = unmeasured_links(devices)
    assert note.endswith("as measured: rtx-4090")
    sheet = devices.pop("rtx-4090")
    assert unmeasured_links(devices) == unmeasured_links({"rtx-4090": sheet}) == []


def test_a_device_of_ones_own_beside_the_plan_is_one_of_them(tmp_path: Path) -> None:
    """It is in the plan's library, and in no other."""
    own = tmp_path / "specs" / "accelerators"
    own.mkdir(parents=True)
    text = (default_library().folder("accelerator") / "rtx-4090.yaml").read_text("utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("aliases")]
    (own / "mine.yaml").write_text("\n".join(lines), "utf-8")
    plan = tmp_path / "plan.yaml"
    plan.write_text((default_library().root / "8b.yaml").read_text("utf-8"), "utf-8")
    found = solve(load_plan(plan), "accelerator", run=None)
    assert "mine" in rows(found)
    assert any("mine" in note and "data sheet" in note for note in found.notes)
