"""The calendar of a run: what failures, checkpoints, evaluation, starting and waiting add to its steps, and cost."""

from __future__ import annotations

from math import exp, inf, sqrt

import pytest

import ledger
from ledger.arithmetic.values import Amount
from ledger.books import calendar
from ledger.spec.problems import SpecError

DAY, HOUR, MINUTE = 86400.0, 3600.0, 60.0
PLAN = """
spec: ledger/1
plan: a plan of nothing but a name
accelerator: h100-sxm
cluster: {base: h100-400g, devices: 1024, failure_rate: 0.0005 /d}
model: {parameters: 7e9}
precision: bf16-mixed
run: {tokens: 1T tokens}
assumptions:
  {mfu: 0.5, price: {per_device_hour: 2 USD, date: 2026-05, source: an offer}, power_usage_effectiveness: 1.2}
"""
FAILURES = 1024 * 0.0005 / DAY  # of the job a second


def totals(*settings: str) -> dict[str, Amount]:
    """The totals of the plan with settings."""
    return dict(ledger.compile(PLAN, settings).totals)


def stretch(*settings: str) -> float:
    """How much longer the calendar is than the run."""
    found = totals(*settings)
    return float(found["time.calendar"]) / float(totals()["time.calendar"])


def test_where_nothing_is_stated_the_calendar_is_the_run() -> None:
    """A rate of failures alone, which clusters on file have, loses nothing that is known; there is no goodput then."""
    found = totals()
    assert found["time.calendar"] == pytest.approx(float(found["napkin.time.run"]), rel=1e-3)
    assert "goodput" not in found
    assert "checkpoint.interval" not in found


def test_stalls_restarts_and_lost_work_add_up() -> None:
    """Four hours between checkpoints of five minutes, restarts of an hour: 1 - C/I - f (R + I/2) of the time trains."""
    stated = ("operations={checkpoint_interval: 4 h, checkpoint_cost: 5 min, restart_time: 1 h}",)
    left = 1 - 5 * MINUTE / (4 * HOUR) - FAILURES * (HOUR + 2 * HOUR)
    found = totals(*stated)
    assert float(found["goodput"]) == pytest.approx(left, rel=1e-12)
    assert stretch(*stated) == pytest.approx(1 / left, rel=1e-12)


def test_money_energy_and_carbon_follow_the_calendar() -> None:
    """Devices are paid for and draw power all the time, not while they train."""
    found = totals(
        "operations={evaluation_interval: 10 h, evaluation_time: 1 h, power: 600 W, grid_intensity: 400 g/kWh}"
    )
    hours = float(found["time.calendar"]) / HOUR
    assert float(found["goodput"]) == pytest.approx(0.9)
    assert float(found["cost.run"]) == pytest.approx(1024 * 2 * hours)
    assert float(found["energy.run"]) == pytest.approx(1024 * 600 * 1.2 * hours * HOUR)
    assert float(found["carbon.run"]) == pytest.approx(1024 * 0.6 * 1.2 * hours * 0.4)


def test_warm_up_is_paid_once_and_reservations_whole() -> None:
    """Ten hours before the first step; four fifths of the reserved time."""
    run = float(totals()["time.calendar"])
    assert totals("operations.warm_up=10 h")["time.calendar"] == pytest.approx(run + 10 * HOUR)
    assert totals("operations.utilisation=80 %")["time.calendar"] == pytest.approx(run / 0.8)


def test_a_checkpoint_is_what_training_has_learnt() -> None:
    """bf16 weights are made of their fp32 master copy: that and two fp32 states, 12 bytes a parameter, once a job."""
    assert totals()["checkpoint.bytes"] == 12 * 7_000_000_000
    assert totals("precision=bf16-autocast")["checkpoint.bytes"] == 12 * 7_000_000_000
    found = totals("operations={checkpoint_interval: 1 h, storage_bandwidth: 20 GB/s}")
    assert found["checkpoint.time"] == pytest.approx(12 * 7 / 20)


BESIDE = "operations={checkpoint_interval: 1 h, storage_bandwidth: 100 MB/s, checkpoint_async: true}"
SAVED = 12 * 7e9  # bytes of a checkpoint of the plan


def test_a_checkpoint_beside_training_stops_it_for_the_copy_to_the_host() -> None:
    """A 1024th of it over a device's link; storage takes 14 minutes beside, and a failure meanwhile loses them too."""
    found, device = totals(BESIDE), ledger.compile(PLAN).plan.accelerator
    stalled = SAVED / 1024 / device.host_bandwidth
    assert found["checkpoint.time"] == pytest.approx(stalled)
    assert found["checkpoint.writing"] == pytest.approx(SAVED / 100e6)
    left = 1 - stalled / HOUR - FAILURES * (HOUR / 2 + SAVED / 100e6)
    assert float(found["goodput"]) == pytest.approx(left, rel=1e-12)


