"""Throughput against latency, the rates of the plan's own load, and what the seconds of each pass go into."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ledger import numbers
from ledger.books.counts import peak
from ledger.books.serving.compiler import phase_rows
from ledger.books.serving.passes import DECODE, PREFILL
from ledger.books.serving.totals import CurvePoint, curve
from ledger.report.charts import curve as charts
from ledger.report.views.parts import (
    Cell,
    Chart,
    Column,
    Report,
    Table,
    Total,
    amount,
    columns,
    draw_chart,
    number_cell,
    share,
    total,
)
from ledger.report.views.served.verdict import in_flight
from ledger.report.views.time import key_table
from ledger.report.views.work import kernel_table, roofline_figure, total_seconds

if TYPE_CHECKING:
    from ledger.books.compiled import Compiled
    from ledger.books.serving.steady import Service


RATES = (
    ("serve.ttft", "first token", "all passes of one prompt, no queue"),
    ("serve.time_per_token", "time per token", "mean gap between the tokens of a sequence"),
    ("serve.time_per_token.floor", "the same by bandwidth alone", "weights and cache once, at the data sheet's rate"),
    ("serve.waiting", "waiting for others", "their chunks and tokens beside those of a prompt"),
    ("serve.queue", "waiting for the first pass", "requests at random: an M/G/1 queue; none of those kept in flight"),
    ("serve.ttft.under_load", "first token under this load", "from a request's arrival"),
    ("serve.residence", "a whole answer", "first token, waiting, and each further token"),
    ("serve.tokens_per_second", "output of all sequences", "tokens of answers, prompts left out"),
    ("serve.tokens_per_second_per_device", "output a device", "an even share"),
    ("serve.requests_per_second", "answers", "all replicas"),
    ("serve.weights_read", "weights read for a token", "one device; experts as far as tokens reach them"),
    ("serve.cache.read", "cache read for a token", "one device, all of its sequences"),
    ("serve.cache.bytes_per_sequence", "cache of a sequence", "whole model, at the end of its output"),
    ("serve.concurrency.max", "most sequences in flight", "that the engine takes at once, with whole outputs"),
    ("cost.per_million_tokens", "a million output tokens", "all devices, all the time"),
)
PASSES = {DECODE: "decoding, the sequences in flight", PREFILL: "a chunk of a prompt, alone"}
LIMITS = {"memory": "memory bandwidth", "compute": "compute", "network": "transfers"}


@dataclass(frozen=True)
class ServiceView:
    """The curve with its table, the rates of the plan's own load, and where the seconds of a pass go."""

    concurrency: str
    time_per_token: Total
    rate: Total
    floor: Total
    prompts: str
    chart: Chart
    curve: Table
    rates: Table
    passes: Table


@dataclass(frozen=True)
class PhaseView:
    """The roofline of one kind of pass."""

    title: str
    ridge: str
    uncalibrated: str
    chart: Chart | None
    table: Table


@dataclass(frozen=True)
class PhasesView:
    """The rooflines of prefill and of decoding."""

    phases: tuple[PhaseView, ...]


def service(report: Report) -> ServiceView | None:
    """How fast and how cheap; None of a plan that trains."""
    compiled = report.compiled
    stated_service = compiled.service
    if stated_service is None:
        return None
    points = curve(stated_service)
    mixed = numbers.percent(stated_service.stated.mixed)
    return ServiceView(
        in_flight(float(compiled.totals["serve.concurrency"])),
        total(compiled, "serve.time_per_token"),
        total(compiled, "serve.tokens_per_second"),
        total(compiled, "serve.time_per_token.floor"),
        f"A chunk of another prompt is in {mixed} of its steps.",
        curve_figure(points),
        curve_table(points, stated_service),
        key_table("The load of the plan", RATES, compiled),
        pass_table(compiled),
    )


