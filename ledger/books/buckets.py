"""Gradients that replicas reduce in buckets, as torch's DistributedDataParallel fills them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction

import sympy

from ledger.books.evaluate import Exact
from ledger.model.exchanges import Exchanged
from ledger.model.formats import trained_dtype
from ledger.model.fsdp_units import INPUT, OUTPUT
from ledger.model.gradients import copied_to_buckets
from ledger.model.operations import total
from ledger.model.optimizers import Value
from ledger.model.program import Program
from ledger.model.tensors import Tensor, sized
from ledger.model.units import Unit
from ledger.spec.plan import Plan

# torch 2.13: _DEFAULT_BUCKET_CAP_MB (torch/nn/parallel/distributed.py) and _DEFAULT_FIRST_BUCKET_BYTES
# (torch/csrc/distributed/c10d/reducer.hpp); the first bucket is smaller only where no size is stated.
DEFAULT, FIRST = 25 * 2**20, 2**20


def exchanges(program: Program, plan: Plan, value: Value) -> Iterator[Exchanged]:
    """The transfers of weights and gradients; where gradients go in buckets, one reduction for each of these."""
    reductions = [one for one in program.exchanges if (one[3].collective, one[3].axis) == ("all_reduce", "data")]
    if not copied_to_buckets(plan) or not reductions:
        yield from program.exchanges
        return
    yield from (one for one in program.exchanges if one not in reductions)
    sizes = [value(sized(trained_dtype(plan), elements)) for elements in ready(program, value)]
    count = sympy.Integer(int(filled(sizes, plan.parallelism.bucket)))
    amount = total(times * moved.amount for _, times, _, moved in reductions) / count
    yield "gradients", count, "backward", replace(reductions[0][3], amount=amount)


def filled(sizes: Iterable[Exact], limit: int = 0) -> int:
    """How many buckets gradients of these sizes fill, in this order; a bucket is full once it reaches its limit.

    torch/csrc/distributed/c10d/reducer.cpp, compute_bucket_assignment_by_size; 0: the default limits.
    """
    full, held = 0, Fraction(0)
    for size in sizes:
        held += size
        if held >= (limit or (DEFAULT if full else FIRST)):
            full, held = full + 1, Fraction(0)
    return full + (held > 0)


def ready(program: Program, value: Value) -> Iterator[sympy.Expr]:
    """Elements of each gradient in the order in which backward has them; that of a tied weight when both uses are."""
    later = {weight.name for unit in program.units if unit.name == INPUT for weight in unit.weights}
    for unit in reversed(program.units):
        written = [w for w in written_weights(unit) if unit.name != OUTPUT or w.name not in later]
        yield from [weight.elements() for weight in written] * int(value(unit.count))


def written_weights(unit: Unit) -> list[Tensor]:
    """The trained weights of a unit, in the order in which their gradients are written."""
    found = {weight.gradient.name: weight for weight in unit.weights if not weight.frozen}
    order = dict.fromkeys(t.name for operation in unit.backward for t in operation.outputs if t.name in found)
    return [found.pop(name) for name in order] + list(found.values())
