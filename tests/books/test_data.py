"""What a step reads: batches that a host copies, storage and workers that a step waits for, batches kept ready."""

from __future__ import annotations

import pytest

import ledger
from ledger.arithmetic.values import Amount
from ledger.books.breakdown import breakdown
from ledger.books.compiled import Compiled
from ledger.books.compiled_roles import bound_role
from ledger.books.memory.steps import BATCH
from ledger.model.batch import batch_parts
from ledger.model.causes import ENDS
from ledger.model.program import program
from ledger.model.schedule import roles
from ledger.report.explained import explanation
from ledger.spec.data import DECODED, DECODED_SOURCE
from ledger.spec.load import load_plan
from ledger.spec.problems import SpecError

WORKERS = 'data={workers: 4, rate: "100 images/s"}'
IMAGES, DEVICES = 256, 8  # of a step of the library's ResNet-50


def totals(spec: str, *settings: str) -> dict[str, Amount]:
    """The totals of a plan of the library with settings."""
    return dict(ledger.compile(spec, settings).totals)


@pytest.fixture(scope="module")
def resnet() -> Compiled:
    """ResNet-50 as the library has it, of whose data nothing is stated."""
    return ledger.compile("resnet-50")


@pytest.mark.parametrize("spec", ["8b", "gpt2", "t5-11b", "resnet-50", "vit-l", "405b", "deepseek-v3"])
def test_what_is_copied_is_what_the_ends_of_a_model_read(spec: str) -> None:
    """The bytes of tokens, pixels and labels as the books hold them on the device, of every kind of device."""
    plan = load_plan(f"specs/{spec}.yaml")
    copied: dict[str, float] = {}
    read: dict[str, float] = {}
    for role in roles(plan):
        book = bound_role(plan, role, program(plan, role))
        for unit in book.program.units:
            for part in batch_parts(plan):
                if part.unit == unit.name:
                    assert float(book.value(part.expression())) == part.bytes(plan)
                    copied[part.name] = part.bytes(plan)
            tensors = (t for step in unit.written for t in step.inputs) if unit.name in ENDS else ()
            given = [t for t in tensors if t.name in BATCH or (t.of_loss and t.dtype == "int64")]
            read |= {t.storage: book.value(t.bytes()) for t in given}
    assert sorted(copied.values()) == sorted(read.values())


def test_token_plans_copy_ids_and_labels(resnet: Compiled) -> None:
    """Two int64 a token on each device; of an image its pixels in fp32 and one label."""
    assert totals("8b")["traffic.batch"] == 2 * 8 * 8192
    assert resnet.totals["traffic.batch"] == IMAGES // DEVICES * (4 * 3 * 224 * 224 + 8)


def test_without_rates_a_step_waits_for_nothing(resnet: Compiled) -> None:
    """The checklist says how many workers the published rate asks for; no total of waiting is there."""
    (check,) = (check for check in resnet.verdict.checks if check.name == "data")
    per_device = float(resnet.totals["images_per_second"]) / DEVICES
    assert int(check.figure) - 1 < per_device / DECODED <= int(check.figure)
    assert "time.data" not in resnet.totals
    assert resnet.totals["pace.data"] == 0


def test_a_batch_that_is_late_sets_the_pace(resnet: Compiled) -> None:
    """32 images of 4 workers at 100 a second take 80 ms: the step takes as long, and data is what limits it."""
    late = ledger.compile("resnet-50", (WORKERS,))
    assert late.totals["time.data"] == pytest.approx(IMAGES / DEVICES / 400)
    assert late.totals["time.step"] == pytest.approx(float(late.totals["time.data"]))
    assert late.totals["time.data.wait"] == pytest.approx(0.08 - float(resnet.totals["time.step"]))
    assert late.verdict.bottleneck == "data"
    assert late.totals["pace.data"] == pytest.approx(1)
    parts = breakdown(late, "time.step").parts
    assert dict(parts)["waiting for data"] == late.totals["time.data.wait"]
    assert sum(seconds for _, seconds in parts) == pytest.approx(float(late.totals["time.step"]))


@pytest.mark.parametrize(("rate", "ends"), [(100, (0.08, 0.08)), (250, (0.032, None)), (1000, (None, None))])
def test_a_wait_for_a_stated_rate_has_no_spread(
    resnet: Compiled, rate: float, ends: tuple[float | None, float | None]
) -> None:
    """Both ends of the step without data wait for the batch that is late: 80 ms beyond both, 32 ms beyond the lower."""
    low, high = (float(resnet.totals[f"time.step.{end}"]) for end in ("low", "high"))
    found = totals("resnet-50", f"data={{workers: 4, rate: {rate} images/s}}")
    assert found["time.step.low"] == pytest.approx(ends[0] or low)
    assert found["time.step.high"] == pytest.approx(ends[1] or high)
    behind = totals("resnet-50", f"data={{workers: 4, rate: {rate} images/s, prefetch: 0}}")
    assert behind["time.step.high"] == pytest.approx(high + float(behind["time.data.wait"]))


