"""Quantities of a compiled plan by name, with their units: totals, inputs by path, what its verdict knows."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from ledger.books import calendar
from ledger.books.compiled import Compiled
from ledger.books.names import absent
from ledger.books.verdict import headroom
from ledger.books.what_if.answer import Solution
from ledger.books.what_if.solve import solve
from ledger.model import dtypes
from ledger.spec.expressions import ExpressionError
from ledger.spec.inputs import value_at
from ledger.spec.kernel_classes import COLLECTIVES
from ledger.spec.load import plan_of
from ledger.spec.near import nearest
from ledger.spec.parallelism import AXES
from ledger.spec.paths import plan_path, spec_path, unit
from ledger.spec.plan import Accelerator, Plan
from ledger.spec.problems import SpecError
from ledger.spec.quantity_expressions import NONE, ExpressionQuantity, quantity_in
from ledger.units import spelt


@dataclass(frozen=True)
class PlanQuantities:
    """The quantities of a plan: its totals, its inputs by path, and what its verdict knows."""

    compiled: Compiled

    def __call__(self, name: str) -> ExpressionQuantity:
        """A quantity by name; KeyError for one that the plan lacks."""
        plan = self.compiled.plan
        if name in self.compiled.totals:
            return quantity_in(self.compiled.totals[name], spelt(name))
        if SENT.fullmatch(name):
            return quantity_in(0, spelt(name))  # nothing is sent where a plan has no such total
        if name in OF_PLANS:
            return OF_PLANS[name](self.compiled)
        if name.startswith("accelerator."):
            return DeviceQuantities(plan.accelerator)(name)
        return as_quantity(value_at(plan, name) if "." in name else None, name)

    def unknown(self, name: str) -> ExpressionError:
        """That a plan lacks what was named, with why, or with what may have been meant."""
        if lacking := absent(self.compiled.plan, name):
            return ExpressionError(f"`{self.compiled.plan.title}` has no `{name}`: {lacking.message}", lacking.help)
        names = sorted({*self.compiled.totals, *OF_PLANS})
        return ExpressionError(f"`{self.compiled.plan.title}` has no `{name}`", nearest(name, names))

    def totals(self, patterns: Sequence[str]) -> Sequence[ExpressionQuantity]:
        """All totals that patterns match; none where the plan spends nothing of the kind."""
        return [self(key) for key in self.compiled.totals if _matches(key, patterns)]

    def spent(self, when: str, patterns: Sequence[str]) -> Sequence[ExpressionQuantity]:
        """Matmul FLOPs of the accounts that patterns match, in one pass of one layer; ExpressionError for none."""
        rows = [row for row in self.compiled.accounts if row.when == when and row.resource.kind == "matmul"]
        amounts = [quantity_in(row.amount, "FLOP") for row in rows if _matches(row.account, patterns)]
        if not amounts:
            said = ", ".join(f"`{pattern}`" for pattern in patterns)
            raise ExpressionError(f"no product of matrices is called {said} in {when}", "`ledger show` lists accounts")
        return amounts


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


SENT = re.compile(rf"comm\.({'|'.join((*COLLECTIVES, 'send'))})\.({'|'.join(AXES)})\.(bytes|count)")
OF_PLANS: Mapping[str, Callable[[Compiled], ExpressionQuantity]] = {
    "headroom": lambda compiled: quantity_in(headroom(compiled.plan), "B"),
    "failures": lambda compiled: quantity_in(calendar.failures(compiled.plan), "/s"),
    "restart": lambda compiled: quantity_in(compiled.plan.operations.restart_time or 0, "s"),
    "fits": lambda compiled: ExpressionQuantity(compiled.verdict.fits),
    "bottleneck": lambda compiled: ExpressionQuantity(compiled.verdict.bottleneck),
    "title": lambda compiled: ExpressionQuantity(compiled.plan.title),
}


def as_quantity(value: object, path: str) -> ExpressionQuantity:
    """An input with the unit of its field; KeyError where it is no number and no word."""
    if value is None or not isinstance(value, bool | int | float | str | Fraction):
        raise KeyError(path)
    return quantity_in(value, unit(spec_path(plan_path(path))))


@dataclass(frozen=True)
class DeviceQuantities:
    """A device of the library where a plan has its own, by the same names: `accelerator.bandwidth`."""

    accelerator: Accelerator

    def __call__(self, name: str) -> ExpressionQuantity:
        """An input of the device, KeyError for none; `accelerator.peak.fp8_e4m3` is that of the format's rate.

        ExpressionError for a format without a peak; NONE for one of which no sparse peak is printed.
        """
        table, _, dtype = name.removeprefix("accelerator.").partition(".")
        if table == "peak" and dtype:
            return quantity_in(peak_rate(self.accelerator, dtype), "FLOP/s")
        if table == "sparse_peak" and dtype:
            rates = self.accelerator.sparse_peak
            return quantity_in(rates[rate], "FLOP/s") if (rate := dtypes.rate(dtype)) in rates else NONE
        return as_quantity(getattr(self.accelerator, plan_path(name).partition(".")[2], None), name)


def peak_rate(accelerator: Accelerator, dtype: str) -> float:
    """FLOP/s of dense products in a number format; ExpressionError where the device has no such rate."""
    if (rate := dtypes.rate(dtype)) not in accelerator.peak:
        having = ", ".join(accelerator.peak)
        raise ExpressionError(f"{accelerator.title} has no {dtype}; it has {having}", f"a dtype of {having}")
    return accelerator.peak[rate]


def solved_plan(  # noqa: PLR0913 - a question has these parts, as in `solve`
    plan: Plan, path: str, subject_to: Sequence[str], *, maximize: str = "", minimize: str = "", keep: str = ""
) -> tuple[Plan, Solution]:
    """The plan with the best value of an input, and that value; ExpressionError where none meets the conditions."""
    reading = plan.reading
    if reading is None:
        raise ExpressionError("only a plan that was read from a file is solved", "name a plan")
    try:
        solution = solve(plan, path, subject_to, maximize=maximize, minimize=minimize, keep=keep)
    except SpecError as error:
        raise ExpressionError(error.problems[0].message, error.problems[0].help) from error
    if solution.value is None:
        raise ExpressionError(f"no value of `{path}` meets the conditions", "; ".join(solution.notes))
    changes = tuple(f"{key}={json.dumps(value, default=str)}" for key, value in solution.changes.items())
    return replace(plan_of(reading.source, (*reading.overrides, *changes), reading.library), expect=()), solution
