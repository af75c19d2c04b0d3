"""Questions about plans: totals, trades between two plans, accounts, moments of a step, checklists."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from ledger.books.compiler import compile_plan
from ledger.books.memory.holdings import CATEGORIES
from ledger.books.notation import text
from ledger.books.results import Compiled, Number
from ledger.course.answers import Amount, Figure, Found, Grid, Value
from ledger.course.asks import AccountsAsk, ChecksAsk, CompareAsk, LevelsAsk, MomentsAsk, PlanAsk
from ledger.model.dims import symbol
from ledger.model.operations import total
from ledger.spec.headroom import POLICIES
from ledger.spec.plan import Plan
from ledger.units import spelt

ALIVE = {"optimizer": "optimizer states"}
NEGLIGIBLE = 1000  # a part is not called alive below a thousandth of its most: tokens and labels outlive activations


@dataclass(frozen=True)
class CompiledPlans:
    """Compiled plans by the digest of what they say."""

    known: dict[str, Compiled] = field(default_factory=dict)

    def __call__(self, plan: Plan) -> Compiled:
        """The plan with its books closed, compiled once."""
        if plan.digest not in self.known:
            self.known[plan.digest] = compile_plan(plan)
        return self.known[plan.digest]


def total_of(compiled: Compiled, key: str) -> Number:
    """A total, or the sum of those that a key with a `*` matches; nothing is spent where a plan has none."""
    return sum(compiled.totals[name] for name in fnmatch.filter(compiled.totals, key))


# --- one plan -----------------------------------------------------------------------------------


def totals(ask: PlanAsk, books: CompiledPlans) -> Found:
    """Totals by name, and ratios of two."""
    compiled = books(ask.plan)
    figures = [Figure(name, _words(key), total_of(compiled, key), spelt(key), key) for name, key in ask.totals.items()]
    for name, (above, below) in ask.ratios.items():
        value = _over(total_of(compiled, above), total_of(compiled, below))
        figures.append(Figure(name, name.replace("_", " "), value, _unit_over(above, below)))
    return Found(tuple(figures))


def _words(key: str) -> str:
    """A total in words."""
    return WORDS.get(key, key.replace(".", " ").replace("_", " "))


WORDS: Mapping[str, str] = {
    "napkin.flops.run": "FLOPs of the run, by the rule",
    "napkin.days": "days, by the rule",
    "flops.run": "FLOPs of the run, counted",
    "flops.step": "FLOPs of a step, repeated ones included",
    "flops.model": "FLOPs of a step",
    "saved.per_layer.decoder": "kept by one layer",
    "saved.total": "kept by all layers and the head",
    "memory.static.weights": "weights held",
    "memory.static.gradients": "gradients held",
    "memory.static.optimizer": "optimizer states held",
    "memory.static.master": "master copy held",
    "memory.activations": "activations at the peak",
    "memory.logits": "logits at the peak",
    "memory.unsharded": "gathered weights at the peak",
    "memory.peak": "memory at the peak",
    "time.step": "time of a step",
    "comm.all_gather.data.count": "gathers of weights in a step",
    "comm.all_gather.data.bytes": "weights gathered",
    "comm.all_reduce.data.bytes": "gradients summed (all-reduce)",
    "comm.reduce_scatter.data.bytes": "gradients scattered",
    "comm.*.data.bytes": "weights and gradients sent",
    "comm.*.tensor.bytes": "activations sent",
    "parameters": "parameters",
}


def _over(above: Number, below: Number) -> Fraction | float:
    """Exact where both are whole."""
    if isinstance(above, int) and isinstance(below, int) and below:
        return Fraction(above, below)
    return float(above) / float(below) if below else 0.0


def _unit_over(above: str, below: str) -> str:
    return "x" if spelt(above) == spelt(below) else f"{spelt(above)}/{spelt(below)}"


def accounts(ask: AccountsAsk, books: CompiledPlans) -> Found:
    """FLOPs of the forward pass for one token and one occurrence (a layer, or the head), with their closed form."""
    compiled = books(ask.plan)
    tokens = ask.plan.run.micro_batch * ask.plan.run.seq_len
    figures = []
    for name, wanted in ask.sums.items():
        rows = [
            row
            for row in compiled.accounts
            if row.account in wanted and row.resource.kind == "matmul" and row.when == "forward"
        ]
        value = Fraction(sum(row.amount for row in rows)) / tokens
        form = total(row.expression for row in rows) / symbol("batch") / symbol("seq")
        figures.append(Figure(name, f"FLOPs a token, {name.replace('_', ' ')}", value, "FLOP", text(form.expand())))
    figures += [Figure(name, _words(key), total_of(compiled, key), spelt(key), key) for name, key in ask.totals.items()]
    return Found(tuple(figures))


def moments(ask: MomentsAsk, books: CompiledPlans) -> Found:
    """The peak, which is a maximum over moments; what adding up each stock's own maximum would give instead."""
    role = max(books(ask.plan).roles, key=lambda role: role.peak.total)
    found = role.moments
    sum_of_maxima = sum(max(moment.parts[part] for moment in found) for part in CATEGORIES)
    figures = [
        Figure("peak", f"peak: {role.peak.title}", role.peak.total, "B"),
        Figure("sum_of_maxima", "sum of what each part reaches at some moment", sum_of_maxima, "B"),
    ]
    for part in ("weights", "gradients", "optimizer", "activations"):
        least = max(moment.parts[part] for moment in found) / NEGLIGIBLE
        phases = list(dict.fromkeys(moment.name.split("/")[0] for moment in found if moment.parts[part] > least))
        figures.append(Figure(f"alive.{part}", f"{ALIVE.get(part, part)} are alive in", ", ".join(phases)))
    present = [part for part in CATEGORIES if any(moment.parts[part] for moment in found)]
    columns = (("moment", ""), *((part, "B") for part in present), ("all", "B"))
    rows: list[tuple[Value | Amount, ...]] = [
        (moment.title, *(moment.parts[part] for part in present), moment.total) for moment in found
    ]
    return Found(tuple(figures), Grid("What is alive when", columns, tuple(rows)))


