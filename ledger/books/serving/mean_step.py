"""What the seconds of a device go into in a steady state: tokens that are decoded, prompts beside them, the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from ledger.books.results import KernelTime
from ledger.books.serving import lengths
from ledger.books.serving.passes import (
    ServedRole,
    decode_shape,
    host_seconds,
    mean_prompt_shape,
    stage_seconds,
    sums,
)
from ledger.books.serving.steady import Service, steady_shape

HOST = "host"  # what limits a device that waits for its host


@dataclass(frozen=True)
class RequestTime:
    """Seconds of one device for one request, by what limits them, and the share that the request's prompt takes."""

    by_limit: Mapping[str, float]
    prompts: float

    @property
    def limit(self) -> str:
        """What limits most of the seconds."""
        return max(self.by_limit, key=lambda name: self.by_limit[name])


def request_time(service: Service, served: ServedRole) -> RequestTime:
    """A request's chunks of a prompt, each with the tokens of others beside it, and its share of steps without one.

    An engine at work has `engines / requests_per_second` seconds for each; what its steps with chunks leave of them are
    steps that only decode.
    """
    state, prompt = service.stated, mean_prompt_shape(service.serve)
    chunks = float(lengths.mean_chunks(service.serve).count)
    beside = decode_shape(service.serve, Fraction(state.beside))
    taken = served.mixed_rows(prompt, beside) if state.beside else served.rows(served.prefill, prompt)
    others = _limited(served, served.rows(served.decode, beside), state.beside) if state.beside else {}
    steps = max(0.0, state.engines / state.requests_per_second - chunks * state.taken) / state.alone
    with_chunk = _limited(served, taken, state.beside + 1)
    without = _limited(served, served.rows(served.decode, steady_shape(service)), state.beside + 1)
    limits = dict.fromkeys((*with_chunk, *without))
    by_limit = {name: chunks * with_chunk.get(name, 0.0) + steps * without.get(name, 0.0) for name in limits}
    own = chunks * max(0.0, sum(with_chunk.values()) - sum(others.values()))
    return RequestTime(by_limit, own / sum(by_limit.values()))


def _limited(served: ServedRole, rows: Sequence[KernelTime], sequences: float) -> dict[str, float]:
    """Seconds of a step by what limits its kernels and transfers, and those in which its device waits for the host."""
    found = dict(sums(rows, lambda row: float(row.seconds)))
    waits = stage_seconds(served.plan, rows) - sum(found.values()) + host_seconds(served.plan, sequences)
    return {**found, HOST: max(0.0, waits)}
