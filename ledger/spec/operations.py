"""The operation of a run: failures, checkpoints, evaluation, warm-up, and paid time in which nothing runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from ledger.spec.parts import PartHeader, field_rows
from ledger.spec.structures import AnyOf, Row, Sourced, quantity
from ledger.spec.values import Choice, Quantity

BEST = "best"  # of a checkpoint's interval: the one that loses least
PAID = ("power", "grid_intensity")  # which say what the time costs, not how long it is
NAME = "operations"
# Where its fields stood before they were a part of their own, and what they are called here.
STOOD: Mapping[tuple[str, str], str] = {
    ("cluster", "failure_rate"): "failure_rate",
    ("assumptions", "checkpoint_interval"): "checkpoint_interval",
    ("assumptions", "checkpoint_cost"): "checkpoint_cost",
    ("assumptions", "restart_time"): "restart_time",
}


@dataclass(frozen=True)
class Operations:
    """Losses of a run beyond its steps: times in s, rates in 1/s, per device where said; None where not stated."""

    spec: ClassVar[PartHeader] = PartHeader(
        meaning="What a run loses beyond its steps, and what its power is: from failures, checkpoints, evaluation, "
        "warm-up and the use of a reservation follow `time.calendar`, `cost.run` and `energy.run`.",
        sourced=True,
    )

    failure_rate: Annotated[
        float | None, quantity("/s", zero=True), "Failures per device that stop the job: `0.0005 /d`."
    ] = None
    checkpoint_interval: Annotated[
        float | str | None,
        AnyOf((Sourced(Quantity("s")), Choice(BEST))),
        "Between the beginnings of two checkpoints: `3 h`; `best`: where saving and lost work together take least.",
    ] = None
    checkpoint_cost: Annotated[
        float | None,
        quantity("s", zero=True),
        "For which a checkpoint stops the run: `30 s`. Where it is left out, its bytes over `storage_bandwidth`.",
    ] = None
    storage_bandwidth: Annotated[
        float | None,
        quantity("B/s"),
        "At which the whole job writes a checkpoint: `100 GB/s`; it waits for that, unless `checkpoint_async`.",
    ] = None
    checkpoint_async: Annotated[
        bool,
        "Whether a checkpoint is written beside training (`torch.distributed.checkpoint.async_save`): the run waits "
        "until it is copied to the hosts, whose memory holds it until storage has it.",
    ] = False
    restart_time: Annotated[
        float | None, quantity("s", zero=True), "From a failure to the first step after it: `10 min`."
    ] = None
    evaluation_interval: Annotated[float | None, quantity("s"), "Between two evaluations: `12 h`."] = None
    evaluation_time: Annotated[float | None, quantity("s"), "For which an evaluation stops the run: `20 min`."] = None
    warm_up: Annotated[
        float | None,
        quantity("s", zero=True),
        "Once, before the first step: allocation, tests of nodes, compilation: `6 h`.",
    ] = None
    utilisation: Annotated[
        float,
        quantity("1", least=1e-3, greatest=1),
        "Share of the reserved time in which the job may run: `95 %`; the rest is paid all the same.",
    ] = 1.0
    power: Annotated[
        float | None,
        quantity("W"),
        "What one device draws on average, measured: `650 W`; its rated power where not given.",
    ] = None
    grid_intensity: Annotated[
        float | None, quantity("kg/J", zero=True), "Carbon dioxide of the grid's electricity: `380 g/kWh`."
    ] = None

    @property
    def saves(self) -> bool:
        """Whether checkpoints stop the run, or failures take it back to one."""
        may_stop = self.failure_rate or self.checkpoint_cost or self.storage_bandwidth or self.checkpoint_async
        return self.checkpoint_interval is not None and bool(may_stop)

    @property
    def stages(self) -> bool:
        """Whether hosts hold a copy of a checkpoint while it is written."""
        return self.saves and self.checkpoint_async

    @property
    def evaluation_share(self) -> float:
        """The share of the time for which evaluation stops the run; 0 where how often or how long is not stated."""
        if self.evaluation_interval is None or self.evaluation_time is None:
            return 0.0
        return self.evaluation_time / self.evaluation_interval

    @property
    def loses(self) -> bool:
        """Whether a run takes longer than its steps, as far as is stated."""
        return self.saves or self.evaluation_share > 0 or bool(self.warm_up) or self.utilisation < 1


def stood_in(part: str) -> tuple[Row, ...]:
    """The rows of a part whose values are kept here: they are read where they stood before."""
    own_rows = {row.key: row for row in field_rows(Operations)}
    return tuple(
        replace(own_rows[key], key=old, attribute="", meaning=f"{own_rows[key].meaning} Now `{NAME}.{key}`.")
        for (old_part, old), key in STOOD.items()
        if old_part == part
    )