def checks(ask: ChecksAsk, books: CompiledPlans) -> Found:
    """Status of each line, as `plan/line` where there are several plans."""
    rows: list[tuple[Value | Amount, ...]] = []
    figures = []
    for name, plan in ask.plans.items():
        for check in books(plan).verdict.checks:
            if check.name.startswith(ask.only):
                label = f"{name}/{check.name}" if len(ask.plans) > 1 else check.name
                figures.append(Figure(label, "", check.status))
                rows.append((name, check.title, check.status, check.figure, check.detail))
    columns = (("plan", ""), ("line", ""), ("outcome", "status"), ("figure", ""), ("why", ""))
    return Found(tuple(figures), Grid("Lines of the checklist", columns, tuple(rows)))


# --- several plans ----------------------------------------------------------------------------------


def compare(ask: CompareAsk, books: CompiledPlans) -> Found:
    """Each total of the plan and of each changed one; figures `change.total`, and `change.total.ratio` of the two."""
    before = books(ask.plan)
    after = {name: books(plan) for name, plan in ask.changed.items()}
    figures = tuple(_changes(ask.totals, before, after))
    columns = (("", ""), ("before", "mixed"), *((name.replace("_", " "), "mixed") for name in after))
    rows: list[tuple[Value | Amount, ...]] = []
    for key in ask.totals.values():
        first, unit = total_of(before, key), spelt(key)
        values = [total_of(compiled, key) for compiled in after.values()]
        others = (Amount(value, unit, _over(value, first) - 1 if first else None) for value in values)
        rows.append((_words(key), Amount(first, unit), *others))
    return Found(figures, Grid("What it saves and what it costs", columns, tuple(rows)))


def _changes(totals: Mapping[str, str], before: Compiled, after: Mapping[str, Compiled]) -> Iterator[Figure]:
    """Unnamed figures are for expectations only: the table shows them."""
    for name, key in totals.items():
        first = total_of(before, key)
        yield Figure(f"before.{name}", "", first, spelt(key))
        for label, compiled in after.items():
            second = total_of(compiled, key)
            yield Figure(f"{label}.{name}", "", second, spelt(key))
            if first:
                yield Figure(f"{label}.{name}.ratio", "", _over(second, first), "x")


def levels(ask: LevelsAsk, books: CompiledPlans) -> Found:
    """The peak of each plan, and what the headroom policy it goes by keeps free."""
    figures = []
    rows: list[tuple[Value | Amount, ...]] = []
    for name, plan in ask.plans.items():
        peak, free = books(plan).totals["memory.peak"], POLICIES[name]
        figures.append(Figure(name, "", float(peak) + free, "B"))
        rows.append((name, plan.recompute.policy, peak, free, float(peak) + free))
    columns = (("level", ""), ("recompute", ""), ("peak", "B"), ("kept free", "B"), ("to plan for", "B"))
    return Found(tuple(figures), Grid("Planning levels", columns, tuple(rows)))
