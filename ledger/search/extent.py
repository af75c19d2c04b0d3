"""The extent of a search of a plan's layouts: over which of them it goes, and for how long."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ledger.mistakes import mistake_in_words
from ledger.search.choices import VALUES
from ledger.search.space import space_of
from ledger.spec.problems import SpecError

if TYPE_CHECKING:
    from ledger.spec.plan import Plan


QUICK = 30.0  # seconds of a search that goes by what it has
OF_A_REPORT = 12.0  # seconds of a report's search, after which it goes by what it has
WHOLE = 5e9  # combinations of values up to which a report searches all of them: a minute or two on two cores
# Keys that a quick search leaves as the plan has them: most layouts differ in these alone.
FIXED_KEYS = (
    "parallelism.context",
    "parallelism.context_exchange",
    "parallelism.interleave",
    "parallelism.schedule",
    "parallelism.offload",
)


@dataclass(frozen=True)
class Extent:
    """The extent of a search: all layouts, or those that keep the keys of KEPT; `seconds` (0: to its end).

    `thorough`: the cheapest is looked for on fewer devices too, and layouts of the whole front are compiled.
    """

    all_layouts: bool = True
    seconds: float = 0.0
    thorough: bool = False


EVERYTHING = Extent(thorough=True)


def extent_of_report(plan: Plan) -> Extent:
    """The extent of a report's search: all layouts of a space that is not too large, for OF_A_REPORT seconds."""
    from ledger.search.structures import prices_in_bulk  # loads arrays, which a search of a second does without

    whole = plan.serve is not None or (prices_in_bulk(plan) and space_of(plan).combinations <= WHOLE)
    return Extent(whole, seconds=OF_A_REPORT, thorough=True)


def is_whole(plan: Plan, extent: Extent) -> bool:
    """Whether all layouts of a plan are looked at: those of a service are few."""
    return extent.all_layouts or plan.serve is not None


def kept_values(plan: Plan) -> Mapping[str, tuple[Any, ...]]:
    """The values of the keys of KEPT: the plan's own, and those that a layout without them, or a pipeline, needs."""
    mesh = plan.parallelism
    several = mesh.interleave > 1
    named = [mesh.schedule] if mesh.schedule else []
    offloads = VALUES["parallelism.offload"](plan)
    return {
        "parallelism.context": (mesh.context,),
        "parallelism.context_exchange": (mesh.context_exchange if mesh.context > 1 else None,),
        "parallelism.interleave": tuple(sorted({1, mesh.interleave})),
        "parallelism.schedule": tuple(dict.fromkeys((None, "1f1b", *(["interleaved"] if several else []), *named))),
        "parallelism.offload": tuple(offload for offload in offloads if offload != ["activations"] or mesh.offload),
    }


# --- work with a time limit ---

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

    def raise_out_of_time(*_: object) -> None:
        raise OutOfTimeError

    begun = time.monotonic()
    handler_before = signal.signal(signal.SIGALRM, raise_out_of_time)
    seconds_of_outer, _ = signal.getitimer(signal.ITIMER_REAL)
    signal.setitimer(signal.ITIMER_REAL, min(seconds, seconds_of_outer) if seconds_of_outer else seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler_before)
        if seconds_of_outer:
            signal.setitimer(signal.ITIMER_REAL, max(SOON, seconds_of_outer - (time.monotonic() - begun)))


# --- why a search ended early ---


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
