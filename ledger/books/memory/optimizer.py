"""What the optimizer keeps from step to step, and what its update holds while it runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import sympy

from ledger.books.entries import Entry, Lifetime
from ledger.books.resources import stock
from ledger.model.causes import INPUT, ROOT, Cause
from ledger.model.exchanges import drains
from ledger.model.formats import trained_dtype
from ledger.model.offloading import updates_on_host
from ledger.model.operations import ONE, total
from ledger.model.optimizers import TrainedWeight, Value, implementation, states, temporary, trained_weights
from ledger.model.program import Program
from ledger.model.sharding import Sharding, gathered
from ledger.model.tensors import sized
from ledger.model.update import copies_gradients
from ledger.spec.optimizer import Temporary
from ledger.spec.plan import Plan

Holding = tuple[sympy.Expr, str]  # bytes, and why


def optimizer_states(program: Program, plan: Plan, when: Lifetime, value: Value) -> Iterator[Entry]:
    """Master weights and optimizer states, alive all the time; on the device, unless the host or unified memory has."""
    weights = tuple(trained_weights(plan.optimizer, program.units))
    if updates_on_host(plan):
        if weights and drains(plan) and plan.parallelism.zero < 3:
            yield _host_gradient_buffer(weights, plan, when, value)
        return
    precision, sharding = plan.precision, program.sharding
    for row in weights:
        if precision.master:
            amount = sized(precision.master, sharding.held_elements("optimizer", row.weight))
            yield Entry(Cause(row.unit, row.weight.name), stock("master"), when, amount, row.count, "master copy")
        for state in (state for state in states(row, sharding, precision, value) if not state.paged):
            why = f"{state.name.replace('_', ' ')} of {row.rule.title} ({row.rule.citation})"
            cause = Cause(row.unit, row.weight.name, state=state.name)
            yield Entry(cause, stock("optimizer"), when, state.bytes(), row.count, why)


def _host_gradient_buffer(weights: Sequence[TrainedWeight], plan: Plan, when: Lifetime, value: Value) -> Entry:
    """A buffer for one whole gradient, through which gradients come and go between device and host.

    deepspeed/runtime/zero/stage_1_and_2.py, `temp_grad_buffer_for_gpu_offload`.
    """
    sizes = (sized(plan.precision.gradients, row.weight.elements()) for row in weights)
    why = "a gradient on its way to the host, where they are added up"
    cause = Cause("gradients", "buffer", state="of the host")
    return Entry(cause, stock("workspace"), when, max(sizes, key=value), ONE, why)


def update(program: Program, plan: Plan, when: Lifetime, value: Value) -> Iterator[Entry]:
    """Temporaries of the update at its fullest instant, and gradients in the dtype of the master weights.

    An update on the host leaves nothing on the device, and a stage of which nothing is trained has none.
    """
    sharding, weights = (
        program.sharding,
        _in_module_order(program, plan, trained_weights(plan.optimizer, program.units)),
    )
    if updates_on_host(plan) or not weights:
        return
    casts = tuple(_gradient_casts(weights, plan, when, sharding))
    yield from casts
    copied = total(cast.amount for cast in casts)
    candidates = list(_temporaries_of_rules(weights, plan, sharding, value))
    if plan.stack.norm_dtype:
        yield from _norm_copy(weights, plan, when, sharding, value, copied)
    if candidates:
        amount, why = max(candidates, key=lambda holding: value(holding[0]))
        yield Entry(Cause("optimizer", "update", state="temporaries"), stock("workspace"), when, amount, ONE, why)
        copied += amount
    more = _flat_copies(weights, plan, sharding) - copied
    if value(more) > 0:
        why = "the gather of updated weights through flat copies, beyond what the update before it held"
        yield Entry(Cause("weights", "gather", state="copies"), stock("workspace"), when, more, ONE, why)


def _gradient_casts(
    weights: Sequence[TrainedWeight], plan: Plan, when: Lifetime, sharding: Sharding
) -> Iterator[Entry]:
    """Gradients in the dtype of the master weights; what is reduced out of a buffer is put together before.

    DeepSpeed's `flat_grad_partition.to(fp32)`, while the gradients themselves are there as well.
    """
    if not copies_gradients(plan):
        return

    def gradient_bytes(dtype: str) -> sympy.Expr:
        return total(row.count * sized(dtype, sharding.held_elements("optimizer", row.weight)) for row in weights)

    why, cause = "the gradients in the dtype of the master weights", Cause("optimizer", "gradients", state="copy")
    yield Entry(cause, stock("workspace"), when, gradient_bytes(plan.precision.master or ""), ONE, why)
    if drains(plan) and sharding.splits("optimizer"):
        why, cause = "the gradients put together, before they are cast", replace(cause, state="flat")
        yield Entry(cause, stock("workspace"), when, gradient_bytes(plan.precision.gradients), ONE, why)


def _norm_copy(  # noqa: PLR0913 - the arguments are the facts of one stock
    weights: Sequence[TrainedWeight], plan: Plan, when: Lifetime, sharding: Sharding, value: Value, copied: sympy.Expr
) -> Iterator[Entry]:
    """The largest copy that a norm is taken of, which is gone before gradients are copied for the update."""
    copies = [sized(plan.stack.norm_dtype, sharding.held_elements("optimizer", row.weight)) for row in weights]
    more = max(copies, key=value) - copied
    if value(more) > 0:
        why = "a gradient in the dtype of its norm, beyond what the update after it holds"
        yield Entry(Cause("optimizer", "gradients", state="norm"), stock("workspace"), when, more, ONE, why)


def _flat_copies(weights: Sequence[TrainedWeight], plan: Plan, sharding: Sharding) -> sympy.Expr:
    """This device's share, a buffer for each rank, and one of all of them for the library that gathers."""
    if plan.stack.gathers != "copied" or not sharding.splits("optimizer") or sharding.splits("weights"):
        return sympy.Integer(0)
    dtype, counted = trained_dtype(plan), [(row.count, row.weight) for row in weights]
    share = total(count * sized(dtype, sharding.held_elements("optimizer", weight)) for count, weight in counted)
    return share + 2 * total(count * gathered((weight,), sharding, dtype) for count, weight in counted)