def test_a_batch_in_time_is_hidden(resnet: Compiled) -> None:
    """Ten times the workers: the step is as without data, and all of it is hidden."""
    found = totals("resnet-50", WORKERS, "data.workers=40")
    assert found["time.step"] == resnet.totals["time.step"]
    assert found["time.data.wait"] == 0


def test_images_have_no_tokens_in_storage() -> None:
    """Neither bytes nor rates of them, which the errors say where they stand."""
    with pytest.raises(SpecError) as error:
        load_plan("specs/resnet-50.yaml", ["data={token: 2 B, workers: 2, rate: 1M tokens/s}"])
    said = [problem.message for problem in error.value.problems]
    assert said == ["the model reads images, and no tokens", "a rate of tokens, and the model reads images"]


def test_without_prefetch_one_comes_after_the_other(resnet: Compiled) -> None:
    """Storage, workers and the link, then the step: nothing hides."""
    found = totals("resnet-50", "data={workers: 4, rate: 100 images/s, sample: 110 kB, bandwidth: 1 GB/s, prefetch: 0}")
    link = float(resnet.totals["traffic.batch"]) / resnet.plan.accelerator.host_bandwidth
    waited = IMAGES * 110e3 / 1e9 + IMAGES / DEVICES / 400 + link
    assert found["time.data.wait"] == pytest.approx(waited)
    assert found["time.step"] == pytest.approx(waited + float(resnet.totals["time.step"]))


def test_workers_of_images_have_a_published_rate() -> None:
    """Where a plan states workers and no rate; of text there is none, and workers alone say nothing."""
    assert totals("resnet-50", "data={workers: 2}")["time.data"] == pytest.approx(IMAGES / DEVICES / (2 * DECODED))
    assert "time.data" not in totals("8b", "data={workers: 2}")


@pytest.mark.parametrize(("data", "rate"), [("{workers: 2}", f"{DECODED:.0f} images/s"), (WORKERS[5:], "100 images/s")])
def test_the_rate_of_workers_is_explained(data: str, rate: str) -> None:
    """As a spec states it, or the published one with its source; also among the inputs of the time it makes."""
    compiled = ledger.compile("resnet-50", (f"data={data}",))
    record = explanation(compiled, "data.rate")
    assert record["value"] == rate
    assert (record["source"], record["where"]) == (DECODED_SOURCE, "default") or data != "{workers: 2}"
    assert record in explanation(compiled, "time.data")["inputs"]


@pytest.mark.parametrize("data", ["{token: 4.5 B, bandwidth: 2 MB/s}", "{sample: 36864 B, bandwidth: 2 MB/s}"])
def test_storage_is_read_once_by_the_job(data: str) -> None:
    """64 sequences of 8192 tokens of 4.5 bytes over 2 MB/s, by token or by sequence; a device's own is one of them."""
    found = totals("8b", f"data={data}")
    assert found["traffic.storage"] == 8192 * 4.5
    assert found["time.step"] == pytest.approx(64 * 8192 * 4.5 / 2e6)


def test_a_sample_is_read_with_its_source() -> None:
    """Of an encoder and a decoder, tokens of both are in storage, and workers prepare both."""
    found = ledger.compile("t5-11b", ("data={token: 2 B, bandwidth: 1 GB/s, workers: 1, rate: 1k tokens/s}",))
    run = found.plan.run
    tokens = run.seq_len + run.source_len
    replicas = run.global_batch // found.plan.parallelism.data
    assert found.totals["traffic.storage"] == replicas * tokens * 2
    assert found.totals["time.data"] == pytest.approx(replicas * tokens / 1000)


def test_devices_of_a_replica_need_the_same_samples() -> None:
    """Over 64 replicas each worker prepares a 64th of a step; over 32 of two devices, twice as many."""
    rate = "data={workers: 2, rate: 1k tokens/s}"
    halved = totals("8b", rate, "parallelism={data: 32, tensor: 2, zero: 3}", "run.micro_batch=2")
    assert totals("8b", rate)["time.data"] == pytest.approx(8192 / 2000)
    assert halved["time.data"] == pytest.approx(2 * 8192 / 2000)


def test_batches_that_are_ready_are_in_host_memory() -> None:
    """Each of 4 workers has 3 batches ahead, for each device of a node; none without prefetching."""
    found = ledger.compile("resnet-50", (WORKERS, "data.prefetch=3"))
    batch = float(found.totals["traffic.batch"])
    assert found.totals["memory.host"] == DEVICES * 4 * 3 * batch
    assert breakdown(found, "memory.host").parts == (("batches", 4 * 3 * batch),)
    assert "memory.host" not in totals("resnet-50", WORKERS, "data.prefetch=0")
