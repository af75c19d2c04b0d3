"""The units of a pass that serves: the forward operations of a model's own layers, over a cache, without a loss."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import sympy

from ledger.model import components
from ledger.model import tape as moves
from ledger.model.backward import kernels
from ledger.model.cache import KeyValueCache
from ledger.model.causes import INPUT, OUTPUT
from ledger.model.collectives import Collective, executed
from ledger.model.dims import symbol
from ledger.model.layout import layout
from ledger.model.operations import ONE, Operation
from ledger.model.recompute import SavedActivations
from ledger.model.schedule import Role
from ledger.model.tape import Tape
from ledger.model.tensors import BUFFER, Tensor
from ledger.model.unit import Unit
from ledger.model.units import Builder
from ledger.spec.kernel_classes import REDUCTION
from ledger.spec.plan import Kernels, Model, Parallelism, Plan, Precision, Recompute, Stack


def served_units(plan: Plan, role: Role, *, decodes: bool) -> tuple[Unit, ...]:
    """The units of one device of a role in a pass: of prompts, or of sequences that are decoded."""
    crowded = plan.assumptions.expert_imbalance > 1
    build = served_builder(plan.model, plan.precision, plan.kernels, plan.stack, plan.parallelism, crowded=crowded)
    return units_of(build, role, decodes=decodes)


def served_builder(  # noqa: PLR0913 - parts of a plan
    model: Model,
    precision: Precision,
    kernels: Kernels,
    stack: Stack,
    parallelism: Parallelism | None = None,
    *,
    crowded: bool = False,
) -> Builder:
    """The builder of these parts of a plan, whose layers drop nothing out and whose experts are one kernel."""
    mesh = parallelism or Parallelism()
    return Builder(
        without_dropout(model),
        precision,
        replace(layout(mesh), crowded=crowded),
        replace(kernels, loss="eager", experts="grouped_mm"),
        Recompute(),
        staged=mesh.pipeline > 1,
        stack=stack,
    )


def units_of(build: Builder, role: Role, *, decodes: bool) -> tuple[Unit, ...]:
    """The units of a pass of one device of a role; where no format is stated, what waits is what matmuls write."""
    waiting = build.precision.cache or build.tape().matmul_result
    return tuple(_pass_units(build, role, KeyValueCache(waiting, decodes)))


def _pass_units(build: Builder, role: Role, cache: KeyValueCache) -> Iterator[Unit]:
    model = build.model

    def tape(suffix: str = "") -> Tape:
        return replace(build.tape(suffix), cache=cache)

    if role.first:
        components.embedding(start := tape(), model)
        yield _tape_unit(INPUT, INPUT, ONE, start)
    for group, count in zip(model.groups, role.layers, strict=True):
        if count:
            layer = tape(build.suffix(group))
            components.layer(layer, build.entry(), group, model)
            joint = build.stack.engine.joint_sums and group.residual == "parallel"
            yield _tape_unit(group.name, group.name, symbol("layers", build.suffix(group)), layer, joint=joint)
    if role.last:
        end = tape()
        _sample(end, components.head(end, build.entry(), model))
        yield _tape_unit(OUTPUT, OUTPUT, ONE, end)


def _tape_unit(name: str, group: str, count: sympy.Expr, tape: Tape, *, joint: bool = False) -> Unit:
    """The unit of a tape; `joint`: what its parts give is summed over devices once, not part by part."""
    once = _partial_sums(tape)[:-1] if joint else []
    operations = tuple(operation for operation in executed(tape.operations) if operation not in once)
    cached = [tensor for operation in operations for tensor in operation.outputs if tensor.role == BUFFER]
    run = kernels(operations, cached, compiled=tape.stack.compiled)
    return Unit(
        name, group, count, tuple(run), (), SavedActivations(()), tuple(tape.weights.values()), suffix=tape.suffix
    )


def _partial_sums(tape: Tape) -> list[Operation]:
    """The all-reduces of what is added to the residual stream, in their order."""
    stream = tape.dims("batch seq d_model")
    reduced = (
        operation
        for operation in tape.operations
        if isinstance(operation, Collective) and operation.collective == "all_reduce"
    )
    return [operation for operation in reduced if operation.output.dims == stream]


def _sample(tape: Tape, logits: Tensor) -> None:
    """Logits of a split vocabulary are gathered; the next token is drawn from all of them, wide."""
    for axis in dict.fromkeys(axis for _, axis in logits.split):
        logits = moves.all_gather_along(tape, logits, axis)
    wide = tape.cast(logits, tape.precision.logits)
    tape.pointwise("head/sample", wide, dims=wide.dims[:2], kernel=REDUCTION, flops=5)


def without_dropout(model: Model) -> Model:
    """The model without dropout, as it answers."""
    zero = Fraction(0)
    groups = tuple(replace(group, attention=replace(group.attention, dropout=zero)) for group in model.groups)
    return replace(model, groups=groups, residual_dropout=zero, embedding_dropout=zero)
