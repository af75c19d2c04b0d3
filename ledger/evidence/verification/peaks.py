"""The moments of a step as the figures that people ask for: what is held before, between, and at most."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ledger.evidence.verification.verdicts import HALF_PERCENT, ROUNDING, Tolerance

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
    """Those of the moments `names` over which a figure is the largest."""
    beyond = HEAD if figure.endswith(".layers") else ()
    return tuple(name for name in names if name.startswith(PEAKS[figure]) and name not in beyond)


def fullest(figure: str, held: Mapping[str, int]) -> tuple[str, int]:
    """The moment at which a figure is reached, and its bytes."""
    return max(((name, held[name]) for name in moments(figure, held)), key=lambda pair: pair[1])


def tolerance(moment: str) -> Tolerance:
    """Within layers transfers and temporaries come and go in an order that the ledger has only at its ends."""
    return HALF_PERCENT if moment.startswith(("forward/", "backward/")) and "/loss" not in moment else ROUNDING
