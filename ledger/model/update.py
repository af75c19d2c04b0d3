"""The end of a step: gradients added up over micro-batches, passes over them, and the update of the weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import sympy

from ledger.model.operations import total
from ledger.model.optimizers import IMPLEMENTATIONS, OPTIMIZERS, PASSES, Streaming
from ledger.model.program import Unit, wrapped
from ledger.model.sharding import Sharding
from ledger.model.tensors import Tensor, sized
from ledger.spec.plan import Plan


def accumulations(plan: Plan, mine: Sequence[Unit], sharding: Sharding) -> Iterator[tuple[str, sympy.Expr, Streaming]]:
    """Each micro-batch adds its gradients to those before: the new one is read, the sum read and written."""
    if plan.stack.accumulation != "add" or plan.run.global_batch == plan.parallelism.data * plan.run.micro_batch:
        return
    fresh = plan.precision.gradients if sharding.splits("gradients") else plan.precision.weights
    for name, count, weights in wrapped(mine):
        elements = total(sharding.held("gradients", weight) for weight in weights)
        amount = sized(fresh, elements) + 2 * sized(plan.precision.gradients, elements)
        yield name, count, Streaming("weights/accumulate", "elementwise", (), (), amount=amount, work=elements)


def update(plan: Plan, mine: Sequence[Unit], sharding: Sharding) -> Iterator[Streaming]:
    """The stack's passes over the gradients, then the optimizer's own kernel over this device's share."""
    elements = total(
        count * sharding.held("optimizer", weight) for _, count, weights in wrapped(mine) for weight in weights
    )
    dtypes = {
        "gradients": plan.precision.gradients,
        "master": plan.precision.master or plan.precision.weights,
        "weights": plan.precision.weights,
    }
    for name in plan.stack.optimizer_passes:
        reads, writes = PASSES[name]
        amount = total(sized(dtypes[kind], elements) for kind in (*reads, *writes))
        yield Streaming(f"optimizer/{name}", "optimizer", (), (), amount=amount)
    rule = OPTIMIZERS[plan.optimizer.name]
    states = total(
        2 * count * sized(plan.precision.states, _state_elements(weight, sharding, state.factored))
        for _, count, weights in wrapped(mine)
        for weight in weights
        for state in rule.states
    )
    weights = 2 * sized(dtypes["master"], elements)
    if plan.precision.master:
        weights += sized(dtypes["weights"], elements)
    amount = IMPLEMENTATIONS[plan.kernels.optimizer].passes * (sized(dtypes["gradients"], elements) + weights + states)
    yield Streaming(
        "optimizer/update", "optimizer", (), (), amount=sympy.expand_mul(amount), work=rule.flops * elements
    )


def _state_elements(weight: Tensor, sharding: Sharding, factored: bool) -> sympy.Expr:
    """A factored state is small beside the rows it summarises, which are read instead."""
    return sympy.Integer(0) if factored else sharding.held("optimizer", weight)