def curve_figure(points: Sequence[CurvePoint]) -> Chart:
    """Time per token over the output of all sequences, by how many are in flight."""
    places = [
        charts.CurvePoint(
            point.state.tokens_per_second,
            point.state.time_per_token,
            f"{in_flight(point.state.concurrency)}{' (plan)' if point.stated else ''}",
            point.fits,
        )
        for point in points
    ]
    most = max(points, key=lambda point: point.state.tokens_per_second)
    alt = (
        "Time of a token against the output of all sequences, by the number of sequences in flight. The most is "
        f"{numbers.amount_text(most.state.tokens_per_second, 'token/s')} with {in_flight(most.state.concurrency)}."
    )
    across, up = charts.Axis("tokens a second, all sequences", "tokens/s"), charts.Axis("time of one token", "s")
    return draw_chart(
        "Throughput against latency",
        "Each circle is a number of sequences in flight; pale ones have no memory for whole outputs of all of them.",
        lambda width: charts.chart(places, across, up, alt, width),
    )


def curve_table(points: Sequence[CurvePoint], stated_service: Service) -> Table:
    """The points of the curve, with what a million tokens cost there."""
    price, devices = stated_service.plan.assumptions.price, stated_service.plan.cluster.devices
    headings = (
        *columns("number", "in flight", "time per token", "tokens a second", "a device", "a whole answer"),
        *((Column("a million tokens", "number"),) if price else ()),
        Column("memory", "tag"),
    )

    def row(point: CurvePoint) -> tuple[Cell, ...]:
        state = point.state
        dollars = devices * price.per_device_hour / 3600 * 1e6 / state.tokens_per_second if price else 0.0
        flying = f"{in_flight(state.concurrency)}{' (plan)' if point.stated else ''}"
        return (
            number_cell(flying, state.concurrency),
            amount(state.time_per_token, "s"),
            amount(state.tokens_per_second, "token/s"),
            amount(state.tokens_per_second / devices, "token/s"),
            amount(state.residence, "s"),
            *((amount(dollars, "USD"),) if price else ()),
            Cell("fits" if point.fits else "does not fit"),
        )

    return Table("Sequences in flight, latency and throughput", headings, tuple(map(row, points)))


def pass_table(compiled: Compiled) -> Table:
    """Seconds of each kind of pass on the slowest device, by what limits its kernels."""
    rows = []
    for name, title in PASSES.items():
        kernels = phase_rows(compiled, name)
        parts = {limit: sum(k.seconds * k.times for k in kernels if k.bound == limit) for limit in LIMITS}
        rows.append((Cell(title), *(amount(parts[limit], "s") for limit in LIMITS), amount(sum(parts.values()), "s")))
    headings = (Column("pass"), *columns("number", *LIMITS.values(), "in all"))
    return Table("Seconds of a pass, by what limits its kernels", headings, tuple(rows), sortable=False)


def phases(report: Report) -> PhasesView | None:
    """Every kernel of decoding and of prefill under the roof; None of a plan that trains."""
    compiled = report.compiled
    if compiled.service is None:
        return None
    plan = compiled.plan
    ridge = numbers.intensity(peak(plan) / plan.accelerator.bandwidth)
    return PhasesView(tuple(_phase_view(compiled, name, title, ridge) for name, title in PASSES.items()))


def _phase_view(compiled: Compiled, name: str, title: str, ridge: str) -> PhaseView:
    kernels = [kernel for kernel in phase_rows(compiled, name) if not kernel.payload and kernel.seconds]
    seconds = total_seconds(kernels)
    sheets = total_seconds(kernel for kernel in kernels if not kernel.calibrated)
    figure = roofline_figure(kernels, compiled.plan, seconds)
    table = kernel_table(kernels, seconds, "")
    return PhaseView(
        f"{title[0].upper()}{title[1:]}",
        ridge,
        numbers.percent(share(sheets, seconds)),
        replace(figure, title=f"{figure.title}, {name}") if figure else None,
        replace(table, caption=f"Kernels of {name}, by their share of time", name=f"kernels of {name}"),
    )


# --- a trained model served on its training devices ---

KEYS = (
    ("kv_cache", "cache of keys and values", "of a micro-batch of whole sequences, in the dtype that matmuls write"),
    ("prefill.time", "prefill", "a micro-batch of prompts forward through all stages, with the kernels of training"),
    (
        "decode.time_per_token",
        "decoding a token",
        "a lower bound: the weights that it uses, and all keys and values, are read once",
    ),
)


def serving(report: Report) -> Table | None:
    """Keys and values, prefill and decode; None where only a count is known."""
    table = key_table("Serving on the training devices", KEYS, report.compiled)
    return table if table.rows else None
