"""The first page of a service's report: verdict, six numbers, and recommended layouts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ledger import numbers
from ledger.books.results import Number
from ledger.books.what_if.idle import warnings
from ledger.report.views.advice import WORTH, Advice, AdvisedLayout, unfound_sentence
from ledger.report.views.glance import devices_line, model_name, parameters_line
from ledger.report.views.parts import Report, share, total
from ledger.report.views.verdict import Headline, VerdictView, with_better
from ledger.spec.plan import Lengths
from ledger.units import unit_of

if TYPE_CHECKING:
    from ledger.report.recommendations import Recommendation
    from ledger.spec.plan import Plan, Serve


HEADLINES = (
    ("memory.reserved", "memory per device"),
    ("serve.ttft.under_load", "first token under this load"),
    ("serve.time_per_token", "each token after it"),
    ("serve.tokens_per_second", "output of all sequences"),
    ("serve.concurrency.max", "most sequences in flight"),
    ("cost.per_million_tokens", "a million output tokens"),
)


def verdict(report: Report) -> VerdictView:
    """The verdict and the six numbers of a service."""
    compiled = report.compiled
    judged, values = compiled.verdict, compiled.totals
    spare = values["memory.capacity"] - values["memory.reserved"]
    memory = f"{numbers.size(max(spare, -spare))} {'stay free' if spare >= 0 else 'are missing'} on the fullest device"
    sheets = numbers.percent(judged.by_data_sheet)
    priced = f"Data sheets, not measurements, price {sheets} of the seconds of a token."
    return VerdictView(
        compiled.plan.decision
        or f"Shall we serve {model_name(compiled.plan, values)} with {devices_line(compiled.plan)}?",
        service_lines(compiled.plan, values),
        True,
        judged.fits,
        "Fits" if judged.fits else "Does not fit",
        f"{memory}.",
        judged.bottleneck,
        judged.evidence,
        f"{judged.evidence.capitalize()}. {priced}",
        tuple(
            Headline(total(compiled, key), title, _comparison_note(report, key))
            for key, title in HEADLINES
            if key in values
        ),
        tuple(check.title for check in judged.checks if check.status == "fail"),
        warnings=tuple(problem.message for problem in warnings(compiled)),
        change=served_sentence(report),
        advice=served_advice(report),
        with_better=with_better(report),
    )


def service_lines(plan: Plan, totals: Mapping[str, Number]) -> tuple[tuple[str, str], ...]:
    """The model by its parameters, what it is asked, and how many sequences are answered at once."""
    serve = plan.serve
    load = f"{in_flight(float(totals['serve.concurrency']))} sequences in flight"
    if serve and serve.arrival_rate:
        load += f", of {numbers.plain(serve.arrival_rate)} requests a second"
    return (("model", parameters_line(totals)), ("answers", lengths_line(serve) if serve else ""), ("load", load))


def in_flight(sequences: float) -> str:
    """A number of sequences: every digit of a whole one, three of a mean."""
    return numbers.integer(int(sequences)) if sequences == int(sequences) else numbers.plain(sequences)


def lengths_line(serve: Serve) -> str:
    """Prompts and outputs in words."""
    shared = f", {numbers.integer(serve.prefix)} of them shared" if serve.prefix else ""
    return f"{_length_text(serve.prompt)} of prompt{shared}, {_length_text(serve.output)} of output"


def _length_text(lengths: Lengths) -> str:
    if lengths.longest == lengths.shortest:
        return f"{numbers.integer(lengths.longest)} tokens"
    between = f"{numbers.integer(lengths.shortest)} to {numbers.integer(lengths.longest)}"
    return f"{between} tokens ({numbers.plain(lengths.mean)} on average)"


def _comparison_note(report: Report, key: str) -> str:
    """A figure that puts a headline number in proportion; empty where there is none."""
    values, plan = report.compiled.totals, report.compiled.plan
    if key == "memory.reserved":
        capacity = values["memory.capacity"]
        return f"{numbers.percent(share(values[key], capacity))} of {numbers.size(capacity)}, all outputs whole"
    if key == "serve.ttft.under_load":
        queue = f", and {numbers.duration(values['serve.queue'])} in a queue" if values["serve.queue"] else ""
        return f"{numbers.duration(values['serve.ttft'])} for a prompt alone{queue}"
    if key == "serve.time_per_token":
        return f"{numbers.duration(values['serve.time_per_token.floor'])} by memory bandwidth alone"
    if key == "serve.tokens_per_second":
        per_device = numbers.amount_text(values["serve.tokens_per_second_per_device"], "token/s")
        return f"{per_device} a device"
    if key == "serve.concurrency.max":
        return f"{numbers.size(values['serve.cache.bytes_per_sequence'])} of cache for each"
    price = plan.assumptions.price
    return f"at {numbers.offer(price.per_device_hour, plan.accelerator.name, price.date)}" if price else ""


# --- recommended layouts of a service ---

FIRST, LATENCY, RATE = "serve.ttft", "serve.time_per_token", "serve.tokens_per_second"
COST = "cost.per_million_tokens"
AT_THIS_LOAD = "with the sequences in flight, or the requests, of this plan"


def served_advice(report: Report) -> Advice | None:
    """The layouts that are recommended; None where none were searched, or where none gives more than this one."""
    search, here = report.recommendations, report.compiled.totals
    if not search:
        return None
    fits = float(here["memory.reserved"]) <= float(here["memory.capacity"]) - search.headroom
    rows = [
        (name, layout)
        for name, layout in search.by_reason().items()
        if layout.changes and not (fits and _is_alike(layout, here))
    ]
    if not rows:
        return None
    return Advice(tuple(advised_service(*row, here) for row in rows), f"{search.scope}, {AT_THIS_LOAD}.")


def served_sentence(report: Report) -> str:
    """The layout that gives most, or that none fits; empty where none were searched, or none gives more."""
    search, here = report.recommendations, report.compiled.totals
    if not search:
        return ""
    if not search.smallest or not search.fastest or not search.legal:
        return unfound_sentence(search, "fits")
    if search.smallest.changes:
        return f"Fits with {numbers.size(search.headroom)} free: {search.smallest.label}."
    if _is_alike(search.fastest, here):
        return f"None of {numbers.integer(search.legal)} legal layouts gives more."
    if search.fastest.totals[RATE] < (1 + WORTH) * float(here[RATE]):
        saved = numbers.percent(1 - search.fastest.totals[LATENCY] / float(here[LATENCY]))
        return f"A token takes {saved} less: {search.fastest.label}."
    return (
        f"{numbers.percent(search.fastest.totals[RATE] / float(here[RATE]) - 1)} more output: {search.fastest.label}."
    )


def _is_alike(layout: Recommendation, here: Mapping[str, Number]) -> bool:
    """Whether a layout is faster by no more than is worth a word, in output and between tokens."""
    gains_output = layout.totals[RATE] >= (1 + WORTH) * float(here[RATE])
    saves_time = layout.totals[LATENCY] <= (1 - WORTH) * float(here[LATENCY])
    return not gains_output and not saves_time


def advised_service(name: str, layout: Recommendation, here: Mapping[str, Number]) -> AdvisedLayout:
    """A layout against the plan: its output, what that costs, and how long a user waits."""
    totals = layout.totals
    figures = [f"{numbers.money(totals[COST])} a million tokens"] if COST in totals else []
    figures.append(f"first token after {numbers.amount_text(totals[FIRST], unit_of(FIRST))}")
    figures.append(f"then one every {numbers.amount_text(totals[LATENCY], unit_of(LATENCY))}")
    figures.append(f"{numbers.size(totals['memory.reserved'])} a device")
    figures.append(f"{numbers.change(totals[RATE] / float(here[RATE]) - 1)} output")
    return AdvisedLayout(
        name.capitalize(), numbers.amount_text(totals[RATE], unit_of(RATE)), ", ".join(figures), layout.yaml
    )
