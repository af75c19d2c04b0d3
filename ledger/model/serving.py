"""The units of a pass that serves: the forward operations of a model's own layers, over a cache, without a loss."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import sympy

from ledger.model import components, moves
from ledger.model.cache import Cache
from ledger.model.collectives import executed
from ledger.model.dims import symbol
from ledger.model.fsdp_units import INPUT, OUTPUT
from ledger.model.fusion import kernels
from ledger.model.layout import layout
from ledger.model.operations import ONE
from ledger.model.recompute import Kept
from ledger.model.schedule import Role
from ledger.model.tape import Tape
from ledger.model.tensors import Tensor
from ledger.model.units import Builder, Unit
from ledger.spec.kernel_classes import REDUCTION
from ledger.spec.plan import Model, Plan, Recompute


def cache_format(plan: Plan) -> str:
    """What keys and values wait in: what the plan says, else what its matmuls write."""
    return plan.precision.cache or served_tape(plan, Cache("")).matmul_result


def served_tape(plan: Plan, cache: Cache, suffix: str = "") -> Tape:
    """An empty tape of a pass that serves."""
    return replace(_builder(plan).tape(suffix), cache=cache)


def served_units(plan: Plan, role: Role, *, decodes: bool) -> tuple[Unit, ...]:
    """What one device of a role runs in a pass: of prompts, or of sequences that are decoded."""
    cache = Cache(cache_format(plan), decodes)
    return tuple(_units(plan, role, cache))


def _units(plan: Plan, role: Role, cache: Cache) -> Iterator[Unit]:
    model, build = without_dropout(plan.model), _builder(plan)
    if role.first:
        tape = served_tape(plan, cache)
        components.embedding(tape, model)
        yield _unit(INPUT, INPUT, ONE, tape)
    for group, held in zip(model.groups, role.layers, strict=True):
        if held:
            tape = served_tape(plan, cache, build.suffix(group))
            components.layer(tape, build.entry(), group, model)
            yield _unit(group.name, group.name, symbol("layers", build.suffix(group)), tape)
    if role.last:
        tape = served_tape(plan, cache)
        _sampled(tape, components.head(tape, build.entry(), model))
        yield _unit(OUTPUT, OUTPUT, ONE, tape)


def _unit(name: str, group: str, count: sympy.Expr, tape: Tape) -> Unit:
    operations = tuple(executed(tape.operations))
    run = kernels(operations, (), compiled=tape.stack.compiled)
    return Unit(name, group, count, tuple(run), (), Kept(()), tuple(tape.weights.values()), suffix=tape.suffix)


def _sampled(tape: Tape, logits: Tensor) -> None:
    """Logits of a split vocabulary are gathered; the next token is drawn from all of them, wide."""
    for axis in dict.fromkeys(axis for _, axis in logits.split):
        logits = moves.everywhere(tape, logits, axis)
    wide = tape.cast(logits, tape.precision.logits)
    tape.pointwise("head/sample", wide, dims=wide.dims[:2], kernel=REDUCTION, flops=5)


def _builder(plan: Plan) -> Builder:
    """The builder of a plan, whose layers drop nothing out and whose experts are one kernel."""
    return Builder(
        without_dropout(plan.model),
        plan.precision,
        replace(layout(plan.parallelism), crowded=plan.assumptions.expert_imbalance > 1),
        replace(plan.kernels, loss="eager", experts="grouped_mm"),
        Recompute(),
        staged=plan.parallelism.pipeline > 1,
        stack=plan.stack,
    )


def without_dropout(model: Model) -> Model:
    """The model as it answers: nothing is dropped out."""
    zero = Fraction(0)
    groups = tuple(replace(one, attention=replace(one.attention, dropout=zero)) for one in model.groups)
    return replace(model, groups=groups, residual_dropout=zero, embedding_dropout=zero)
