"""The first page of a report: verdict, six numbers and what to change; and the checklist."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from shlex import join

from ledger import numbers
from ledger.books.results import ENDS, OF_A_RUN
from ledger.books.verdict import measured_share, napkin_words
from ledger.books.what_if.idle import warnings
from ledger.numbers import Number
from ledger.report.files import LAYOUTS_BY_PREFERENCE
from ledger.report.views.advice import Advice, advice, advice_sentence
from ledger.report.views.glance import question, run_lines
from ledger.report.views.nearby import basis_sentence, nearest_runs_sentence
from ledger.report.views.parts import Cell, Column, Report, Table, Total, columns, share, text_cells, total
from ledger.report.views.time import has_attention_variants

STATUS = {"pass": "pass", "warn": "look", "fail": "fail"}
SIX = 6
NONE_WITHOUT_A_RUN = (*OF_A_RUN, "napkin.days")  # what a plan that does not run has no headline for
HEADLINES = (  # the first six that the plan has
    ("memory.reserved", "memory per device"),
    ("time.step", "time of a step"),
    ("time.calendar", "length of the run"),
    ("cost.run", "cost of the run"),
    ("mfu", "model FLOPs utilisation"),
    ("flops.run", "work of the run"),
    ("parameters", "parameters"),
    ("napkin.days", "length of the run by 6ND"),
    ("napkin.flops.run", "work of the run by 6ND"),
    ("napkin.max_parameters", "largest model by its state alone"),
    ("memory.capacity", "memory of a device"),
    ("tokens_per_second", "throughput"),
)


@dataclass(frozen=True)
class Headline:
    """One of the six numbers, what it is, and what to hold it against."""

    total: Total
    title: str
    note: str


@dataclass(frozen=True)
class VerdictView:
    """The first page: what is `asked` of which `run`, and the verdict.

    `is_known` is False where the plan says too little to judge the fit. `change` is what to change first, in a
    sentence; empty where nothing is known to help. `advice` are layouts to choose from, `with_better` the command that
    reports the plan with one. `measured` is the error on runs like the plan, of a page that shows them. `warnings` are
    those of rules on specs, the checklist has the others.
    """

    asked: str
    run: tuple[tuple[str, str], ...]
    is_known: bool
    fits: bool
    answer: str
    headline: str
    bottleneck: str
    evidence: str
    evidence_note: str
    numbers: tuple[Headline, ...]
    failed: tuple[str, ...]
    change: str = ""
    measured: str = ""
    warnings: tuple[str, ...] = ()
    advice: Advice | None = None
    with_better: str = ""


def verdict(report: Report) -> VerdictView:
    """The verdict and the six numbers."""
    compiled = report.compiled
    is_known = "memory.reserved" in compiled.totals
    answer = ("Fits" if compiled.verdict.fits else "Does not fit") if is_known else "Napkin only"
    runs = compiled.verdict.runs or not is_known
    present = [
        (key, title) for key, title in HEADLINES if key in compiled.totals and (runs or key not in NONE_WITHOUT_A_RUN)
    ][:SIX]
    return VerdictView(
        question(compiled.plan, compiled.totals),
        run_lines(compiled.plan, compiled.totals),
        is_known,
        compiled.verdict.fits,
        answer,
        fit_sentence(report),
        compiled.verdict.bottleneck,
        compiled.verdict.evidence,
        basis_sentence(compiled),
        tuple(Headline(total(compiled, key), title, comparison_note(report, key)) for key, title in present),
        tuple(check.title for check in compiled.verdict.checks if check.status == "fail"),
        advice_sentence(report),
        nearest_runs_sentence(report) if report.compiled.totals.get("time.step") else "",
        tuple(problem.message for problem in warnings(compiled)),
        advice(report),
        with_better(report),
    )


def with_better(report: Report) -> str:
    """The command that reports the plan with the layout that is recommended first; empty where none is."""
    search, plan = report.recommendations, report.compiled.plan
    changed = [name for name in LAYOUTS_BY_PREFERENCE if (layout := getattr(search, name, None)) and layout.changes]
    if not changed:
        return ""
    overrides = report.seal.overrides if report.seal else ()
    settings = [word for override in overrides for word in ("--set", override)]
    return join(["ledger", "report", report.seal.plan if report.seal else plan.name, *settings, "--with", changed[0]])


def fit_sentence(report: Report) -> str:
    """The verdict in a sentence, in the same figures as everywhere else."""
    compiled = report.compiled
    values = compiled.totals
    if "memory.reserved" not in values:
        return compiled.verdict.headline
    spare = values["memory.capacity"] - values["memory.reserved"]
    parts = [f"{numbers.size(max(spare, -spare))} {'stay free' if spare >= 0 else 'are missing'} on the fullest device"]
    if compiled.verdict.fits and not compiled.verdict.runs:
        parts.append("the run never ends: failures, checkpoints and evaluation take more time than there is")
    elif compiled.verdict.runs and "time.calendar" in values:
        parts.append(run_clause(values))
        if compiled.verdict.evidence == measured_share(1.0):
            sheets = numbers.percent(compiled.verdict.by_data_sheet)
            parts.append(f"data sheets, not measurements, price {sheets} of the step")
    return f"{'; '.join(parts)}."


def run_clause(values: Mapping[str, Number]) -> str:
    """How long the run takes and what it costs, with the ends that hold 80 of 100 runs where they are known."""
    clauses = []
    for key, verb, said in (("time.calendar", "takes", numbers.duration), ("cost.run", "costs", numbers.money)):
        ends = [said(values[f"{key}.{end}"]) for end in ENDS if f"{key}.{end}" in values]
        between = f"{ends[0]} to {ends[1]} (estimate {said(values[key])})" if ends else said(values.get(key, 0))
        clauses += [f"{verb} {between}"] if key in values else []
    note = "; the ends hold 80 of 100 runs" if "time.calendar.high" in values else ""
    return f"the run {' and '.join(clauses)}{note}"


def comparison_note(report: Report, key: str) -> str:
    """A figure that puts a headline number in proportion; empty where there is none."""
    values, plan = report.compiled.totals, report.compiled.plan
    if key == "memory.reserved" and values.get("memory.capacity"):
        capacity = values["memory.capacity"]
        of = f"{numbers.percent(share(values[key], capacity))} of {numbers.size(capacity)}"
        ends = [numbers.size(values[f"{key}.{end}"]) for end in ENDS if f"{key}.{end}" in values]
        return f"{of}; between {ends[0]} and {ends[1]}" if ends else of
    if key == "time.step" and "time.step.high" in values:
        low, high = values["time.step.low"], values["time.step.high"]
        return f"between {numbers.duration(low)} and {numbers.duration(high)}"
    if key == "time.calendar" and "napkin.days" in values:
        by_hand = f"{napkin_words(plan)} at {numbers.percent(plan.assumptions.mfu)} MFU"
        napkin = f"{by_hand} would be {numbers.duration(values['napkin.time.run'])}"
        if not plan.operations.loses:
            napkin += "; no failures, checkpoints or waits are stated"
        if f"{key}.high" not in values:
            return napkin
        low, high = values[f"{key}.low"], values[f"{key}.high"]
        return f"between {numbers.duration(low)} and {numbers.duration(high)}; {napkin}"
    if key == "cost.run" and (price := plan.assumptions.price):
        ends = [numbers.money(values[f"{key}.{end}"]) for end in ENDS if f"{key}.{end}" in values]
        between = f"between {ends[0]} and {ends[1]}; " if ends else ""
        return f"{between}at {numbers.offer(price.per_device_hour, plan.accelerator.name, price.date)}"
    if key == "mfu" and "hfu" in values:
        causal, recomputed = numbers.percent(values["mfu.causal"]), numbers.percent(values["hfu"])
        variants = f"full attention; {causal} causal, " if has_attention_variants(report.compiled) else ""
        return f"{variants}{recomputed} with what is recomputed"
    if key == "flops.run" and "napkin.flops.run" in values:
        return f"{napkin_words(plan)} is {numbers.operations(values['napkin.flops.run'])}"
    return ""


def checklist(report: Report) -> Table | None:
    """The end-to-end list before a run; None where there are no checks."""
    checks = report.compiled.verdict.checks
    headings = (Column("check"), Column("outcome", "status"), *columns("text", "figure", "why"))
    rows = tuple(
        (Cell(check.title), Cell(STATUS[check.status], status=check.status), *text_cells(check.figure, check.detail))
        for check in checks
    )
    return Table("Before the run", headings, rows, sortable=False) if rows else None
