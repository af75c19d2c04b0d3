"""A compiler for training plans: `compile` reads a spec and closes its books."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ledger.books.results import Compiled

__version__ = "0.1.0"


def compile(path: str, overrides: Iterable[str] = ()) -> Compiled:  # noqa: A001 - the verb of this package
    """The plan at `path` (also `REV:path`, or `-`) with its books closed; `overrides` are `key=value` texts.

    Raises `ledger.spec.problems.SpecError` with everything that is wrong with the input.
    """
    from ledger.spec import load_plan

    plan = load_plan(path, tuple(overrides))
    from ledger.books import compile_plan  # after the input is known to be good: algebra takes longer to load

    return compile_plan(plan)
