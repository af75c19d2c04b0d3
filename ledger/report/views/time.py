"""How long: the step as a waterfall, the bounds around the estimate, the run, and utilisation by every convention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger import numbers
from ledger.books.calendar import failures, losses
from ledger.books.counts import CHECKPOINT, peak
from ledger.books.price_changes import LIMITS
from ledger.report.charts import time as charts
from ledger.report.views.parts import (
    Cell,
    Chart,
    Column,
    Report,
    Table,
    columns,
    draw_chart,
    share,
    text_cells,
    total_cell,
)

if TYPE_CHECKING:
    from ledger.books.compiled import Compiled

COLOURS = {  # of spans that are no transfers; others are compute
    "bubble": "idle",
    "batch": "idle",
    "launch": "launch",
    "comm.host_sum": "memory",
    "optimizer": "memory",
}
BOUNDS = (
    ("time.floor", "floor", "bound", "the busiest resource alone, at its data sheet’s rate"),
    ("time.roofline", "roofline", "bound", "each kernel at its data sheet’s limit, communication free"),
    ("time.step", "estimate", "estimate", "kernels and transfers at measured rates, overlapped as the software does"),
    ("time.serial", "serial", "bound", "the estimate’s kernels and transfers, one after another"),
)
PACES = {  # the totals that say what sets the pace of a step, and their colours
    "pace.matmul": "compute",
    "pace.memory": "memory",
    "pace.scaleup": "network",
    "pace.scaleout": "network",
    "pace.host": "network",
    "pace.host_memory": "memory",
    "pace.nvme": "memory",
    "pace.data": "idle",
    "pace.launch": "launch",
    "pace.fixed": "idle",
}
PERCENT = 0.01
LEAST = 0.0005  # of a step, to be drawn
BY_HAND = "6 × parameters × tokens (4 or 2 × frozen ones) at the assumed utilisation"
INTERVAL = "the interval that held 80 of 100 published runs"
LOW, HIGH = "lower end for 80 of 100 runs", "upper end for 80 of 100 runs"
RUN = (
    ("time.step", "a step", "estimate"),
    ("time.step.low", "a step, low", LOW),
    ("time.step.high", "a step, high", HIGH),
    ("tokens_per_second", "throughput", "of all devices"),
    ("tokens_per_second_per_device", "throughput of a device", ""),
    ("images_per_second", "images", "of all devices"),
    ("time.run", "all steps", "as many as the length of the run needs, each as estimated"),
    (
        "time.calendar",
        "the run, on the calendar",
        "all steps, with the failures, checkpoints and waits that the plan states",
    ),
    ("time.calendar.low", "the run, low", LOW),
    ("time.calendar.high", "the run, high", HIGH),
    ("napkin.days", "the run by 6ND", BY_HAND),
    ("goodput", "goodput", "share of the calendar that trains"),
    ("cost.run", "cost", "devices × hours of the calendar × price"),
    ("cost.run.low", "cost, low", LOW),
    ("cost.run.high", "cost, high", HIGH),
    ("energy.run", "energy", "the devices' power over the whole calendar"),
    ("carbon.run", "carbon dioxide", "energy × intensity of the grid"),
    ("checkpoint.bytes", "a checkpoint", "every trained weight with its optimizer states, once"),
)
TOKENS = ("tokens_per_second", "tokens_per_second_per_device")
CONVENTIONS = (
    (
        "mfu",
        "MFU, full attention",
        "forward and backward, attention counted without its causal mask, as most papers do",
    ),
    ("mfu.causal", "MFU, causal attention", "forward and backward, only the half of attention that the mask leaves"),
    ("hfu", "hardware utilisation (HFU)", "the same, and what is recomputed"),
)
UNMASKED = (
    ("mfu", "MFU", "forward and backward: nothing is masked"),
    ("hfu", "hardware utilisation (HFU)", "the same, and what is recomputed"),
)


@dataclass(frozen=True)
class TimeView:
    """The section's figures and tables; a bare parameter count has the run's table only.

    `bought` is what 1 % more of what limits the step takes off it; `ratio` the run over the one by hand, which assumes
    the utilisation `assumed`.
    """

    waterfall: Chart | None
    pace: Chart | None
    bounds: Chart | None
    run: Table
    conventions: Table | None
    losses: Table | None
    bottleneck: str
    bought: str
    ratio: str
    assumed: str
    peak: str


def time(report: Report) -> TimeView:
    """How long a step and the run take."""
    compiled = report.compiled
    values = compiled.totals
    by_both = {"time.run", "napkin.time.run"} <= values.keys()
    ratio = share(values["time.run"], values["napkin.time.run"]) if by_both else 0
    resource_shares = pace_shares(compiled)
    absent = TOKENS if compiled.plan.model.stem else ()  # rates of tokens, of a model whose stem reads images
    conventions = CONVENTIONS if has_attention_variants(compiled) else UNMASKED
    return TimeView(
        waterfall_figure(compiled) if compiled.waterfall else None,
        pace_figure(resource_shares) if resource_shares else None,
        bounds_figure(compiled) if "time.step" in values else None,
        key_table("The run", tuple(row for row in RUN if row[0] not in absent), compiled),
        key_table("Utilisation, by convention", conventions, compiled) if "mfu" in values else None,
        losses_table(compiled),
        compiled.verdict.bottleneck,
        numbers.shift(resource_shares[0].part * PERCENT).removeprefix("+") if resource_shares else "",
        numbers.plain(ratio) if ratio else "",
        numbers.percent(compiled.plan.assumptions.mfu),
        f"{numbers.si(peak(compiled.plan), 'FLOP/s', 4)}, dense {compiled.plan.precision.multiplies}",
    )


def has_attention_variants(compiled: Compiled) -> bool:
    """Whether utilisation by full and by causal attention are two numbers, or one that a model of attention has."""
    values = compiled.totals
    return compiled.plan.model.attends or values.get("mfu") != values.get("mfu.causal")


def losses_table(compiled: Compiled) -> Table | None:
    """What the calendar has beyond training; None where nothing is stated, and of a run that cannot be made."""
    values, plan = compiled.totals, compiled.plan
    if "time.run" not in values or not plan.operations.loses or not compiled.verdict.runs:
        return None
    trained, length = float(values["time.run"]), float(values["time.calendar"])
    lost_seconds = [(name, float(lost)) for name, lost in losses(plan, trained, float(values[CHECKPOINT])) if lost]
    failed = float(failures(plan)) * length * plan.operations.utilisation
    notes = {
        "restarts": f"{numbers.plain(failed)} failures",
        "work done again": "for each failure half an interval, at most half of the training",
    }
    rows = [("training", trained), *lost_seconds, ("the run, on the calendar", length)]
    headings = (Column("what takes it"), *columns("number", "time", "share"))
    cells = (
        (
            Cell(name, note=notes.get(name, "")),
            *text_cells(numbers.duration(seconds), numbers.percent(share(seconds, length))),
        )
        for name, seconds in rows
    )
    return Table("What the calendar is made of", headings, tuple(cells), sortable=False)


def waterfall_figure(compiled: Compiled) -> Chart:
    """The parts of a step on the critical path; what takes no time is left out."""
    spans = [
        charts.TimeBar(span.title, span.seconds, "network" if span.transfer else COLOURS.get(span.name, "compute"))
        for span in compiled.waterfall
        if span.seconds > 0
    ]
    longest = max(spans, key=lambda span: span.seconds)
    step = sum(span.seconds for span in spans)
    alt = (
        f"A step takes {numbers.duration(step)}. Its largest part is {longest.label}, "
        f"{numbers.percent(share(longest.seconds, step))}."
    )
    return draw_chart(
        "Where a step’s time goes",
        "Each part’s seconds on the critical path. Communication counts only while no computation runs beside it.",
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
        "The share of a step that waits for each resource. A transfer that outlasts the kernels beside it counts in"
        " full, and they do not; a pipeline’s bubble counts as what its stages wait for.",
        lambda width: charts.shares(resource_shares, f"Parts of a step by what it waits for: {alt}.", width),
    )


def bounds_figure(compiled: Compiled) -> Chart:
    """Bounds, estimate with its interval, and the step by 6ND."""
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
    if values.get("time.run") and "napkin.time.run" in values:
        by_hand = float(values["time.step"]) * share(values["napkin.time.run"], values["time.run"])
        bars.append(charts.TimeBar("6ND", by_hand, "idle"))
    alt = "; ".join(f"{bar.label} {numbers.duration(bar.seconds)}" for bar in bars)
    return draw_chart(
        "The step beside simpler estimates",
        "; ".join(f"{label}: {meaning}" for key, label, _, meaning in BOUNDS if key in values)
        + (f"; 6ND: {BY_HAND}" if "napkin.time.run" in values else "")
        + f". The whisker is {INTERVAL}.",
        lambda width: charts.bounds(bars, f"Seconds of a step: {alt}.", width),
    )


def key_table(caption: str, keys: tuple[tuple[str, str, str], ...], compiled: Compiled) -> Table:
    """Totals with their names and what they mean."""
    rows = tuple(
        (Cell(title, note=meaning), total_cell(compiled, key)) for key, title, meaning in keys if key in compiled.totals
    )
    return Table(caption, (Column("quantity"), Column("value", "number")), rows, sortable=False)
