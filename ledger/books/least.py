"""What no layout of a plan can be below: arithmetic at the peak rate of all devices, and states split over all."""

from __future__ import annotations

from collections.abc import Mapping

from ledger.arithmetic.values import Amount
from ledger.books.calendar import run, saved_bytes
from ledger.books.compiled_roles import whole
from ledger.books.counts import peak, state_bytes, with_token_count
from ledger.model import dtypes
from ledger.model.formats import stored_dtype
from ledger.model.operations import total
from ledger.spec.plan import Plan

ACTIVATIONS = "activations"
HELD = ("memory.peak", "memory.reserved")
GROWS = ("time.step", "time.run", "time.calendar", "cost.run", "energy.run", "carbon.run")  # with the time of a step


def least_totals(plan: Plan) -> Mapping[str, Amount]:
    """The totals of GROWS and HELD that a plan has, each at most what it is in any layout, legal or not.

    Of a plan that keeps weights or states on the host none of HELD; of one that serves HELD alone.
    """
    least = {} if plan.serve else _least_of_run(with_token_count(plan))
    if {*plan.parallelism.offload.kinds} - {ACTIVATIONS}:
        return least
    held = least_state(plan) / plan.cluster.devices
    return {**least, **dict.fromkeys(HELD, held), "memory.capacity": plan.accelerator.memory}


def _least_of_run(plan: Plan) -> dict[str, Amount]:
    """The totals of GROWS that a plan which trains has."""
    step = least_flops(plan) / (plan.cluster.devices * peak(plan))
    found = {"time.step": step, **dict(run(plan, step, saved_bytes(plan)))}
    return {key: found[key] for key in GROWS if key in found}


def least_state(plan: Plan) -> float:
    """Bytes of the weights as they are stored, and of the copies and states that an optimizer has of those trained."""
    model, beside = whole(plan), state_bytes(plan)
    trained = 0.0 if plan.serve else float(beside["master"] + beside["optimizer"])
    return sum(
        float(model.value(layers * weight.elements()))
        * (float(dtypes.DTYPES[stored_dtype(plan.precision, weight)].average) + (0 if weight.frozen else trained))
        for layers, weight in model.weights()
    )


def least_flops(plan: Plan) -> float:
    """Matmul FLOPs of a step of the whole job, forward and backward; nothing twice, and no scores that a mask hides."""
    model = whole(plan)
    each = sum(
        model.value(
            unit.count
            * total(
                operation.in_all(lambda run: run.useful() - run.redone())
                for operation in (*unit.forward, *unit.backward)
            )
        )
        for unit in model.units
    )
    return float(each) * plan.run.global_batch / plan.run.micro_batch
