"""The model of PyTorch's caching allocator, and steps replay_step through it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.books.compiled_roles import compile_roles
from ledger.books.memory.peak import peak_bytes
from ledger.lab.replay.allocator import QUEUE, Allocator, Clock
from ledger.lab.replay.step import replay_step
from ledger.model.schedule import roles
from ledger.spec.load import load_plan

MIB = 2**20


def test_sizes_are_rounded_to_512_bytes() -> None:
    """One byte occupies 512 (kMinBlockSize), and its segment 2 MiB (kSmallBuffer)."""
    memory = Allocator()
    memory.allocate("a", 1)
    assert (memory.allocated, memory.reserved) == (512, 2 * MIB)


def test_medium_requests_share_20_mib() -> None:
    """Two requests of 6 MiB fit into one segment of 20 MiB (kLargeBuffer); 12 MiB have a segment of their own."""
    memory = Allocator()
    memory.allocate("a", 6 * MIB)
    memory.allocate("b", 6 * MIB)
    assert memory.reserved == 20 * MIB
    memory.allocate("c", 12 * MIB + 1)
    assert memory.reserved == 34 * MIB


def test_a_hole_that_is_too_small_is_no_use() -> None:
    """Two free blocks of 20 MiB do not serve 40, since segments do not join; an expandable one has no such holes."""
    for expandable, reserved in ((False, 80 * MIB), (True, 40 * MIB)):
        memory = Allocator(expandable=expandable)
        memory.allocate("a", 20 * MIB)
        memory.allocate("b", 20 * MIB)
        memory.free("a")
        memory.free("b")
        memory.allocate("c", 40 * MIB)
        assert memory.reserved == reserved
        assert memory.peak == 40 * MIB


def test_the_smallest_block_that_fits_is_taken() -> None:
    """Best fit: 30 MiB go into the hole of 30, so that 100 still find theirs."""
    memory = Allocator()
    for name, size in (("a", 100), ("b", 30)):
        memory.allocate(name, size * MIB)
    memory.free("a")
    memory.free("b")
    memory.allocate("c", 30 * MIB)
    memory.allocate("d", 100 * MIB)
    assert memory.reserved == 130 * MIB


def test_streams_share_nothing() -> None:
    """What one stream has freed is of no use to another."""
    memory = Allocator()
    memory.allocate("a", 20 * MIB, "gather")
    memory.free("a")
    memory.allocate("b", 20 * MIB)
    assert memory.reserved == 40 * MIB
    assert memory.peak == 20 * MIB


def test_a_block_of_another_stream_waits_for_the_device() -> None:
    """Tensor.record_stream: what a collective used is no use before the device has run what was launched by then.

    A host that costs no time is ahead by a full queue: 1024 kernels.
    """
    clock = Clock()
    memory = Allocator(clock)
    clock.launch(0.0, 1.0)
    memory.allocate("a", 20 * MIB)
    memory.free("a", used=True)
    assert memory.allocated == 0
    memory.allocate("b", 20 * MIB)
    assert memory.reserved == 40 * MIB
    for _ in range(QUEUE):
        clock.launch(0.0, 1.0)
    memory.allocate("c", 20 * MIB)
    assert memory.reserved == 40 * MIB


def test_a_host_that_waits_finds_its_blocks() -> None:
    """Nothing is pending once the host has waited for the device."""
    clock = Clock()
    memory = Allocator(clock)
    clock.launch(0.0, 1.0)
    memory.allocate("a", 20 * MIB)
    memory.free("a", used=True)
    memory.wait()
    memory.allocate("b", 20 * MIB)
    assert memory.reserved == 20 * MIB


@given(st.floats(0.1, 10), st.floats(0.1, 10), st.integers(1, 3 * QUEUE))
def test_the_faster_of_host_and_device_waits(host: float, device: float, kernels: int) -> None:
    """A slow host is never more than one kernel ahead; a fast one by what the device lags behind, up to a queue."""
    clock = Clock()
    for _ in range(kernels):
        clock.launch(host, device)
    ahead = (clock.device - clock.host) / device
    assert ahead == pytest.approx(
        max(1.0, min(QUEUE, 1 + (kernels - 1) * (1 - host / device))), rel=0.01, abs=host / device
    )


def test_a_full_device_gets_its_free_segments_back() -> None:
    """Where 80 MiB do not fit beside 60 that are free, those are given back first; what was wanted is remembered."""
    memory = Allocator(capacity=100 * MIB)
    memory.allocate("a", 60 * MIB)
    memory.free("a")
    memory.allocate("b", 80 * MIB)
    assert memory.segments == 80 * MIB
    assert memory.asked == 140 * MIB
    memory.recount()
    assert memory.reserved == 80 * MIB


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 64 * MIB)), max_size=60), st.booleans())
def test_nothing_is_lost(requests: list[tuple[int, int]], expandable: bool) -> None:
    """Blocks of a pool add up to what it reserved, allocated never exceeds reserved, and all that is freed joins up."""
    memory = Allocator(expandable=expandable)
    for index, size in requests:
        name = str(index)
        if name in memory.held:
            memory.free(name)
        else:
            memory.allocate(name, size)
        assert memory.allocated <= memory.reserved
    for name in list(memory.held):
        memory.free(name)
    assert memory.allocated == 0
    assert sum(size for pool in memory.pools.values() for size, _, _ in pool.blocks) == memory.reserved
    if expandable:
        assert all(len(pool.blocks) <= 1 for pool in memory.pools.values())


def test_a_replay_allocates_what_the_books_hold() -> None:
    """Two derivations of one number: moments of the timeline, and a step request by request, within 2 %.

    (GPT-2 on one device and Llama 3 8B in tensor-parallel stages: what is not held split.)
    """
    for spec, settings in (
        ("gpt2", ("parallelism={data: 1}", "cluster.devices=1", "run.global_batch=8", "run.micro_batch=4")),
        ("8b", ("parallelism={data: 8, tensor: 2, pipeline: 4, zero: 0}", "cluster.devices=64", "run.global_batch=64")),
    ):
        plan = load_plan(spec, settings)
        (book, *_) = compile_roles(plan, roles(plan))
        books, found = peak_bytes(book), replay_step(plan, book)
        assert abs(found.allocated / books - 1) < 0.02
        assert found.reserved >= found.allocated


def test_nothing_else_reads_what_a_stack_says_for_the_replay() -> None:
    """`Stack.replay` moves no figure of a plan: every place that reads it lies in the replay's own folder."""
    package = Path(__file__).parents[2] / "ledger"
    readers = {
        path.relative_to(package).parent.as_posix()
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and node.attr == "replay"
        and isinstance(node.value, ast.Attribute | ast.Name)
        and (node.value.attr if isinstance(node.value, ast.Attribute) else node.value.id) == "stack"
    }
    assert readers == {"lab/replay"}
