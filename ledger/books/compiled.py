"""A compiled plan: its totals, its accounts, its roles, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ledger.books.results import Account, Number, RoleResult, Symbol, Verdict, WaterfallPart

if TYPE_CHECKING:
    from ledger.books.compiled_roles import CompiledRole
    from ledger.books.serving.steady import Service
    from ledger.spec.plan import Plan


@dataclass(frozen=True)
class Compiled:
    """A compiled plan. `totals` has the keys of the published contract, in SI base units."""

    plan: Plan
    totals: Mapping[str, Number]
    accounts: tuple[Account, ...]
    roles: tuple[RoleResult, ...]
    waterfall: tuple[WaterfallPart, ...]
    verdict: Verdict
    symbols: Mapping[str, Symbol]  # every symbol that occurs in a formula, by its printed name
    books: tuple[CompiledRole, ...] = field(default=(), repr=False, compare=False)  # what all of it was valued from
    service: Service | None = field(default=None, repr=False, compare=False)  # of a plan that serves, its steady state
