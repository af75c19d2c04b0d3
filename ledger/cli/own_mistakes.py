"""What reaches the user of an error that nobody foresaw: one line, a code of its own, and where to report it."""

from __future__ import annotations

import os

from ledger import __version__
from ledger.mistakes import mistake_in_words

OWN_MISTAKE = 70  # EX_SOFTWARE of sysexits.h: an internal error
SHOWN = "LEDGER_TRACEBACK"  # an environment variable: where it is set, developers see the traceback instead


def shows_tracebacks() -> bool:
    """Whether whoever runs the program has asked for tracebacks."""
    return bool(os.environ.get(SHOWN))


def own_mistake(error: Exception) -> str:
    """The error and its place in this package in one line, with what to do about it."""
    return (
        f"error: a mistake of ledger {__version__} itself: {mistake_in_words(error)}; nothing that it"
        f" printed counts. Please report it with the input, where you have ledger from; {SHOWN}=1 shows more"
    )
