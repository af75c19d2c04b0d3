"""Questions about limits: what really fits, where checkpoints pay, how often to save, what money buys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction

import sympy

from ledger.books import calendar
from ledger.books.bindings import bindings
from ledger.books.compiler import compile_plan
from ledger.books.evaluate import exact
from ledger.books.results import Compiled
from ledger.course.answers import Figure, Found, Grid
from ledger.course.asks import BudgetAsk, FitAsk, Offer, SegmentsAsk, StorageAsk
from ledger.course.plans import CompiledPlans
from ledger.course.states import TITLES, per_parameter
from ledger.model import dtypes
from ledger.model.contraction import Contraction
from ledger.model.dims import Dim, dim
from ledger.model.operations import total
from ledger.model.schedule import roles
from ledger.model.tensors import Tensor
from ledger.spec.kernel_classes import NO_KERNEL
from ledger.spec.plan import Plan, Recompute

HOUR = 3600
OFFER_COLUMNS = (
    ("device", ""),
    ("an hour", "USD"),
    ("asked", ""),
    ("device-hours", "1"),
    ("FLOPs", "FLOP"),
    ("parameters", "parameters"),
    ("tokens", "tokens"),
    ("state", "B"),
    ("memory", "B"),
)


# --- what really fits ---------------------------------------------------------------------------


def fit(ask: FitAsk, books: CompiledPlans) -> Found:
    """The deepest model of this shape that fits, by its compiled peak, beside the bound from state alone."""
    naive = books(ask.plan).totals["napkin.max_parameters"]
    layers = deepest(lambda count: _fits(compile_plan(deep(ask.plan, count))))
    largest = compile_plan(deep(ask.plan, layers)) if layers else None
    real = largest.totals["parameters"] if largest else 0
    figures = (
        Figure("naive", "bound from state alone", naive, "parameters"),
        Figure("layers", f"layers of {ask.plan.model.title} that fit", layers),
        Figure("real", "parameters that fit", real, "parameters"),
        Figure("share", "of the bound", Fraction(real) / Fraction(naive), "%"),
    )
    columns = (
        ("plan", ""),
        ("parameters", "parameters"),
        ("state", "B"),
        ("peak", "B"),
        ("reserved", "B"),
        ("of", "B"),
        ("fits", "yes"),
    )
    shown = [(name, books(plan)) for name, plan in ask.others.items()]
    shown += [(f"{ask.plan.model.title}, {layers} layers", largest)] if largest else []
    return Found(
        figures,
        Grid("Per device, compiled", columns, tuple((name.replace("_", " "), *_row(one)) for name, one in shown)),
    )


def deep(plan: Plan, layers: int) -> Plan:
    """The plan with so many layers in its first group."""
    first, *others = plan.model.groups
    model = replace(plan.model, groups=(replace(first, repeat=layers), *others))
    return replace(plan, model=model, expect=())


def deepest(fits: Callable[[int], bool]) -> int:
    """The largest depth that fits, by doubling and bisection; 0 where not even one layer does."""
    above = 1
    while fits(above):
        above *= 2
    below = above // 2
    while above - below > 1:
        middle = (above + below) // 2
        below, above = (middle, above) if fits(middle) else (below, middle)
    return below


def _fits(compiled: Compiled) -> bool:
    return compiled.verdict.fits


def _row(compiled: Compiled) -> tuple[int | float | bool, ...]:
    totals = compiled.totals
    state = sum(float(totals[f"memory.static.{part}"]) for part in ("weights", "master", "gradients", "optimizer"))
    amounts = (float(totals[key]) for key in ("memory.peak", "memory.reserved", "memory.capacity"))
    return int(totals["parameters"]), state, *amounts, compiled.verdict.fits


# --- checkpoints of activations -----------------------------------------------------------------


def segments(ask: SegmentsAsk, books: CompiledPlans) -> Found:
    """What is kept when every k-th layer's input is kept, and the forward passes that it takes."""
    compiled = books(ask.plan)
    (group,) = ask.plan.model.groups
    stream = Tensor("stream", (dim("batch"), dim("seq"), dim("d_model")), ask.plan.precision.activations)
    entry = Fraction(exact(bindings(ask.plan, roles(ask.plan)[0]))(stream.bytes()))
    layer = Fraction(compiled.totals[f"saved.per_layer.{group.name}"])
    redone = compile_plan(replace(ask.plan, recompute=Recompute("full"))).totals["flops.recompute"]
    again = float(redone - compiled.totals["flops.recompute"]) / float(compiled.totals["flops.forward"])
    depth, one = sympy.symbols("L i", positive=True)
    every = sympy.Sum(one, (one, 1, depth)).doit() / depth
    alone = float(every.subs(depth, group.repeat))
    return Found(
        (
            Figure("stream", "one residual stream", entry, "B", "2*B*S*D"),
            Figure("layer", "what one layer keeps", layer, "B"),
            *_kept(group.repeat, entry, layer),
            Figure("forwards", "forward passes in a step, segments", 1 + again),
            Figure("all.forwards", "forward passes in a step when only the input is kept", alone, "1", "(L + 1)/2"),
        )
    )


