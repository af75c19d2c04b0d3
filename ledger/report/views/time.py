"""How long: the step as a waterfall, the bounds around the estimate, the run, and utilisation by every convention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger import numbers
from ledger.books.counts import peak
from ledger.books.price_changes import LIMITS
from ledger.report.charts import time as charts
from ledger.report.views.parts import Cell, Chart, Column, Report, Table, draw_chart, share, total_cell

if TYPE_CHECKING:
    from ledger.books.results import Compiled, WaterfallPart

COLOURS = {  # of spans that are no transfers; others are compute
    "bubble": "idle",
    "launch": "launch",
    "optimizer": "memory",
}
BOUNDS = (
    ("time.floor", "floor", "bound", "every resource at its data sheet’s price, perfectly overlapped"),
    ("time.roofline", "roofline", "bound", "each kernel at its data sheet’s limit, communication hidden"),
    ("time.step", "estimate", "estimate", "measured ceilings, overlap by rule"),
    ("time.serial", "serial", "bound", "the estimate’s kernels and collectives, one after another"),
)
PACES = {  # the totals that say what sets the pace of a step, and their colours
    "pace.matmul": "compute",
    "pace.memory": "memory",
    "pace.scaleup": "network",
    "pace.scaleout": "network",
    "pace.host": "network",
    "pace.launch": "launch",
    "pace.fixed": "idle",
}
PERCENT = 0.01
LEAST = 0.0005  # of a step, to be drawn
NAPKIN = "6 × trained parameters × tokens, 4 or 2 × frozen ones, at the assumed utilisation"
RUN = (
    ("time.step", "a step", "estimate"),
    ("time.step.low", "a step, at best", "lower end of the band"),
    ("time.step.high", "a step, at worst", "upper end of the band"),
    ("tokens_per_second", "throughput", "of the whole job"),
    ("tokens_per_second_per_device", "throughput of a device", ""),
    ("time.run", "all steps", "every step at the estimate"),
    (
        "time.calendar",
        "the run, on the calendar",
        "with the failures, checkpoints and waits that are stated",
    ),
    ("time.calendar.low", "the run, at best", "lower end of the band"),
    ("time.calendar.high", "the run, at worst", "upper end of the band"),
    ("napkin.days", "the run, napkin", NAPKIN),
    ("goodput", "goodput", "share of the calendar that trains"),
    ("cost.run", "cost", "devices × hours of the calendar × price"),
    ("cost.run.low", "cost, at best", "lower end of the band"),
    ("cost.run.high", "cost, at worst", "upper end of the band"),
    ("energy.run", "energy", "at the devices' power, on the whole calendar"),
    ("carbon.run", "carbon dioxide", "energy × intensity of the grid"),
    ("checkpoint.bytes", "a checkpoint", "each trained weight and its states once"),
)
CONVENTIONS = (
    (
        "mfu",
        "MFU, full attention",
        "forward and backward, attention as if not causal, within windows, as most papers do",
    ),
    ("mfu.causal", "MFU, causal attention", "forward and backward, only the half of attention that is computed"),
    ("hfu", "hardware utilisation", "recomputation counted as well"),
)


@dataclass(frozen=True)
class TimeView:
    """The section's figures and tables; a bare parameter count has the run's table only.

    `bought` is what 1 % more of what limits the step takes off it.
    """

    waterfall: Chart | None
    pace: Chart | None
    bounds: Chart | None
    run: Table
    conventions: Table | None
    bottleneck: str
    bought: str
    napkin_ratio: str
    peak: str


def time(report: Report) -> TimeView:
    """How long a step and the run take."""
    compiled = report.compiled
    values = compiled.totals
    ratio = share(values["time.run"], values["napkin.time.run"]) if "time.run" in values else 0
    resource_shares = pace_shares(compiled)
    return TimeView(
        waterfall_figure(compiled) if compiled.waterfall else None,
        pace_figure(resource_shares) if resource_shares else None,
        bounds_figure(compiled) if "time.step" in values else None,
        key_table("The run", RUN, compiled),
        key_table("Utilisation, by convention", CONVENTIONS, compiled) if "mfu" in values else None,
        compiled.verdict.bottleneck,
        numbers.shift(resource_shares[0].part * PERCENT).removeprefix("+") if resource_shares else "",
        numbers.plain(ratio) if ratio else "",
        f"{numbers.si(peak(compiled.plan), 'FLOP/s', 4)}, dense {compiled.plan.precision.multiplies}",
    )


def span_colour(span: WaterfallPart) -> str:
    """The colour of a span: that of transfers, its own, or compute where nothing else is said."""
    return "network" if span.transfer else COLOURS.get(span.name, "compute")


def waterfall_figure(compiled: Compiled) -> Chart:
    """The parts of a step on the critical path; what takes no time is left out."""
    spans = [
        charts.TimeBar(span.title, span.seconds, span_colour(span)) for span in compiled.waterfall if span.seconds > 0
    ]
    longest = max(spans, key=lambda span: span.seconds)
    step = sum(span.seconds for span in spans)
    alt = (
        f"A step takes {numbers.duration(step)}. Its largest part is {longest.label}, "
        f"{numbers.percent(share(longest.seconds, step))}."
    )
    return draw_chart(
        "Where a step’s time goes",
        "Seconds on the critical path; communication counts only where computation does not run beside it.",
        lambda width: charts.waterfall(spans, alt, width),
    )


def pace_shares(compiled: Compiled) -> tuple[charts.ShareBar, ...]:
    """What sets the pace of a step, most of it first; what has no part in it is left out."""
    shares = [
        charts.ShareBar(name, float(compiled.totals[key]), PACES[key])
        for key, name in LIMITS.items()
        if compiled.totals.get(key, 0) >= LEAST
    ]
    return tuple(sorted(shares, key=lambda share: -share.part))


def pace_figure(resource_shares: Sequence[charts.ShareBar]) -> Chart:
    """What the seconds of a step wait for: the verdict's limit comes first."""
    alt = "; ".join(f"{share.label} {numbers.percent(share.part)}" for share in resource_shares)
    return draw_chart(
        "What sets the pace",
        "Per cent of a step that goes with each resource, as under Sensitivity. Where a transfer lasts longer than the"
        " kernels that hide it, the step waits for all of the transfer and not for them; a pipeline’s bubble waits for"
        " whatever its stages wait for.",
        lambda width: charts.shares(resource_shares, f"Parts of a step by what it waits for: {alt}.", width),
    )


