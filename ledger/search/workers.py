"""Where tasks are run: in this process, in several processes of this machine, or on a Dask cluster.

Every task is given back once, with its result, in the order in which they are done; the task of a worker that dies is
run again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from multiprocessing import connection, get_context
from multiprocessing.context import SpawnProcess
from typing import TYPE_CHECKING, Any

from ledger.books.what_if.conditions import fault
from ledger.processes import end_with_parent, interrupt_held
from ledger.search.extent import WorkerError
from ledger.search.found import SearchResult
from ledger.search.tasks import Task, TaskQuestion, run_task

if TYPE_CHECKING:
    from distributed import Client

TRIES = 3  # workers that may die over one task
AHEAD = 2  # tasks for each thread of a cluster that are on their way at once
TIMEOUT = 5  # seconds in which a scheduler answers
FLAG = "--scheduler "
Done = tuple[Task, SearchResult]
Run = Callable[[Sequence[Task], TaskQuestion], Iterator[Done]]


def in_this_process(tasks: Sequence[Task], job: TaskQuestion) -> Iterator[Done]:
    """One task after the other."""
    for task in tasks:
        yield task, run_task(task, job)


# --- processes ---


def in_processes(count: int) -> Run:
    """So many processes of this machine, each with a task at a time."""

    def run(tasks: Sequence[Task], job: TaskQuestion) -> Iterator[Done]:
        waiting, tries = deque(tasks), dict.fromkeys((task.number for task in tasks), 0)
        workers: dict[connection.Connection, tuple[SpawnProcess, Task]] = {}
        try:
            while waiting or workers:
                while waiting and len(workers) < count:
                    pipe, process = _start(job)
                    workers[pipe] = process, _send(pipe, waiting)
                ready = connection.wait(list(workers))
                for pipe in [open_pipe for open_pipe in workers if open_pipe in ready]:
                    process, task = workers.pop(pipe)
                    answer = _receive(pipe)
                    if answer is None:  # it died: another takes its task up
                        tries[task.number] += 1
                        _end(pipe, process)
                        if tries[task.number] == TRIES:
                            raise WorkerError(f"{TRIES} processes died over piece {task.piece.name}: is memory short?")
                        waiting.appendleft(task)
                        continue
                    if waiting:
                        workers[pipe] = process, _send(pipe, waiting)
                    else:
                        _end(pipe, process)
                    if isinstance(answer, Exception):
                        raise WorkerError(f"piece {task.piece.name}: {answer}") from answer
                    yield task, answer
        finally:
            for pipe, (process, _) in workers.items():
                _end(pipe, process)

    return run


def _start(job: TaskQuestion) -> tuple[connection.Connection, SpawnProcess]:
    context = get_context("spawn")
    our_end, its_end = context.Pipe()
    process = context.Process(target=_serve, args=(its_end, job), daemon=True)
    with interrupt_held(context):
        process.start()
    its_end.close()
    return our_end, process


def _send(pipe: connection.Connection, waiting: deque[Task]) -> Task:
    """Gives the next task to a process; one that is dead is found out when its answer is waited for."""
    task = waiting.popleft()
    with suppress(OSError):
        pipe.send(task)
    return task


def _receive(pipe: connection.Connection) -> Any:
    """The answer of a process; None where it died."""
    try:
        return pipe.recv()
    except (EOFError, OSError):
        return None


def _end(pipe: connection.Connection, process: SpawnProcess) -> None:
    pipe.close()
    process.terminate()
    process.join()


def _serve(pipe: connection.Connection, job: TaskQuestion) -> None:
    """The life of a process: a task, its answer, the next."""
    end_with_parent()
    while True:
        try:
            task = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            answer: Any = run_task(task, job)
        except Exception as error:  # noqa: BLE001 - told by the process that asked
            answer = error
        try:
            pipe.send(answer)
        except OSError:
            return


# --- a cluster ---


def require_dask(address: str) -> None:
    """Raises SpecError where Dask is not installed."""
    if find_spec("distributed") is None:
        help_text = "a cluster needs Dask: pip install -e '.[cluster]' in ledger's folder, here and on its workers"
        raise fault(f"{FLAG}{address}", len(FLAG) + 1, "Dask is not installed", help_text)


def connected(address: str) -> Client:
    """A client of the scheduler at an address that has workers; SpecError where there is none."""
    import logging

    from distributed import Client

    class Connection(Client):  # type: ignore[misc, unused-ignore]
        """A client that, where it never was connected, has nothing to close: closing it would wait for an answer."""

        def __init__(self) -> None:
            try:
                super().__init__(address, timeout=TIMEOUT, set_as_default=False)
            except BaseException:
                self.status = "closed"
                raise

    logging.getLogger("distributed").setLevel(logging.ERROR)
    place, column = f"{FLAG}{address}", len(FLAG) + 1
    try:
        client = Connection()
    except (OSError, ValueError, TypeError) as error:
        first_line = (str(error).splitlines() or [type(error).__name__])[0]
        help_text = (
            f"start one (`dask scheduler`), and give its address, for example tcp://127.0.0.1:8786 ({first_line})"
        )
        raise fault(place, column, f"no scheduler answers at `{address}` within {TIMEOUT} s", help_text) from error
    if not client.scheduler_info(n_workers=-1)["workers"]:
        client.close()
        raise fault(place, column, f"the scheduler at `{address}` has no workers", f"start one: dask worker {address}")
    _require_same_program(client, place, column)
    return client


def _require_same_program(client: Client, place: str, column: int) -> None:
    """Raises SpecError where a worker runs another version of this program."""
    from ledger.spec.version import program_digest

    digest = program_digest()
    for worker, answer in client.run(_digest_or_reason).items():
        if answer != digest:
            client.close()
            help_text = f"install the same version there ({answer[:80] if ' ' in answer else 'its files differ'})"
            raise fault(place, column, f"the worker at {worker} has another ledger than this one", help_text)


def _digest_or_reason() -> str:
    from ledger.spec.version import program_digest

    return program_digest()


def on_cluster(client: Client) -> Run:
    """The workers of a Dask cluster."""

    def run(tasks: Sequence[Task], job: TaskQuestion) -> Iterator[Done]:
        from distributed import as_completed

        threads = sum(client.nthreads().values()) or 1
        waiting = deque(tasks)
        sent: dict[str, Task] = {}
        futures = as_completed(loop=client.loop)
        try:
            while waiting or sent:
                while waiting and len(sent) < AHEAD * threads:
                    task = waiting.popleft()
                    future = client.submit(run_task, task, job, pure=False, retries=TRIES)
                    sent[future.key] = task
                    futures.add(future)
                future = next(futures)
                task = sent.pop(future.key)
                if future.status == "error":
                    raise WorkerError(f"piece {task.piece.name}: {future.exception()}")
                result = future.result()
                future.release()
                yield task, result
        finally:
            client.cancel(list(futures.futures))

    return run
