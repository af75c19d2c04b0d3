"""What a framework says of one rank of a plan, as records that need no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ledger.lab.observed.device_step import DeviceStep

# What a rank holds from one step to the next, in the ledger's words.
STANDING = ("weights", "master", "gradients", "optimizer")


@dataclass(frozen=True)
class RankFigures:
    """One rank's parameters, what it holds between steps, what autograd saves, and its step.

    `standing`: bytes of each of STANDING, as they were asked for. `padding`: those of them that no parameter fills.
    `saved`: bytes that autograd keeps of one layer of each group in one micro-batch, under the plan's recomputation,
    without what outlives the pass. `agreements`: collectives of single numbers that ranks agree on (norms of
    gradients, overflows), which are no part of the step's.
    """

    parameters: int
    standing: Mapping[str, int]
    padding: Mapping[str, int]
    saved: Mapping[str, int]
    step: DeviceStep
    agreements: int = 0
