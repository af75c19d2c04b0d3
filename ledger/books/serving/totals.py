"""The totals of a plan that serves, in SI base units."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil

from ledger.books.compiled_roles import whole
from ledger.books.counts import of_model
from ledger.books.evaluate import Exact
from ledger.books.results import EXCESS, QUEUE, UNANSWERED, UNDER_LOAD, Number
from ledger.books.serving import lengths
from ledger.books.serving.floor import weight_bytes
from ledger.books.serving.memory import (
    CATEGORIES,
    Held,
    cached_layers,
    devices_memory,
    held_bytes,
    kept_states,
    room,
    serve_of,
)
from ledger.books.serving.passes import ServedRole, Shape, decode_shape, mean_prompt_shape
from ledger.books.serving.steady import GAIN, Service, Steady, steady_shape
from ledger.model.causes import OUTPUT
from ledger.model.operations import total
from ledger.model.schedule import whole_role
from ledger.model.tensors import BUFFER
from ledger.model.unit import Unit
from ledger.numbers import HOUR
from ledger.spec.plan import Parallelism, Plan

Totals = Iterator[tuple[str, Number]]
MILLION = 10**6
ROUNDING = 1e-9  # of a sum of seconds, below which a difference of such is none
RATE = "serve.tokens_per_second"
DENSE = ".dense"  # FLOPs with the products with zeros that sparse tensor cores leave out


def totals(service: Service) -> dict[str, Number]:
    """Every key that a plan which serves has numbers for."""
    plan = service.plan
    amounts: dict[str, Number] = {}
    amounts.update((key, amount) for key, amount in of_model(whole(plan)) if key != "parameters.trainable")
    amounts.update(parameters_held(service))
    amounts.update(flops(service))
    amounts.update(memory(devices_memory(service.roles, service.stated.concurrency), plan))
    amounts.update(cache(service))
    amounts.update(read(service))
    amounts.update(answering(service, room(service)))
    return amounts


def answering(service: Service, most: int) -> Totals:
    """Rates of the stated load, what it costs, and how far it is beyond the `most` sequences that there is room for."""
    state = service.stated
    yield from rates(service, state)
    yield "serve.concurrency.max", most
    yield EXCESS, max(0.0, state.concurrency - most)
    yield from cost(service.plan, state)


def parameters_held(service: Service) -> Totals:
    """Parameters that one device holds, at most over roles."""
    yield "parameters.per_device", max(_held_parameters(served) for served in service.roles)


def _held_parameters(served: ServedRole) -> int:
    value = served.value(decode_shape(serve_of(served.plan), Fraction(1)))
    named = {
        (unit.group if unit.suffix else "", weight.name): unit.count * weight.elements()
        for unit in served.decode.units
        for weight in unit.weights
    }
    return int(sum(value(amount) for amount in named.values()))


def flops(service: Service) -> Totals:
    """Matmul FLOPs of the whole model, masked scores left out: of one prompt, and of one token that is decoded.

    What devices repeat, as keys of a head that several have, is counted once.
    """
    prompt = mean_prompt_shape(service.serve)
    passes = lengths.mean_chunks(service.serve).count
    token_shape = decode_shape(service.serve, Fraction(1))
    whole_model = one_device(service.plan)
    pruned = service.plan.precision.pruned
    for suffix, zeros in (("", False), (DENSE, True))[: 2 if pruned and pruned.skips else 1]:
        prefill = _useful_flops(whole_model, prompt, whole_model.prefill.units, zeros=zeros)
        yield f"flops.prefill{suffix}", ceil(passes * prefill)
        decode = _useful_flops(whole_model, token_shape, whole_model.decode.units, zeros=zeros)
        yield f"flops.decode{suffix}", ceil(decode)


def _useful_flops(served: ServedRole, shape: Shape, units: Sequence[Unit], *, zeros: bool) -> Fraction:
    """FLOPs of a pass of one sequence; `zeros`: with those that sparse tensor cores leave out."""
    useful = Fraction(0)
    for unit in units:
        value = served.value(served.scored(shape) if unit.name == OUTPUT else shape)
        runs = (run.useful() / (run.run_share() if zeros else 1) * run.times for run in unit.forward)
        useful += Fraction(value(unit.count * total(runs)))
    return useful


def memory(devices: Sequence[Held], plan: Plan) -> Totals:
    """What is alive at the fullest moment of the fullest device, and what the driver reports."""
    worst = max(devices, key=lambda device: device.reserved)
    yield "memory.static.weights", held_bytes(worst.weights)
    for category in CATEGORIES:
        yield f"memory.{category}", worst.peak.parts[category]
    yield "memory.peak", worst.peak.total
    yield "memory.reserved", worst.reserved
    yield "memory.capacity", plan.accelerator.memory


def cache(service: Service) -> Totals:
    """What sequences keep: one of them in all layers, and all of a replica on one device."""
    yield "serve.cache.bytes_per_sequence", bytes_per_sequence(service.plan)
    devices = devices_memory(service.roles, service.stated.concurrency)
    yield "serve.cache.per_device", max(held_bytes(device.full_cache) for device in devices)


def bytes_per_sequence(plan: Plan) -> int:
    """Bytes in which the whole model keeps one sequence at the end of its output, on average; no copy counts."""
    model, served = one_device(plan), serve_of(plan)
    value = model.value(decode_shape(served, Fraction(1)))
    growing = (Fraction(value(amount)) * lengths.mean_kept(served, kind) for _, amount, kind in cached_layers(model))
    constant = (Fraction(value(amount)) for _, _, amount in kept_states(model))
    return ceil(sum(growing, Fraction(0)) + sum(constant, Fraction(0)))


def one_device(plan: Plan) -> ServedRole:
    """The plan as one device would run it whole."""
    undivided = replace(plan, parallelism=Parallelism(), cluster=replace(plan.cluster, devices=1))
    return ServedRole(undivided, whole_role(plan.model))


def read(service: Service) -> Totals:
    """Bytes that decoding reads on the device that reads most: weights, and what waits; and their time at full rate."""
    shape, pipeline = steady_shape(service), service.plan.parallelism.pipeline
    stage_reads = [(len(served.role.stages), *reads(served, shape)) for served in service.roles]
    yield "serve.weights_read", max(ceil(weights) for _, weights, _ in stage_reads)
    yield "serve.cache.read", max(ceil(waiting) for _, _, waiting in stage_reads)
    through = sum(stages * (weights + waiting) for stages, weights, waiting in stage_reads)
    slowest = max(weights + waiting for _, weights, waiting in stage_reads)
    at_once = min(pipeline, service.stated.concurrency / service.replicas)
    seconds = max(float(through), at_once * float(slowest)) / service.plan.accelerator.bandwidth
    yield "serve.time_per_token.floor", seconds / service.serve.speculative


def reads(served: ServedRole, shape: Shape) -> tuple[Exact, Exact]:
    """Bytes of weights, and of the cache, that one device reads in a pass that decodes."""
    value, weights, waiting = served.value(shape), Fraction(0), Fraction(0)
    for unit in served.decode.units:
        for operation in unit.forward:
            weights += Fraction(value(unit.count * weight_bytes(operation)))
            waiting += Fraction(value(unit.count * total(t.bytes() for t in operation.inputs if t.role == BUFFER)))
    return weights, waiting


def rates(service: Service, state: Steady) -> Totals:
    """Seconds to the first token and between those that follow; tokens and requests a second of all sequences."""
    yield "serve.concurrency", state.concurrency
    yield "serve.ttft", service.ttft
    yield "serve.time_per_token", state.time_per_token
    yield "serve.residence", state.residence
    gaps = float(lengths.decoded(service.serve)) * state.time_per_token
    waiting = state.residence - service.ttft - gaps
    waiting = waiting if waiting > ROUNDING * state.residence else 0.0
    yield "serve.waiting", waiting
    if service.queue is not None:
        yield QUEUE, service.queue
        yield UNDER_LOAD, service.ttft + waiting + service.queue
    yield RATE, state.tokens_per_second
    yield f"{RATE}_per_device", state.tokens_per_second / service.plan.cluster.devices
    answered = state.tokens_per_second / float(service.serve.output.mean)
    yield "serve.requests_per_second", answered
    if service.serve.arrival_rate is not None:
        yield UNANSWERED, max(0.0, 1 - answered / service.serve.arrival_rate)


def cost(plan: Plan, state: Steady) -> Totals:
    """Dollars of a million output tokens, where an hour of a device has a price."""
    price = plan.assumptions.price
    if price is not None:
        seconds = MILLION / state.tokens_per_second
        yield "cost.per_million_tokens", plan.cluster.devices * price.per_device_hour / HOUR * seconds


# --- Throughput against latency ---

MOST = 2**20


@dataclass(frozen=True)
class CurvePoint:
    """A steady state, and whether the engine takes its sequences at once; `stated`: the plan's own."""

    state: Steady
    fits: bool
    stated: bool = False


def curve(service: Service) -> tuple[CurvePoint, ...]:
    """Doubling numbers of sequences, and the plan's own, up to where prompts fill every step or memory is long full."""
    most, asked = room(service), service.stated.concurrency
    points, count, before = list[CurvePoint](), 1, 0.0
    while count <= MOST:
        state = service.at(count)
        points.append(CurvePoint(state, count <= most))
        if state.tokens_per_second < before * GAIN or count > 2 * most:
            break
        count, before = 2 * count, state.tokens_per_second
    doubled = [point for point in points if point.state.concurrency != asked]
    return tuple(
        sorted([*doubled, CurvePoint(service.stated, asked <= most, True)], key=lambda point: point.state.concurrency)
    )
