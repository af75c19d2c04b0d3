"""A suite before the judge, in a process beside this one: a case that ends it fails, and the next one runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass, replace
from multiprocessing import get_context
from shlex import join

from ledger.evidence.verification import Verification
from ledger.lab.verification.verification import Depth, verify
from ledger.processes import interrupt_held, process_pool
from ledger.spec.load import load_plan
from ledger.spec.problems import SpecError
from ledger.spec.suite import Suite, SuiteCase

SPAWNING = get_context("spawn")


@dataclass(frozen=True)
class Failure:
    """A case that could not be verified at all: its plan is bad input, or the judge broke down."""

    name: str
    problem: str


def verify_suite(
    suite: Suite, depth: Depth, *, quick: bool, progress: Callable[[str], None]
) -> Iterator[Verification | Failure]:
    """Every case, or only the quick ones, in order, in one process as long as no case ends it."""
    cases = [case for case in suite.cases if case.quick or not quick]
    with ExitStack() as processes:
        process = None
        for index, case in enumerate(cases, start=1):
            progress(f"{index} of {len(cases)}: {case.name}")
            process = process or processes.enter_context(process_pool(1, SPAWNING))
            try:
                with interrupt_held(SPAWNING):
                    judged = process.submit(_case, case, depth)
                yield judged.result()
            except Exception as error:  # noqa: BLE001 - whatever stops one case must not hide the others' verdicts
                yield Failure(case.name, f"{type(error).__name__}: {error}")
                process = None if isinstance(error, BrokenProcessPool) else process


def _case(case: SuiteCase, depth: Depth) -> Verification | Failure:
    """One case, named as the suite names it."""
    try:
        plan = load_plan(case.plan, case.overrides)
        return verify(replace(plan, name=case.name), depth, command(case), lambda _: None)
    except SpecError as error:
        return Failure(case.name, str(error))


def command(case: SuiteCase) -> str:
    """What repeats a case by hand."""
    return join(["ledger", "verify", case.plan, *(word for text in case.overrides for word in ("--set", text))])
