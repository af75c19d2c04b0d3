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
from typing import Any, TypeVar, cast

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
    return _awaited(ours, process, work)


def _awaited(ours: Connection, process: ForkProcess, work: Callable[[], Result]) -> Callable[[], Result]:
    """Waits for what a process sends; `work` is done here where it ends without."""

    def result() -> Result:
        try:
            return cast(Result, ours.recv())
        except (EOFError, OSError):
            return work()
        finally:
            ours.close()
            process.join()

    return result


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

    def begin(*given: Any) -> Callable[[], Result]:
        try:
            ours.send(given)
        except OSError:
            return partial(work, *given)
        return _awaited(ours, process, partial(work, *given))

    return begin


def _answer(there: Connection, other: Connection, work: Callable[..., Any], prepare: Callable[[], object]) -> None:
    """In the process: one result for one set of arguments, or nothing where there is none."""
    end_with_parent()
    other.close()
    with suppress(BaseException), there:
        prepare()
        there.send(work(*there.recv()))
