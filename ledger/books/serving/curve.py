"""Throughput against latency: the steady states of ever more sequences in flight, until nothing more is gained."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.books.serving.room import room
from ledger.books.serving.steady import GAIN, Service, Steady

MOST = 2**20


@dataclass(frozen=True)
class CurvePoint:
    """A steady state, and whether the engine takes its sequences at once; `stated`: the plan's own."""

    state: Steady
    fits: bool
    stated: bool = False


def curve(service: Service) -> tuple[CurvePoint, ...]:
    """Doubling numbers of sequences, and the plan's own, up to where prompts fill every step or memory is long full."""
    most, own = room(service), service.stated.concurrency
    found, count, before = list[CurvePoint](), 1, 0.0
    while count <= MOST:
        state = service.at(count)
        found.append(CurvePoint(state, count <= most))
        if state.tokens_per_second < before * GAIN or count > 2 * most:
            break
        count, before = 2 * count, state.tokens_per_second
    kept = [point for point in found if point.state.concurrency != own]
    return tuple(
        sorted([*kept, CurvePoint(service.stated, own <= most, True)], key=lambda point: point.state.concurrency)
    )
