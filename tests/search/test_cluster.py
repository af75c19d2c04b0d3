"""A real scheduler with workers on loopback: the same bytes as one process, also where a worker is killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from ledger.search.sweep import SweepRequest, prepare, sweep
from ledger.search.tasks import Task, TaskQuestion
from ledger.search.workers import Done, connected, in_processes, in_this_process, on_cluster
from tests.search.test_sweep import FEW, SPEC

ROOT = Path(__file__).resolve().parents[2]
pytest.importorskip("pyarrow")
pytest.importorskip("distributed")
pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore")]  # of Dask's own clean-up
MANY = tuple(text for text in FEW if not text.startswith(("run.", "parallelism.offload", "recompute")))
OVER = (*MANY, "run.micro_batch=1,2", "recompute=none,full", "parallelism.offload=null", "run.seq_len=512,1024,2048")


def start(module: str, *args: str) -> subprocess.Popen[bytes]:
    """One of Dask's programs, which finds this checkout."""
    paths = [str(ROOT), *(path for path in sys.path if path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", f"distributed.cli.{module}", *args]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def worker(address: str) -> subprocess.Popen[bytes]:
    """A worker with one thread that nothing starts again."""
    return start("dask_worker", address, "--no-nanny", "--nthreads", "1", "--no-dashboard", "--host", "127.0.0.1")


@pytest.fixture
def cluster() -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """The address of a scheduler, and its two workers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    scheduler = start("dask_scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard")
    workers = [worker(address), worker(address)]
    yield address, workers
    for process in (*workers, scheduler):
        process.kill()
        process.wait()


def test_the_file_is_the_same_bytes_wherever_it_is_made(
    cluster: tuple[str, list[subprocess.Popen[bytes]]], tmp_path: Path
) -> None:
    """One process, four, and a cluster one of whose workers is killed while it works."""
    address, workers = cluster
    search = prepare(SweepRequest(SPEC, (), OVER))
    paths = [tmp_path / f"{name}.parquet" for name in ("one", "four", "cluster")]
    one = sweep(search, in_this_process, paths[0])
    four = sweep(search, in_processes(4), paths[1])
    client = until_two_workers(address)
    run = on_cluster(client)

    def killing(tasks: Sequence[Task], job: TaskQuestion) -> Iterator[Done]:
        for number, done in enumerate(run(tasks, job)):
            if number == 0:
                workers[0].send_signal(signal.SIGKILL)
            yield done

    try:
        there = sweep(search, killing, paths[2])
    finally:
        client.close()
    assert one.result.legal == four.result.legal == there.result.legal > 40
    assert len({path.read_bytes() for path in paths}) == 1
    assert sorted(tmp_path.iterdir()) == sorted(paths)


def until_two_workers(address: str) -> object:
    """A client, as soon as both workers are there."""
    from ledger.spec.problems import SpecError

    for _ in range(60):
        try:
            client = connected(address)
        except SpecError:
            time.sleep(0.5)
            continue
        client.wait_for_workers(2, timeout=60)
        return client
    raise TimeoutError(address)


def test_a_process_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    """Another takes its piece up."""
    import multiprocessing

    search = prepare(SweepRequest(SPEC, (), OVER))
    whole = sweep(search, in_this_process)
    run = in_processes(2)

    def killing(tasks: Sequence[Task], job: TaskQuestion) -> Iterator[Done]:
        for number, done in enumerate(run(tasks, job)):
            if number == 0:
                victim = multiprocessing.active_children()[0].pid
                assert victim is not None
                os.kill(victim, signal.SIGKILL)
            yield done

    killed = sweep(search, killing)
    assert killed.result.legal == whole.result.legal
    assert killed.result.best.totals.tolist() == whole.result.best.totals.tolist()
