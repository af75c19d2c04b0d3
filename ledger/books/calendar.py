"""From seconds of training to the calendar, and to what it costs: failures, checkpoints, evaluation, waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial

from ledger.arithmetic.values import Amount, divide, maximum, minimum, square_root, truncate
from ledger.books.compiled_roles import whole
from ledger.books.counts import CHECKPOINT, checkpoint, steps
from ledger.books.prices import devices_of_a_host
from ledger.books.time import StepTime
from ledger.numbers import HOUR
from ledger.spec.operations import BEST
from ledger.spec.plan import Plan

STAGED = "checkpoint.host"
LEAST = 1e-3  # share of the time that trains below which a run is said never to end
Totals = Iterator[tuple[str, Amount]]
Bytes = Callable[[], Amount]  # of one checkpoint; asked for only where a plan states how fast storage is


def checkpoint_bytes(plan: Plan) -> Amount:
    """Bytes of one checkpoint of a plan that is not compiled; no size of the run changes them."""
    return dict(checkpoint(plan, whole(plan)))[CHECKPOINT]


def saved_bytes(plan: Plan) -> Bytes:
    """`checkpoint_bytes` of a plan, derived when it is first asked for and then kept: it takes the whole model."""
    return cache(partial(checkpoint_bytes, plan))


def run(plan: Plan, step: Amount, saved: Bytes) -> Totals:
    """Seconds of all steps, of the calendar, and what that costs in USD, J and kg; `saved`: bytes of a checkpoint."""
    yield from saving(plan, saved)
    if not plan.run.tokens:
        if plan.operations.loses:
            yield "goodput", share(plan, saved) * plan.operations.utilisation
        return
    trained = steps(plan) * step
    yield "time.run", trained
    length = calendar(plan, trained, saved)
    yield "time.calendar", length
    if plan.operations.loses:
        yield "goodput", trained / length
    if price := plan.assumptions.price:
        yield "cost.run", plan.cluster.devices * price.per_device_hour / HOUR * length
    if power := plan.operations.power or plan.accelerator.power:
        energy = plan.cluster.devices * power * plan.assumptions.power_usage_effectiveness * length
        yield "energy.run", energy
        if plan.operations.grid_intensity is not None:
            yield "carbon.run", energy * plan.operations.grid_intensity


def ends(plan: Plan, time: StepTime, saved: Bytes) -> Totals:
    """The ends of the calendar and of the cost: those of a step, carried through."""
    if not plan.run.tokens:
        return
    for end, step in (("low", time.low), ("high", time.high)):
        length = calendar(plan, steps(plan) * step, saved)
        yield f"time.calendar.{end}", length
        if price := plan.assumptions.price:
            yield f"cost.run.{end}", plan.cluster.devices * price.per_device_hour / HOUR * length


def calendar(plan: Plan, trained: Amount, saved: Bytes) -> Amount:
    """Seconds from the first device paid for to the last step, for so many seconds of training."""
    operations = plan.operations
    if not operations.loses:
        return trained
    return (trained + (operations.warm_up or 0.0)) / (share(plan, saved, trained) * operations.utilisation)


def share(plan: Plan, saved: Bytes, trained: Amount | None = None) -> Amount:
    """The share of the time that the job runs, after warm-up, in which it trains; at least LEAST.

    The rest are checkpoints and evaluation that stop it, and at each failure a restart and half an interval of work.
    """
    return maximum(LEAST, 1.0 - sum(amount for _, amount in lost_shares(plan, saved, trained)))


def lost_shares(plan: Plan, saved: Bytes, trained: Amount | None) -> Totals:
    """What the job does instead of training, each as a share of the time that it runs.

    No failure loses more than there is: of a run shorter than the interval half of its seconds of training, `trained`.
    """
    operations = plan.operations
    yield "evaluation", operations.evaluation_share
    if operations.saves:
        every = interval(plan, saved)
        yield "checkpoints", stall(plan, saved) / every
        yield "restarts", failures(plan) * (operations.restart_time or 0.0)
        lasting = every if trained is None else minimum(every, trained)
        again = lasting / 2
        if operations.checkpoint_async:  # what storage has not taken in yet is lost as well
            again = minimum(lasting / 2 + writing(plan, saved), *(() if trained is None else (trained,)))
        yield "work done again", failures(plan) * again


def losses(plan: Plan, trained: float, saved: float) -> Totals:
    """Seconds of the calendar beyond so many of training, by what takes them; together they are the whole difference.

    `saved`: bytes of a checkpoint. A run that never ends has no such seconds.
    """
    operations = plan.operations
    warm_up = operations.warm_up or 0.0
    ran = (trained + warm_up) / share(plan, lambda: saved, trained)
    yield "warm-up", warm_up
    for name, part in lost_shares(plan, lambda: saved, trained):
        yield name, ran * part
    yield "reserved and not used", ran / operations.utilisation - ran


def failures(plan: Plan) -> Amount:
    """Failures of the whole job a second."""
    return (plan.operations.failure_rate or 0.0) * plan.cluster.devices


def stall(plan: Plan, saved: Bytes) -> Amount:
    """Seconds for which a checkpoint stops the job: as stated, else its bytes over the storage's bandwidth, else 0.

    Of one that is written beside training, until each device has copied an even share of it to its host.
    """
    operations = plan.operations
    if operations.checkpoint_cost is not None:
        return operations.checkpoint_cost
    if operations.checkpoint_async:
        link = plan.accelerator.host_bandwidth  # a device that has one memory with its host copies nothing over a link
        return saved() / plan.cluster.devices / link if link else 0.0
    return saved() / operations.storage_bandwidth if operations.storage_bandwidth else 0.0


def writing(plan: Plan, saved: Bytes) -> Amount:
    """Seconds for which storage takes a checkpoint in beside training, before which a failure finds the one before."""
    operations = plan.operations
    beside = operations.checkpoint_async and operations.storage_bandwidth
    return saved() / operations.storage_bandwidth if beside else 0.0


def staged_on_host(plan: Plan, saved: Bytes) -> Amount:
    """Bytes of host memory that hold a checkpoint while it is written: the even shares of the devices of a host."""
    return truncate(divide(saved() * devices_of_a_host(plan.cluster), plan.cluster.devices))


def interval(plan: Plan, saved: Bytes) -> Amount:
    """Seconds between the beginnings of two checkpoints: as stated, or where saving and lost work take least.

    One that is written beside training is over before the next begins.
    """
    stated = plan.operations.checkpoint_interval
    if stated != BEST:
        return stated
    best = square_root(2.0 * stall(plan, saved) / failures(plan))
    return maximum(best, writing(plan, saved)) if plan.operations.checkpoint_async else best


def saving(plan: Plan, saved: Bytes) -> Totals:
    """How often a run is saved and for how long that stops it, where a plan says so."""
    if plan.operations.saves:
        yield "checkpoint.interval", interval(plan, saved)
        yield "checkpoint.time", stall(plan, saved)
    if plan.operations.stages:
        if plan.operations.storage_bandwidth:
            yield "checkpoint.writing", writing(plan, saved)
        yield STAGED, staged_on_host(plan, saved)
