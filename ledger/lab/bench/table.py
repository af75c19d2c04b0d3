"""The kinds of measurements, a row each, in the order in which a suite makes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from ledger.evidence.microbenchmarks.records import identity
from ledger.lab.bench.attention import ATTENTION
from ledger.lab.bench.cases import BenchCase, DeviceLimits
from ledger.lab.bench.collectives import COLLECTIVE
from ledger.lab.bench.convolutions import CONVOLUTION
from ledger.lab.bench.grouped import GROUPED
from ledger.lab.bench.launches import LAUNCH
from ledger.lab.bench.links import HOST_LINK
from ledger.lab.bench.matmuls import MATMUL
from ledger.lab.bench.rig import BenchKind
from ledger.lab.bench.steps import STEP
from ledger.lab.bench.streams import STREAM
from ledger.lab.bench.updates import OPTIMIZER

KINDS: tuple[BenchKind, ...] = (
    *(LAUNCH, MATMUL, ATTENTION, STEP, STREAM, OPTIMIZER, HOST_LINK, CONVOLUTION, COLLECTIVE, GROUPED),
)
BY_NAME = {kind.name: kind for kind in KINDS}


def suite(limits: DeviceLimits, only: Sequence[str] = ()) -> tuple[BenchCase, ...]:
    """The cases of a device, those of some kinds alone where these are named.

    What a first look has comes first, of every kind, so that a run which is cut short has something of everything.
    """
    cases = _cases(limits, only)
    early = frozenset(identity(case.record) for case in _cases(replace(limits, quick=True), only))
    return tuple(sorted(cases, key=lambda case: identity(case.record) not in early))


def _cases(limits: DeviceLimits, only: Sequence[str]) -> list[BenchCase]:
    return [case for kind in KINDS if not only or kind.name in only for case in kind.cases(limits)]


def by_kind(cases: Sequence[BenchCase]) -> Iterator[tuple[BenchKind, list[BenchCase]]]:
    """Each kind with its cases, in the order of the cases."""
    for name, cases_of_kind in groupby(cases, key=lambda case: case.kind):
        yield BY_NAME[name], list(cases_of_kind)
