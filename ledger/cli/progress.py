"""A bar on a terminal while layouts are priced, and on how many cores that is done."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from time import monotonic
from typing import TYPE_CHECKING

import click

from ledger.cli.plain_streams import unguarded
from ledger.report.files import BETTER

if TYPE_CHECKING:
    from ledger.report.recommendations import Recommendations
    from ledger.search.sweep import Progress
    from ledger.spec.plan import Plan

QUICK = 30.0  # seconds after which a quick search goes by what it has
TOLD_EVERY = 30.0  # seconds between lines where there is no terminal to draw a bar on
WHOLE = 5e9  # combinations of values up to which a report searches all of them: a minute or two on two cores

search_option = click.option(
    "--search/--no-search",
    default=True,
    envvar="LEDGER_SEARCH",
    help="Whether the plan's other layouts are searched for the best of them.",
)


with_option = click.option(
    "--with",
    "layout",
    type=click.Choice(BETTER),
    help="Take the plan with the best of its other layouts: the fastest, the cheapest, or the smallest edit that fits.",
)


def progress_bar(stack: ExitStack, doing: str = "pricing", what: str = "layouts") -> Progress:
    """A bar on a terminal with how many there are of `what`; elsewhere a line now and then, of what takes long."""
    if not sys.stderr.isatty():
        return told_now_and_then(doing, what)
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(doing), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    bar = stack.enter_context(
        Progress(*columns, TimeElapsedColumn(), console=Console(file=unguarded(sys.stderr)), transient=True)
    )
    task = bar.add_task("", total=None)

    def show(done: int, count: int, legal: int) -> None:
        bar.update(task, total=count, completed=done, description=f"{legal:,} {what}".replace(",", " "))

    return show


def told_now_and_then(doing: str, what: str) -> Progress:
    """A line on standard error for every so many seconds that have gone by."""
    told = monotonic()

    def show(done: int, count: int, legal: int) -> None:
        nonlocal told
        if monotonic() - told >= TOLD_EVERY and done < count:
            told = monotonic()
            click.echo(f"{doing}: {done} of {count} parts, {legal} {what}", err=True)

    return show


def searched(plan: Plan, *, whole: bool) -> Recommendations | None:
    """What the layouts of a plan recommend, on all cores, with a bar; None where it has none, or where that failed.

    Without `whole`, and of a space of more than WHOLE combinations, a quick search of some of them is enough, and so
    it is where layouts are compiled one by one.
    """
    from ledger.search.recommend import may_recommend
    from ledger.search.recommendation_cache import recommendations
    from ledger.search.space import space_of
    from ledger.search.structures import prices_in_bulk
    from ledger.search.workers import WorkerError, in_processes

    if not may_recommend(plan):
        return None
    at_once = prices_in_bulk(plan)
    seconds = 0.0 if whole and at_once else QUICK
    whole = whole and at_once and space_of(plan).combinations <= WHOLE
    with ExitStack() as stack:
        try:
            return recommendations(plan, in_processes(cores()), progress_bar(stack), whole=whole, seconds=seconds)
        except WorkerError as error:
            click.echo(f"error: the search of other layouts failed: {error}", err=True)
            return None


def with_better_layout(plan: Plan, layout: str | None) -> Plan:
    """The plan as it is, or with the best of its layouts after a search; raises SpecError where there is none."""
    from ledger.report.recommendations import with_layout

    return with_layout(plan, searched(plan, whole=True), layout) if layout else plan


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
