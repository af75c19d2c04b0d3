"""Sweeps of plans that serve, against every combination compiled by itself."""

from __future__ import annotations

import csv
import json
from itertools import product
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import ledger
from ledger.report.views.parts import Report
from ledger.report.views.served.verdict import verdict
from ledger.search.page import page, sweep_record
from ledger.search.recommend import recommend
from ledger.search.sweep import SweepRequest, prepare, sweep
from ledger.search.workers import in_this_process
from ledger.spec.load import load_plan
from ledger.spec.overrides import assignments
from ledger.spec.problems import SpecError

ROOT = Path(__file__).resolve().parents[2]
RATE, COST = "serve.tokens_per_second_per_device", "cost.per_million_tokens"
LOADS = (8, 200)


def swept(plan: str, *over: str, **asked: Any) -> dict[str, Any]:
    """What a sweep publishes."""
    return sweep_record(sweep(prepare(SweepRequest(plan, (), over, **asked)), in_this_process))


def compiled(plan: str, changes: dict[str, Any]) -> dict[str, Any] | None:
    """The totals of a plan with these changes; None where its rules refuse it."""
    try:
        return dict(ledger.compile(plan, overrides=assignments(changes)).totals)
    except SpecError:
        return None


def every(plan: str, devices: int) -> list[dict[str, Any]]:
    """The totals of each combination of degrees and loads that the rules of a plan allow, even stages alone."""
    found = []
    degrees = [one for one in range(1, devices + 1) if devices % one == 0]
    for tensor, pipeline, expert, load in product(degrees, degrees, degrees, LOADS):
        if devices % (tensor * pipeline) == 0:
            mesh = {"data": devices // tensor // pipeline, "tensor": tensor, "pipeline": pipeline, "expert": expert}
            changes = {f"parallelism.{key}": value for key, value in mesh.items()}
            found.append(compiled(plan, {**changes, "serve.concurrency": load}))
    return [one for one in found if one]


@pytest.mark.parametrize(("plan", "devices"), [("serve-70b", 8), ("serve-qwen3-30b", 2)])
@pytest.mark.parametrize("limit", ["serve.ttft <= 250 ms", "serve.time_per_token <= 25 ms"])
def test_the_best_is_that_of_every_combination(plan: str, devices: int, limit: str) -> None:
    """Fewest dollars a million tokens under a limit of latency, with a tenth of memory free: tried one by one."""
    found = swept(
        plan,
        f"serve.concurrency={LOADS[0]},{LOADS[1]}",
        "parallelism.ends=null,shared",
        objective=COST,
        conditions=(limit,),
        front=f"serve.time_per_token,{RATE}",
    )
    key, _, bound, _ = limit.split()
    least = float(bound) / 1e3
    legal = every(plan, devices)
    room = [one for one in legal if one["memory.reserved"] <= 0.9 * one["memory.capacity"]]
    meeting = [one for one in room if one[key] <= least]
    assert found["counts"]["legal"] == len(legal)
    assert found["counts"]["fitting"] == len(room)
    assert found["best"]["totals"][COST] == pytest.approx(min(one[COST] for one in meeting), rel=1e-12)
    points = {(one["serve.time_per_token"], -one[RATE]) for one in meeting}
    front = [a for a in points if not any(b != a and b[0] <= a[0] and b[1] <= a[1] for b in points)]
    kept = [(one["totals"]["serve.time_per_token"], -one["totals"][RATE]) for one in found["front"]]
    assert sum(kept, ()) == pytest.approx(sum(sorted(front), ()))


def test_changes_make_the_plan_of_a_row() -> None:
    """What a row changes, applied alone, is a plan with the row's totals: stages that are not equal, formats, loads."""
    found = swept("serve-70b", "precision.cache=bf16,fp8_e4m3", "parallelism.pipeline=2,8", "parallelism.tensor=1,4")
    schema = json.loads((ROOT / "ledger" / "cli" / "schemas" / "sweep.schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(found, schema)
    for row in found["top"]:
        totals = compiled("serve-70b", row["changes"])
        assert totals is not None
        assert {key: totals[key] for key in row["totals"]} == pytest.approx(row["totals"], rel=1e-12)


def test_without_an_objective_devices_give_most_tokens() -> None:
    """The usual objective is output tokens a second for a device, whatever number of devices is tried."""
    found = swept("serve-qwen3-30b", "cluster.devices=1,2,4", "parallelism.pipeline=1")
    rates = [row["totals"][RATE] for row in found["top"]]
    assert rates == sorted(rates, reverse=True)
    assert {row["changes"]["cluster.devices"] for row in found["top"]} == {1, 2, 4}


def test_requests_that_arrive_are_answered_by_what_is_found() -> None:
    """A layout that does not keep up with its requests is none that meets what is asked."""
    arriving = ("serve.concurrency=null", "serve.arrival_rate=4 requests/s")
    search = prepare(SweepRequest("serve-70b", arriving, ("parallelism.pipeline=1",), objective="serve.time_per_token"))
    found = sweep(search, in_this_process).result
    keys = search.question.keys
    assert 0 < found.meeting < found.legal
    assert all(row[keys.index("serve.unanswered")] <= 0.01 for row in found.best.totals)


@pytest.mark.parametrize("key", ["parallelism.zero=0,1", "run.micro_batch=1,2", "recompute=none,full"])
def test_keys_of_training_are_refused_with_a_place(key: str) -> None:
    """No layout of a service has them, and the line says which keys one has."""
    with pytest.raises(SpecError) as raised:
        prepare(SweepRequest("serve-70b", (), (key,)))
    (problem,) = raised.value.problems
    assert "plan that serves" in problem.message
    assert "parallelism.tensor" in problem.help
    assert str(problem.where) == f"--over {key}:1:8"


def test_the_file_and_the_page_have_the_layouts(tmp_path: Path) -> None:
    """A row for each legal layout with its keys and totals, and a page whose time is that of a token."""
    search = prepare(SweepRequest("serve-qwen3-30b", (), ("serve.concurrency=1,64",)))
    found = sweep(search, in_this_process, tmp_path / "layouts.csv", dense=True)
    with (tmp_path / "layouts.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == found.result.legal
    assert {row["serve.concurrency"] for row in rows} == {"1", "64"}
    assert all(float(row["serve.time_per_token"]) > 0 for row in rows)
    assert "serve.time_per_token" in page(found)


def test_a_report_names_the_layout_that_gives_most() -> None:
    """The fastest of a service is the best of its sweep, and the first page has it, its lines and what it costs."""
    found = recommend(load_plan("serve-70b"))
    best = swept("serve-70b")["best"]
    assert found.fastest is not None
    assert found.fastest.totals[RATE] == pytest.approx(best["totals"][RATE], rel=1e-12)
    assert compiled("serve-70b", dict(found.fastest.changes)) is not None
    view = verdict(Report(ledger.compile("serve-70b"), recommendations=found))
    assert view.advice is not None
    assert [one.yaml for one in view.advice.layouts] == [found.fastest.yaml]
    assert found.fastest.label in view.change


def test_what_does_not_fit_is_told_the_fewest_keys_that_do() -> None:
    """The smallest edit of a service beyond its memory leaves its headroom free."""
    overrides = ("parallelism.tensor=1", "parallelism.data=8", "serve.concurrency=256")
    plan = load_plan("serve-70b", overrides)
    found = recommend(plan)
    assert found.smallest is not None
    totals = ledger.compile("serve-70b", overrides=(*overrides, *assignments(found.smallest.changes))).totals
    assert totals["memory.reserved"] <= 0.9 * plan.accelerator.memory
    assert set(found.smallest.changes) <= {"parallelism.data", "parallelism.tensor"}


def test_given_requests_are_answered_sooner_by_what_is_recommended() -> None:
    """Where requests arrive, output is given, and the fastest layout has the shortest time between tokens."""
    plan = load_plan("serve-70b", ("serve.concurrency=null", "serve.arrival_rate=2 requests/s"))
    found = recommend(plan)
    assert found.fastest is not None
    latencies = [one.totals["serve.time_per_token"] for one in found.front]
    assert found.fastest.totals["serve.time_per_token"] == min(latencies)
