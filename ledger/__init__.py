"""A compiler for training plans: `compile` reads a spec and closes its books. The verbs of the command line, in Python.

Specs are paths, `REV:path`, or `-`; `overrides` are `key=value` texts. Every verb but `check` raises
`ledger.spec.problems.SpecError` with everything that is wrong with its input.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ledger.books.results import Compiled
    from ledger.books.what_if.solve import Solution
    from ledger.report.diff import Diff
    from ledger.spec.problems import Problem

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`SpecError`, loaded when it is named."""
    if name == "SpecError":
        from ledger.spec.problems import SpecError

        return SpecError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def compile(path: str, overrides: Iterable[str] = ()) -> Compiled:  # noqa: A001 - the verb of this package
    """The plan with its books closed."""
    from ledger.spec.load import load_plan

    plan = load_plan(path, tuple(overrides))
    from ledger.books import compile_plan  # after the input is known to be good: algebra takes longer to load

    return compile_plan(plan)


def show(path: str, overrides: Iterable[str] = ()) -> dict[str, Any]:
    """The published form of the compiled plan, `ledger-show/1`."""
    compiled = compile(path, overrides)
    from ledger.report.contract import published

    return published(compiled, path)


def explain(path: str, account: str, overrides: Iterable[str] = ()) -> dict[str, Any]:
    """Where the number of an account or a total comes from; KeyError for one that the plan does not have."""
    from ledger.cli.explain import account_record, total_record

    compiled = compile(path, overrides)
    leaves = [leaf for leaf in compiled.accounts if leaf.account == account]
    if not leaves and account not in compiled.totals:
        raise KeyError(account)
    return account_record(compiled, leaves) if leaves else total_record(compiled, account)


def diff(old: str, new: str, overrides: Iterable[str] = ()) -> Diff:
    """What two plans differ in, with `overrides` on the new one."""
    first, second = compile(old), compile(new, overrides)
    from ledger.report.diff import diff as compared

    return compared(first, second)


def solve(
    path: str, key: str, subject_to: Sequence[str] = (), overrides: Iterable[str] = (), **objective: str
) -> Solution:
    """The value of the input `key` under the conditions; `maximize` or `minimize` names a total to choose it by."""
    from ledger.spec.load import load_plan

    plan = load_plan(path, tuple(overrides))
    from ledger.books.what_if.solve import solve as solved

    return solved(plan, key, subject_to, **objective)


def verify(
    path: str, overrides: Iterable[str] = (), layers: int | None = None, *, full: bool = False
) -> dict[str, Any]:
    """What PyTorch finds of the plan beside what the books say, `ledger-verify/1`; it runs `layers`, few, or all."""
    from shlex import join

    from ledger.spec.load import load_plan

    chosen = tuple(overrides)
    plan = load_plan(path, chosen)
    from ledger.evidence.verification.outcome import published
    from ledger.evidence.verification.verification import Depth
    from ledger.evidence.verification.verification import verify as verified

    command = join(["ledger", "verify", path, *(word for text in chosen for word in ("--set", text))])
    return published(verified(plan, Depth(layers, full), command, lambda _: None), path)


def write_report(
    path: str,
    out: str | Path = "reports",
    formats: Iterable[str] = ("html", "pdf", "md", "json"),
    overrides: Iterable[str] = (),
) -> list[Path]:
    """The report of the plan as files, with their paths. (`ledger.report` is the package that makes it.)"""
    from ledger.cli.report import choices

    compiled, chosen = compile(path, overrides), tuple(formats)
    from ledger.report.write import write_report as written

    return written(compiled, Path(out), chosen, **choices(compiled, chosen))


def check(path: str, overrides: Iterable[str] = ()) -> tuple[Problem, ...]:
    """Everything in which the plan fails, or why it is none: problems of the spec are returned here, not raised."""
    from ledger.cli.check import checked

    outcome = checked(path, tuple(overrides))
    return (*outcome.problems, *outcome.failures)
