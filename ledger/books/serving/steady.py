"""A service in its steady state: what a step takes with so many sequences in flight, and what they get out of it.

Each group of sequences that a replica's pipeline holds at once is an engine. A step of an engine decodes its sequences
and takes one chunk of a prompt where one waits (chunked prefill, Agrawal et al. 2024, arXiv 2403.02310). Of n
sequences in flight, each finds the n - 1 others as they are on average, in one of the K steps of its prompt or one of
the N steps of its answer (mean value analysis, Reiser and Lavenberg 1980). Requests that arrive at random also queue.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from ledger.books.serving import lengths
from ledger.books.serving.passes import (
    PassTime,
    ServedRole,
    Shape,
    decode_shape,
    host_seconds,
    mean_prompt_shape,
    pass_time,
    prompt_shape,
)
from ledger.spec.plan import Plan, Serve

GAIN = 1.005  # of throughput, below which more sequences in flight only wait
NEAR = 1e-6  # how near the sequences in flight are found that an arrival rate keeps


@dataclass(frozen=True)
class Steady:
    """With `concurrency` sequences in flight: seconds between tokens of one, and tokens a second of all of them.

    `decoding_peers` are sequences that decode beside one that does; `mixed` is the share of its steps with a chunk of a
    prompt. `residence`: seconds from a prompt's first pass to the last token. `engines` are those at work,
    `chunk_step_seconds` and `decode_step_seconds` the seconds of their steps with a chunk of a prompt and without.
    """

    concurrency: float
    time_per_token: float
    tokens_per_second: float
    residence: float
    decoding_peers: float
    mixed: float
    engines: float
    chunk_step_seconds: float
    decode_step_seconds: float

    @property
    def requests_per_second(self) -> float:
        """Requests that are answered, over all replicas."""
        return self.concurrency / self.residence


@dataclass(frozen=True)
class Service:
    """A plan that serves, with its roles; every figure of it follows from passes that these price."""

    plan: Plan
    roles: tuple[ServedRole, ...]

    @property
    def serve(self) -> Serve:
        """Lengths and load of the plan; ValueError of a plan that trains."""
        if self.plan.serve is None:
            raise ValueError("a plan that trains serves nothing")
        return self.plan.serve

    @property
    def replicas(self) -> int:
        """Copies of the model that sequences are dealt out to."""
        return self.plan.parallelism.data

    @cached_property
    def ttft(self) -> float:
        """Seconds from a prompt's first pass to its first token, without a queue: all of its chunks, one by one."""
        return float(self.serve.prompt.average(self._ttft))

    def _ttft(self, prompt: int) -> Fraction:
        shape = prompt_shape(self.serve, prompt)
        passes = lengths.chunks(self.serve, prompt).count
        chunk = pass_time(self.roles, lambda role: role.rows(role.prefill, shape)).after(host_seconds(self.plan, 1))
        return passes * Fraction(chunk.through)

    def decoding(self, sequences: float) -> PassTime:
        """A pass that gives each of so many sequences of an engine its next token."""
        shape = decode_shape(self.serve, Fraction(sequences))
        host = host_seconds(self.plan, sequences)
        return pass_time(self.roles, lambda role: role.rows(role.decode, shape)).after(host)

    def mixed(self, sequences: float) -> PassTime:
        """A pass that takes a chunk of a prompt, beside the next tokens of so many sequences of an engine."""
        prompt = mean_prompt_shape(self.serve)
        host = host_seconds(self.plan, sequences + 1)
        if sequences <= 0:
            return pass_time(self.roles, lambda role: role.rows(role.prefill, prompt)).after(host)
        decoding = decode_shape(self.serve, Fraction(sequences))
        return pass_time(self.roles, lambda role: role.mixed_rows(prompt, decoding)).after(host)

    def at(self, concurrency: float) -> Steady:
        """The steady state with so many sequences in flight over all replicas."""
        engines = self.replicas * self.plan.parallelism.pipeline
        busy = min(float(engines), max(concurrency, 1.0))
        at_once = max(1.0, min(float(self.plan.parallelism.pipeline), concurrency / self.replicas))
        per_engine = max(1.0, concurrency / busy)
        prompt = float(lengths.mean_chunks(self.serve).count)
        answer = max(float(lengths.decoded(self.serve)) / self.serve.speculative, 0.0)
        # Sequences in each of the steps of another's life; an engine takes one chunk in a step, and others wait for it.
        per_step = min((per_engine - 1) / (prompt + answer), 1 / prompt)
        peers, mixed = per_step * answer, per_step * prompt
        unmixed = self.decoding(1 + peers).cycle(at_once)
        together = self.mixed(1 + peers).cycle(at_once) if mixed else unmixed
        gap = mixed * together + (1 - mixed) * unmixed
        chunked = self.mixed(peers).cycle(at_once)  # a step in which its own prompt is taken
        residence = max(prompt * chunked + answer * gap, per_engine * prompt * chunked)
        rate = min(concurrency, busy * per_engine) / residence * float(self.serve.output.mean)
        return Steady(concurrency, gap / self.serve.speculative, rate, residence, peers, mixed, busy, chunked, unmixed)

    @cached_property
    def stated(self) -> Steady:
        """The steady state that the plan asks for: with its sequences in flight, or those that its requests keep."""
        if self.serve.concurrency is not None:
            return self.at(float(self.serve.concurrency))
        return self.at(self.kept_by(self.serve.arrival_rate or 0.0))

    @cached_property
    def queue(self) -> float | None:
        """Seconds that a request waits before its first pass where requests arrive at random; None where ever longer.

        The mean wait of an M/G/1 queue (Pollaczek 1930, Khinchine 1932): an engine takes one prompt after the other,
        each for as many steps as it has chunks. Sequences that a plan keeps in flight come one by one, and none waits.
        """
        if self.serve.arrival_rate is None:
            return 0.0
        rate = self.serve.arrival_rate / (self.replicas * self.plan.parallelism.pipeline)
        first, second = lengths.moments_of_chunks(self.serve)
        busy = rate * float(first) * self.stated.chunk_step_seconds
        return rate * float(second) * self.stated.chunk_step_seconds**2 / (2 * (1 - busy)) if busy < 1 else None

    def kept_by(self, rate: float) -> float:
        """Sequences in flight where so many requests arrive in a second: concurrency = rate x residence (Little 1961).

        Where the service does not keep up, those with which more would only wait.
        """
        few, many, answered = 0.0, 1.0, 0.0
        while (answering := self.at(many).requests_per_second) < rate:
            if answering < GAIN * answered:
                return few
            few, many, answered = many, 2 * many, answering
        while many - few > NEAR * many:
            middle = (few + many) / 2
            few, many = (middle, many) if self.at(middle).requests_per_second < rate else (few, middle)
        return many


def steady_shape(service: Service) -> Shape:
    """The decoding pass of an engine in the stated steady state: a sequence and those beside it."""
    return decode_shape(service.serve, Fraction(1 + service.stated.decoding_peers))
