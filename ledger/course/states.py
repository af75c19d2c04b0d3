"""State: bytes a parameter by precision and optimizer, and what an optimizer keeps of one matrix."""

from __future__ import annotations

from fractions import Fraction

import sympy

from ledger.books.evaluate import exact
from ledger.books.notation import text
from ledger.course.answers import Figure, Found
from ledger.course.asks import OptimizerAsk, StateAsk
from ledger.course.formats import fitting
from ledger.model import dtypes, optimizers
from ledger.model.dims import Dim
from ledger.model.einsum_kernels import letter
from ledger.model.tensors import Tensor
from ledger.spec.plan import Optimizer, Precision
from ledger.spec.precision import WeightFormats

TITLES = {"weights": "weights", "gradients": "gradients", "master": "fp32 master weights"}


def per_parameter(precision: Precision, optimizer: Optimizer) -> dict[str, Fraction]:
    """Bytes a parameter of each copy that training keeps, states by their names in the optimizer's rule."""
    held = {"weights": dtypes.DTYPES[precision.weights.base].average, "gradients": dtypes.size(precision.gradients)}
    if precision.master:
        held["master"] = dtypes.size(precision.master)
    return {**held, **optimizers.per_parameter(optimizer, precision)}


def state(ask: StateAsk) -> Found:
    """Each copy, the optimizer's together, and all of it; of a single parameter where no count is given."""
    each, rule = per_parameter(ask.precision, ask.optimizer), ask.optimizer.name
    count, by = ask.parameters, "*N" if ask.parameters > 1 else ""
    unit = "B" if ask.parameters > 1 else "B each"
    figures = [
        Figure(name, TITLES.get(name, f"{rule}, {name.replace('_', ' ')}"), size * count, unit, f"{size}{by}")
        for name, size in each.items()
    ]
    states = [size for name, size in each.items() if name not in TITLES]
    figures.append(Figure("optimizer", "optimizer states together", sum(states) * count, unit, _sum(states, by)))
    everything = sum(each.values()) * count
    figures.append(Figure("total", "weights, gradients and states", everything, unit, _sum(list(each.values()), by)))
    figures.append(Figure("format", "", ask.precision.compute))
    known = {**each, "optimizer": sum(states, Fraction(0))}
    wanted = sum((known.get(part, Fraction(0)) for part in ask.parts), Fraction(0)) * count if ask.parts else everything
    return Found((*figures, *fitting(Fraction(wanted), ask.memory)))


def _sum(sizes: list[Fraction], by: str) -> str:
    terms = " + ".join(str(size) for size in sizes) or "0"
    return f"({terms}){by}" if by and len(sizes) > 1 else f"{terms}{by}"


def optimizer(ask: OptimizerAsk) -> Found:
    """States of one matrix; per element where each state is as large as the matrix."""
    dims = (Dim("rows", letter("rows")), Dim("columns", letter("columns")))
    weight = Tensor("x", dims, ask.dtype, "weight")
    value = exact({letter("rows"): ask.rows, letter("columns"): ask.columns})
    precision = Precision(
        ask.dtype, WeightFormats.alike(ask.dtype), ask.dtype, None, ask.dtype, ask.dtype, ask.dtype, ask.dtype
    )
    one = optimizers.Owned("matrix", sympy.Integer(1), weight, ask.rule)
    amount = sympy.Add(*[kept.bytes() for kept in optimizers.states(one, optimizers.WHOLE, precision, value)])
    whole = Fraction(value(amount))
    each = Figure("per_parameter", "bytes a parameter", whole / value(weight.elements()), "B each")
    form = text(sympy.expand_mul(amount))
    return Found((each, Figure("matrix", f"states of a matrix of {ask.rows} x {ask.columns}", whole, "B", form)))
