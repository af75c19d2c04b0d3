"""Layouts priced as arrays are what the compiler says of each, and none that is legal is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from ledger.books.compiler import compile_plan
from ledger.search.batches import PricedLayouts
from ledger.search.pricing import pieces, price_piece
from ledger.search.space import LAYOUT, Space, space_of
from ledger.spec.load import load_plan
from ledger.spec.overrides import assignments

CLOSE = 1e-9
LARGEST = 2**53  # of the whole numbers that a float64 holds

NO_PIPELINE: Mapping[str, Any] = {"parallelism.pipeline": [1], "parallelism.interleave": [1]}
ALONE: Mapping[str, Any] = {"parallelism.tensor": [1], "parallelism.sequence": ["off"], "parallelism.context": [1]}
# A space of each kind of plan: what is cut, which files it is of, and the keys that are kept small.
SPACES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "dense": ("7b-8xh100", {**NO_PIPELINE, "parallelism.context": [1], "run.micro_batch": [1, 2]}),
    "offload": ("7b-8xh100", {**ALONE, "parallelism.pipeline": [1, 2], "parallelism.zero": [1, 3]}),
    "hosts": ("7b-8xh100", {**ALONE, **NO_PIPELINE, "parallelism.zero": [3], "recompute": ["none", "full"],
        "run.micro_batch": [1, 2]}),
    "drives": ("7b-8xh100", {**ALONE, **NO_PIPELINE, "parallelism.zero": [3], "recompute": ["none", "full"],
        "run.micro_batch": [1, 2]}),
    "context": ("8b", {**NO_PIPELINE, "parallelism.tensor": [1, 4], "recompute": ["none"], "run.micro_batch": [1]}),
    "pipelines": ("llama-3.1-405b-meta", {"parallelism.tensor": [8], "parallelism.context": [1], "recompute": ["full"],
        "parallelism.zero": [1, 2], "parallelism.replicate": [1], "parallelism.sequence": ["regather"],
        "run.micro_batch": [1], "parallelism.offload": [None]}),
    "experts": ("mixtral-8x7b", {**NO_PIPELINE, "parallelism.tensor": [1, 2], "parallelism.context": [1],
        "recompute": ["none", "full"], "parallelism.offload": [None], "run.micro_batch": [1, 2]}),
    "mapped": ("mixtral-8x7b", {**NO_PIPELINE, "parallelism.tensor": [1, 2], "parallelism.context": [1],
        "recompute": ["none"], "parallelism.offload": [None], "run.micro_batch": [1]}),
    "parts": ("7b-8xh100", {**ALONE, **NO_PIPELINE, "parallelism.zero": [1, 3], "recompute": ["none", "full"],
        "run.micro_batch": [1, 2, 4], "parallelism.offload": [None]}),
    "latent": ("deepseek-v3", {**ALONE, "parallelism.interleave": [1], "parallelism.expert": [32, 64],
        "parallelism.pipeline": [8, 16], "parallelism.zero": [1, 2], "parallelism.replicate": [1],
        "parallelism.offload": [None], "recompute": ["full"], "run.micro_batch": [1]}),
}  # fmt: skip
DRIVES = "{capacity: 10 TB, read: 20 GB/s, write: 10 GB/s, source: this test}"
# What a kind of plan has otherwise than its file.
OVERRIDES: Mapping[str, tuple[str, ...]] = {
    "mapped": ("stack=megatron-core-2025", "kernels.weighing=activation"),
    "parts": ("kernels.loss=fused_linear", "run.seq_len=4001"),  # parts of 512, 1024 and 2048 rows, the last shorter
    "hosts": ("parallelism.zero=3", "parallelism.offload=[weights]"),  # its accelerator's file states a host
    "drives": (
        "parallelism.zero=3",
        "parallelism.offload={optimizer: nvme}",
        f"cluster.host={{memory: 1 TB, bandwidth: 400 GB/s, nvme: {DRIVES}, source: this test}}",
    ),
}


def priced(space: Space, keys: tuple[str, ...], every: int = 1) -> list[PricedLayouts]:
    """Every block of a space, or of every so manieth piece of it."""
    return [block for piece in pieces(space)[::-every] for block in price_piece(piece, keys)]


def drawn(blocks: list[PricedLayouts], count: int, seed: int) -> Iterator[tuple[PricedLayouts, int]]:
    """So many rows of all blocks, each as likely as any other."""
    ends = np.cumsum([len(block) for block in blocks])
    places = np.random.default_rng(seed).choice(int(ends[-1]), min(count, int(ends[-1])), replace=False)
    for place in sorted(places.tolist()):
        number = int(np.searchsorted(ends, place, side="right"))
        yield blocks[number], place - int(ends[number]) + len(blocks[number])


def compare(name: str, count: int, every: int = 1) -> None:
    """Every total of some rows of a space beside what the compiler says of the spec with their changes."""
    (spec, over), own = SPACES[name], OVERRIDES.get(name, ())
    space = space_of(load_plan(spec, own), over)
    rows = list(drawn(priced(space, ("time.step",), every), count, seed=len(name)))
    compiled = [compile_plan(load_plan(spec, (*own, *assignments(block.layout(row))))).totals for block, row in rows]
    keys = tuple(dict.fromkeys(key for totals in compiled for key in totals))
    assert len(keys) > 60
    again = drawn(priced(space, keys, every), count, seed=len(name))
    for (block, row), totals in zip(again, compiled, strict=True):
        for key in keys:
            told = key, block.layout(row)
            found, expected = float(block.totals[key][row]), totals.get(key)
            if expected is None:
                assert np.isnan(found), told
            elif isinstance(expected, int) and expected < LARGEST:
                assert found == expected, told
            else:
                assert found == pytest.approx(float(expected), rel=CLOSE, abs=_smallest(key)), told


def _smallest(key: str) -> float:
    """How far a total may be off that is a difference of others: paces, which together are 1."""
    return CLOSE if key.startswith("pace.") else 0.0


@pytest.mark.parametrize("name", ["dense", "offload", "hosts", "drives", "experts", "mapped", "parts"])
def test_some_rows_are_what_the_compiler_says(name: str) -> None:
    """A few rows of each kind of space."""
    compare(name, 4, every=5)


@pytest.mark.long
@pytest.mark.parametrize("name", SPACES)
def test_rows_are_what_the_compiler_says(name: str) -> None:
    """A thousand rows, over all kinds of spaces."""
    compare(name, 170)


def test_a_total_that_no_plan_has_is_refused() -> None:
    """Its name, whatever the layouts are."""
    over = {**NO_PIPELINE, **ALONE, "run.micro_batch": [1], "recompute": ["none"], "parallelism.zero": [0]}
    with pytest.raises(KeyError, match=r"time\.coffee"):
        priced(space_of(load_plan("7b-8xh100"), over), ("time.coffee",))


def test_every_legal_layout_is_there_once() -> None:
    """The rows of a space are the layouts that the rules leave, one by one."""
    over = {**ALONE, "parallelism.pipeline": [1, 2], "parallelism.interleave": [1, 2], "run.micro_batch": [1]}
    space = space_of(load_plan("7b-8xh100"), {**over, "recompute": ["none"], "parallelism.offload": [None]})
    rows = [block.layout(row) for block in priced(space, ("time.step",)) for row in range(len(block))]
    found = sorted(repr(sorted(row.items())) for row in rows)
    assert found == sorted(repr(sorted(layout.items())) for layout in space.layouts())
    assert len(found) > 100
    assert all(key in row for row in rows for key in LAYOUT)


@pytest.mark.long
@pytest.mark.parametrize("name", ["dense", "offload", "experts"])
def test_best_and_front_are_those_of_all_compiled_layouts(name: str) -> None:
    """What is best, and what nothing beats in time and memory, is so among all layouts compiled one by one."""
    spec, over = SPACES[name]
    small = {**over, "recompute": ["none", "full"], "parallelism.replicate": [1], "parallelism.sequence": ["off"]}
    plan = load_plan(spec)
    space = space_of(plan, {**small, "parallelism.offload": [None], "parallelism.schedule": [None, "1f1b"]})
    blocks = priced(space, ("time.step", "memory.reserved"))
    found = np.concatenate([np.stack([block.totals[key] for key in block.totals], axis=1) for block in blocks])
    each = [compile_plan(load_plan(spec, assignments(layout))).totals for layout in space.layouts()]
    expected = np.array([[float(one["time.step"]), float(one["memory.reserved"])] for one in each])
    assert len(found) == len(expected)
    assert front(found) == pytest.approx(front(expected), rel=CLOSE)
    assert found[:, 0].min() == pytest.approx(expected[:, 0].min(), rel=CLOSE)


def front(points: np.ndarray) -> np.ndarray:
    """The points that no other beats in both, by time."""
    ordered = points[np.lexsort((points[:, 1], points[:, 0]))]
    least = np.minimum.accumulate(ordered[:, 1])
    return ordered[np.concatenate([[True], ordered[1:, 1] < least[:-1] * (1 - CLOSE)])]


@pytest.mark.long
def test_a_piece_is_the_same_without_those_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers price pieces in any order: what one finds does not rest on what another has looked at."""
    small = {"parallelism.pipeline": [32], "parallelism.schedule": ["gpipe"], "parallelism.context": [1, 2, 4]}
    space = space_of(load_plan("mixtral-8x7b"), {**small, "run.micro_batch": [4], "parallelism.zero": [3]})
    in_turn = [[len(block) for block in price_piece(piece, ("memory.reserved",))] for piece in pieces(space)]
    for piece, together in zip(pieces(space), in_turn, strict=True):
        monkeypatch.setattr("ledger.search.world._WORLDS", {})
        assert [len(block) for block in price_piece(piece, ("memory.reserved",))] == together
    assert sum(map(sum, in_turn)) == 144
