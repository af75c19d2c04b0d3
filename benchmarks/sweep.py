"""How many legal layouts a second a core prices, for three whole spaces, and where the time goes.

    python benchmarks/sweep.py [--only NAME] [--workers N]      # minutes; NAME: 405b, 1t, mixtral

Layouts are those of `ledger sweep`, priced with the totals that a front of time and cost against memory needs. `facts`
are seconds in which rules are traced and evaluated over grids of sizes; the rest puts them together for every layout.
`rest` is the rate without facts. The second line is of every total of the plan, in every fifth piece of the space.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from multiprocessing import get_context
from typing import Any, cast

import numpy as np

from ledger.books.compiler import compile_plan
from ledger.search import structures
from ledger.search.pricing import SpacePiece, pieces, price_piece
from ledger.search.space import space_of
from ledger.spec.load import load_plan
from ledger.spec.plan import Plan

FRONT = ("time.step", "memory.reserved", "time.run", "cost.run")
SOME = 5  # of so many pieces one is priced with every total
TRILLION = """
spec: ledger/1
plan: a trillion parameters on 4096 A100
accelerator: a100-sxm-80gb
cluster: {base: a100-200g, devices: 4096}
model: megatron-1t
precision: bf16-mixed
optimizer: adamw
parallelism: {tensor: 8, pipeline: 64, zero: 1}
stack: megatron-lm-2022
run: {tokens: 450B tokens, seq_len: 2048, micro_batch: 1, global_batch: 4096}
"""
MIXTRAL = """
spec: ledger/1
plan: Mixtral 8x22B on 1024 H100
accelerator: h100-sxm
cluster: {base: h100-400g, devices: 1024}
model: mixtral-8x22b
precision: bf16-mixed
optimizer: adamw
parallelism: {tensor: 2, pipeline: 4, expert: 8, zero: 1}
stack: megatron-te-2024
run: {tokens: 1T tokens, seq_len: 4096, micro_batch: 1, global_batch: 2048}
"""
PLANS: Mapping[str, Callable[[], Plan]] = {
    "405b": lambda: load_plan("llama-3.1-405b-meta", ["cluster.devices=16384", "parallelism.data=128"]),
    "1t": lambda: load_plan(TRILLION),
    "mixtral": lambda: load_plan(MIXTRAL),
}


def timed(piece: SpacePiece, keys: Sequence[str]) -> tuple[int, float, float, float]:
    """Layouts of a piece, seconds in all and of facts, and the most memory that the process has had, in bytes."""
    spent, asked = 0.0, cast(Any, structures)
    evaluated = asked.evaluated

    def watched(*given: Any) -> Any:
        nonlocal spent
        begin = time.perf_counter()
        found = evaluated(*given)
        spent += time.perf_counter() - begin
        return found

    asked.evaluated = watched
    begin = time.perf_counter()
    legal = sum(len(block) for block in price_piece(piece, keys))
    seconds = time.perf_counter() - begin
    asked.evaluated = evaluated
    return legal, seconds, spent, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def run(found: Sequence[SpacePiece], keys: Sequence[str], workers: int) -> Iterator[tuple[int, float, float, float]]:
    """Pieces of a plan's space, timed."""
    if workers == 1:
        yield from (timed(piece, keys) for piece in found)
        return
    with get_context("spawn").Pool(workers) as pool:
        yield from pool.imap_unordered(partial(timed, keys=keys), found)


def told(found: Sequence[SpacePiece], keys: Sequence[str], workers: int) -> str:
    """How fast pieces are priced: layouts, seconds, the rate, the share of facts, the rate without them, memory."""
    begin = time.perf_counter()
    table = np.array(list(run(found, keys, workers)))
    wall = time.perf_counter() - begin
    legal, seconds, facts, _ = table.sum(axis=0)
    rest, peak = legal / max(1e-9, seconds - facts), table[:, 3].max() / 1e9
    return f"{legal:12,.0f} {wall:8.1f} {legal / wall:10,.0f} {facts / seconds:6.0%} {rest:13,.0f} {peak:5.2f} GB"


def main() -> None:
    """Times the spaces and prints a line of each."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--only", choices=PLANS, action="append")
    asked.add_argument("--workers", type=int, default=1)
    given = asked.parse_args()
    heads = {
        "space": 8,
        "combinations": 14,
        "legal": 12,
        "wall s": 8,
        "a second": 10,
        "facts": 6,
        "rest": 13,
        "peak": 8,
    }
    print(" ".join(f"{name:>{width}}" for name, width in heads.items()))
    for name in given.only or PLANS:
        plan = PLANS[name]()
        space = space_of(plan)
        found = pieces(space)
        print(f"{name:>8} {space.combinations:14.3g} {told(found, FRONT, given.workers)}", flush=True)
        every = tuple(compile_plan(plan).totals)
        print(f"{'':8} {'every total':>14} {told(found[::-SOME], every, given.workers)}", flush=True)


if __name__ == "__main__":
    main()
