"""A unit of a model: a layer, an end, the loss; what its passes compute, save, and hold of weights."""

from __future__ import annotations

from dataclasses import dataclass

import sympy

from ledger.model.operations import Operation
from ledger.model.product_frames import FrameLifetimes
from ledger.model.recompute import SavedActivations
from ledger.model.tensors import Tensor


@dataclass(frozen=True)
class Unit:
    """A stretch of the model that is checkpointed and scheduled as one: an end of the model, or one layer of a group.

    `group` is the layer group, or the end itself. `count` is how often one device holds it, `suffix` what tells the
    symbols of its group from another's. `hosted`: what it saves waits in host memory.
    """

    name: str
    group: str
    count: sympy.Expr
    forward: tuple[Operation, ...]
    backward: tuple[Operation, ...]
    saving: SavedActivations
    weights: tuple[Tensor, ...]
    written: tuple[Operation, ...] = ()  # forward as the tape has it, with what runs nothing
    suffix: str = ""
    hosted: bool = False
    frame_lifetimes: FrameLifetimes = ()  # what callers hold until others are done
