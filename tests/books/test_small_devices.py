"""CPUs, phones and TPUs by the same books as GPUs, and weights that are zero, each against sums done by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

import ledger
from ledger.books import prices
from ledger.books.compiled import Compiled
from ledger.books.prices import KernelWork
from ledger.books.what_if.solve import solve
from ledger.model.causes import Transfer
from ledger.spec.kernel_classes import DECODE, matmul
from ledger.spec.load import load_accelerator, load_plan, read_accelerator
from ledger.spec.problems import SpecError

# What a CPU or a phone has to say of itself: no multiprocessors, no links, one memory, no power limit.
LEAST = """
spec: ledger/1
accelerator: a small device
source: figures of this test
kind: {kind}
peak: {{bf16: 2 TFLOP/s, fp32: 1 TFLOP/s}}
vector: 1 TFLOP/s
bandwidth: 60 GB/s
memory: {{driver: 8 GB, labelled: 8 GB}}
"""
SERVED: dict[str, Any] = {
    "spec": "ledger/1",
    "plan": "a service",
    "accelerator": "h100-sxm",
    "cluster": "single",
    "model": "llama-3-8b",
    "precision": "bf16-true",
    "parallelism": {"data": 1},
    "stack": "serving",
    "serve": {"prompt": "2048 tokens", "output": "64 tokens", "concurrency": 1},
}
SHORT, RATE = {"prompt": "256 tokens", "output": "256 tokens"}, "serve.tokens_per_second"
MATRICES = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336)  # elements of the layers' matrices of Llama 3 8B
NORMS = 65 * 4096
HEAD = 128256 * 4096


def served(**parts: Any) -> Compiled:
    """The plan above with other parts, compiled."""
    return ledger.compile(yaml.safe_dump({**SERVED, **parts}))


def pruned(**how: Any) -> dict[str, Any]:
    """Its totals where weights are pruned so."""
    return dict(served(precision={"base": "bf16-true", "pruned": how}).totals)


@pytest.mark.parametrize("kind", ["cpu", "soc", "tpu"])
def test_a_device_says_only_what_it_has(kind: str) -> None:
    """Without multiprocessors, links, cache or power a device decodes: each step reads all weights and the cache."""
    device = yaml.safe_load(LEAST.format(kind=kind))
    found = served(accelerator=device, model="llama-3.2-1b")
    weights = 2 * 1235814400  # tied: the table is the head, and is read as such
    cache = 16 * 2 * 8 * 64 * 2
    read = found.totals["serve.weights_read"]
    assert read == pytest.approx(weights, rel=1e-5)  # and one row of the table more
    waits = found.totals["serve.cache.read"]
    assert waits == pytest.approx(cache * (2048 + 32), rel=0.01)
    assert found.totals["serve.time_per_token.floor"] == pytest.approx((read + waits) / 60e9)
    assert found.totals["serve.time_per_token"] >= found.totals["serve.time_per_token.floor"]


def test_products_without_multiprocessors_have_no_waves() -> None:
    """The same fitted price, without what a last wave of tiles costs, whatever the tile count."""
    h100 = load_accelerator("h100-sxm")
    work = KernelWork(matmul("bf16"), 2 * 1024**2 * 8192, 2 * 1024**2 + 4 * 1024 * 8192, "bf16", m=1024, n=1024, k=8192)
    curve = prices.curve(h100, work.kind)
    assert curve is not None
    whole = prices.kernel(replace(h100, multiprocessors=0), work).seconds
    by_hand = curve.parameters["t0"] + work.flops / (curve.parameters["e"] * 989.5e12) * (
        1 + curve.parameters["k0"] / 8192
    )
    assert whole == pytest.approx(by_hand)
    assert prices.kernel(h100, work).seconds > whole


def test_what_a_kernel_of_a_gpu_takes_to_start_is_of_gpus() -> None:
    """Where nothing was measured, decoding on a CPU takes shares of its sheet, and no launch of another device."""
    cpu = read_accelerator(LEAST.format(kind="cpu"), "a small device")
    kind = replace(matmul("bf16"), pass_=DECODE)
    tiny = KernelWork(kind, 2.0, 6.0, "bf16")
    gpu = replace(cpu, kind="gpu")
    assert prices.kernel(cpu, tiny).seconds < 1e-9 < prices.TYPICAL_DECODING["matmul"][1]["t0"]
    assert prices.kernel(gpu, tiny).seconds > prices.TYPICAL_DECODING["matmul"][1]["t0"]


def test_one_memory_copies_nothing() -> None:
    """Between a device and a host with the same memory no copy takes time."""
    assert prices.host_copy(load_accelerator("xeon-8480"), "down", 1e9).seconds == 0
    assert prices.host_copy(load_accelerator("tpu-v5e"), "down", 15e9).seconds == pytest.approx(1)


def test_a_cpu_launches_nothing_ahead_as_it_serves() -> None:
    """It is its own host: a launch of every kernel adds to the step, and there are no graphs that replay it."""
    parts = {"accelerator": "xeon-8480", "model": "llama-3.2-1b"}
    alone = served(**parts)
    launched = served(**parts, stack={"base": "serving", "launch": {"per_operation": "10 us"}})
    kernels = sum(row.times for row in alone.roles[0].kernels if row.when == "decode")
    gap = launched.totals["serve.time_per_token"] - alone.totals["serve.time_per_token"]
    assert gap == pytest.approx(10e-6 * kernels, rel=1e-6)


def test_tpus_reduce_over_their_own_links() -> None:
    """Four chips of a pod, one to a host, are one domain: an all-reduce moves 2 x 3/4 of its bytes at 200 GB/s."""
    tpu = {"accelerator": "tpu-v5e", "cluster": {"devices": 4, "devices_per_node": 1, "scaleout": "50 Gb/s"}}
    found = served(**tpu, parallelism={"data": 1, "tensor": 4}, model="llama-3.2-1b")
    kernels = [row for row in found.roles[0].kernels if row.when == "prefill"]
    sent = [row for row in kernels if isinstance(row.kind, Transfer) and row.kind.collective == "all_reduce"]
    assert all(row.roofline == pytest.approx(row.payload * 2 * 3 / 4 / 200e9) for row in sent)
    assert sent


def test_two_of_four_keeps_nine_sixteenths() -> None:
    """Of 16 bits and their neighbours: half the values and 2 bits for each; norms, embedding and head stay."""
    totals = pruned(pattern="2:4")
    assert totals["memory.static.weights"] == MATRICES * 2 * 9 // 16 + 2 * (NORMS + 2 * HEAD)
    assert totals["flops.decode.dense"] - totals["flops.decode"] == MATRICES  # of 2 a weight, one
    assert totals["flops.decode.dense"] == served().totals["flops.decode"]
    assert totals["parameters"] == served().totals["parameters"]


def test_sparse_tensor_cores_run_at_the_sparse_figure() -> None:
    """A large product with zeros in it takes what its dense FLOPs take at 1979 TFLOP/s; the sheet is no measurement."""
    h100 = load_accelerator("h100-sxm")
    dense = KernelWork(matmul("bf16"), 2 * 8192**3, 6 * 8192**2, "bf16", m=8192, n=8192, k=8192)
    sparse = replace(dense, flops=dense.flops / 2, run_share=0.5)
    assert prices.kernel(h100, sparse).floor == pytest.approx(dense.flops / 1979e12)
    assert not prices.kernel(h100, sparse).calibrated
    slow = replace(h100, sparse_peak={"bf16": 1.5 * 989.5e12})  # as fp4 of GB300: less than twice
    assert prices.kernel(slow, sparse).floor == pytest.approx(dense.flops / (1.5 * 989.5e12))


def test_zeros_that_are_stored_change_nothing() -> None:
    """Weights pruned anywhere, or two of four by a kernel that does not know it, are bytes and FLOPs like others."""
    before = dict(served().totals)
    assert pruned(share="90 %") == before
    assert pruned(pattern="2:4", kernel="dense") == before


def test_packed_zeros_save_bytes_and_no_products() -> None:
    """Of 80 %, a fifth of the values with 16 bits each; unpacked before each product, or on the chip by its kernel."""
    before, unpacked, read = (
        dict(served().totals),
        pruned(share="80 %", storage="packed"),
        pruned(share="80 %", kernel="sparse"),
    )
    rows = 32 * (4096 * 2 + 1024 * 2 + 2 * 14336 + 4096)
    held = MATRICES * 4 // 5 + 4 * rows + 2 * (NORMS + 2 * HEAD)
    assert unpacked["memory.static.weights"] == read["memory.static.weights"] == pytest.approx(held, abs=32 * 7)
    for totals in (unpacked, read):
        assert totals["flops.prefill"] == before["flops.prefill"]
        assert "flops.prefill.dense" not in totals
    assert unpacked["serve.time_per_token"] > before["serve.time_per_token"] > read["serve.time_per_token"]
    assert unpacked["serve.ttft"] > before["serve.ttft"]


def test_a_cpu_makes_thousands_of_tokens_for_several_sequences() -> None:
    """GPT-2 small on a server's socket: one sequence stays under 1000 a second, two to seven make 1 to 5 thousand."""
    each_reads = 307.2e9 / (2 * 124439808)  # steps a second at the best, of which one sequence has a token each
    rates = {
        count: served(accelerator="xeon-8480", model="gpt2", serve={**SHORT, "concurrency": count}).totals[RATE]
        for count in (1, 2, 7)
    }
    assert rates[1] < 1000 < rates[2] < rates[7] < 5000
    assert all(rate <= count * each_reads for count, rate in rates.items())


