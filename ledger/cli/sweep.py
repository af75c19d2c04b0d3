"""`ledger sweep`: every legal layout of a plan priced, and the best of them."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ledger.cli import completion
from ledger.cli.options import conditions_option, json_option, set_option, spec_argument, total_option
from ledger.cli.progress import progress_bar
from ledger.cli.tables import amount, print_table
from ledger.cli.verbs import BAD_INPUT, INTERRUPTED
from ledger.numbers import THIN, change, integer, plain
from ledger.search.page import misses, short_changes, totals
from ledger.search.question import kept_free, kept_free_words
from ledger.units import unit_of

if TYPE_CHECKING:
    from ledger.search.found import Rows
    from ledger.search.sweep import Search, SweepRequest, SweepResult
    from ledger.search.workers import Run


NOTHING_MEETS = 1
PAGES = (".html", ".htm")


@click.command(name="sweep")
@spec_argument
@set_option
@click.option(
    "--over",
    multiple=True,
    metavar="KEY=V,V",
    shell_complete=completion.settings,
    help="Try these values of a key of the layout, or of any other key that --set takes; null leaves it out.",
)
@total_option(
    "--minimize", "What is best has least of this total: time.step (most tokens_per_second where its tokens vary)."
)
@total_option("--maximize", "What is best has most of this total.")
@conditions_option("What must hold, as in 'mfu >= 40 %'.")
@click.option(
    "--front",
    default="",
    metavar="KEY,KEY",
    help="Totals of the front: time.step,memory.reserved, or serve.time_per_token,serve.tokens_per_second_per_device.",
)
@click.option("--top", type=click.IntRange(min=1), default=10, show_default=True, help="How many of the best.")
@click.option("--headroom", default="", metavar="AMOUNT", help="What must stay free: none, a policy, '10 %' or '8 GB'.")
@click.option("--out", metavar="FILE", help="Write every legal layout to a .parquet or .csv file.")
@click.option("--html", metavar="FILE", help="Write a page: all layouts, the front, the plan itself.")
@json_option
@click.option("--apply", "wanted", type=click.IntRange(min=1), metavar="K", help="Print the plan with row K's changes.")
@click.option("--workers", type=click.IntRange(min=1), default=1, show_default=True, help="Processes of this machine.")
@click.option("--scheduler", default="", metavar="ADDRESS", help="Run on a Dask cluster, as in tcp://10.0.0.1:8786.")
@click.pass_context
def command(ctx: click.Context, /, spec: str, *, as_json: bool, wanted: int | None, **options: Any) -> None:
    """Price every legal layout of SPEC, and print the best of those that fit.

    Without --over the space is every choice of parallelism.*, recompute and run.micro_batch that the rules of a plan
    allow on its devices. Other keys make further plans, whose layouts are all tried: --over accelerator=h100-sxm,b200.
    Of a plan that serves: tensor, expert and pipeline parallelism and replicas, best with most output tokens a second
    for a device; --over serve.concurrency=1,2,4 varies its load.

    Exit code 1: no layout meets the conditions; what comes nearest is printed. 130: interrupted; what was found is
    printed, and with --out the same command goes on.
    """
    typed = _typed_options(ctx)
    _check_together({**options, "json": as_json, "apply": wanted}, typed)
    asked = _read_options(spec, wanted, options)
    out, html = _output_paths(options["out"], options["html"])
    from ledger.search.extent import WorkerError
    from ledger.search.sweep import prepare, sweep
    from ledger.search.tasks import UnknownTotalError

    with ExitStack() as stack:
        run = _choose_workers(stack, options["workers"], options["scheduler"])
        search = prepare(asked)
        for warning in search.warnings:
            click.echo(f"warning: {warning}", err=True)
        progress = progress_bar(stack)
        try:
            swept = sweep(search, run, out, dense=html is not None, progress=progress)
        except (UnknownTotalError, WorkerError) as error:
            click.echo(f"error: {error}", err=True)
            ctx.exit(BAD_INPUT)
    if html and swept.result.legal:
        from ledger.search.page import write_page

        write_page(swept, html)
        click.echo(html, err=True)
    _print_result(swept, as_json=as_json, row=wanted, front="front" in typed)
    ctx.exit(INTERRUPTED if not swept.complete else 0 if swept.result.meeting else NOTHING_MEETS)


def _typed_options(ctx: click.Context) -> set[str]:
    """The options that were typed."""
    named = {"as_json": "json", "wanted": "apply"}
    return {
        named.get(name, name)
        for name in ctx.params
        if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    }


def _check_together(options: dict[str, Any], typed: set[str]) -> None:
    """Raises SpecError for options that exclude each other, and for those that say nothing."""
    from ledger.books.what_if.conditions import fault

    for name in typed:
        if isinstance(options.get(name), str) and not options[name].strip():
            raise fault(f"--{name} ''", len(name) + 4, f"`--{name}` says nothing", "leave it out, or give it a value")
    for first, second, why in (
        ("maximize", "minimize", "exclude each other"),
        ("workers", "scheduler", "exclude each other: those are processes here, a scheduler has workers of its own"),
        ("apply", "json", "exclude each other: a plan is printed or a record, one of them at a time"),
    ):
        if {first, second} <= typed and options[first] and options[second]:
            flags = [f"--{name}" if options[name] is True else f"--{name} {options[name]}" for name in (first, second)]
            raise fault(" ".join(flags), 1, f"`--{first}` and `--{second}` {why}", "leave one of them out")


def _read_options(spec: str, row: int | None, options: dict[str, Any]) -> SweepRequest:
    from ledger.search.sweep import SweepRequest
    from ledger.spec.sources import open_source

    return SweepRequest(
        spec=f"{open_source(spec).text}\n" if spec == "-" else spec,
        overrides=options["overrides"],
        over=options["over"],
        objective=options["maximize"] or options["minimize"],
        largest=bool(options["maximize"]),
        conditions=options["conditions"],
        front=options["front"],
        top=max(options["top"], row or 0),
        headroom=options["headroom"],
        name=spec,
    )


def _output_paths(out: str | None, html: str | None) -> tuple[Path | None, Path | None]:
    """The files to write; SpecError where one could not be written in the end."""
    from ledger.books.what_if.conditions import fault
    from ledger.search.outputs import form_of, require_file

    if html and Path(html).suffix.lower() not in PAGES:
        raise fault(f"--html {html}", len("--html ") + 1, "a page ends in .html", f"name it `{Path(html).stem}.html`")
    if out:
        form_of(Path(out))
    for flag, path in (("--out ", out), ("--html ", html)):
        if path:
            require_file(flag, Path(path))
    return Path(out) if out else None, Path(html) if html else None


def _choose_workers(stack: ExitStack, workers: int, scheduler: str) -> Run:
    """The place where tasks are run: a Dask cluster, processes of this machine, or this process."""
    from ledger.search.workers import connected, in_processes, in_this_process, on_cluster, require_dask

    if scheduler:
        require_dask(scheduler)
        client = connected(scheduler)
        stack.callback(client.close)
        return on_cluster(client)
    return in_processes(workers) if workers > 1 else in_this_process


def _print_result(swept: SweepResult, *, as_json: bool, row: int | None, front: bool) -> None:
    from ledger.cli.tables import print_json

    if as_json:
        from ledger.search.page import sweep_record

        print_json(sweep_record(swept))
        return
    if not swept.complete and not swept.result.legal:
        click.echo("interrupted before any layout was priced", err=True)
        return
    click.echo(summary(swept), err=row is not None)
    for note in swept.notes:
        click.echo(f"note: {note}", err=row is not None)
    if not len(swept.result.best):
        print_nearest(swept, err=row is not None)
    elif row:
        click.echo(_applied_text(swept.search, swept, row), nl=False)
    else:
        print_top(swept)
        print_front(swept, whole=front)


def _applied_text(search: Search, swept: SweepResult, row: int) -> str:
    """The text of the spec with the changes of a row."""
    from ledger.books.what_if.conditions import fault
    from ledger.spec.edit import text_with_settings

    best = swept.result.best
    if row > len(best):
        there_are = "one layout meets" if len(best) == 1 else f"{len(best)} layouts meet"
        help_text = f"the last row is {len(best)}"
        raise fault(f"--apply {row}", len("--apply ") + 1, f"{there_are} everything", help_text)
    return text_with_settings(search.asked.spec, search.changes(best, row - 1))


# --- a sweep on the terminal ---

MISSING = "-"
CHANGES, AGAINST = "changes", "against the plan"


def summary(swept: SweepResult) -> str:
    """A sentence with the counts of combinations: all, legal, fitting, meeting the conditions; and the speed."""
    search, result = swept.search, swept.result
    free = kept_free(search.plan, search.asked.headroom)
    words = kept_free_words(search.plan, search.asked.headroom)
    room = f" with {amount(free, 'B')} free" + ("" if words[:1].isdigit() else f" ({words})") if free else ""
    counts = [
        f"{_count_text(search.combinations)} combinations",
        f"{_count_text(result.legal)} legal",
        f"{_count_text(result.fitting)} fit{room}",
    ]
    if search.question.conditions:
        counts.append(f"{_count_text(result.meeting)} meet the conditions")
    rate = plain(result.legal / swept.seconds).replace(THIN, " ") if swept.seconds else MISSING
    partial = "" if swept.complete else "interrupted, so only a part: "
    return f"{partial}{', '.join(counts)}; {swept.seconds:.1f} s, {rate} a second"


def _count_text(number: int) -> str:
    return integer(number).replace(THIN, " ")


def print_top(swept: SweepResult) -> None:
    """The best layouts, the plan above them."""
    print_rows(swept.search, swept.result.best, first=True)


def print_front(swept: SweepResult, *, whole: bool) -> None:
    """The front as a table, or how long it is."""
    keys = " and ".join(swept.search.question.front)
    count = len(swept.result.front)
    click.echo()
    click.echo(
        f"front of {keys}: {count} {'layout' if count == 1 else 'layouts'}" + ("" if whole else " (--json, --html)")
    )
    if whole:
        print_rows(swept.search, swept.result.front, first=False)


def print_rows(search: Search, rows: Rows, *, first: bool) -> None:
    """Layouts with what they change and their totals; the plan itself where it is to stand `first`."""
    keys = search.question.keys
    objective = search.question.objective
    plan_totals = {key: float(value) for key, value in search.plan_totals.items() if key in keys}
    lines = []
    if first:
        lines.append(("", "(the plan)", *_cells(plan_totals, keys), MISSING))
    for place in range(len(rows)):
        row = totals(search, rows, place)
        relative = (
            row[objective] / plan_totals[objective] - 1 if plan_totals.get(objective) and objective in row else None
        )
        against = MISSING if relative is None else change(relative).replace(THIN, " ")
        lines.append((str(place + 1), short_changes(search, rows, place), *_cells(row, keys), against))
    heads = ("", CHANGES, *keys, AGAINST)
    print_table(heads, lines, right=("", *keys, AGAINST))


def _cells(row_totals: dict[str, float] | dict[str, float | int], keys: tuple[str, ...]) -> list[str]:
    return [amount(row_totals[key], unit_of(key)) if key in row_totals else MISSING for key in keys]


def print_nearest(swept: SweepResult, *, err: bool) -> None:
    """Prints the layout that misses the conditions least, and by how much."""
    nearest = swept.result.nearest
    aim = "meets the conditions" if swept.result.fitting else "fits"
    click.echo(f"no layout {aim}", err=err)
    if len(nearest):
        click.echo(f"the nearest miss: {short_changes(swept.search, nearest, 0)}", err=err)
        for line in misses(swept.search, nearest):
            click.echo(f"  {line}", err=err)
