"""A suite before the judge: every case in a process of its own, so that one's memory and process group end with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from shlex import join

from ledger.evidence.verification import Verification
from ledger.lab.verification.verification import Depth, verify
from ledger.spec.load import load_plan
from ledger.spec.problems import SpecError
from ledger.spec.suite import Case, Suite


@dataclass(frozen=True)
class Failure:
    """A case that could not be verified at all: its plan is bad input, or the judge broke down."""

    name: str
    problem: str


def verify_suite(
    suite: Suite, depth: Depth, *, quick: bool, progress: Callable[[str], None]
) -> Iterator[Verification | Failure]:
    """Every case, or only the quick ones, in order."""
    cases = [case for case in suite.cases if case.quick or not quick]
    for index, case in enumerate(cases, start=1):
        progress(f"{index} of {len(cases)}: {case.name}")
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            try:
                yield process.submit(_case, case, depth).result()
            except Exception as error:  # noqa: BLE001 - whatever stops one case must not hide the others' verdicts
                yield Failure(case.name, f"{type(error).__name__}: {error}")


def _case(case: Case, depth: Depth) -> Verification | Failure:
    """One case, named as the suite names it."""
    try:
        plan = load_plan(case.plan, case.overrides)
        return verify(replace(plan, name=case.name), depth, command(case), lambda _: None)
    except SpecError as error:
        return Failure(case.name, str(error))


def command(case: Case) -> str:
    """What repeats a case by hand."""
    return join(["ledger", "verify", case.plan, *(word for text in case.overrides for word in ("--set", text))])
