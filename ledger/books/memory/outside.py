"""What a device holds beside the tensors of a step: workspaces of kernels, the allocator's pool, the driver's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import sympy

from ledger.arithmetic.values import Amount, floor, pick, truncate
from ledger.books.compiled_roles import CompiledRole
from ledger.books.memory.peak import Peak
from ledger.books.memory.timeline import BACKWARD
from ledger.books.results import Outside
from ledger.model.attention_cores import AttentionBackward
from ledger.model.dims import Dim
from ledger.model.operations import ZERO, total
from ledger.model.tensors import CeilDiv, Tensor
from ledger.model.unit import Unit
from ledger.spec.plan import Plan
from ledger.spec.stack import Stack

HANDLES = 2  # the thread of forward and autograd's own, each with a handle of its library
LIBRARY = "PyTorch, aten/src/ATen/cuda/CublasHandlePool.cpp: a workspace for each handle, never freed"
ATTENTION = (
    "Dao-AILab/flash-attention, csrc/flash_attn/flash_api.cpp and hopper/flash_api.cpp, mha_bwd: what a layer's"
    " backward holds, where the peak is one"
)
FRAGMENTATION, CONTEXT = "stack.allocator.fragmentation", "stack.allocator.context"
TILES: Mapping[str, int] = {"flash": 128, "flash3": 128}  # queries, or keys, that a kernel's sums are padded to


def allocations_outside(plan: Plan, peak: Peak, workspaces: Sequence[Amount]) -> tuple[Outside, ...]:
    """Everything beside the tensors at the fullest moment; with them, what the driver reports.

    `workspaces`: bytes that kernels of attention allocate, moment by moment.
    """
    library, attention, pool, context = _outside_bytes(plan, peak, workspaces)
    parts = (
        Outside("workspaces of the matmul library", library, LIBRARY),
        Outside("workspaces of attention's backward", attention, ATTENTION),
        Outside("pool of the allocator", pool, stated_at(plan, FRAGMENTATION)),
        Outside("context, libraries and communicators", context, stated_at(plan, CONTEXT)),
    )
    return tuple(part for part in parts if part.bytes)


def reserved(plan: Plan, peak: Peak, workspaces: Sequence[Amount]) -> Amount:
    """Bytes the driver reports: the tensors, and all that lies outside them."""
    return peak.bytes + sum(_outside_bytes(plan, peak, workspaces))


def allocated(plan: Plan, peak: Peak, workspaces: Sequence[Amount]) -> Amount:
    """Bytes that PyTorch's allocator counts (`torch.cuda.max_memory_allocated`): tensors, and workspaces of kernels."""
    library, attention, _, _ = _outside_bytes(plan, peak, workspaces)
    return peak.bytes + library + attention


def _outside_bytes(plan: Plan, peak: Peak, workspaces: Sequence[Amount]) -> tuple[Amount, Amount, Amount, Amount]:
    """Bytes of the matmul library, of attention's backward, of the allocator's pool, of the driver's context."""
    library = 0 if plan.model.bare else HANDLES * plan.accelerator.matmul_workspace
    attention = pick(peak.moment, workspaces)
    asked = peak.bytes + library + attention
    return library, attention, pool(asked, plan.stack), plan.stack.context


def pool(asked: Amount, stack: Stack) -> Amount:
    """Bytes that the allocator has reserved beyond those that it was asked for."""
    return floor(asked * stack.fragmentation) - asked


def workspaces_of(book: CompiledRole) -> tuple[Amount, ...]:
    """Bytes that attention's backward allocates for itself on a role's device, moment by moment."""
    units = {unit.name: unit for unit in book.program.units}
    return tuple(
        truncate(book.value(attention_workspace(units[point.unit])))
        if point.phase == BACKWARD and point.unit in units
        else 0
        for point in book.timeline.points
    )


def attention_workspace(unit: Unit) -> sympy.Expr:
    """Bytes that the attention kernel of a unit's backward allocates for itself.

    Attention of one unit differs only in what it attends to, so any of its kernels stands for all.
    """
    kernels = (step for step in unit.backward if isinstance(step, AttentionBackward))
    return next((total(t.bytes() for t in temporaries(kernel)) for kernel in kernels), ZERO)


def temporaries(kernel: AttentionBackward) -> Iterator[Tensor]:
    """Sums of the query's gradient in fp32 and a statistic a row, padded to tiles; where query heads share keys, more.

    FlashAttention-2 then has gradients of keys and values for every query head; FlashAttention-3 fp32 sums for each
    head they have.
    """
    query, key, value = kernel.of.inputs[:3]
    name = kernel.kernel.variant
    if name not in TILES:
        return
    grouped = key.dims[2].name != query.dims[2].name
    yield _padded_sum(query, "query", TILES[name])
    statistics = ("rows",) if name == "flash" else ("rows", "logsumexp.log2")
    for statistic in statistics:
        rows = _padded_sum(query, statistic, TILES[name])
        yield replace(rows, dims=rows.dims[:3])
    for tensor in (key, value) if grouped else ():
        if name == "flash":
            wide = (*tensor.dims[:2], query.dims[2], tensor.dims[3])
            yield replace(tensor, name=f"{tensor.name}.expanded", dims=wide, split=query.split, view_of="")
        else:
            yield _padded_sum(tensor, tensor.name, TILES[name])


def _padded_sum(tensor: Tensor, name: str, tile_size: int) -> Tensor:
    """A sum in fp32 of a tensor's shape: rows to whole tiles on each device, heads to multiples of 32 elements."""
    batch, seq, heads, width = tensor.dims
    parts = seq.symbol / tensor.local(seq)
    rows = Dim(seq.name, tile_size * parts * CeilDiv(seq.symbol, tile_size * parts))
    wide = Dim(width.name, 32 * CeilDiv(width.symbol, sympy.Integer(32)))
    return Tensor(f"{name}.sum", (batch, rows, heads, wide), "fp32", split=tensor.split)


def stated_at(plan: Plan, path: str) -> str:
    """The key of a figure of the stack, and where the figure is from."""
    origin = plan.origins.get(path)
    return f"{path}: {origin.source}" if origin and origin.source else path
