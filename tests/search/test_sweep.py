"""A sweep against the plain search of its rows, and what must not depend on how it is run."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from ledger.search import tasks
from ledger.search.batches import batches
from ledger.search.page import OWN, short_changes, sweep_record
from ledger.search.sweep import Search, SweepRequest, prepare, sweep
from ledger.search.tasks import Task, TaskQuestion
from ledger.search.workers import Done, in_processes, in_this_process
from tests.search.synthetic import price_of

Made = Callable[..., Search]
SPEC = str(Path(__file__).resolve().parents[2] / "specs" / "7b-8xh100.yaml")
FEW = (
    "parallelism.tensor=1,2",
    "parallelism.sequence=off",
    "parallelism.pipeline=1",
    "parallelism.context=1",
    "parallelism.interleave=1",
    "parallelism.zero=1,3",
    "parallelism.reshard=null,layers",
    "parallelism.replicate=1",
    "parallelism.offload=null",
    "recompute=none",
    "run.micro_batch=1",
)


def backwards(given: list[Task], job: TaskQuestion) -> Iterator[Done]:
    """The last task first."""
    for task in reversed(given):
        yield task, tasks.run_task(task, job)


def record(search: Search, **how: object) -> dict[str, object]:
    """What is published, but for its speed."""
    told = sweep_record(sweep(search, how.pop("run", in_this_process), **how))  # type: ignore[arg-type]
    return {key: value for key, value in told.items() if key not in {"seconds", "per_second"}}


def test_the_answer_is_that_of_a_search_row_by_row(made: Made) -> None:
    """Counts, the best and the front, with conditions and headroom, of rows among which many are equal."""
    search = made(conditions=("mfu >= 10 %",), headroom="8 GB", top=7, front="memory.reserved,mfu")
    found = sweep(search, in_this_process).result
    rows = []
    for task in search.tasks:
        for batch in batches(tasks.price_piece(task.piece, search.question.keys), task.space):
            totals = ({key: column[row] for key, column in batch.totals.items()} for row in range(len(batch)))
            rows += [(task.number, row, found) for row, found in enumerate(totals)]
    fits = [one for one in rows if one[2]["memory.reserved"] <= search.plan.accelerator.memory - 8e9]
    meets = [one for one in fits if one[2]["mfu"] >= 0.1]
    assert (found.legal, found.fitting, found.meeting) == (len(rows), len(fits), len(meets))
    best = sorted(meets, key=lambda one: (one[2]["time.step"], one[2]["memory.reserved"], one[0], one[1]))[:7]
    assert list(zip(found.best.tasks, found.best.numbers, strict=True)) == [one[:2] for one in best]
    points = {(one[2]["memory.reserved"], -one[2]["mfu"]): one[:2] for one in reversed(meets)}
    front = [
        first
        for point, first in sorted(points.items())
        if not any(other != point and other[0] <= point[0] and other[1] <= point[1] for other in points)
    ]
    assert list(zip(found.front.tasks, found.front.numbers, strict=True)) == front


def test_nothing_depends_on_blocks_or_on_the_order_of_tasks(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of equal layouts the first of the space wins, whoever finds it first."""
    search = made(block=100, front="mfu,memory.reserved")
    once = record(search)
    assert record(search, run=backwards) == once
    monkeypatch.setattr(tasks, "price_piece", price_of(500, 7))
    assert record(search) == once


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_the_file_has_every_layout_and_is_always_the_same(made: Made, tmp_path: Path, form: str) -> None:
    """One row a configuration, one column a key; no parts are left beside it."""
    if form == "parquet":
        pytest.importorskip("pyarrow")
    search = made()
    paths = [tmp_path / f"{name}.{form}" for name in ("one", "other")]
    sweep(search, in_this_process, paths[0])
    sweep(search, backwards, paths[1])  # type: ignore[arg-type]
    assert len({hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}) == 1
    assert sorted(tmp_path.iterdir()) == sorted(paths)
    if form == "csv":
        with paths[0].open(encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == 1500
        assert {row["parallelism.tensor"] for row in rows} == {"1", "2", "4", "8"}
        assert rows[0]["parallelism.data"] == "8"
        assert (
            float(rows[3]["time.step"])
            == next(tasks.price_piece(search.tasks[0].piece, ["time.step"])).totals["time.step"][3]
        )


def test_an_interrupted_sweep_says_so_and_goes_on(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was found is there, no file is, and the same command prices only what is missing."""
    search, out = made(), tmp_path / "x.csv"
    whole = record(search)
    priced: list[str] = []

    def interrupted(piece: tasks.SpacePiece, keys: list[str]) -> Iterator[object]:
        priced.append(piece.name)
        for number, block in enumerate(price_of(500, 100)(piece, keys)):
            if piece.name == "00001" and number == 2 and priced.count("00001") == 1:
                raise KeyboardInterrupt
            yield block

    monkeypatch.setattr(tasks, "price_piece", interrupted)
    monkeypatch.setattr(tasks, "batches", lambda *given: batches(*given, full=100))
    partial = sweep(search, in_this_process, out)
    assert (partial.complete, partial.result.legal) == (False, 700)
    assert [path.is_dir() for path in tmp_path.iterdir()] == [True]
    assert record(search, out=out) == whole
    assert priced == ["00000", "00001", "00001", "00002"]
    assert list(tmp_path.iterdir()) == [out]


def test_parts_of_another_question_are_not_used(made: Made, tmp_path: Path) -> None:
    """The folder is named by all that a part depends on."""
    from ledger.search.sweep import parts_of

    one, other, third = made(), made(conditions=("mfu > 1 %",)), made(headroom="none")
    folders = {parts_of(search, tmp_path / "x.csv", None).folder for search in (one, other, third)}
    assert len(folders) == 3


def test_several_plans_are_searched_and_their_changes_are_complete() -> None:
    """A row's changes, applied alone, are a legal plan with its totals; processes find what one does."""
    from ledger.books.compiler import compile_plan
    from ledger.spec.load import load_plan
    from ledger.spec.overrides import assignments

    over = (*FEW, "accelerator=h100-sxm,h200-sxm", "parallelism.data=4,8")
    search = prepare(SweepRequest(SPEC, ("run.seq_len=1024",), over))
    told = record(search)
    assert told == record(search, run=in_processes(2))
    assert {row["changes"]["accelerator"] for row in told["top"]} == {"h100-sxm", "h200-sxm"}  # type: ignore[attr-defined]
    for row in told["top"][:3]:  # type: ignore[index]
        totals = compile_plan(load_plan(SPEC, assignments(row["changes"]))).totals
        assert row["changes"]["run.seq_len"] == 1024
        for key, value in row["totals"].items():
            assert float(totals[key]) == pytest.approx(value, rel=1e-12)


def test_a_layout_that_takes_a_key_away_is_not_the_plan_itself() -> None:
    """States that come back from the host are a change, though no key is stated of it."""
    few = [text for text in FEW if not text.startswith("parallelism.offload")]
    search = prepare(
        SweepRequest(SPEC, ("parallelism.offload=[optimizer]",), (*few, "parallelism.offload=null,[optimizer]"))
    )
    best = sweep(search, in_this_process).result.best
    labels = [short_changes(search, best, place) for place in range(len(best))]
    assert labels.count(OWN) <= 1
    assert any("without offload" in label for label in labels)


PINNED = ("tensor=1", "pipeline=1", "context=1", "offload=null", "replicate=1")


@pytest.mark.parametrize(
    ("over", "told"),
    [
        ("parallelism.data=3", "3 does not divide the 8 devices"),
        ("cluster.devices=7", "global_batch = 32 is no multiple of data x micro_batch = 7 x 1 = 7"),
        ("parallelism.schedule=1f1b", "is null where pipeline is 1"),
        ("run.global_batch=12", "global_batch = 12 is no multiple of"),
        ("cluster=a100-200g", "is no multiple of data x micro_batch"),
    ],
)
def test_an_empty_space_says_which_key_makes_it_so(over: str, told: str) -> None:
    """The key that the rule reads which stands in the way, whichever was named first."""
    from ledger.spec.problems import SpecError

    pinned = (*(f"parallelism.{text}" for text in PINNED), "recompute=none", "run.micro_batch=1,2,4,8")
    with pytest.raises(SpecError, match="no legal layout") as caught:
        sweep(prepare(SweepRequest(SPEC, (), (*pinned, over))), in_this_process)
    (problem,) = caught.value.problems
    assert (problem.where.file, problem.where.column) == (f"--over {over}", 8)
    assert told in problem.help


@pytest.mark.long
def test_many_rows_take_little_memory(made: Made) -> None:
    """A hundred million rows are streamed: memory is that of some batches, and counts are exact."""
    import tracemalloc

    search = made(pieces=10, rows=10**7, block=10**6)
    tracemalloc.start()  # of this search alone: the process may have held more before it
    found = sweep(search, in_this_process, dense=True).result
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.legal == 10**8
    assert found.density is not None
    assert int(np.sum(found.density.layer(0))) == 10**8
    assert most < 10**9  # bytes; the rows' measures alone would take ten times as many
