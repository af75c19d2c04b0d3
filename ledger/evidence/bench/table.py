"""The kinds of measurements, a row each, in the order in which a suite makes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from ledger.evidence.bench.attention import ATTENTION
from ledger.evidence.bench.cases import Case, Kind, Limits
from ledger.evidence.bench.collectives import COLLECTIVE
from ledger.evidence.bench.launches import LAUNCH
from ledger.evidence.bench.links import HOST_LINK
from ledger.evidence.bench.matmuls import MATMUL
from ledger.evidence.bench.steps import STEP
from ledger.evidence.bench.streaming import STREAM
from ledger.evidence.bench.updates import OPTIMIZER

KINDS: tuple[Kind, ...] = (LAUNCH, MATMUL, ATTENTION, STREAM, OPTIMIZER, HOST_LINK, STEP, COLLECTIVE)
BY_NAME = {kind.name: kind for kind in KINDS}


def suite(limits: Limits, only: Sequence[str] = ()) -> tuple[Case, ...]:
    """The cases of a device, those of some kinds alone where these are named."""
    return tuple(case for kind in KINDS if not only or kind.name in only for case in kind.cases(limits))


def portions(cases: Sequence[Case]) -> Iterator[tuple[Kind, list[Case]]]:
    """The same by kind."""
    for name, some in groupby(cases, key=lambda case: case.kind):
        yield BY_NAME[name], list(some)
