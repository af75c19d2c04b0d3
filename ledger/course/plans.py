"""What questions take from compiled plans: totals, inputs, accounts, moments of a step, lines of checklists."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from ledger.books import calendar
from ledger.books.absent import absent
from ledger.books.compiler import compile_plan
from ledger.books.memory.holdings import CATEGORIES
from ledger.books.results import Compiled
from ledger.books.verdict import headroom
from ledger.books.what_if.solve import solve
from ledger.course.answers import Amount, Figure, Found, Grid
from ledger.course.asks import Find
from ledger.model import dtypes
from ledger.report.views.quantities import value_at
from ledger.spec.expressions import ExpressionError
from ledger.spec.load import plan_of
from ledger.spec.near import nearest
from ledger.spec.paths import plan_path, spec_path, unit
from ledger.spec.plan import Accelerator, Plan
from ledger.spec.problems import SpecError
from ledger.spec.quantity_expressions import Quantity, Value, measured
from ledger.units import spelt

ALIVE = {"optimizer": "optimizer states"}
Row = tuple[Value | Amount, ...]
NEGLIGIBLE = 1000  # a part is not called alive below a thousandth of its most: tokens and labels outlive activations
WORDS: Mapping[str, str] = {
    "napkin.flops.run": "FLOPs of the run, by the rule",
    "napkin.days": "days, by the rule",
    "napkin.max_parameters": "bound from state alone",
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
    "memory.reserved": "memory reserved",
    "memory.capacity": "memory of the device",
    "time.step": "time of a step",
    "time.calendar": "time of the run",
    "cost.run": "cost of the run",
    "comm.all_gather.data.count": "gathers of weights in a step",
    "comm.all_gather.data.bytes": "weights gathered",
    "comm.all_reduce.data.bytes": "gradients summed (all-reduce)",
    "comm.reduce_scatter.data.bytes": "gradients scattered",
}


@dataclass(frozen=True)
class CompiledPlans:
    """Compiled plans by the digest of what they say."""

    known: dict[str, Compiled] = field(default_factory=dict)

    def __call__(self, plan: Plan) -> Compiled:
        """The plan with its books closed, compiled once."""
        if plan.digest not in self.known:
            self.known[plan.digest] = compile_plan(plan)
        return self.known[plan.digest]


def words(key: str) -> str:
    """A total in words."""
    return WORDS.get(key, key.replace(".", " ").replace("_", " "))


# --- what an expression may name ------------------------------------------------------------------


@dataclass(frozen=True)
class PlanNames:
    """The quantities of a plan: its totals, its inputs by path, and what its verdict knows."""

    compiled: Compiled

    def __call__(self, name: str) -> Quantity:
        """A quantity by name; KeyError for one that the plan lacks."""
        plan = self.compiled.plan
        if name in self.compiled.totals:
            return measured(self.compiled.totals[name], spelt(name))
        if name.startswith("comm."):
            return measured(0, spelt(name))  # nothing is sent where a plan has no such total
        if name in OF_PLANS:
            return OF_PLANS[name](self.compiled)
        return Device(plan.accelerator)(name) if name.startswith("accelerator.") else of_part(plan, name)

    def unknown(self, name: str) -> ExpressionError:
        """That a plan lacks what was named, with why, or with what may have been meant."""
        if lacking := absent(self.compiled.plan, name):
            return ExpressionError(f"`{self.compiled.plan.title}` has no `{name}`: {lacking.message}", lacking.help)
        known = sorted({*self.compiled.totals, *OF_PLANS})
        return ExpressionError(f"`{self.compiled.plan.title}` has no `{name}`", nearest(name, known))

    def totals(self, patterns: Sequence[str]) -> Sequence[Quantity]:
        """All totals that patterns match; none where the plan spends nothing of the kind."""
        return [self(key) for key in self.compiled.totals if _matches(key, patterns)]

    def spent(self, when: str, patterns: Sequence[str]) -> Sequence[Quantity]:
        """Matmul FLOPs of the accounts that patterns match, in one pass of one layer; ExpressionError for none."""
        rows = [row for row in self.compiled.accounts if row.when == when and row.resource.kind == "matmul"]
        found = [measured(row.amount, "FLOP") for row in rows if _matches(row.account, patterns)]
        if not found:
            said = ", ".join(f"`{pattern}`" for pattern in patterns)
            raise ExpressionError(f"no product of matrices is called {said} in {when}", "`ledger show` lists accounts")
        return found


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


OF_PLANS = {
    "headroom": lambda compiled: measured(headroom(compiled.plan), "B"),
    "failures": lambda compiled: measured(calendar.failures(compiled.plan), "/s"),
    "fits": lambda compiled: Quantity(compiled.verdict.fits),
    "bottleneck": lambda compiled: Quantity(compiled.verdict.bottleneck),
    "title": lambda compiled: Quantity(compiled.plan.title),
}


def of_part(holder: object, name: str) -> Quantity:
    """An input with the unit of its field; KeyError where it is no number and no word."""
    value = value_at(holder, plan_path(name)) if "." in name else None
    if value is None or not isinstance(value, bool | int | float | str | Fraction):
        raise KeyError(name)
    return measured(value, unit(spec_path(plan_path(name))))


@dataclass(frozen=True)
class Device:
    """A device of the library where a plan has its own, by the same names: `accelerator.bandwidth`."""

    accelerator: Accelerator

    def __call__(self, name: str) -> Quantity:
        """An input of the device, `accelerator.peak.fp8_e4m3` by the rate of the format; KeyError else."""
        if name.startswith("accelerator.peak."):
            return measured(self.accelerator.peak[dtypes.rate(name.rpartition(".")[2])], "FLOP/s")
        return of_part(self, name)


def found(plan: Plan, ask: Find) -> tuple[Plan, Figure]:
    """The plan with the best value of an input, and that value; ExpressionError where none meets the conditions."""
    given = plan.reading
    if given is None:
        raise ExpressionError("only a plan that was read from a file is solved", "name a plan")
    try:
        solution = solve(plan, ask.path, ask.subject_to, maximize=ask.maximize, minimize=ask.minimize, keep=ask.keep)
    except SpecError as error:
        raise ExpressionError(error.problems[0].message, error.problems[0].help) from error
    if solution.value is None:
        raise ExpressionError(f"no value of `{ask.path}` meets the conditions", "; ".join(solution.notes))
    changes = tuple(f"{path}={json.dumps(value, default=str)}" for path, value in solution.changes.items())
    best = plan_of(given.source, (*given.overrides, *changes), given.library)
    value: Value = solution.value if isinstance(solution.value, int | float | str | bool) else str(solution.value)
    title = f"{solution.goal} {ask.path.rpartition('.')[2].replace('_', ' ')}"
    return replace(best, expect=()), Figure("found", title, value, solution.unit or "1")


# --- tables -------------------------------------------------------------------------------------


def moments(plans: Mapping[str, Compiled]) -> Found:
    """The peak, which is a maximum over moments; what adding up each stock's own maximum would give instead."""
    if len(plans) != 1:
        raise ExpressionError(
            f"moments are those of one plan, not of {len(plans)}", "name one `plan:`, without `cases:`"
        )
    (compiled,) = plans.values()
    role = max(compiled.roles, key=lambda role: role.peak.total)
    rows = role.moments
    present = [part for part in CATEGORIES if any(moment.parts[part] for moment in rows)]
    figures = [
        Figure("peak", f"peak: {role.peak.title}", role.peak.total, "B"),
        Figure("sum_of_maxima", "sum of what each part reaches at some moment",
               sum(max(moment.parts[part] for moment in rows) for part in CATEGORIES), "B"),
    ]  # fmt: skip
    for part in ("weights", "gradients", "optimizer", "activations"):
        least = max(moment.parts[part] for moment in rows) / NEGLIGIBLE
        phases = list(dict.fromkeys(moment.name.split("/")[0] for moment in rows if moment.parts[part] > least))
        figures.append(Figure(f"alive.{part}", f"{ALIVE.get(part, part)} are alive in", ", ".join(phases)))
    columns = (("moment", ""), *((part, "B") for part in present), ("all", "B"))
    cells: tuple[Row, ...] = tuple(
        (moment.title, *(moment.parts[part] for part in present), moment.total) for moment in rows
    )
    return Found(tuple(figures), Grid("What is alive when", columns, cells))


def checks(plans: Mapping[str, Compiled], only: Sequence[str] = ()) -> Found:
    """Lines of checklists whose names begin with one of `only`, as `plan/line` where there are several plans."""
    columns = (("plan", ""), ("line", ""), ("outcome", "status"), ("figure", ""), ("why", ""))
    shown = [
        (name, check)
        for name, compiled in plans.items()
        for check in compiled.verdict.checks
        if check.name.startswith(tuple(only) or "")
    ]
    alone = len(plans) == 1
    figures = (Figure(check.name if alone else f"{name}/{check.name}", "", check.status) for name, check in shown)
    rows: list[Row] = [(name, check.title, check.status, check.figure, check.detail) for name, check in shown]
    return Found(tuple(figures), Grid("Lines of the checklist", columns[alone:], tuple(row[alone:] for row in rows)))
