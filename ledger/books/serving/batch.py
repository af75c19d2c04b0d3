"""A static batch: sequences that begin and end together, as benchmarks of an engine run them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil

from ledger.books.results import KernelTime
from ledger.books.serving import lengths
from ledger.books.serving.passes import (
    Phase,
    ServedRole,
    Shape,
    decode_shape,
    host_seconds,
    mean_prompt_shape,
    pass_time,
    prompt_shape,
)
from ledger.books.serving.steady import Service
from ledger.spec.engine import Engine


@dataclass(frozen=True)
class StaticBatch:
    """So many sequences of each replica: seconds until all have their first token, and between any two further ones.

    `latency`: from the first pass to the last token; `tokens_per_second`: output tokens of all replicas over it.
    """

    sequences: float
    first_token: float
    time_per_token: float
    latency: float
    tokens_per_second: float


def static_batch(service: Service, sequences: int) -> StaticBatch:
    """A batch of so many sequences over all replicas: prompts of all of them first, then their tokens in step."""
    per_replica = Fraction(sequences, service.replicas)
    first = prompts_seconds(service, per_replica)
    gap = service.decoding(float(per_replica)).through / service.serve.speculative
    latency = first + float(lengths.decoded(service.serve)) * gap
    output_tokens = sequences * float(service.serve.output.mean)
    return StaticBatch(float(sequences), first, gap, latency, output_tokens / latency)


def prompts_seconds(service: Service, per_replica: Fraction) -> float:
    """Seconds to read the prompts of a batch, in passes over a chunk of every sequence.

    Stages of a pipeline work on different chunks where sends hide behind compute, and wait for each other elsewhere.
    """
    longest = service.serve.prompt.longest
    shape = prompt_shape(service.serve, longest)
    batch = replace(shape, sequences=per_replica, sampled=shape.sampled * per_replica)
    passes = lengths.chunks(service.serve, longest).count
    batch_time = pass_time(service.roles, lambda served: served.rows(served.prefill, batch)).after(
        host_seconds(service.plan, float(per_replica))
    )
    further = batch_time.slowest if service.plan.stack.overlap.pipeline == "compute" else batch_time.through
    drained = service.plan.stack.engine.drained
    batches = ceil(longest / drained) if drained else 1
    return batches * batch_time.through + float(passes - batches) * further


@dataclass(frozen=True)
class Saturated:
    """With so many sequences always in flight: seconds of a step and between tokens of one, and tokens a second."""

    sequences: float
    step: float
    time_per_token: float
    tokens_per_second: float


def saturated(service: Service, sequences: float) -> Saturated:
    """Every sequence that ends is followed by another, so that each step takes as many prompts as end in it.

    A step takes no more tokens of prompts than its engine allows; where more would have to be taken, sequences wait.
    """
    serve, stack = service.serve, service.plan.stack
    per_replica = sequences / service.replicas
    answer = max(float(lengths.decoded(serve)) / serve.speculative, 1.0)
    passes = float(lengths.mean_chunks(serve).count)
    new = float(serve.prompt.mean) - serve.prefix
    prompts = per_replica / (answer + passes) * passes  # chunks of prompts that a step takes
    limit = (stack.engine.tokens or new * prompts) / (new / passes)
    prompts = min(prompts, max(limit, 1.0))
    decoding = prompts / passes * answer
    rows = replace(mean_prompt_shape(serve), sequences=Fraction(prompts), sampled=Fraction(prompts / passes))
    shape = decode_shape(serve, Fraction(decoding))
    host = host_seconds(service.plan, per_replica)
    step = pass_time(service.roles, lambda role: role.mixed_rows(rows, shape)).after(host)
    cycle = step.cycle(float(service.plan.parallelism.pipeline))
    output_tokens = prompts / passes * float(serve.output.mean) * service.replicas
    return Saturated(sequences, cycle, cycle / serve.speculative, output_tokens / cycle)


# --- A service at the data sheet ---


@dataclass(frozen=True)
class FlooredRole(ServedRole):
    """A role whose passes take what their kernels need by the data sheet, transfers nothing."""

    def rows(self, phase: Phase, shape: Shape) -> tuple[KernelTime, ...]:
        """The kernels of a pass at their floors."""
        return tuple(floored(super().rows(phase, shape)))

    def mixed_rows(self, prompt: Shape, decoding: Shape) -> tuple[KernelTime, ...]:
        """The kernels of a pass over a prompt's chunk and the next tokens of others, at their floors."""
        return tuple(floored(super().mixed_rows(prompt, decoding)))


def floored(rows: Sequence[KernelTime]) -> list[KernelTime]:
    """Kernels that multiply, or read the cache, each at its floor; what others move may stay in caches."""
    return [replace(row, seconds=row.roofline if row.compute else 0.0) for row in rows]


def at_data_sheet(service: Service) -> Service:
    """The service at the limits of its device's data sheet."""
    stack = replace(service.plan.stack, launch=0.0, engine=Engine())
    roles = tuple(FlooredRole(replace(served.plan, stack=stack), served.role) for served in service.roles)
    return Service(replace(service.plan, stack=stack), roles)
