"""Processes that end with the one that started them, and leave Ctrl-C to it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import connection, get_context, parent_process, resource_tracker
from multiprocessing.context import BaseContext
from typing import Any


def end_with_parent() -> None:
    """From here on this process, which multiprocessing started, ends when the first one does, however that ends.

    One that is terminated takes back what it was writing; one whose parent was killed leaves that to the next run.
    """
    leave_when_told()
    signal.set_wakeup_fd(-1)  # a fork has that of the first process
    parent = parent_process()
    if parent is not None:
        when_over(partial(connection.wait, [parent.sentinel]), partial(os._exit, 1))


def leave_when_told() -> None:
    """Ctrl-C is the affair of the first process; being terminated takes back what was begun."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)


def end_with_input() -> None:
    """From here on this process ends when its standard input does, from which it reads no more: with who held it."""
    when_over(partial(os.read, sys.stdin.fileno(), 1), partial(os._exit, 1))


def when_over(wait: Callable[[], object], end: Callable[[], object]) -> None:
    """Calls `end` when `wait` returns, whatever this process does meanwhile."""

    def watch() -> None:
        wait()
        end()

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def interrupt_held(context: BaseContext | None = None) -> Iterator[None]:
    """Ctrl-C waits to the end of the block, and processes of this context that are started within never see it."""
    if (context or get_context()).get_start_method() != "fork":
        resource_tracker.ensure_running()  # which lets the interrupt through once it runs
    earlier_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, earlier_mask)


@contextmanager
def process_pool(
    count: int, context: BaseContext | None = None, begin: Callable[[], object] | None = None
) -> Iterator[ProcessPoolExecutor]:
    """So many processes, each of which calls `begin` first; left by an error or Ctrl-C, all of them end at once."""
    with ProcessPoolExecutor(count, context, _begin, (begin,)) as pool:
        try:
            yield pool
        except BaseException:
            for process in list((pool._processes or {}).values()):  # noqa: SLF001 - Python 3.14 has `kill_workers`
                process.kill()
            raise


def _leave(*_: object) -> None:
    raise SystemExit(1)


def _begin(begin: Callable[[], Any] | None) -> None:
    """Prepares a process of a pool, and calls its own `begin`."""
    end_with_parent()
    if begin:
        begin()
