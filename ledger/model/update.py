"""The end of a step: gradients added up over micro-batches, passes over them, and the update of the weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import sympy

from ledger.model import dtypes
from ledger.model.causes import ROOT
from ledger.model.contraction import Contraction
from ledger.model.dims import Dim, listed
from ledger.model.exchanges import fills_gradients, gathers_again, sent_dtype
from ledger.model.formats import trained_dtype
from ledger.model.fsdp_units import FsdpUnit, shared, weights_by_unit
from ledger.model.offloading import sums_on_host, updates_on_host, weights_on_host
from ledger.model.operations import ZERO, Operation, total
from ledger.model.optimizers import TrainedWeight, Value, implementation, matrix, shape_of, states, trained_weights
from ledger.model.sharding import EXPERT_DATA, ParameterCollective, Sharding
from ledger.model.tensors import CeilDiv, Tensor, sized
from ledger.model.unit import Unit
from ledger.spec.kernel_classes import COPY, ELEMENTWISE, OPTIMIZER, KernelClass, matmul
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


def accumulations(plan: Plan, units: Sequence[Unit], sharding: Sharding) -> Iterator[tuple[str, sympy.Expr, Streaming]]:
    """Each micro-batch adds its gradients to those before, or to zeros: the new one is read, the sum read and written.

    A weight that is embedding and head has two gradients in every micro-batch; autograd writes their sum anew. Where
    products add theirs to gradients that stay, the others (of norms, biases, lookups) are added in every micro-batch.
    """
    added = {step.output.name for unit in units for step in unit.backward if step.adds_to}
    if not added:
        for weight in shared(units):
            amount = 3 * sized(weight.dtype, weight.elements())
            yield ROOT, sympy.Integer(1), Streaming("weights/tied", ELEMENTWISE, (), (), amount=amount)
    alone = plan.run.global_batch == plan.parallelism.data * plan.run.micro_batch
    if not added and alone and not fills_gradients(plan):
        return
    fresh = plan.precision.gradients if sharding.splits("gradients") else trained_dtype(plan)
    for name, count, weights in weights_by_unit(units):
        elements = total(sharding.held_elements("gradients", w) for w in weights if w.gradient.name not in added)
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


def gradient_passes(plan: Plan) -> tuple[str, ...]:
    """The passes over gradients beside the update: those of the stack, and the one that fills them with zeros."""
    passes = plan.stack.optimizer_passes
    return (*passes, "zero") if fills_gradients(plan) and "zero" not in passes else passes


def update_collectives(
    plan: Plan, units: Sequence[Unit], sharding: Sharding
) -> Iterator[tuple[str, sympy.Expr, str, ParameterCollective]]:
    """Transfers that the update itself needs."""
    return orthogonal_exchanges(tuple(trained_weights(plan.optimizer, tuple(units))), sharding)


def update(
    plan: Plan, units: Sequence[Unit], sharding: Sharding, value: Value
) -> Iterator[tuple[str, sympy.Expr, Operation]]:
    """The stack's passes over the gradients, then each rule's own kernels: whose, how often a step has it, and what."""
    weights = tuple(trained_weights(plan.optimizer, tuple(units)))
    elements, trained = _owned_elements(weights, sharding), trained_dtype(plan)
    hosted = updates_on_host(plan)
    stay = hosted and not weights_on_host(plan)  # gradients are passed over on the device, in their own dtype
    dtypes = {
        "gradients": plan.precision.gradients,
        "master": plan.precision.gradients if stay else plan.precision.master or trained,
        "weights": trained,
    }
    copied = copies_gradients(plan)
    omitted = {"copy", "cast"} if hosted else set() if copied else {"copy"}
    listed = tuple(name for name in gradient_passes(plan) if name not in omitted)
    for name in (*(["copy"] if copied and "copy" not in listed else []), *listed):
        reads, writes = PASSES[name]
        amount = total(sized(dtypes[kind], elements) for kind in (*reads, *writes))
        if name == "zero" and fills_gradients(plan):  # all that a device holds, of which it may update a share
            held = total(updated.count * sharding.held_elements("gradients", updated.weight) for updated in weights)
            amount = sized(plan.precision.gradients, held)
        passed = Streaming(name, OPTIMIZER, (), (), amount=amount, on_host=weights_on_host(plan))
        yield "optimizer", sympy.Integer(1), passed
    rules = {id(updated.rule): updated.rule for updated in weights}
    for rule in rules.values():
        weights_of_rule = [updated for updated in weights if updated.rule is rule]
        suffix = "" if rule is plan.optimizer else f".{rule.name}"
        streamed = _stream_update(f"update{suffix}", rule, weights_of_rule, plan, sharding, value)
        yield "optimizer", sympy.Integer(1), streamed
        for updated in weights_of_rule:
            yield from ((updated.unit, times, step) for times, step in products(updated, sharding, value))


def _stream_update(  # noqa: PLR0913 - what an update is of
    name: str, rule: Optimizer, weights: Sequence[TrainedWeight], plan: Plan, sharding: Sharding, value: Value
) -> Streaming:
    """One kernel that reads gradients and reads and writes weights and states, or as many passes as it really has."""
    precision, elements, trained = plan.precision, _owned_elements(weights, sharding), trained_dtype(plan)
    state_bytes = total(
        2 * updated.count * state.bytes()
        for updated in weights
        for state in states(updated, sharding, precision, value)
    )
    moved = sized(precision.gradients, elements) + 2 * sized(precision.master or trained, elements) + state_bytes
    if precision.master:
        moved += sized(trained, elements)
    _, run = implementation(rule, plan.kernels.optimizer)
    least = 3 + 2 * max(
        sum(shape_of(state, updated.unit, updated.weight) == "whole" for state in rule.states.values())
        for updated in weights
    )
    hosted = updates_on_host(plan)  # where one pass does all
    factor = sympy.Rational(least if hosted else run.passes or least, least)
    amount, work = sympy.expand_mul(factor * moved), rule.flops * elements
    return Streaming(name, OPTIMIZER, (), (), amount=amount, work=work, on_host=hosted)


def _owned_elements(weights: Sequence[TrainedWeight], sharding: Sharding) -> sympy.Expr:
    return total(updated.count * sharding.held_elements("optimizer", updated.weight) for updated in weights)


# --- Newton-Schulz iterations ---


def products(updated: TrainedWeight, sharding: Sharding, value: Value) -> Iterator[tuple[sympy.Expr, Contraction]]:
    """The three products of an iteration, each with how often a step has it: X X', its square, and that times X.

    X has the shorter side first (torch/optim/_muon.py). Where states are held split, whole matrices are dealt out to
    the devices that share them, and this is the device with most.
    """
    schulz = updated.rule.newton_schulz
    if schulz is None:
        return
    count, rows, columns = matrix(updated.weight)
    short, long = sorted((rows, columns), key=value)
    name = f"{updated.weight.name}.orthogonal"
    sizes = {"short": short, "other": short, "third": short, "long": long}

    def over(of: str, dims: str) -> Tensor:
        return Tensor(f"{name}.{of}", tuple(Dim(dim, sizes[dim]) for dim in listed(dims)), schulz.dtype)

    steps = (
        ("gram", "x", "short long", "x", "other long", "short other"),
        ("square", "gram", "short other", "gram", "other third", "short third"),
        ("apply", "square", "short other", "x", "other long", "short long"),
    )
    matrices = updated.count * count
    dealt = CeilDiv(matrices, sharding.degree(updated.weight)) if sharding.splits("optimizer") else matrices
    kernel = matmul(dtypes.rate(schulz.dtype))
    for step, first, left, second, right, out in steps:
        operands = (over(first, left), over(second, right))
        einsum = f"{left}, {right} -> {out}"
        product = Contraction(f"{name}.{step}", kernel, operands, (over(step, out),), einsum=einsum)
        yield dealt * schulz.iterations, product


def orthogonal_exchanges(
    updated_weights: tuple[TrainedWeight, ...], sharding: Sharding
) -> Iterator[tuple[str, sympy.Expr, str, ParameterCollective]]:
    """Transfers of shares to the device that a matrix is dealt to, and of its update back.

    Ahn et al. 2025, Dion, arXiv 2504.05295 (microsoft/dion, dion/muon.py): every device sends its part of each matrix.
    """
    if not sharding.splits("optimizer"):
        return
    for unit, count in dict.fromkeys((updated.unit, updated.count) for updated in updated_weights):
        matrices = [(updated.weight, updated.rule.newton_schulz) for updated in updated_weights if updated.unit == unit]
        sent = total(
            sized(s.dtype, sharding.held_elements("optimizer", weight)) for weight, s in matrices if s is not None
        )
        kernel = KernelClass("all_to_all")
        for direction in ("together", "back") if sent != 0 else ():
            step = ParameterCollective(
                f"update/{direction}", kernel, (), (), collective="all_to_all", amount=sent, per_step=True
            )
            yield unit, count, "optimizer", step


# --- copies beside the transfers of ZeRO 3 ---

Copied = tuple[str, sympy.Expr, str, bool, Streaming]  # set of weights, how many of them, phase, once a step, what


def copies(plan: Plan, sets: Sequence[FsdpUnit], sharding: Sharding) -> Iterator[Copied]:
    """Copies around each gather and each reduction of a set of weights that is held split."""
    if not sharding.splits("weights"):
        return
    once = plan.parallelism.reduces_once
    for fsdp_unit in sets:
        for axis, part in fsdp_unit.over(sharding):
            of = "experts" if axis == EXPERT_DATA else "weights"
            out, into = (
                _gather_copy_bytes(plan, part, sharding),
                _reduction_copy_bytes(plan, part.gradients(), sharding),
            )
            phases = ("forward", "backward") if gathers_again(plan, part.name) and part.used_again else ("forward",)
            for phase in phases if out != ZERO else ():
                yield part.name, part.count, phase, False, _copy(f"{of}/copy_out", out)
            if into != ZERO:
                yield part.name, part.count, "backward", once, _copy(f"{of}/copy_in", into)


def _copy(name: str, amount: sympy.Expr) -> Streaming:
    return Streaming(name, COPY, (), (), amount=amount)


def _gather_copy_bytes(plan: Plan, part: FsdpUnit, sharding: Sharding) -> sympy.Expr:
    """The share cast to what is sent; FSDP2 copies what arrived into the weights (`split_with_sizes_copy`)."""
    moved = part.stored_otherwise(plan.precision, sent_dtype(plan))
    cast = moved.stored_share(sharding, plan.precision) + moved.share(sharding, sent_dtype(plan))
    return cast + (2 * part.gathered_bytes(sharding, sent_dtype(plan)) if plan.stack.unshard == "copied" else ZERO)


def _reduction_copy_bytes(plan: Plan, part: FsdpUnit, sharding: Sharding) -> sympy.Expr:
    """Gradients copied into the input of their reduction, cast on the way (FSDP2, `chunk_cat`).

    FSDP1 joins them into a flat gradient, which is cast by a kernel of its own.
    """
    if not part.parts:
        return ZERO
    fresh, sums = part.unpadded(plan.precision.compute), part.gathered_bytes(sharding, plan.precision.reduction)
    if plan.stack.unshard == "copied":
        return fresh + sums
    return 2 * fresh + (fresh + sums if plan.precision.reduction != plan.precision.compute else ZERO)
