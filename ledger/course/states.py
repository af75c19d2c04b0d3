"""State: bytes a parameter by precision and optimizer, what fits, and what host memory takes over."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import sympy

from ledger.books.evaluate import exact
from ledger.books.notation import text
from ledger.course.answers import Figure, Found, Grid
from ledger.course.asks import OffloadAsk, OptimizerAsk, SolveAsk, StateAsk
from ledger.course.operations import fitting, letter
from ledger.model import dtypes, optimizers
from ledger.model.dims import Dim
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
    wanted = sum((each[part] for part in ask.parts), Fraction(0)) * count if ask.parts else everything
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


def solve(ask: SolveAsk) -> Found:
    """`memory <= devices x capacity`, solved for the parameters; capacity as the label says."""
    each = per_parameter(ask.precision, ask.optimizer)
    parameters, capacity = sympy.Symbol("N", positive=True), sympy.Symbol("capacity", positive=True)
    held = sympy.Add(*[sympy.Rational(size.numerator, size.denominator) * parameters for size in each.values()])
    (most,) = sympy.solve(sympy.Eq(held, capacity), parameters)
    whole = ask.devices * ask.accelerator.memory_labelled
    value = exact({capacity: whole})(most)
    return Found(
        (
            Figure(
                "parameters", "largest model", value, "parameters", f"devices*memory/({_sum(list(each.values()), '')})"
            ),
            Figure("memory", f"memory of {ask.devices} devices", whole, "B", "devices*memory"),
            Figure("per_parameter", "state a parameter", sum(each.values()), "B each", _sum(list(each.values()), "")),
        )
    )


def offload(ask: OffloadAsk) -> Found:
    """The states leave the device. Either they visit it for each update, or gradients go out and weights come back."""
    each = per_parameter(ask.precision, ask.optimizer)
    count, link = ask.parameters, Fraction(ask.accelerator.host_bandwidth)
    states = sum(size for name, size in each.items() if name not in TITLES) * count
    ways = tuple(_ways(each, count))
    figures = [Figure("freed", "optimizer states that leave the device", states, "B", f"{Fraction(states, count)}*N")]
    for name, title, out, back in ways:
        slower = max(out, back) / link
        figures.append(Figure(f"traffic.{name}", f"{title}: bytes over the host link a step", out + back, "B"))
        figures.append(Figure(f"time.{name}", f"{title}: seconds a step", slower, "s", "bytes/bandwidth"))
    columns = (("the update runs", ""), ("device to host", "B"), ("host to device", "B"), ("at least", "s"))
    rows = tuple((title, out, back, float(max(out, back) / link)) for _, title, out, back in ways)
    return Found(tuple(figures), Grid(f"Each step, over {float(link) / 1e9:g} GB/s each way", columns, rows))


def _ways(each: dict[str, Fraction], count: int) -> Iterator[tuple[str, str, Fraction, Fraction]]:
    """Name, title, bytes out and bytes back of each way to update with states in host memory."""
    states = sum((size for name, size in each.items() if name not in TITLES), Fraction(0)) * count
    yield "on_device", "on the device, the states visit it", states, states
    yield "on_host", "on the host, gradients out, weights back", each["gradients"] * count, each["weights"] * count
