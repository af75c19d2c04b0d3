"""The text of an unforeseen error, in one line: what it says, and where in this package it was raised."""

from __future__ import annotations

import traceback
from pathlib import Path

from ledger.spec.faults import shortened

PACKAGE = Path(__file__).parent


def mistake_in_words(error: BaseException) -> str:
    """The kind of an error, what it says, and the innermost line of this package that it passed.

    One that comes from another process has left its lines there.
    """
    message = " ".join(f"{type(error).__name__}: {error}".split())
    printable = "".join(letter if letter.isprintable() else "?" for letter in message)
    return f"{shortened(printable)} ({_innermost_line(error)})" if error.__traceback__ else shortened(printable)


def _innermost_line(error: BaseException) -> str:
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if Path(frame.filename).is_relative_to(PACKAGE):
            return f"{Path(frame.filename).relative_to(PACKAGE.parent).as_posix()}:{frame.lineno}"
    return "outside of its code"
