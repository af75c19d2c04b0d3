"""A framework's rank under a meter, as far as frameworks are alike. Imports torch at its top."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from ledger.lab.judges.fake_values import FakeValues
from ledger.lab.judges.rank_collectives import RankCollectives
from ledger.lab.judges.rank_figures import RankFigures
from ledger.lab.judges.rank_meter import RankMeter
from ledger.lab.judges.rank_moments import RankMoments
from ledger.lab.judges.saved_storages import SavedStorage, by_group, by_layer, sizes
from ledger.lab.observed.device_step import AllocatedBytes, CollectiveCalls, DeviceStep
from ledger.spec.plan import Plan


class JudgedRank(Protocol):
    """What a framework has built of a rank: `groups` are those of its layers, `ends` what runs around these."""

    @property
    def plan(self) -> Plan: ...  # noqa: D102
    @property
    def layers(self) -> Sequence[Any]: ...  # noqa: D102
    @property
    def groups(self) -> Sequence[str]: ...  # noqa: D102
    @property
    def ends(self) -> Sequence[Any]: ...  # noqa: D102


Rank = TypeVar("Rank", bound=JudgedRank)


@dataclass
class MeteredRank(ABC, Generic[Rank]):
    """A rank that takes steps under a meter; `axes` are those of its groups by name.

    `after`: what was held when the last forward pass was over.
    """

    rank: Rank
    meter: RankMeter
    fake: FakeTensorMode
    axes: Mapping[str, str]
    after: AllocatedBytes = field(default=AllocatedBytes())

    @abstractmethod
    def saved(self) -> list[SavedStorage]:
        """What autograd keeps of one micro-batch."""

    @abstractmethod
    def standing(self) -> Mapping[str, Iterable[Tensor]]:
        """The tensors on the device that the rank holds from step to step, by what they are."""

    @abstractmethod
    def run(self, micro_batches: int, moments: RankMoments, log: RankCollectives) -> None:
        """Every micro-batch forward and backward, then the update; `moments` are told which of them runs."""

    def clear(self) -> None:
        """What is let go of before a step: nothing."""

    def calls(self, log: RankCollectives) -> Iterable[CollectiveCalls]:
        """The collectives of a step."""
        return log.collectives()

    @contextmanager
    def metered(self, *beneath: AbstractContextManager[Any]) -> Iterator[None]:
        """Within, tensors are fake and what they take is counted; `beneath` see operators before the meter does."""
        with ExitStack() as entered:
            for each in (self.fake, self.meter.resizes_seen(), self.meter, *beneath, FakeValues()):
                entered.enter_context(each)
            yield

    def step(self, micro_batches: int) -> tuple[DeviceStep, int]:
        """One step of so many micro-batches, and how often ranks agreed on numbers in it."""
        self.meter.moments.clear()
        moments = RankMoments(self.meter, self.rank.layers, self.rank.groups)
        log = RankCollectives(self.axes, lambda: moments.phase)
        with self.fake, self.meter:
            self.clear()
        static = self.meter.allocated
        with self.metered(log), moments.followed():
            self.run(micro_batches, moments, log)
        self.meter.enter("")
        held = {"static": static, "after forward": self.after, **self.meter.moments}
        return DeviceStep(held, tuple(self.calls(log))), log.agreements

    def figures(
        self,
        weights: Iterable[Tensor],
        saved: Sequence[SavedStorage] | None,
        step: tuple[DeviceStep, int],
        padding: Mapping[str, int] | None = None,
    ) -> RankFigures:
        """All that is asked of the rank; `saved` is None where what is kept cannot be told."""
        taken, agreements = step
        return RankFigures(
            parameters=sum(weight.numel() for weight in weights),
            standing={name: sum(sizes(tensors).values()) for name, tensors in self.standing().items()},
            padding=padding or {},
            saved={} if saved is None else by_group(list(self.rank.groups), by_layer(list(saved))),
            step=taken,
            agreements=agreements,
        )
