"""Why a search of layouts ended early."""

from __future__ import annotations

from ledger.mistakes import mistake_in_words
from ledger.spec.problems import SpecError


class WorkerError(Exception):
    """A task over which several workers died, or one that raised."""


def reason(error: Exception) -> str:
    """Why a search ended early, in plain words."""
    if isinstance(error, SpecError):
        return "; ".join(problem.message for problem in error.problems)
    if isinstance(error, MemoryError):
        return "there is not enough memory"
    if isinstance(error, WorkerError) and error.__cause__ is None:
        return str(error)
    cause = error.__cause__ if isinstance(error, WorkerError) else None
    return f"a mistake of ledger itself, {mistake_in_words(cause or error)}"
