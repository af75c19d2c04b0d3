"""The moments of a step as the figures that people ask for: what is held before, between, and at most."""

from __future__ import annotations

from collections.abc import Mapping

from ledger.evidence.held import Held
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


def peaks(moments: Mapping[str, Held]) -> dict[str, tuple[str, Held]]:
    """Each figure with the moment at which it is reached."""
    found = {}
    for figure, beginning in PEAKS.items():
        beyond = HEAD if figure.endswith(".layers") else ()
        mine = [(name, held) for name, held in moments.items() if name.startswith(beginning) and name not in beyond]
        if mine:
            found[figure] = max(mine, key=lambda pair: pair[1].bytes)
    return found


def tolerance(moment: str) -> Tolerance:
    """Within layers transfers and temporaries come and go in an order that the ledger has only at its ends."""
    return HALF_PERCENT if moment.startswith(("forward/", "backward/")) and "/loss" not in moment else ROUNDING
