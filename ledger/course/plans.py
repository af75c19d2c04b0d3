"""What questions take from compiled plans: totals, inputs, accounts, moments of a step, lines of checklists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ledger.books.compiler import compile_plan
from ledger.books.memory.holdings import CATEGORIES
from ledger.books.plan_quantities import solved_plan
from ledger.books.results import Compiled
from ledger.course.answers import Amount, Figure, Found, Grid
from ledger.course.asks import Find
from ledger.spec.expressions import ExpressionError
from ledger.spec.plan import Plan
from ledger.spec.quantity_expressions import Value

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


def found(plan: Plan, ask: Find) -> tuple[Plan, Figure]:
    """The plan with what is solved for, and its value."""
    objective = {"maximize": ask.maximize, "minimize": ask.minimize, "keep": ask.keep}
    best, solution = solved_plan(plan, ask.path, ask.subject_to, **objective)
    value: Value = solution.value if isinstance(solution.value, int | float | str | bool) else str(solution.value)
    title = f"{solution.goal} {ask.path.rpartition('.')[2].replace('_', ' ')}"
    return best, Figure("found", title, value, solution.unit or "1")


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
