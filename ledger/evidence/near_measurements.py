"""Measurements near a plan, each beside what the books predict of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NearMeasurement:
    """One measurement with its prediction, both in `unit`: of `what`, made of `name`, told by `origin`.

    `what` is a price class (`matmul.bf16`) or a key of `totals` (`time.step`); `name` says which case in words (a
    shape, a run). `differs` says how the case differs from the plan's own; it is empty where it is the same.
    Of a kernel: `share` is what the plan's kernels like it take of the step, `unseen` the error of its price on
    measurements that the fit had not seen, where it was fitted on this one among others; None where it was not.
    `device` is what was measured, where that is not the plan's own device. Of a run: `lacks` says what the plan does
    and this run did not.
    """

    what: str
    name: str
    predicted: float
    measured: float
    unit: str
    origin: str
    differs: str = ""
    share: float = 0.0
    unseen: float | None = None
    device: str = ""
    lacks: tuple[str, ...] = ()

    @property
    def error(self) -> float:
        """How far the prediction is off, over what was measured."""
        return self.predicted / self.measured - 1