# --- products in a dtype that a device has no peak for ---

NARROW = LEAST.format(kind="tpu").replace(", fp32: 1 TFLOP/s", "")
CONVERTED = {"model": "llama-3.2-1b", "stack": "llama-cpp-2024", "cluster": {"devices": 1, "devices_per_node": 1}}
TRAINED = {
    **{key: part for key, part in SERVED.items() if key not in ("serve", "stack")},
    "model": "llama-3.2-1b",
    "cluster": {"devices": 1, "devices_per_node": 1},
    "optimizer": "adamw",
    "run": {"seq_len": 1024, "micro_batch": 1, "global_batch": 1},
}
ROUTER = "model.layers.experts.mlp.router.dtype=compute"


@pytest.mark.parametrize("device", ["tpu-v5e", yaml.safe_load(NARROW)])
@pytest.mark.parametrize(
    ("plan", "said", "mended"),
    [
        (
            {**TRAINED, "kernels": {"attention": "math"}},
            "fp32 peak, and decoder/attention/scores multiplies",
            "kernels.attention=flash",
        ),
        ({**TRAINED, "model": "deepseek-v2"}, "fp32 peak, and experts/mlp/router multiplies", ROUTER),
        (
            {**SERVED, **CONVERTED},
            "fp16 peak, and llama.cpp of May 2024, CUDA multiplies prompts",
            "stack=serving",
        ),
    ],
)
def test_a_product_without_a_peak_is_refused(device: Any, plan: dict[str, Any], said: str, mended: str) -> None:
    """A kernel, a model or a stack that multiplies in what the device has no peak for: at the accelerator, in words.

    What the help says, another kernel, router or stack, or such a peak, makes a plan of it.
    """
    on_device = {"accelerator": device}
    with pytest.raises(SpecError) as refused:
        ledger.compile(yaml.safe_dump({**plan, **on_device}, sort_keys=False))
    (problem,) = refused.value.problems
    dtype = said.split(maxsplit=1)[0]
    assert problem.message.endswith(f"has no {said} in it")
    assert problem.help.endswith(f"state `accelerator.peak.{dtype}`")
    assert problem.where.file in refused.value.sources
    for setting in (mended, f"accelerator.peak.{dtype}=1 TFLOP/s"):
        assert ledger.compile(yaml.safe_dump({**plan, **on_device}), [setting]).totals


def test_half_precision_of_a_phone_is_converted_to() -> None:
    """A device whose peaks have fp16 runs the stack that converts to it; one without does not, whatever is stored."""
    phone = {**CONVERTED, "accelerator": "apple-a17-pro", "precision": "fp16-pure"}
    assert served(**phone).totals["serve.ttft"] > 0
    stored = {"base": "bf16-true", "weights": {"base": "int4"}}
    for precision in ("bf16-true", stored):
        with pytest.raises(SpecError, match="has no fp16 peak"):
            served(**CONVERTED, accelerator="xeon-8480", precision=precision)


def test_values_without_a_peak_are_passed_over() -> None:
    """An input is solved for among the values that have their peaks; of the others it is said why they are none."""
    solution = solve(load_plan(yaml.safe_dump({**TRAINED, "accelerator": "tpu-v5e"})), "kernels.attention")
    refused = {row.values["kernels.attention"]: row.why for row in solution.tried if row.verdict == "refused"}
    assert "has no fp32 peak" in refused["math"]
    assert solution.value not in refused
