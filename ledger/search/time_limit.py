"""Work that ends after some seconds, whatever it has by then."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

SOON = 1e-3  # seconds after which the timer around a block goes off, where its time was over within it


class OutOfTimeError(BaseException):
    """The seconds are over; no handler of errors takes this for one."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises OutOfTimeError after so many seconds, where the system has a timer and this is the main thread.

    A block within another ends with whichever limit is reached first.
    """
    if not seconds or not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def over(*_: object) -> None:
        raise OutOfTimeError

    begun = time.monotonic()
    before = signal.signal(signal.SIGALRM, over)
    around, _ = signal.getitimer(signal.ITIMER_REAL)
    signal.setitimer(signal.ITIMER_REAL, min(seconds, around) if around else seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if around:
            signal.setitimer(signal.ITIMER_REAL, max(SOON, around - (time.monotonic() - begun)))