def _kept(layers: int, stream: Fraction, one_layer: Fraction) -> Iterator[Figure]:
    """Bytes kept with k layers at a time being rebuilt: L/k x stream + k x layer; with the best k, and with others."""
    depth, entry, layer, k = sympy.symbols("L R A k", positive=True)
    kept = depth / k * entry + k * layer
    (best,) = sympy.solve(sympy.diff(kept, k), k)
    none, each, least = depth * layer, kept.subs(k, 1), kept.subs(k, best)
    at = {entry: sympy.Rational(stream), layer: sympy.Rational(one_layer)}

    def value(form: sympy.Expr, more: int = 1) -> float:
        return float(form.subs({**at, depth: layers * more}))

    yield Figure("none", "kept without checkpoints", value(none), "B", "L*A")
    yield Figure("each", "kept with a checkpoint a layer", value(each), "B", "L*R + A")
    yield Figure("best", "layers in the best segment", value(best), "1", "sqrt(L*R/A)")
    yield Figure("sqrt", "kept with the best segments", value(least), "B", "2*sqrt(L*R*A)")
    growth = "four times the layers keep"
    yield Figure("none.growth", f"without checkpoints, {growth}", value(none, 4) / value(none), "x")
    yield Figure("sqrt.growth", f"with the best segments, {growth}", value(least, 4) / value(least), "x")


# --- checkpoints on storage ---------------------------------------------------------------------


def storage(ask: StorageAsk, books: CompiledPlans) -> Found:
    """Bytes and seconds of one checkpoint, and the interval at which writing and lost work cost least."""
    plan = ask.plan
    each = per_parameter(plan.precision, plan.optimizer)
    copy = "master" if plan.precision.master else "weights"
    written = {name: size for name, size in each.items() if name == copy or name not in TITLES}
    size = books(plan).totals["checkpoint.bytes"]
    cost = float(size) / ask.bandwidth
    rate = calendar.failures(plan)
    interval, spent, failures = sympy.symbols("T C f", positive=True)
    (best,) = sympy.solve(sympy.diff(spent / interval + failures * interval / 2, interval), interval)
    wanted = float(best.subs({spent: cost, failures: rate}))
    figures = (
        Figure("bytes", "bytes of one checkpoint", size, "B", f"({' + '.join(map(str, written.values()))})*N"),
        Figure("seconds", "seconds to write it", cost, "s", "bytes/bandwidth"),
        Figure("between_failures", "time between failures of the job", 1 / rate, "s", "1/f"),
        Figure("interval", "best interval", wanted, "s", "sqrt(2*C/f)"),
        Figure("goodput", "share of the time that trains, at that interval", _goodput(plan, cost, wanted), "%"),
    )
    rows = tuple((wanted * step, _goodput(plan, cost, wanted * step)) for step in (0.25, 0.5, 1.0, 2.0, 4.0))
    return Found(figures, Grid("How often to save", (("interval", "s"), ("share of the time that trains", "%")), rows))


