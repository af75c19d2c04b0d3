"""The end of a step: gradients added up over micro-batches, passes over them, and the update of the weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import sympy

from ledger.model import orthogonal
from ledger.model.formats import trained_dtype
from ledger.model.fsdp_units import ROOT, shared, wrapped
from ledger.model.offloading import sums_on_host, updates_on_host, weights_on_host
from ledger.model.operations import ZERO, Operation, total
from ledger.model.optimizers import Owned, Value, implementation, owned, shape_of, states
from ledger.model.sharding import Exchange, Sharding
from ledger.model.tensors import sized
from ledger.model.units import Unit
from ledger.spec.kernel_classes import ELEMENTWISE, OPTIMIZER
from ledger.spec.optimizer import Optimizer
from ledger.spec.plan import Plan

# Passes over the local gradients beside the update: which copies each reads and writes.
PASSES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "copy": (("gradients",), ("master",)),  # 16-bit gradients to fp32
    "unscale": (("master",), ("master",)),  # divide by the loss scale, look for infinities
    "norm": (("master",), ()),
    "clip": (("master",), ("master",)),
    "cast": (("master",), ("weights",)),  # the updated master copy to the weights
    "zero": ((), ("gradients",)),
}


@dataclass(frozen=True)
class Streaming(Operation):
    """A kernel over the state of many weights: `amount` bytes moved, `work` FLOPs; whether it runs `on_host`."""

    amount: sympy.Expr = ZERO
    work: sympy.Expr = ZERO
    on_host: bool = False

    def traffic(self) -> sympy.Expr:
        """Bytes read and written."""
        return self.amount

    def vector(self) -> sympy.Expr:
        """FLOPs outside the matrix units."""
        return self.work


def accumulations(plan: Plan, mine: Sequence[Unit], sharding: Sharding) -> Iterator[tuple[str, sympy.Expr, Streaming]]:
    """Each micro-batch adds its gradients to those before: the new one is read, the sum read and written.

    A weight that is embedding and head has two gradients in every micro-batch; autograd writes their sum anew. Where
    products add theirs to gradients that stay, the others (of norms, biases, lookups) are added in every micro-batch.
    """
    added = {step.output.name for unit in mine for step in unit.backward if step.adds_to}
    if not added:
        for weight in shared(mine):
            amount = 3 * sized(weight.dtype, weight.elements())
            yield ROOT, sympy.Integer(1), Streaming("weights/tied", ELEMENTWISE, (), (), amount=amount)
    if not added and plan.run.global_batch == plan.parallelism.data * plan.run.micro_batch:
        return
    fresh = plan.precision.gradients if sharding.splits("gradients") else trained_dtype(plan)
    for name, count, weights in wrapped(mine):
        elements = total(sharding.held("gradients", one) for one in weights if one.gradient.name not in added)
        if elements == ZERO:
            continue
        amount = sized(fresh, elements) + 2 * sized(plan.precision.gradients, elements)
        adding = Streaming("weights/accumulate", ELEMENTWISE, (), (), amount=amount, work=elements)
        yield name, count, replace(adding, on_host=sums_on_host(plan))


def copies_gradients(plan: Plan) -> bool:
    """Whether the update works on copies of the gradients, in the dtype of the master weights.

    A fused kernel reads 16-bit gradients itself (apex and Transformer Engine FusedAdam), unless the stack copies.
    """
    precision = plan.precision
    if precision.master in (None, precision.gradients) or updates_on_host(plan):
        return False
    return plan.kernels.optimizer != "fused" or "copy" in plan.stack.optimizer_passes


def exchanges(plan: Plan, mine: Sequence[Unit], sharding: Sharding) -> Iterator[tuple[str, sympy.Expr, str, Exchange]]:
    """Transfers that the update itself needs."""
    return orthogonal.exchanges(tuple(owned(plan.optimizer, tuple(mine))), sharding)


def update(
    plan: Plan, mine: Sequence[Unit], sharding: Sharding, value: Value
) -> Iterator[tuple[str, sympy.Expr, Operation]]:
    """The stack's passes over the gradients, then each rule's own kernels: whose, how often a step has it, and what."""
    weights = tuple(owned(plan.optimizer, tuple(mine)))
    elements, trained = _elements(weights, sharding), trained_dtype(plan)
    hosted = updates_on_host(plan)
    stay = hosted and not weights_on_host(plan)  # gradients are passed over on the device, in their own dtype
    dtypes = {
        "gradients": plan.precision.gradients,
        "master": plan.precision.gradients if stay else plan.precision.master or trained,
        "weights": trained,
    }
    copied = copies_gradients(plan)
    left = {"copy", "cast"} if hosted else set() if copied else {"copy"}
    listed = tuple(name for name in plan.stack.optimizer_passes if name not in left)
    for name in (*(["copy"] if copied and "copy" not in listed else []), *listed):
        reads, writes = PASSES[name]
        amount = total(sized(dtypes[kind], elements) for kind in (*reads, *writes))
        passed = Streaming(name, OPTIMIZER, (), (), amount=amount, on_host=weights_on_host(plan))
        yield "optimizer", sympy.Integer(1), passed
    rules = {id(one.rule): one.rule for one in weights}
    for rule in rules.values():
        mine_alone = [one for one in weights if one.rule is rule]
        suffix = "" if rule is plan.optimizer else f".{rule.name}"
        streamed = _streamed(f"update{suffix}", rule, mine_alone, plan, sharding, value)
        yield "optimizer", sympy.Integer(1), streamed
        for one in mine_alone:
            yield from ((one.unit, times, step) for times, step in orthogonal.products(one, sharding, value))


def _streamed(  # noqa: PLR0913 - what an update is of
    name: str, rule: Optimizer, weights: Sequence[Owned], plan: Plan, sharding: Sharding, value: Value
) -> Streaming:
    """One kernel that reads gradients and reads and writes weights and states, or as many passes as it really has."""
    precision, elements, trained = plan.precision, _elements(weights, sharding), trained_dtype(plan)
    kept = total(2 * one.count * state.bytes() for one in weights for state in states(one, sharding, precision, value))
    moved = sized(precision.gradients, elements) + 2 * sized(precision.master or trained, elements) + kept
    if precision.master:
        moved += sized(trained, elements)
    _, run = implementation(rule, plan.kernels.optimizer)
    least = 3 + 2 * max(
        sum(shape_of(state, one.unit, one.weight) == "whole" for state in rule.states.values()) for one in weights
    )
    hosted = updates_on_host(plan)  # where one pass does all
    factor = sympy.Rational(least if hosted else run.passes or least, least)
    amount, work = sympy.expand_mul(factor * moved), rule.flops * elements
    return Streaming(name, OPTIMIZER, (), (), amount=amount, work=work, on_host=hosted)


def _elements(weights: Sequence[Owned], sharding: Sharding) -> sympy.Expr:
    return total(one.count * sharding.held("optimizer", one.weight) for one in weights)
