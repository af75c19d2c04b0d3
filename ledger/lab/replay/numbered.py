"""The requests of a unit with numbers for storages: those of any of its layers are as far from its first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from ledger.lab.replay.passes import GRADIENT, KERNEL_LAUNCH, OUTPUT, Request, UnitPasses
from ledger.spec.plan import Replay

FIRST_NUMBERS = {OUTPUT: 0, GRADIENT: 1}  # what neighbours share comes first in every layer, so that both find it


class NumberedRequest(NamedTuple):
    """So many kernels, or a storage with its bytes; 0 bytes: it is freed. `used`: a collective may be at work on it.

    A storage in a `buffer` that lasts goes by the name of that.
    """

    kernels: int
    storage: int
    size: int
    used: bool
    buffer: str


@dataclass(frozen=True)
class NumberedPasses:
    """The requests of both passes of a unit, the gradient it receives, and those of its weights.

    `spent` is what it has read from the unit before and does not keep.
    """

    name: str
    forward: tuple[NumberedRequest, ...]
    backward: tuple[NumberedRequest, ...]
    upstream: int
    weights: tuple[int, ...]
    spent: int | None


def number_storages(units: Sequence[UnitPasses], replay: Replay) -> tuple[int, list[NumberedPasses]]:
    """How many numbers a layer has, and every unit with its storages numbered."""
    tables = [_numbers(unit) for unit in units]
    stride = max(map(len, tables), default=0)
    return stride, [_passes(unit, table, stride, replay) for unit, table in zip(units, tables, strict=True)]


def _numbers(unit: UnitPasses) -> dict[str, int]:
    numbers = dict(FIRST_NUMBERS)
    for name in (unit.entry, unit.upstream, *unit.weights, *(name for name, _ in (*unit.forward, *unit.backward))):
        numbers.setdefault(unit.owner(name)[1], len(numbers))
    return numbers


def _passes(unit: UnitPasses, table: dict[str, int], stride: int, replay: Replay) -> NumberedPasses:
    def number(name: str) -> int:
        shift, inner = unit.owner(name)
        return shift * stride + table[inner]

    def requests(given: Sequence[Request]) -> Iterator[NumberedRequest]:
        for (name, size), alike in groupby(given):
            if (name, size) == KERNEL_LAUNCH:
                if replay.recorded:  # else nothing waits for the device but the end of a step
                    yield NumberedRequest(sum(1 for _ in alike), 0, 0, False, "")
            elif not replay.gather_buffers or name not in unit.buffers:
                yield NumberedRequest(0, number(name), size, replay.recorded and name in unit.sent, "")
            elif size:
                yield NumberedRequest(0, 0, size, False, unit.buffers[name])

    return NumberedPasses(
        unit.name,
        tuple(requests(unit.forward)),
        tuple(requests(unit.backward)),
        number(unit.upstream),
        tuple(map(number, unit.weights)),
        number(unit.entry) if unit.entry and unit.entry not in unit.kept else None,
    )