def _goodput(plan: Plan, cost: float, interval: float) -> float:
    given = replace(plan.operations, checkpoint_interval=interval, checkpoint_cost=cost)
    return float(calendar.share(replace(plan, operations=given), lambda: 0))


# --- money --------------------------------------------------------------------------------------


def training_flops(parameters: sympy.Expr, tokens: sympy.Expr) -> sympy.Expr:
    """FLOPs to train a matrix of so many parameters on so many tokens: its contraction and the two gradients of it."""
    token, weight, one = Dim("token", tokens), Dim("weight", parameters), Dim("one", sympy.Integer(1))
    x = Tensor("x", (token, one), "bf16")
    matrix = Tensor("w", (one, weight), "bf16", "weight")
    forward = Contraction(
        "layer",
        NO_KERNEL,
        (x, matrix),
        (Tensor("y", (token, weight), "bf16"),),
        einsum="token one, one weight -> token weight",
    )
    return total(step.useful() for step in (forward, *forward.gradients()))


def budget(ask: BudgetAsk, books: CompiledPlans) -> Found:
    """Money -> hours -> FLOPs -> the model that its tokens just pay for, offer by offer; the best offer's figures."""
    parameters, flops = sympy.symbols("N C", positive=True)
    (largest,) = sympy.solve(training_flops(parameters, ask.tokens_per_parameter * parameters) - flops, parameters)
    rows = [_bought(ask, offer, lambda work: float(largest.subs(flops, work))) for offer in ask.offers]
    best = max(rows, key=lambda row: row[4])
    figures = [
        Figure("device", "most FLOPs for the money", str(best[0])),
        Figure("hours", "device-hours", best[3], "1", "dollars/price"),
        Figure("flops", "FLOPs", best[4], "FLOP", "3600*hours*peak*mfu"),
        Figure(
            "parameters",
            "parameters",
            best[5],
            "parameters",
            f"sqrt(C/{training_flops(sympy.Integer(1), sympy.Integer(ask.tokens_per_parameter))})",
        ),
        Figure("tokens", "tokens", best[6], "tokens", f"{ask.tokens_per_parameter}*N"),
    ]
    for plan in (one.plan for one in ask.plans):
        bought = ask.dollars / _dollars_a_token(books(plan))
        count = books(plan).totals["parameters"]
        figures.append(Figure(f"plan.{plan.name}", f"{plan.title}, compiled: tokens it buys", bought, "tokens"))
        figures.append(Figure(f"plan.{plan.name}.per_parameter", "tokens a parameter", bought / float(count)))
    return Found(tuple(figures), Grid(f"What {ask.dollars:g} USD buy", OFFER_COLUMNS, tuple(rows)))


def _bought(ask: BudgetAsk, offer: Offer, model: Callable[[float], float]) -> tuple[str | float, ...]:
    hours = ask.dollars / offer.price
    work = hours * HOUR * offer.accelerator.peak[dtypes.rate(ask.precision.compute)] * ask.mfu
    count = model(work)
    state = count * float(sum(per_parameter(ask.precision, ask.optimizer).values()))
    name, memory = offer.accelerator.title, offer.accelerator.memory_labelled
    return name, offer.price, offer.date, hours, work, count, count * ask.tokens_per_parameter, state, memory


def _dollars_a_token(compiled: Compiled) -> float:
    price = compiled.plan.assumptions.price
    if price is None:
        raise ValueError(f"{compiled.plan.name} states no price")
    rate = float(compiled.totals["tokens_per_second"])
    return compiled.plan.cluster.devices * price.per_device_hour / HOUR / rate
