"""What PyTorch says of a plan: each function runs one of the judges on the plan's model as it is given."""

from __future__ import annotations

from dataclasses import replace

from ledger.lab.observed.device_step import AllocatedBytes
from ledger.lab.reference.model import workload
from ledger.lab.transformers.config import NoReferenceError
from ledger.lab.verification.depth import with_counts
from ledger.model.schedule import micro_batches
from ledger.spec.plan import Plan, Recompute

Found = dict[str, AllocatedBytes]

UNSEEN = "bitsandbytes' kernels bring matrices back within themselves, where fake tensors show nothing"


def parameters(plan: Plan) -> Found:
    """Parameters of the transformers model."""
    from ledger.lab.observed.flop_counts import parameter_counts

    everything, trained = parameter_counts(plan.model, plan.train)
    found = {"parameters": AllocatedBytes(everything)}
    return found if plan.train.kind == "all" else found | {"parameters.trainable": AllocatedBytes(trained)}


def flops(plan: Plan) -> Found:
    """FLOPs of one unsharded micro-batch by pass and kind, and what checkpointing adds to the backward pass."""
    from ledger.lab.observed.flop_counts import flop_counts

    work = workload(plan)
    plain = flop_counts(replace(work, recompute=Recompute()))
    again = plain if plan.recompute.policy == "none" else flop_counts(work)
    found = {f"flops.{phase}.{kind}": AllocatedBytes(count) for (phase, kind), count in plain.kinds.items()}
    return {**found, "flops.recompute": AllocatedBytes(again.backward - plain.backward)}


def saved(plan: Plan) -> Found:
    """Bytes that autograd packs for one unsharded micro-batch: the last layer of each group, and all.

    Tables of positions are packed by the first layer and shared by all, so the last layer of a group is its own.
    """
    from ledger.lab.observed.saved_tensors import saved_storages

    storages = saved_storages(workload(plan))
    found = {"saved.total": AllocatedBytes(sum(storage.bytes for storage in storages))}
    least = 1 if plan.model.of_blocks else 2  # of blocks some change sizes, and none finds tables
    several = replace(plan, model=with_counts(plan.model, [max(least, group.repeat) for group in plan.model.groups]))
    if several != plan:
        storages = saved_storages(workload(several))
    for index, group in enumerate(several.model.layers):
        layer = sum(storage.bytes for storage in storages if storage.layer == index)
        found[f"saved.per_layer.{group.name}"] = AllocatedBytes(layer)
    return found


def one_device(plan: Plan) -> Found:
    """Bytes of a step on one device, moment by moment; raises `NoReferenceError`."""
    from ledger.lab.observed.one_device import one_device_step

    if plan.precision.weights.is_stored_only:
        raise NoReferenceError(f"{plan.precision.weights.base}: {UNSEEN}")

    return dict(one_device_step(workload(plan), micro_batches(plan)).moments)


def one_rank(plan: Plan) -> Found:
    """Bytes of rank 0 of a sharded step, moment by moment, and what it sends."""
    from ledger.lab.observed.rank_step import rank_step
    from ledger.lab.verification.layouts import replicas, sharding
    from ledger.model.gradients import copied_to_buckets

    mesh, work = sharding(plan), workload(plan)
    step = rank_step(work, replicas(plan) if copied_to_buckets(plan) else mesh)
    found = dict(step.moments)
    for sent in step.collectives:
        # Without FSDP, DTensor leaves gradients as parts until the optimizer asks for them.
        phase = "backward" if sent.phase == "optimizer" and not mesh.shards else sent.phase
        for name, amount in (("count", sent.count), ("bytes", sent.bytes)):
            key = f"comm.{sent.kind}.{sent.axis}.{phase}.{name}"
            found[key] = found.get(key, AllocatedBytes()) + AllocatedBytes(amount)
    return found
