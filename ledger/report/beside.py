"""Work in a process of its own, beside what this one does meanwhile."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from typing import Any, Generic, TypeVar, cast
from weakref import finalize

from ledger.processes import end_with_parent, interrupt_held

Result = TypeVar("Result")

FORKS = sys.platform == "linux"  # elsewhere a fork of a program with system libraries is not safe


def can_fork() -> bool:
    """Whether a forked process is safe here, and has a core of its own."""
    return FORKS and len(os.sched_getaffinity(0)) > 1


def beside(work: Callable[[], Result]) -> Callable[[], Result]:
    """Begins `work` in a forked process where a second core is free for it; what is returned waits for its result.

    The result can be pickled. A process that fails says nothing: its work is done here, and fails here as it would
    have.
    """
    if not can_fork():
        return work
    forking = get_context("fork")
    ours, theirs = forking.Pipe(duplex=False)
    process = forking.Process(target=_send, args=(theirs, work), daemon=True)
    with interrupt_held(forking):
        process.start()
    theirs.close()
    return _Awaited(ours, process, work)


class _Begun(Generic[Result]):
    """A process that was begun, and its `work`, which is done here where it ends without; forgotten, it is ended."""

    def __init__(self, ours: Connection, process: ForkProcess, work: Callable[..., Result]) -> None:
        self._ours, self._process, self._work = ours, process, work
        self._forgotten = finalize(self, _end, ours, process)


class _Awaited(_Begun[Result]):
    """Waits for what a process sends."""

    def __call__(self) -> Result:
        try:
            return cast(Result, self._ours.recv())
        except (EOFError, OSError):
            return self._work()
        finally:
            self._forgotten.detach()
            self._ours.close()
            self._process.join()


def _end(ours: Connection, process: ForkProcess) -> None:
    """Ends a process whose result nobody waits for; it would wait for ever to be rid of it."""
    ours.close()
    process.terminate()
    process.join()


def _send(there: Connection, work: Callable[[], Any]) -> None:
    """In the process: the result, or nothing where there is none."""
    end_with_parent()
    with suppress(BaseException), there:
        there.send(work())


def ready(work: Callable[..., Result], prepare: Callable[[], object]) -> Callable[..., Callable[[], Result]]:
    """As `beside`, of work whose arguments come later: the process calls `prepare` at once, then waits for them."""
    if not can_fork():
        return partial(partial, work)
    forking = get_context("fork")
    ours, theirs = forking.Pipe()
    process = forking.Process(target=_answer, args=(theirs, ours, work, prepare), daemon=True)
    with interrupt_held(forking):
        process.start()
    theirs.close()

    return _Ready(ours, process, work)


class _Ready(_Begun[Result]):
    """Sends its arguments to a process that waits for them."""

    def __call__(self, *given: Any) -> Callable[[], Result]:
        work = partial(self._work, *given)
        try:
            self._ours.send(given)
        except OSError:
            return work
        self._forgotten.detach()
        return _Awaited(self._ours, self._process, work)


def _answer(there: Connection, other: Connection, work: Callable[..., Any], prepare: Callable[[], object]) -> None:
    """In the process: one result for one set of arguments, or nothing where there is none."""
    end_with_parent()
    other.close()
    with suppress(BaseException), there:
        prepare()
        there.send(work(*there.recv()))
