"""What lies outside the tensors: workspaces, the allocator's pool, the driver's own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledger.books import compile_plan
from ledger.books.compiled_roles import compile_roles
from ledger.books.memory.outside import allocations_outside, workspaces_of
from ledger.books.memory.peak import Peak
from ledger.books.memory.timeline import BACKWARD
from ledger.books.results import Outside
from ledger.model.schedule import roles
from ledger.spec.plan import Plan
from tests.model import plans

SEQUENCES, TOKENS = 3, 39


def plan(kernel: str = "flash", **parts: object) -> Plan:
    """A small model with an allocator and a context of round figures."""
    run = {"seq_len": TOKENS, "micro_batch": SEQUENCES, "global_batch": SEQUENCES}
    made = plans.compiled(**{"model": plans.LLAMA, "kernels": {"attention": kernel}, "run": run, **parts}).plan
    return replace(made, stack=replace(made.stack, fragmentation=1.5, context=1000))


def test_what_is_reserved_is_the_peak_and_its_named_parts() -> None:
    """A reader who adds up the report's table gets the total: workspaces are fragmented, the context is not."""
    compiled = compile_plan(plan())
    role = compiled.roles[0]
    parts = {part.name: part.bytes for part in role.outside}
    held = role.peak.total + sum(amount for name, amount in parts.items() if name.startswith("workspaces"))
    assert compiled.totals["memory.reserved"] == role.peak.total + sum(parts.values())
    assert parts["pool of the allocator"] == int(held * 1.5) - held
    assert parts["workspaces of the matmul library"] == 2 * compiled.plan.accelerator.matmul_workspace > 0
    assert all(part.basis for part in role.outside)


@pytest.mark.parametrize("kernel", ["flash", "flash3", "eager"])
def test_attention_backward_works_in_what_its_source_allocates(kernel: str) -> None:
    """In a layer's backward, and there alone: mha_bwd of FlashAttention-2 and -3, rows in tiles of 128 queries."""
    made = plan(kernel)
    (book,) = compile_roles(made, roles(made))
    attention = made.model.groups[0].attention
    rows, width = 128, -(-attention.head_dim // 32) * 32
    dq = 4 * SEQUENCES * rows * attention.heads * width
    statistic = 4 * SEQUENCES * rows * attention.heads
    grouped = attention.kv_heads < attention.heads
    bytes_of_bf16 = 2
    expected = {
        "flash": dq
        + statistic
        + grouped * 2 * bytes_of_bf16 * SEQUENCES * TOKENS * attention.heads * attention.head_dim,
        "flash3": dq + 2 * statistic + grouped * 2 * 4 * SEQUENCES * rows * attention.kv_heads * width,
        "eager": 0,
    }[kernel]
    assert grouped
    for point, workspace in zip(book.timeline.points, workspaces_of(book), strict=True):
        runs = (point.phase, point.unit) == (BACKWARD, "decoder")
        assert workspace == (expected if runs else 0)


def test_a_moment_without_attention_reserves_no_workspace_for_it() -> None:
    """The update's peak is not made larger by a buffer that was freed before."""
    made = plan()
    (book,) = compile_roles(made, roles(made))
    names = [
        part.name for part in allocations_outside(made, Peak(len(book.timeline.points) - 1, 10**6), workspaces_of(book))
    ]
    assert "workspaces of attention's backward" not in names
    assert all(isinstance(part, Outside) for part in allocations_outside(made, Peak(0, 10**6), workspaces_of(book)))
