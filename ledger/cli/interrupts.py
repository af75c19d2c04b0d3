"""Ctrl-C ends a verb in time: whatever still runs after the grace is ended from outside."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

INTERRUPTED = 130  # 128 + SIGINT, as shells report it
GRACE = 1.5  # seconds for what was begun to be taken back


@contextmanager
def ended_in_time() -> Iterator[None]:
    """Where Ctrl-C does not end the block within the grace, the process and all that it started end.

    A wait for a thread or a process, or a long call of a library, would answer only afterwards. Does nothing in a
    thread, to which the system tells no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    over = threading.Event()
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    watching = threading.Thread(target=_end_late, args=(reader, over), daemon=True)
    watching.start()
    try:
        yield
    finally:
        over.set()
        signal.set_wakeup_fd(before)
        os.close(writer)
        watching.join(GRACE)  # one that outlives the interpreter is ended by force, which takes memory there may not be


def _end_late(reader: int, over: threading.Event) -> None:
    """Reads the numbers of signals until the block is over; ends everything where it is not over after Ctrl-C."""
    while told := os.read(reader, 1):
        if told[0] == signal.SIGINT and not over.wait(GRACE):
            _end_all()
    os.close(reader)


def _end_all() -> None:
    """Ends the processes of this one, and this one."""
    multiprocessing = sys.modules.get("multiprocessing")
    for child in multiprocessing.active_children() if multiprocessing else ():
        child.kill()
    os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)