def _in_module_order(program: Program, plan: Plan, weights: Iterable[TrainedWeight]) -> tuple[TrainedWeight, ...]:
    """Weights in the order in which modules have them: those of the embedding, of the layers, of the head.

    Layers with RMS norms register them last, as Llama's; those with layer norms before what is normed, as GPT-2's.
    """
    first = {weight.name for unit in program.units if unit.name == INPUT for weight in unit.weights}
    layers = [unit.name for unit in program.units]

    def place(row: TrainedWeight) -> tuple[int, int, bool]:
        if row.unit == ROOT:
            return (0 if row.weight.name in first else 2), 0, False
        norm = row.weight.parameter is not None and row.weight.parameter.module.of_layer
        return 1, layers.index(row.unit) if row.unit in layers else 0, norm and plan.model.norm.kind == "rms"

    return tuple(sorted(weights, key=place))


def _temporaries_of_rules(
    weights: Sequence[TrainedWeight], plan: Plan, sharding: Sharding, value: Value
) -> Iterator[Holding]:
    """Rules run one after the other: what each holds of all its weights at once, or of one and the one before."""

    def bytes_of(row: TrainedWeight, kinds: Sequence[Temporary]) -> sympy.Expr:
        return total(temporary(row, kind, sharding, plan.precision, value) for kind in kinds)

    for rule in {id(row.rule): row.rule for row in weights}.values():
        of_rule = [row for row in weights if row.rule is rule]
        name, run = implementation(rule, plan.kernels.optimizer)
        if run.together:
            yield total(row.count * bytes_of(row, run.temporaries) for row in of_rule), f"{name}: lists of every weight"
        elif run.temporaries:
            for row in of_rule:
                yield bytes_of(row, run.temporaries), f"{name}: {row.weight.name} alone"
            for before, row in pairwise(of_rule):
                both = bytes_of(row, run.temporaries) + bytes_of(before, run.left)
                yield both, f"{name}: {row.weight.name}, and what {before.weight.name} left"
