"""Work in a process of its own, beside what this one does meanwhile."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection

FORKS = sys.platform == "linux"  # elsewhere a fork of a program with system libraries is not safe


def beside(work: Callable[[], bytes]) -> Callable[[], bytes]:
    """Begins `work` in a forked process where a second core is free for it; what is returned waits for its result.

    A process that fails says nothing: its work is done here, and fails here as it would have.
    """
    if not FORKS or len(os.sched_getaffinity(0)) < 2:
        return work
    forking = get_context("fork")
    ours, theirs = forking.Pipe(duplex=False)
    process = forking.Process(target=_send, args=(theirs, work), daemon=True)
    process.start()
    theirs.close()

    def result() -> bytes:
        try:
            return ours.recv_bytes()
        except EOFError:
            return work()
        finally:
            ours.close()
            process.join()

    return result


def _send(there: Connection, work: Callable[[], bytes]) -> None:
    """In the process: the result, or nothing where there is none."""
    with suppress(BaseException), there:
        there.send_bytes(work())