def test_hosts_hold_what_is_being_written() -> None:
    """Even shares of the devices of a node, in the host's memory with all else, which may be too small for them."""
    host = "cluster.host={memory: 20 GB, bandwidth: 100 GB/s, source: an example}"
    settings = ("operations={checkpoint_interval: 1 h, storage_bandwidth: 1 GB/s, checkpoint_async: true}", host)
    compiled = ledger.compile("8b", settings)
    found = compiled.totals
    assert found["checkpoint.host"] == float(found["checkpoint.bytes"]) / 8
    assert found["memory.host"] == found["checkpoint.host"]
    assert compiled.verdict.fits
    smaller = ledger.compile("8b", (settings[0], host.replace("20 GB,", "10 GB,")))
    assert not smaller.verdict.fits
    assert "memory.host" not in ledger.compile("8b", (settings[0].replace("true", "false"), host)).totals


def test_a_checkpoint_is_written_before_the_next_begins() -> None:
    """The best interval leaves storage its time; a stated one that does not is a line of the checklist that fails."""
    slow = BESIDE.replace("100 MB/s", "5 MB/s")
    assert totals(slow.replace("1 h", "best"))["checkpoint.interval"] == pytest.approx(SAVED / 5e6)
    checks = {check.name: check.status for check in ledger.compile(PLAN, slow).verdict.checks}
    assert checks["saving"] == "fail"
    assert {check.name: check.status for check in ledger.compile(PLAN, BESIDE).verdict.checks}["saving"] == "pass"


