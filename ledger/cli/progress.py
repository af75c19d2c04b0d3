"""Searches of layouts: for how long, on how many cores, and a bar on a terminal meanwhile."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from math import inf, isnan, nan
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from ledger.cli.options import Function
from ledger.cli.plain_streams import unguarded
from ledger.report.files import LAYOUTS_BY_PREFERENCE

if TYPE_CHECKING:
    from ledger.books.results import Number
    from ledger.report.recommendations import Recommendations
    from ledger.search.sweep import Progress
    from ledger.spec.plan import Plan

TOLD_EVERY = 30.0  # seconds between lines where there is no terminal to draw a bar on
ENVIRONMENT = "LEDGER_SEARCH"  # a variable with what `--search` takes
AT_ONCE = 1.0  # seconds that a check looks at other layouts, where nobody says for how long
LEAST = 1e-3  # seconds of a search that has no time left
ALL, NONE = "all", "none"
ENDLESS = 1e6  # seconds that no search lasts, and more than some timers take


class SearchSeconds(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """For how long other layouts are looked at: seconds, 0 for `none`, infinite for `all`; words of a switch too."""

    name = "seconds"
    words: Mapping[str, float] = {
        ALL: inf,
        NONE: 0.0,
        **dict.fromkeys(("true", "yes", "on"), AT_ONCE),
        **dict.fromkeys(("false", "no", "off"), 0.0),
    }

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The seconds; click's usage error for what is neither a word nor a number."""
        seconds = self.words.get(str(value).lower(), nan)
        with suppress(ValueError):
            seconds = float(value) if isnan(seconds) else seconds
        if seconds >= 0:
            return seconds if seconds < ENDLESS else inf
        help_text = f"give seconds, as in `--search 10`, `{ALL}`, or `{NONE}`"
        return self.fail(f"`{value}` is no time to search: {help_text}", param, ctx)


class Searches(click.types.BoolParamType):
    """Whether other layouts are searched, as a switch; in the environment also as `check --search` takes it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bool:
        """The value of the switch or the variable; click's usage error for what is neither."""
        return value if isinstance(value, bool) else SearchSeconds().convert(value, param, ctx) > 0


search_option = click.option(
    "--search/--no-search",
    default=True,
    type=Searches(),
    envvar=ENVIRONMENT,
    help="Whether the plan's other layouts are searched for the best of them.",
)


def search_seconds_option(function: Function) -> Function:
    """--search SECONDS | all | none, and --no-search, which is `none`: `seconds` of the command."""
    help_text = (
        f"For how long other layouts are looked at, for one that leaves the headroom free; `{ALL}`: all of them, as"
        f" `ledger report` does, `{NONE}`: not at all."
    )
    off = click.option("--no-search", "seconds", flag_value=NONE, type=SearchSeconds(), help=f"`--search {NONE}`.")
    return click.option(
        "--search",
        "seconds",
        type=SearchSeconds(),
        default=f"{AT_ONCE:g}",
        show_default=True,
        envvar=ENVIRONMENT,
        metavar=f"SECONDS|{ALL}|{NONE}",
        help=help_text,
    )(off(function))


with_option = click.option(
    "--with",
    "layout",
    type=click.Choice(LAYOUTS_BY_PREFERENCE),
    help="Take the plan with the best of its other layouts: the fastest, the cheapest, or the smallest edit that fits.",
)


def progress_bar(stack: ExitStack, doing: str = "pricing", what: str = "layouts") -> Progress:
    """A bar on a terminal with how many there are of `what`; elsewhere a line now and then, of what takes long."""
    if not sys.stderr.isatty():
        return line_progress(doing, what)
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


def line_progress(doing: str, what: str) -> Progress:
    """A function that prints a line on standard error every TOLD_EVERY seconds."""
    printed_at = monotonic()

    def show(done: int, count: int, legal: int) -> None:
        nonlocal printed_at
        if monotonic() - printed_at >= TOLD_EVERY and done < count:
            printed_at = monotonic()
            click.echo(f"{doing}: {done} of {count} parts, {legal} {what}", err=True)

    return show


def search_layouts(
    plan: Plan, *, whole: bool = True, seconds: float = 0.0, totals: Mapping[str, Number] | None = None
) -> Recommendations | None:
    """Recommendations of a search of the plan's layouts, on all cores, with a bar; None where it has no layouts.

    `whole`: as far as a report looks; else among layouts most like the plan, for some `seconds` (0: half a minute).
    `totals`: the plan's own, where they are known. A search that fails says why in its result. Loading the search takes
    a part of its seconds.
    """
    began = monotonic()
    from ledger.search.extent import QUICK, Extent
    from ledger.search.recommend import PASS_FROM, may_edit, may_recommend
    from ledger.search.recommendation_cache import recommendations

    if not (may_recommend(plan) if whole else may_edit(plan)):
        return None
    seconds_left = max(LEAST, (seconds or QUICK) - (monotonic() - began))
    extent = None if whole else Extent(all_layouts=False, seconds=seconds_left)
    run = None
    if extent is None or extent.seconds >= PASS_FROM:
        from ledger.search.workers import in_processes  # loads arrays, which a search of a second does without

        run = in_processes(cores())
    with ExitStack() as stack:
        return recommendations(plan, run, progress_bar(stack), extent, totals)


def with_better_layout(plan: Plan, layout: str | None) -> Plan:
    """The plan as it is, or with the best of its layouts after a search; raises SpecError where there is none."""
    from ledger.report.recommendations import with_layout

    return with_layout(plan, search_layouts(plan, whole=True), layout) if layout else plan


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
