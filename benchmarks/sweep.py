"""How many legal layouts a second a core prices, for three whole spaces, and where the time goes.

    python benchmarks/sweep.py [--only NAME] [--workers N]      # minutes; NAME: 405b, 1t, mixtral

Layouts are those of `ledger sweep`, priced with the totals that a front of time and cost against memory needs. `facts`
are seconds in which rules are traced and evaluated over grids of sizes; the rest puts them together for every layout.
`rest` is the rate without facts. With every total, layouts are compiled one by one; the line says how fast.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from multiprocessing import get_context
from typing import Any, cast

import numpy as np

from ledger.books.compiler import compile_plan
from ledger.search import variants
from ledger.search.pricing import Piece, pieces, price
from ledger.search.space import laid_out, space_of
from ledger.spec.load import load_plan
from ledger.spec.plan import Plan

FRONT = ("time.step", "memory.reserved", "time.run", "cost.run")
ALONE = 20  # layouts that are compiled one by one
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


def timed(piece: Piece) -> tuple[int, float, float, float]:
    """Layouts of a piece, seconds in all and of facts, and the most memory that the process has had, in bytes."""
    spent, asked = 0.0, cast(Any, variants)
    evaluated = asked.evaluated

    def watched(*given: Any) -> Any:
        nonlocal spent
        begin = time.perf_counter()
        found = evaluated(*given)
        spent += time.perf_counter() - begin
        return found

    asked.evaluated = watched
    begin = time.perf_counter()
    legal = sum(len(block) for block in price(piece, FRONT))
    seconds = time.perf_counter() - begin
    asked.evaluated = evaluated
    return legal, seconds, spent, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def run(plan: Plan, workers: int) -> Iterator[tuple[int, float, float, float]]:
    """The pieces of a plan's whole space, timed."""
    found = pieces(space_of(plan))
    if workers == 1:
        yield from map(timed, found)
        return
    with get_context("spawn").Pool(workers) as pool:
        yield from pool.imap_unordered(timed, found)


def one_by_one(plan: Plan) -> float:
    """Layouts a second that are compiled with every total."""
    rows = (
        block.layout(row) for piece in pieces(space_of(plan))[:2] for block in price(piece, FRONT[:1]) for row in [0]
    )
    layouts = [laid_out(plan, layout) for layout in islice(rows, ALONE)]
    begin = time.perf_counter()
    for layout in layouts:
        compile_plan(layout)
    return len(layouts) / (time.perf_counter() - begin)


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
        begin = time.perf_counter()
        table = np.array(list(run(plan, given.workers)))
        wall = time.perf_counter() - begin
        legal, seconds, facts, _ = table.sum(axis=0)
        rest = legal / max(1e-9, seconds - facts)
        peak = table[:, 3].max() / 1e9
        combinations = space_of(plan).combinations
        print(
            f"{name:>8} {combinations:14.3g} {legal:12,.0f} {wall:8.1f} {legal / wall:10,.0f} {facts / seconds:6.0%}"
            f" {rest:13,.0f} {peak:5.2f} GB",
            flush=True,
        )
        print(f"{'':8} with every total, compiled one by one: {one_by_one(plan):.0f} a second", flush=True)


if __name__ == "__main__":
    main()