def bounds_figure(compiled: Compiled) -> Chart:
    """Bounds, estimate with its band, and the napkin's step."""
    values = compiled.totals
    bars = [
        charts.TimeBar(
            label,
            float(values[key]),
            shade,
            float(values.get("time.step.low", 0)) if key == "time.step" else 0.0,
            float(values.get("time.step.high", 0)) if key == "time.step" else 0.0,
            strong=key == "time.step",
        )
        for key, label, shade, _ in BOUNDS
        if key in values
    ]
    if values.get("time.run"):
        napkin = float(values["time.step"]) * share(values["napkin.time.run"], values["time.run"])
        bars.append(charts.TimeBar("napkin", napkin, "idle"))
    alt = "; ".join(f"{bar.label} {numbers.duration(bar.seconds)}" for bar in bars)
    return draw_chart(
        "A step between its bounds",
        "; ".join(f"{label}: {meaning}" for key, label, _, meaning in BOUNDS if key in values)
        + f"; napkin: {NAPKIN}. The whisker is the estimate’s band.",
        lambda width: charts.bounds(bars, f"Seconds of a step: {alt}.", width),
    )


def key_table(caption: str, keys: tuple[tuple[str, str, str], ...], compiled: Compiled) -> Table:
    """Totals with their names and what they mean."""
    rows = tuple(
        (Cell(title, note=meaning), total_cell(compiled, key)) for key, title, meaning in keys if key in compiled.totals
    )
    return Table(caption, (Column("quantity"), Column("value", "number")), rows, sortable=False)
