"""Kernels that the arithmetic of their units limits, where prices of their class know bytes alone.

Attention over a cache multiplies whole tiles of queries on matrix units, however few queries there are; a product that
runs row by row is one of scalar units.
"""

from __future__ import annotations

from dataclasses import replace

from ledger.books import prices
from ledger.books.kernels import KernelCall
from ledger.books.prices import Work
from ledger.books.results import KernelTime
from ledger.spec.kernel_classes import ATTENTION, DECODE, FORWARD, REDUCTION, KernelClass
from ledger.spec.kernel_families import OVER_PROMPTS
from ledger.spec.plan import Attention, Plan


def limited(row: KernelTime, call: KernelCall, plan: Plan) -> KernelTime:
    """The time of a kernel, no less than its arithmetic takes."""
    seconds = least(call, plan)
    return replace(row, seconds=seconds, bound="compute") if seconds > row.seconds else row


def least(call: KernelCall, plan: Plan) -> float:
    """Seconds of a call's arithmetic, where its engine says how it is done; else 0."""
    work, kind, engine = call.work, call.kind, plan.stack.engine
    if work is None or not isinstance(kind, KernelClass):
        return 0.0
    if kind == REDUCTION and call.cause.name in engine.row_by_row and call.when != DECODE:
        return float(work.flops) / (engine.vector_level * plan.accelerator.vector) if work.n > 1 else 0.0
    if engine.tile_rows and (kind.family, kind.pass_) == (ATTENTION, DECODE):
        return in_tiles(work, kind, plan, plan.model.group_of(call.cause.unit).attention)
    return 0.0


def in_tiles(work: Work, kind: KernelClass, plan: Plan, heads: Attention) -> float:
    """Seconds of attention over a cache in whole tiles, at the rate that the same kernel has over whole prompts.

    Queries that share a head of the cache lie in one tile, unless heads were written out for each of them.
    """
    rows = plan.stack.engine.tile_rows
    queries = 1 if plan.stack.engine.repeats_heads else heads.heads // heads.kv_heads
    forward = KernelClass(ATTENTION, OVER_PROMPTS[kind.variant], FORWARD)
    curve = prices.curve(plan.accelerator, forward, head_dim=heads.head_dim) or prices.typical(forward)
    flops = float(work.flops) * -(-queries // rows) * rows / queries
    return flops / (curve.parameters["e"] * plan.accelerator.peak[work.dtype])
