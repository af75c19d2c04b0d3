"""Rows of searches are what the compiler says of each: a few spaces at each run, `make laws` ten thousand rows."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from ledger.books.compiler import compile_totals
from ledger.search.batches import PricedLayouts
from ledger.search.pricing import SpacePiece, price_piece
from ledger.spec.load import load_plan
from ledger.spec.plan import Plan
from tests.laws import rows
from tests.laws.__main__ import main
from tests.laws.random_spaces import KINDS, MOST_DEVICES, STACKS, Case, numbered_case

SEED = 1
DENSE = """
spec: ledger/1
plan: A law
accelerator: h100-sxm
cluster: {base: h100-400g, devices: 2}
model: gpt2
precision: bf16-mixed
optimizer: adamw
parallelism: {data: 2, zero: 1}
recompute: none
stack: pytorch-fsdp2-2025
run: {tokens: 1B tokens, seq_len: 512, micro_batch: 1, global_batch: 4}
"""
OVER = {
    **{f"parallelism.{axis}": [1] for axis in ("tensor", "context", "expert", "pipeline", "interleave", "replicate")},
    "parallelism.zero": [1],
    "parallelism.offload": [None],
    "recompute": ["none"],
    "run.micro_batch": [1, 2],
}
CASE = Case(0, "dense", "pytorch-fsdp2-2025", DENSE, OVER)


def test_rows_of_a_space_are_what_the_compiler_says() -> None:
    """Both rows, every total, shares of a step among them."""
    found = rows.compare(CASE)
    assert found.differences == ()
    assert found.rows == 2
    assert found.totals > 2 * len(compile_totals(load_plan(DENSE))) - 10


READ_AND_SAVED = f"""{DENSE.replace("adamw", "{base: adamw, zero_grad: fill}")}
data: {{token: 2 B, bandwidth: 1 MB/s, workers: 2, rate: 20k tokens/s, prefetch: 3}}
operations: {{checkpoint_interval: 1 h, storage_bandwidth: 1 GB/s, checkpoint_async: true}}
"""


def test_rows_of_plans_that_wait_for_data_and_save_beside_training() -> None:
    """Stages of a pipeline get other parts of a batch, and all wait for it; hosts hold what is to come.

    Gradients are filled with zeros, and last.
    """
    case = replace(CASE, text=READ_AND_SAVED, over={**OVER, "parallelism.pipeline": [1, 2], "parallelism.zero": [0]})
    found = rows.compare(case)
    assert found.differences == ()
    assert found.rows > 8


@pytest.mark.parametrize("number", [78, 672])
def test_spaces_that_once_differed(number: int) -> None:
    """Buckets counted for another stage; hosts that compare collectives in some layouts of a batch alone."""
    case = numbered_case(SEED, number)
    assert case is not None
    assert rows.compare(case).differences == ()


def test_a_case_is_the_same_each_time_and_small() -> None:
    """Its seed and number make it; stacks take turns, and their kinds with them."""
    cases = [case for number in range(8, 12) if (case := numbered_case(SEED, number))]
    assert cases == [numbered_case(SEED, case.number) for case in cases]
    assert [case.stack for case in cases] == [STACKS[case.number] for case in cases]
    assert len({case.kind for case in cases}) == len(cases)
    for case in cases:
        assert case.kind in KINDS
        assert load_plan(case.text).cluster.devices <= MOST_DEVICES


def _priced_with(monkeypatch: pytest.MonkeyPatch, key: str, value: float) -> None:
    """Has searches say another value of a total in their last row."""

    def other(piece: SpacePiece, keys: Sequence[str]) -> Iterator[PricedLayouts]:
        for block in price_piece(piece, keys):
            column = np.array(block.totals[key])
            column[-1] = value
            yield replace(block, totals={**block.totals, key: column})

    monkeypatch.setattr(rows, "price_piece", other)


@pytest.mark.parametrize("value", [1.0, float("nan")])
def test_a_total_that_differs_is_seen(monkeypatch: pytest.MonkeyPatch, value: float) -> None:
    """Another number, and none where there is one; the commands name the row's changes and the space's values."""
    _priced_with(monkeypatch, "time.step", value)
    differences = rows.compare(CASE).differences
    assert [one.total for one in differences] == ["time.step", rows.FEW + "time.step"]
    show, sweep = (shlex.split(command) for command in differences[0].commands)
    assert differences[0].layout is not None
    assert f"run.micro_batch={differences[0].layout['run.micro_batch']}" in show
    assert "run.micro_batch=1,2" in sweep
    assert sweep[sweep.index("--minimize") + 1] == "time.step"
    assert "".join(rows.grouped(differences)).count("ledger show") == 1


def test_a_number_where_the_compiler_has_none_is_seen() -> None:
    """It is missing where it is not a number, and only there; shares may differ by a billionth of a step."""
    assert rows.is_same("comm.tensor", float("nan"), None)
    assert not rows.is_same("comm.tensor", 0.0, None)
    assert rows.is_same("memory.peak", 2.0**53 - 1, 2**53 - 1)
    assert not rows.is_same("memory.peak", 2.0**53 - 2, 2**53 - 1)
    assert not rows.is_same("time.step", 1.0 + 1e-8, 1.0)
    assert rows.is_same("pace.matmul", 1e-10, 0.0)
    assert not rows.is_same("time.host", 1e-10, 0.0)


def test_rows_that_are_missing_or_fail_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layout that no row has, and a search that ends with an error, whose last line is told."""
    monkeypatch.setattr(rows, "price_piece", lambda piece, keys: iter(()))
    (one, other) = rows.compare(CASE).differences
    assert (one.total, other.total) == (rows.LAYOUTS, rows.FEW + rows.LAYOUTS)
    assert one.searched.startswith("0 rows: 2 missing")

    def fails(piece: SpacePiece, keys: Sequence[str]) -> Iterator[PricedLayouts]:
        raise AssertionError("they differ")

    monkeypatch.setattr(rows, "price_piece", fails)
    one = rows.compare(CASE).differences[0]
    assert one.total == rows.SEARCH
    assert one.searched.startswith("AssertionError: they differ (")


def test_an_error_of_the_compiler_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that no plan is compiled for counts as one that differs."""

    def fails(plan: Plan) -> None:
        raise ZeroDivisionError("of nothing")

    monkeypatch.setattr(rows, "compile_plan", fails)
    found = rows.compare(CASE)
    assert [one.total for one in found.differences] == [rows.COMPILER]
    assert found.rows_that_differ == 1


def test_the_program_prints_kinds_and_differences(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many rows of how many plans; exit code 1 where a row differs, with its plan kept for the commands."""
    monkeypatch.setattr(rows, "numbered_case", lambda seed, number: CASE)
    kept: list[int] = []
    monkeypatch.setattr(rows, "_keep", lambda comparison: kept.append(len(comparison.differences)))
    assert main(["--rows", "3", "--workers", "1"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("4 rows, ")
    assert "0 rows differ" in printed
    _priced_with(monkeypatch, "time.step", 1.0)
    assert main(["--rows", "2", "--workers", "1"]) == 1
    assert "  time.step: 1 (dense), as 1.0 by the search" in capsys.readouterr().out
    assert kept == [0, 0, 2]
