"""What limits a step: the resource of which a little more makes it shortest, the same in verdict and sensitivities."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

import ledger
from ledger.books import compile_plan
from ledger.books.compiled import Compiled
from ledger.books.price_changes import FASTER, FIXED, LIMITS, PRICES
from ledger.books.what_if.sensitivity import sensitivities
from ledger.spec.load import load_plan
from tests.library_plans import TRAINING

SPECS = Path(__file__).resolve().parents[2] / "specs"
LARGE = ("llama-3.1-405b-meta", "deepseek-v3")  # which `make test-long` moves
STACKS = ("nanotron-2024", "nanotron-2025-checked", "torchtitan-2024", "fms-fsdp-2024", "pytorch-fsdp2-2025")


@pytest.fixture(
    scope="module",
    params=[pytest.param(path, marks=pytest.mark.long if path.stem in LARGE else ()) for path in TRAINING],
    ids=lambda path: path.stem,
)
def compiled(request: pytest.FixtureRequest) -> Compiled:
    """Every plan of the library that trains."""
    return ledger.compile(str(request.param))


def test_parts_are_a_whole_step(compiled: Compiled) -> None:
    """Time is of degree one in seconds per unit of every resource and in what is fixed, so the parts are one."""
    parts = {pace: float(compiled.totals[pace]) for pace in LIMITS}
    assert sum(parts.values()) == pytest.approx(1, rel=1e-12)
    assert all(0 <= part <= 1 for part in parts.values()), parts


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 24))])
def test_a_better_resource_never_lengthens_a_step(seed: int) -> None:
    """Small models and large ones, hosts that are ahead and hosts that are not: transfers hide behind either."""
    draw = Random(seed)  # noqa: S311 - plans, not secrets
    name = draw.choice(("gpt2.yaml", "8b.yaml", "7b-8xh100.yaml"))
    data, tensor = draw.choice((8, 16, 64)), 1 if name == "gpt2.yaml" else draw.choice((1, 2, 4, 8))
    plan = load_plan(
        SPECS / name,
        (
            f"stack={draw.choice(STACKS)}",
            f"cluster.devices={data * tensor}",
            f"parallelism={{data: {data}, tensor: {tensor}, zero: {draw.choice((0, 1, 3))}}}",
            f"run.micro_batch={draw.choice((1, 2, 4))}",
            f"run.global_batch={data * 16}",
            f"run.seq_len={draw.choice((256, 512, 1024))}",
        ),
    )
    hurried = replace(plan, stack=replace(plan.stack, launch=draw.choice((0.0, 5e-6, 2e-5, 1e-4))))
    totals = compile_plan(hurried).totals
    parts = {pace: float(totals[pace]) for pace in LIMITS}
    assert all(part >= -1e-9 for part in parts.values()), parts


SHELTERED_TWICE = {
    "gathers of each micro-batch, and of updated weights": (
        "mixtral-8x7b",
        "optimizer=muon",
        "cluster.devices=16",
        "parallelism={data: 1, tensor: 8, context: 2, zero: 3}",
        "recompute=none",
        "run.micro_batch=2",
        "run.global_batch=4",
        "run.seq_len=4096",
        "precision=bf16-true",
    ),
    "reductions of gradients, and what hosts compare before them": (
        "8b",
        "stack=nanotron-2025-checked",
        "stack.launch.per_operation=0 s",
        "cluster.devices=16",
        "parallelism={data: 8, tensor: 2, zero: 0}",
        "recompute=selective",
        "run.micro_batch=2",
        "run.global_batch=16",
        "run.seq_len=1024",
    ),
}


@pytest.mark.parametrize("given", SHELTERED_TWICE.values(), ids=SHELTERED_TWICE)
def test_what_one_transfer_hides_behind_another_does_not(given: tuple[str, ...]) -> None:
    """Else less of it exposes both, and a faster device or host makes a longer step."""
    totals = compile_plan(load_plan(given[0], ("accelerator=mi300x", *given[1:]))).totals
    parts = {pace: float(totals[pace]) for pace in LIMITS}
    assert all(part >= -1e-9 for part in parts.values()), parts


def test_the_limit_buys_most_when_the_plan_is_compiled_anew(compiled: Compiled) -> None:
    """Each price made better in the plan itself: none gives a shorter step than that of what limits it."""
    steps = {
        price.limit: float(compile_plan(price.moved(compiled.plan, (1 + FASTER) ** price.better)).totals["time.step"])
        for price in PRICES
    }
    assert compiled.verdict.bottleneck == min(steps, key=lambda name: steps[name])


def test_sensitivities_repeat_the_paces(compiled: Compiled) -> None:
    """One number, shown twice: more of a rate is less time, more time of a launch is more."""
    found = {
        row.path: row.elasticities["time.step"] for row in sensitivities(compiled) if "time.step" in row.elasticities
    }
    for price in PRICES:
        assert found[price.path] == -price.better * compiled.totals[price.pace]


def test_transfers_that_are_seen_set_at_least_their_part_of_the_pace(compiled: Compiled) -> None:
    """What the waterfall shows of transfers is waited for; hidden ones that outlast what hides them come on top."""
    seen = sum(span.seconds for span in compiled.waterfall if span.name.startswith("comm."))
    parts = [float(compiled.totals[pace]) for pace in ("pace.scaleup", "pace.scaleout", "pace.host", FIXED)]
    assert sum(parts) >= 0.99 * seen / float(compiled.totals["time.step"])


def test_transfers_that_outlast_what_hides_them_are_the_limit() -> None:
    """With links a hundred times slower, tokens on the way to experts hide every kernel, and kernels buy nothing."""
    plan = ledger.compile(str(SPECS / "deepseek-v3.yaml")).plan
    slow = replace(plan.cluster, scaleout_bandwidth=plan.cluster.scaleout_bandwidth / 100)
    found = compile_plan(replace(plan, cluster=slow))
    assert found.verdict.bottleneck == "network between nodes"
    assert found.totals["pace.scaleout"] > 0.95
    assert float(found.totals["pace.matmul"]) + float(found.totals["pace.memory"]) < 0.05
