"""Memory as a polynomial in one size, and that polynomial solved for the size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import inf

import sympy

from ledger.books.compiled_roles import CompiledRole, compile_roles
from ledger.books.entries import Lifetime
from ledger.books.notation import text
from ledger.books.results import Number
from ledger.books.what_if.conditions import Condition
from ledger.books.what_if.sought import Unknown, totals
from ledger.model.schedule import roles
from ledger.model.tensors import CeilDiv
from ledger.spec.plan import Plan

NEAR = 1e-3  # of the exact peak: what rounding up to equal shards, which a closed form leaves out, may add
MEMORY = ("memory.peak", "memory.reserved")


@dataclass(frozen=True)
class ClosedForm:
    """Bytes alive on one role at one moment, as a polynomial in `sign` with all other sizes bound."""

    role: str
    moment: str
    polynomial: sympy.Poly

    @property
    def text(self) -> str:
        """The polynomial, and where it holds."""
        return f"{text(self.polynomial.as_expr())} ({self.moment})"

    def at(self, size: Number) -> sympy.Expr:
        """Bytes alive at this size."""
        return self.polynomial.eval(sympy.Rational(size))

    def root(self, limit: sympy.Expr) -> float:
        """The largest size at which at most `limit` bytes are alive; infinite where the size does not matter."""
        if self.polynomial.degree() < 1:
            return float("inf")
        roots = sympy.Poly(self.polynomial - limit, self.polynomial.gen).nroots(n=30)
        real = [float(sympy.re(root)) for root in roots if abs(sympy.im(root)) < 1e-9 * (1 + abs(root))]
        return max((root for root in real if root > 0), default=0.0)


def closed_forms(plan: Plan, sign: sympy.Symbol) -> tuple[ClosedForm, ...]:
    """Memory at every candidate for the peak of every role; none where it is no polynomial in the size.

    Rounding up to equal shards is left out, and which tensors are alive is taken as in `plan`: both are exact again
    once the plan is compiled with the solution.
    """
    try:
        return tuple(form for book in compile_roles(plan, roles(plan)) for form in _forms_of_role(book, sign))
    except sympy.PolynomialError:
        return ()


def first_limit(forms: Sequence[ClosedForm], limit: sympy.Expr) -> tuple[ClosedForm, float] | None:
    """The form that reaches the limit at the smallest size, with that size."""
    roots = [(form.root(limit), index) for index, form in enumerate(forms)]
    if not roots:
        return None
    root, index = min(roots)
    return forms[index], root


def _forms_of_role(book: CompiledRole, sign: sympy.Symbol) -> Iterator[ClosedForm]:
    line = book.timeline
    stocks = [entry for entry in book.entries if entry.resource.stock]
    amounts = [(entry.when, _with_other_sizes(entry.amount * entry.times, sign, book)) for entry in stocks]
    for index, name in enumerate(line.names):
        alive = [amount for when, amount in amounts if isinstance(when, Lifetime) and when.covers(index)]
        yield ClosedForm(book.role.name, line.titles[name], sympy.Poly(sympy.Add(*alive), sign))


def _with_other_sizes(amount: sympy.Expr, sign: sympy.Symbol, book: CompiledRole) -> sympy.Expr:
    """The amount with every other size in numbers."""
    if not amount.has(sign):
        return sympy.Rational(book.value(amount))
    smooth = amount.replace(CeilDiv, lambda rows, shards: rows / shards)
    sizes = {letter: sympy.Rational(book.value(letter)) for letter in smooth.free_symbols if letter != sign}
    return smooth.xreplace(sizes)


def inverted(plan: Plan, sought: Unknown, conditions: Sequence[Condition]) -> int | None:
    """The rank at which a closed form of memory is first to reach a limit; None where there is none."""
    limit = _least_limit(plan, conditions)
    if sought.sign is None or limit is None or plan.serve:
        return None
    if plan.model.bare:
        return sought.rank(float(limit / _bare_rate(plan, sought))) if sought.path == "model.parameters" else None
    first = first_limit(closed_forms(plan, sought.sign), sympy.Rational(limit))
    return None if first is None or first[1] == inf else sought.rank(first[1])


def closed_form(plan: Plan, sought: Unknown, value: Number, conditions: Sequence[Condition]) -> str:
    """The closed form of memory at the moment that holds the peak of a plan with this value, and where it ends.

    Nothing where no condition limits memory, or where the form is not what the plan's exact books say.
    """
    limit = _least_limit(plan, conditions)
    if sought.sign is None or limit is None or plan.serve:
        return ""
    if plan.model.bare:
        rate = _bare_rate(plan, replace(sought, plan_value=value))
        return f"memory.static = {rate}*{sought.sign}" if sought.path == "model.parameters" else ""
    forms = closed_forms(plan, sought.sign)
    form = max(forms, key=lambda candidate: Fraction(str(candidate.at(value))), default=None)
    peak = float(totals(plan)["memory.peak"])
    if form is None or form.polynomial.degree() < 1 or abs(float(form.at(value)) - peak) > NEAR * peak:
        return ""
    root = form.root(sympy.Rational(limit))
    where = f"at the limit where {sought.sign} = {root:.6g}" if root else f"above the limit at every {sought.sign}"
    return f"memory.peak = {form.text}, {where}"


def _bare_rate(plan: Plan, sought: Unknown) -> Fraction:
    """Bytes for each parameter of a bare count."""
    return Fraction(totals(plan)["memory.static"]) / Fraction(sought.plan_value)


def _least_limit(plan: Plan, conditions: Sequence[Condition]) -> Fraction | None:
    """The most bytes alive that all conditions on memory allow."""
    limits = (_peak_limit(plan, bound) for bound in conditions if bound.key in MEMORY and bound.relation in {"<", "<="})
    return min(limits, default=None)


def _peak_limit(plan: Plan, condition: Condition) -> Fraction:
    """The most bytes alive that a condition on memory allows."""
    limit = Fraction(plan.accelerator.memory) if condition.against else condition.limit
    if condition.key == "memory.peak" or plan.model.bare:
        return limit
    return (limit - plan.stack.context) / Fraction(plan.stack.fragmentation)