MATRICES = 32 * 4096 * (2 * 128 * (32 + 8) + 3 * 14336)  # of 32 layers of Llama 3 8B
ENDS, NORMS = 2 * 128256 * 4096, 65 * 4096  # embedding and head, two norms a layer and the last
FACTORS = 32 * (2 * (4096 + 4096) + 2 * (1024 + 4096) + 3 * (14336 + 4096)) + 2 * (128256 + 4096)  # rows, columns
ADAPTERS = 8 * 32 * (4096 + 32 * 128 + 4096 + 8 * 128)  # rank 8 of q and v
LORA = "train={lora: {rank: 8, targets: [q, v]}}"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["optimizer=muon", "precision=bf16-pure"], (2 + 4) * MATRICES + (2 + 8) * (ENDS + NORMS)),
        (["optimizer=adafactor", "precision=bf16-autocast"], 4 * (MATRICES + ENDS + NORMS) + 4 * (FACTORS + NORMS)),
        ([LORA, "precision=lora-peft"], (4 + 8) * ADAPTERS),
        ([LORA, "precision=qlora-peft"], (4 + 8) * ADAPTERS),
        ([LORA, "precision=qlora-bf16"], (2 + 4) * ADAPTERS),
        ([LORA, "precision=bf16-mixed"], (4 + 8) * ADAPTERS),
        (["train={only: [head]}", "precision=bf16-pure"], (2 + 8) * ENDS // 2),
        (["train={frozen: [embedding]}", "precision=bf16-mixed"], 12 * (MATRICES + ENDS // 2 + NORMS)),
    ],
)
def test_a_checkpoint_has_what_is_trained_in_its_own_formats(settings: list[str], expected: int) -> None:
    """Rules with other states for other weights, factors of rows and columns, adapters on a narrow base, parts."""
    alone = ("cluster.devices=1", "parallelism={}", "run.micro_batch=1", "run.global_batch=1", "expect=[]")
    for layout in (alone, ("parallelism.zero=3", "expect=[]")):
        assert ledger.compile("8b", (*settings, *layout)).totals["checkpoint.bytes"] == expected


def test_the_best_interval_is_the_best() -> None:
    """sqrt(2 C / f), and none of many others loses less."""
    found = totals("operations={checkpoint_interval: best, checkpoint_cost: 2 min, restart_time: 20 min}")
    assert found["checkpoint.interval"] == pytest.approx(sqrt(2 * 2 * MINUTE / FAILURES))
    least = inf
    for minutes in range(30, 600, 5):
        stated = f"operations={{checkpoint_interval: {minutes} min, checkpoint_cost: 2 min, restart_time: 20 min}}"
        least = min(least, float(totals(stated)["time.calendar"]))
    assert float(found["time.calendar"]) <= least


def test_the_first_order_is_near_the_expectation() -> None:
    """Daly 2006, equation 13: with failures at random moments, M e^(R/M) (e^(I/M) - 1) a stretch of I - C that trains.

    A failure in three hours is what 16,384 devices have at the rate of Grattafiori et al. 2024.
    """
    stated = "operations={checkpoint_interval: best, checkpoint_cost: 1 min, restart_time: 10 min}"
    rate = f"cluster.failure_rate={16 * 0.000474} /d"
    found = totals(stated, rate)
    between = DAY / (16 * 0.000474 * 1024)
    every = float(found["checkpoint.interval"])
    daly = between * exp(10 * MINUTE / between) * (exp(every / between) - 1) / (every - MINUTE)
    assert 1 / float(found["goodput"]) == pytest.approx(daly, rel=0.015)


def test_more_failures_than_work_never_end() -> None:
    """Where failures take more time than there is, the calendar is a thousand runs, no negative one, and that fails."""
    stated = "operations={checkpoint_interval: 10 d, checkpoint_cost: 5 min, restart_time: 2 d}"
    assert stretch(stated) == pytest.approx(1000)
    checks = {check.name: check for check in ledger.compile(PLAN, stated).verdict.checks}
    assert checks["operations"].status == "fail"


def test_long_waits_are_no_failures() -> None:
    """A run that waits a thousand times as long as it trains gets there all the same."""
    for stated in ("operations.warm_up=100000 d", "operations.utilisation=0.1 %"):
        compiled = ledger.compile(PLAN, stated)
        checks = {check.name: check for check in compiled.verdict.checks}
        assert float(compiled.totals["goodput"]) <= 1e-3
        assert checks["operations"].status == "pass"
    run = float(totals()["time.calendar"])
    assert totals("operations.utilisation=0.1 %")["time.calendar"] == pytest.approx(run / 0.001)


def test_the_ends_of_a_step_are_carried_through() -> None:
    """Days and dollars have the step's ends: lost shares depend on no step of a run that outlasts an interval."""
    stated = ("operations={checkpoint_interval: 4 h, checkpoint_cost: 5 min, restart_time: 1 h}",)
    found = ledger.compile("70b", stated).totals
    for end in ("low", "high"):
        ratio = float(found[f"time.step.{end}"]) / float(found["time.step"])
        assert float(found[f"time.calendar.{end}"]) == pytest.approx(ratio * float(found["time.calendar"]))
        assert float(found[f"cost.run.{end}"]) == pytest.approx(ratio * float(found["cost.run"]))
    assert float(found["time.calendar"]) == pytest.approx(float(found["time.run"]) / 0.9185, rel=1e-4)


OLD_PLACES = (
    "assumptions.checkpoint_interval=4 h",
    "assumptions.checkpoint_cost=5 min",
    "assumptions.restart_time=1 h",
    "cluster.failure_rate=0.001 /d",
)


@pytest.mark.parametrize("old", OLD_PLACES)
def test_old_places_are_read(old: str) -> None:
    """What stood in other parts before says the same there."""
    others = [text for text in OLD_PLACES if text != old]
    assert totals(*others, old) == totals(*others, f"operations.{old.partition('.')[2]}")
    assert totals(*others, old) != totals(*others)


def test_a_plan_holds_over_its_cluster_on_file_and_not_over_itself() -> None:
    """The library's rate gives way; a plan that states a rate in both places is asked which it means."""
    assert totals("cluster={base: h100-400g, devices: 1024}", "operations.failure_rate=0.1 /d")
    twice = PLAN + "operations: {failure_rate: 0.1 /d}\n"
    with pytest.raises(SpecError) as error:
        ledger.compile(twice)
    assert [problem.message for problem in error.value.problems] == [
        "`cluster.failure_rate` and `operations.failure_rate` say the same thing twice"
    ]


def test_what_never_ends_has_no_days_and_dollars_in_its_headline() -> None:
    """It says that it never ends instead, although it fits."""
    compiled = ledger.compile("8b", "operations={checkpoint_interval: best, storage_bandwidth: 1 B/s}")
    assert compiled.verdict.fits
    assert not compiled.verdict.runs
    assert "never ends" in compiled.verdict.headline
    assert "USD" not in compiled.verdict.headline
    assert "$" not in compiled.verdict.headline


def test_the_calendar_is_training_and_what_is_lost() -> None:
    """Every loss has its name, and together they are the calendar: by hand for the plan of the library.

    Of 1024 devices with 0.000474 failures a day each, every one costs 20 min and half an interval.
    """
    compiled = ledger.compile("70b", ["operations.warm_up=6 h", "operations.utilisation=95 %"])
    totals, plan = compiled.totals, compiled.plan
    parts = dict(calendar.losses(plan, float(totals["time.run"]), float(totals["checkpoint.bytes"])))
    assert sum(parts.values()) == pytest.approx(float(totals["time.calendar"]) - float(totals["time.run"]), rel=1e-12)
    ran = 0.95 * float(totals["time.calendar"])
    failed = 0.000474 / 86400 * 1024 * ran
    assert parts["restarts"] == pytest.approx(failed * 1200)
    assert parts["work done again"] == pytest.approx(failed * float(totals["checkpoint.interval"]) / 2)
    assert parts["warm-up"] == 6 * 3600
    assert parts["reserved and not used"] == pytest.approx(0.05 * float(totals["time.calendar"]))


def test_no_failure_loses_more_than_the_run() -> None:
    """Of a run that ends before its first checkpoint half is lost, whatever the interval; a rate alone is warned of."""
    trained = float(totals()["time.calendar"])
    for interval in ("2000 d", "20000 d"):
        stated = f"operations={{checkpoint_interval: {interval}, checkpoint_cost: 1 s, failure_rate: 0.0001 /d}}"
        lost = 1024 * 0.0001 / DAY * trained / 2
        saved = 1.0 / (float(interval.removesuffix(" d")) * DAY)
        assert stretch(stated) == pytest.approx(1 / (1 - lost - saved), rel=1e-9)
    warned = ledger.compile(PLAN, ("operations.failure_rate=1 /d",)).plan.warnings
    assert any("failure_rate` has no effect" in warning.message for warning in warned)
