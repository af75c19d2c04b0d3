"""Optimizers over weights: which rule updates which weight, and what that rule keeps and holds on one device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import sympy

from ledger.model import dtypes
from ledger.model.causes import ROOT, WEIGHT
from ledger.model.fsdp_units import weights_by_unit
from ledger.model.operations import ZERO, total
from ledger.model.sharding import Sharding
from ledger.model.tensors import CeilDiv, Tensor, product, sized
from ledger.model.unit import Unit
from ledger.spec.optimizer import DEFAULT, Implementation, Optimizer, OptimizerState, Temporary
from ledger.spec.plan import Precision

Value = Callable[[sympy.Expr], int | Fraction]
STACKED = ("experts",)  # dims along which a weight is many matrices
PER_HEAD = ("heads", "kv_heads")
WHOLE = Sharding(0, ())


@dataclass(frozen=True)
class TrainedWeight:
    """A weight of a wrapped unit that one device holds `count` times, with the rule that updates it."""

    unit: str
    count: sympy.Expr
    weight: Tensor
    rule: Optimizer


@dataclass(frozen=True)
class StateTensor:
    """One allocation of an optimizer beside a weight: `elements` of `dtype`; `paged`: in unified memory."""

    name: str
    elements: sympy.Expr
    dtype: str
    paged: bool = False

    def bytes(self) -> sympy.Expr:
        """Bytes on one device."""
        return sized(self.dtype, self.elements)


def weight_class(unit: str, weight: Tensor) -> str:
    """`vectors` are norms and biases; matrices of embedding and head are `ends`, the layers' `matrices`."""
    if is_parameter_count(weight):
        return "matrices"
    if len(weight.dims) == weight.lead:
        return "vectors"
    return "ends" if unit == ROOT else "matrices"


def is_parameter_count(weight: Tensor) -> bool:
    """Whether it stands for a whole model of which only a count is known."""
    return [dim.name for dim in weight.dims] == ["parameters"]


def rule_of(optimizer: Optimizer, unit: str, weight: Tensor) -> Optimizer:
    """The rule that updates a weight."""
    return rule_of_class(optimizer, weight_class(unit, weight))


def rule_of_class(optimizer: Optimizer, kind: str) -> Optimizer:
    """The rule that updates weights of a kind: `ends`, `matrices` or `vectors`."""
    if kind in optimizer.weights or optimizer.otherwise is None:
        return optimizer
    return rule_of_class(optimizer.otherwise, kind)


def trained_weights(optimizer: Optimizer, units: tuple[Unit, ...]) -> Iterator[TrainedWeight]:
    """Every weight of a device that is trained, once, with its rule."""
    for unit, count, weights in weights_by_unit(units):
        for weight in weights:
            if not weight.frozen:
                yield TrainedWeight(unit, count, weight, rule_of(optimizer, unit, weight))


def implementation(rule: Optimizer, kernel: str) -> tuple[str, Implementation]:
    """The implementation that a choice of kernel means for a rule: that one, or the first it has."""
    name = kernel if kernel in rule.update else next(iter(rule.update), "")
    return name, rule.update.get(name, Implementation())


# --- shapes ---


def matrix(weight: Tensor) -> tuple[sympy.Expr, sympy.Expr, sympy.Expr]:
    """The number of matrices that a weight is on one device, and their rows and columns as torch has them."""
    stacked = [dim for dim in weight.dims if dim.name in STACKED]
    inner = [dim for dim in weight.dims if dim.name not in STACKED]
    lead = max(1, weight.lead - len(stacked))
    sizes = (stacked, inner[:lead], inner[lead:])
    count, rows, columns = (product(*[weight.local(dim) for dim in dims]) for dims in sizes)
    return count, rows, columns


def elements(shape: str, weight: Tensor, sharding: Sharding) -> sympy.Expr:
    """Elements of a state or temporary of this shape for one weight; rows are held as the weight's rows are."""
    if shape == "whole":
        return sharding.held_elements("optimizer", weight)
    if is_parameter_count(weight):
        return ZERO
    if shape == "factored" and len(weight.dims) == weight.lead:
        return sharding.held_elements("optimizer", weight)
    count, rows, columns = matrix(weight)
    amounts = {
        "rows": (product(count, rows),),
        "columns": (product(count, columns),),
        "factored": (product(count, rows), product(count, columns)),
        "heads": (product(*[weight.local(dim) for dim in weight.dims if dim.name in PER_HEAD]),),
        "one": (count,),
    }[shape]
    cut = sharding.splits("optimizer") and shape in ("rows", "factored", "heads")
    first = CeilDiv(amounts[0], sharding.degree(weight)) if cut else amounts[0]
    return total((first, *amounts[1:]))


def shape_of(state: OptimizerState, unit: str, weight: Tensor) -> str:
    """The shape of a state for a weight, by its name or its kind; empty where there is none."""
    by_kind = state.shapes.get(weight_class(unit, weight), "")
    of = weight.parameter
    name = str(of.module) if of and of.kind == WEIGHT else weight.name
    return state.shapes.get(name, by_kind)


def states(updated: TrainedWeight, sharding: Sharding, precision: Precision, value: Value) -> Iterator[StateTensor]:
    """The tensors kept beside a weight: states, and scales of their blocks. `value` says what is too small to cut."""
    for name, state in updated.rule.states.items():
        shape = shape_of(state, updated.unit, updated.weight)
        if not shape:
            continue
        size, dtype = elements(shape, updated.weight, sharding), dtype_of(state.dtype, precision)
        paged = bool(state.paged) and value(size) >= state.paged
        if state.scales is None:
            yield StateTensor(name, size, dtype, paged)
        elif value(size) < state.scales.smallest:
            yield StateTensor(name, size, "fp32", paged)
        else:
            yield StateTensor(name, size, dtype, paged)
            yield StateTensor(f"{name}.scales", CeilDiv(size, state.scales.block), state.scales.dtype)


def dtype_of(written: str, precision: Precision) -> str:
    """A dtype of a rule; the default is the precision's."""
    return precision.states if written == DEFAULT else written


def temporary(
    updated: TrainedWeight, what: Temporary, sharding: Sharding, precision: Precision, value: Value
) -> sympy.Expr:
    """Bytes of a temporary that the update of one weight needs."""
    dtype = dtype_of(what.dtype, precision)
    if what.copies and dtype == precision.gradients:
        return ZERO
    held_as = WHOLE if what.gathered or what.shape == "gram" else sharding
    if what.shape == "gram":
        _, rows, columns = matrix(updated.weight)
        side = min((rows, columns), key=value)
        return sized(dtype, side * side)
    return sized(dtype, elements(what.shape, updated.weight, held_as))


def per_parameter(optimizer: Optimizer, precision: Precision) -> dict[str, Fraction]:
    """Bytes a parameter of a large matrix by state; what is kept of rows and columns only is nothing beside it."""
    bytes_by_state: dict[str, Fraction] = {}
    for name, state in optimizer.states.items():
        if state.shapes.get("matrices") == "whole":
            bytes_by_state[name] = dtypes.size(dtype_of(state.dtype, precision))
            if state.scales:
                bytes_by_state[name] += dtypes.size(state.scales.dtype) / state.scales.block
    return bytes_by_state
