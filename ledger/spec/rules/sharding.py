"""Rules on how devices that share weights split them, and on when weights and gradients move."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.spec.places import Places, divisors
from ledger.spec.plan import Model, Parallelism, Recompute
from ledger.spec.problems import Problem
from ledger.spec.stages import chunks


def groups_multiply(parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Hybrid sharding: copies x devices of each copy = data x context."""
    replicas = parallelism.data * parallelism.context
    copies, shard = parallelism.replicate, parallelism.shard
    if shard and copies * shard != replicas:
        message = f"replicate x shard = {copies} x {shard} = {copies * shard}, but data x context = {replicas}"
        fitting = f"`shard: {replicas // copies}`" if replicas % copies == 0 else divisors(replicas)
        yield Problem(at("parallelism.shard"), message, fitting)
    elif replicas % copies:
        message = f"replicate = {copies} does not divide data x context = {replicas}"
        yield Problem(at("parallelism.replicate"), message, divisors(replicas))
    elif copies == replicas > 1:
        message = f"replicate = {copies} leaves one device for each copy, so nothing is split"
        yield Problem(at("parallelism.replicate"), message, "fewer copies, or `zero: 0`")


def copies_are_of_something_split(parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Hybrid sharding copies what ZeRO splits."""
    if parallelism.replicate > 1 and not parallelism.zero:
        message = f"replicate = {parallelism.replicate} with zero = 0: nothing is split, so all devices are copies"
        yield Problem(at("parallelism.replicate"), message, "`replicate: 1`, or `zero: 3`")


def gathering_needs_zero_3(parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Only weights that are held split are gathered, and freed again."""
    default = Parallelism()
    if parallelism.zero == 3:
        return
    for key, what in (("reshard", "no weights are gathered"), ("wrap", "no weights move as one")):
        if getattr(parallelism, key) != getattr(default, key):
            message = f"`{key}` with zero = {parallelism.zero}: {what}"
            yield Problem(at(f"parallelism.{key}"), message, f"leave `{key}` out, or `zero: 3`")


def wraps_are_full(model: Model, parallelism: Parallelism, recompute: Recompute, at: Places) -> Iterator[Problem]:
    """Sets of several layers hold layers of one kind, and every stage holds whole sets."""
    size = parallelism.wrap
    if size < 2 or model.bare:
        return
    where = at("parallelism.wrap")
    if model.order or recompute.policy in ("every", "layers", "segment"):
        what = "groups take turns" if model.order else "layers are recomputed differently"
        yield Problem(where, f"wrap: {{every: {size}}}, but {what}, so sets would be unlike", "`wrap: layer`")
        return
    for group in model.groups:
        if group.repeat % size:
            message = f"{group.repeat} layers of `{group.name}` do not divide into sets of {size}"
            yield Problem(where, message, divisors(group.repeat))
    uneven = [held for held in chunks(model, parallelism) if held % size]
    if uneven and not any(group.repeat % size for group in model.groups):
        message = f"the layers of a pipeline stage, {uneven[0]}, do not divide into sets of {size}"
        yield Problem(where, message, divisors(uneven[0]))


def reduction_is_split(parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """ZeRO 2 holds no whole gradients, so nothing could wait for the end of a step."""
    if parallelism.reduce == "step" and parallelism.zero == 2:
        message = "reduce: step with zero = 2: gradients that are held split are reduced as they come"
        yield Problem(at("parallelism.reduce"), message, "`reduce: micro_batch`, or `zero: 1` or `3`")


def buckets_are_of_replicas(parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Buckets belong to the all-reduce of whole gradients."""
    if parallelism.zero and parallelism.bucket != Parallelism().bucket:
        message = f"bucket with zero = {parallelism.zero}: gradients are reduced set by set"
        yield Problem(at("parallelism.bucket"), message, "leave `bucket` out, or `zero: 0`")
