"""What reaches the user of an error that nobody foresaw: one line, a code of its own, and where to report it."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

from ledger import __version__
from ledger.spec.faults import shortened

OWN_MISTAKE = 70  # EX_SOFTWARE of sysexits.h: an internal error
SHOWN = "LEDGER_TRACEBACK"  # an environment variable: where it is set, developers see the traceback instead
PACKAGE = Path(__file__).parents[1]


def shows_tracebacks() -> bool:
    """Whether whoever runs the program has asked for tracebacks."""
    return bool(os.environ.get(SHOWN))


def own_mistake(error: Exception) -> str:
    """The error and its place in this package in one line, with what to do about it."""
    what = " ".join(f"{type(error).__name__}: {error}".split())
    printable = "".join(letter if letter.isprintable() else "?" for letter in what)
    return (
        f"error: a mistake of ledger {__version__} itself: {shortened(printable)} ({_place(error)}); nothing that it"
        f" printed counts. Please report it with the input, where you have ledger from; {SHOWN}=1 shows more"
    )


def _place(error: Exception) -> str:
    """The innermost line of this package that the error passed."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if Path(frame.filename).is_relative_to(PACKAGE):
            return f"{Path(frame.filename).relative_to(PACKAGE.parent).as_posix()}:{frame.lineno}"
    return "outside of its code"
