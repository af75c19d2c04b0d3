"""The moments of a step as the figures that people ask for: what is held before, between, and at most."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ledger.evidence.verdicts import (
    HALF_PERCENT,
    ROUNDING,
    ComparedFigure,
    KnownDifference,
    Tolerance,
    total,
    unchecked,
)
from ledger.lab.observed.device_step import AllocatedBytes

# Figure -> how the names of its moments begin.
PEAKS = {
    "static": "static",
    "after_forward": "after forward",
    "forward": "forward/",
    "backward": "backward/",
    "backward.layers": "backward/",
    "optimizer": "optimizer",
}
HEAD = ("backward/loss", "backward/output")  # left out of what the layers and the embedding reach


def moments(figure: str, names: Iterable[str]) -> tuple[str, ...]:
    """The moments among `names` over which a figure is the largest."""
    beyond = HEAD if figure.endswith(".layers") else ()
    return tuple(name for name in names if name.startswith(PEAKS[figure]) and name not in beyond)


def fullest(figure: str, bytes_by_moment: Mapping[str, int]) -> tuple[str, int]:
    """The moment at which a figure is reached, and its bytes."""
    return max(((name, bytes_by_moment[name]) for name in moments(figure, bytes_by_moment)), key=lambda pair: pair[1])


def tolerance(moment: str) -> Tolerance:
    """Within layers transfers and temporaries come and go in an order that the ledger has only at its ends."""
    return HALF_PERCENT if moment.startswith(("forward/", "backward/")) and "/loss" not in moment else ROUNDING


def compare_peaks(
    expected: Mapping[str, int],
    observed: Mapping[str, AllocatedBytes],
    explained: Mapping[str, tuple[KnownDifference, ...]],
    origin: str,
) -> Iterator[ComparedFigure]:
    """What is held before, between and at the fullest instant of each pass, beside what explains it.

    The ledger's fullest moment has to come up to the judge's, whichever two moments these are.
    """
    for figure in PEAKS:
        if not moments(figure, observed):
            yield unchecked(f"memory.{figure}", "the judge does not run this part of the step")
            continue
        moment, largest = fullest(figure, {name: allocated.bytes for name, allocated in observed.items()})
        plain, plain_bytes = fullest(figure, {name: observed[name].bytes - total(explained[name]) for name in observed})
        elsewhere = KnownDifference(
            f"without these {plain} is fuller", largest - total(explained[moment]) - plain_bytes
        )
        named = tuple(cause for cause in (*explained[moment], elsewhere) if cause.amount)
        predicted = fullest(figure, expected)[1]
        yield ComparedFigure(f"memory.{figure}", "B", predicted, largest, tolerance(plain), origin, named, moment)
