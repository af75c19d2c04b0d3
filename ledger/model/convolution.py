"""Convolutions: contractions one of whose operands is read through windows over its dims."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.model.contraction import Contraction


@dataclass(frozen=True)
class Convolution(Contraction):
    """A contraction through windows, whose backward pass is one operator with both operands among its arguments.

    Autograd therefore keeps both whichever gradients are asked for (torch derivatives.yaml, convolution).
    """
