"""What stands beside matmuls and transfers: copies of ZeRO 3, narrow gathers, transfers behind their own block."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ledger.books import compile_plan
from ledger.books.compiled import Compiled
from ledger.books.overlap import overlapped_seconds, slowdown, total_seconds
from ledger.books.prices import KernelWork, kernel
from ledger.books.results import KernelTime
from ledger.model.causes import Cause, Transfer
from ledger.spec.kernel_classes import KernelClass, kernel_class
from ledger.spec.load import load_accelerator, load_plan

SPECS = Path(__file__).parents[2] / "specs"
PLAN = load_plan(str(SPECS / "8b.yaml"))
STACK = PLAN.stack


def rows(compiled: Compiled, ending: str) -> list[KernelTime]:
    """The kernels and transfers of the first role whose account ends so."""
    return [row for row in compiled.roles[0].kernels if row.account.endswith(ending)]


def test_fsdp2_copies_every_weight_out_of_every_gather() -> None:
    """bf16 weights read and written once a gather, two gathers a micro-batch; the fp32 share is read to be cast."""
    compiled = compile_plan(PLAN)
    shards = PLAN.parallelism.data
    weights = compiled.totals["parameters"]
    out = sum(row.bytes * row.times for row in rows(compiled, "weights/copy_out"))
    gathers = 2  # forward, backward
    batches = PLAN.run.global_batch // (PLAN.run.micro_batch * shards)
    assert out == pytest.approx(gathers * batches * weights * (2 + 2 + (4 + 2) / shards), rel=1e-3)  # rows are padded


def test_flat_parameters_are_no_copies_but_flat_gradients_are() -> None:
    """FSDP1 uses what arrived; it joins bf16 gradients (2 + 2 bytes) and casts them for the reduction (2 + 4)."""
    views = compile_plan(replace(PLAN, stack=replace(STACK, unshard="views")))
    weights, shards = views.totals["parameters"], PLAN.parallelism.data
    batches = PLAN.run.global_batch // (PLAN.run.micro_batch * shards)
    out = sum(row.bytes * row.times for row in rows(views, "weights/copy_out"))
    into = sum(row.bytes * row.times for row in rows(views, "weights/copy_in"))
    assert out == pytest.approx(2 * batches * weights * (4 + 2) / shards, rel=1e-3)
    assert into == pytest.approx(batches * weights * (4 + 6), rel=1e-3)


def test_weights_that_are_held_whole_are_not_copied() -> None:
    """ZeRO 1 gathers updated weights once a step, into themselves."""
    whole = compile_plan(replace(PLAN, parallelism=replace(PLAN.parallelism, zero=1)))
    assert not rows(whole, "copy_out")
    assert not rows(whole, "copy_in")


def test_a_transfer_hides_behind_its_own_block_alone() -> None:
    """The MLP's long matmuls are no cover for attention's gather, which waits for its own."""
    moving = _row(Cause("decoder", "norm", "attention"), Transfer("all_gather", "tensor", "tensor"), 3.0)
    matmul = kernel_class("matmul.bf16")
    short, long = (
        _row(Cause("decoder", "q", "attention"), matmul, 1.0),
        _row(Cause("decoder", "up", "mlp"), matmul, 9.0),
    )
    plan = replace(PLAN, stack=replace(STACK, overlap=replace(STACK.overlap, tensor="matmul")))
    assert sum(seconds for _, seconds in overlapped_seconds("forward", [moving, short, long], plan)) == total_seconds(
        [short]
    )


def test_a_transfer_takes_multiprocessors_from_what_runs_beside_it() -> None:
    """24 channels of NCCL on 132 multiprocessors; a share that a stack states itself wins where it is more."""
    assert slowdown(replace(PLAN, stack=replace(STACK, transfer_channels=24, overlap_tax=0.0))) == 24 / 132
    assert slowdown(replace(PLAN, stack=replace(STACK, transfer_channels=24, overlap_tax=0.5))) == 0.5


def test_a_stacks_level_is_of_plain_matmuls() -> None:
    """Products of quantised operands have one of their own, and nothing but a matmul has any."""
    device = load_accelerator("h100-sxm")
    work = KernelWork(
        kernel_class("matmul.bf16"), flops=2.0 * 8192**3, bytes=6.0 * 8192**2, dtype="bf16", m=8192, n=8192, k=8192
    )
    narrow = replace(work, kind=kernel_class("matmul.fp8"), dtype="fp8")
    attention = replace(work, kind=kernel_class("attention.flash.forward"))
    for plain, quantised, factors in ((0.5, 1.0, (2, 1, 1)), (1.0, 0.5, (1, 2, 1))):
        for kind, factor in zip((work, narrow, attention), factors, strict=True):
            slower = kernel(device, kind, plain, quantised).seconds
            assert slower == pytest.approx(factor * kernel(device, kind).seconds)


def test_quantised_gathers_send_a_byte_an_element() -> None:
    """torchao casts before it gathers where one scale serves a tensor; rows are gathered as they are."""
    layout = replace(PLAN.parallelism, tensor=2, data=PLAN.parallelism.data // 2, sequence="save_gathered")

    def sent(precision: str) -> list[float]:
        given = load_plan(str(SPECS / "8b.yaml"), (f"precision={precision}",))
        compiled = compile_plan(replace(given, parallelism=layout))
        return [row.payload for row in rows(compiled, "attention_norm/norm.all_gather") if row.when == "forward"]

    assert [2 * payload for payload in sent("fp8-tensorwise")] == sent("fp8-rowwise")


def _row(cause: Cause, kind: KernelClass | Transfer, seconds: float) -> KernelTime:
    """A kernel, or a transfer, that runs once."""
    some = compile_plan(PLAN).roles[0].kernels[0]
    bound = "network" if isinstance(kind, Transfer) else "compute"
    return replace(some, cause=cause, kind=kind, seconds=seconds, times=1, bound=bound, when="forward")
