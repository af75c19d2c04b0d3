"""Moments of a framework's step, also where layers are rebuilt by a function of the framework's own.

Imports torch at its top.
"""

from __future__ import annotations

from typing import Any

from ledger.lab.observed.step_moments import BACKWARD, FORWARD, StepMoments


class RankMoments(StepMoments):
    """A layer that runs while backward does is rebuilt, which is the beginning of its backward pass.

    Where several are rebuilt together, each comes again when its gradient does.
    """

    def begin_forward(self, *, embeds: bool = True) -> None:
        """A micro-batch begins, by the embedding or by the first layer of a chunk."""
        self.phase = FORWARD
        self.meter.enter(f"{FORWARD}/input" if embeds else "")

    def _layer_begins(self, index: int, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self.phase == BACKWARD:
            self.meter.enter(self.moment_name(BACKWARD, index))
            return
        super()._layer_begins(index, _, args, kwargs)

    def _layer_ends(self, index: int, module: Any, args: Any, output: Any) -> None:
        if self.phase != BACKWARD:
            super()._layer_ends(index, module, args, output)
            return
        stream = next((one for one in (output if isinstance(output, tuple) else (output,)) if one is not None), None)
        if stream is not None and stream.requires_grad:
            stream.register_hook(lambda _: self.meter.enter(self.moment_name(BACKWARD, index)))
