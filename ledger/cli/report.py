"""`ledger report`: the report of a plan, as files."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast
from weakref import finalize

import click
from click.core import ParameterSource

from ledger.cli.options import json_option, rarely, set_option, spec_argument
from ledger.cli.progress import search_layouts, search_option, with_better_layout, with_option
from ledger.processes import end_with_parent, interrupt_held
from ledger.report.files import SEARCHED, valid_formats
from ledger.spec.problems import SpecError

if TYPE_CHECKING:
    from ledger.report.views.live import LiveView, LoadView
    from ledger.spec.plan import Plan


def _formats(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, ...]:
    """The formats of a comma-separated list; an unknown one is a usage error."""
    try:
        return valid_formats(name.strip() for name in value.split(","))
    except SpecError as error:
        problem = error.problems[0]
        raise click.BadParameter(f"{problem.message}; {problem.help}", ctx=ctx, param=param) from error


formats_option = click.option("--format", "formats", default="html,pdf,md,json", show_default=True, callback=_formats)


@click.command(name="report")
@spec_argument
@click.option("--out", default="reports", show_default=True, type=click.Path(file_okay=False, path_type=Path))
@formats_option
@set_option
@with_option
@json_option
@search_option
@rarely()
def command(
    spec: str,
    out: Path,
    formats: tuple[str, ...],
    overrides: tuple[str, ...],
    *,
    layout: str | None,
    as_json: bool,
    search: bool,
) -> None:
    """Write the report of SPEC, a plan or a lecture: HTML, PDF, Markdown, JSON.

    The files are reports/NAME.html, .pdf, .md and .json; their paths are printed.

    A plan that does not fit is reported as such, with exit code 0. Every layout of the plan is searched for the best
    of them (ledger sweep), which takes seconds for few devices and minutes for thousands; what was found is kept.
    """
    from ledger.cli.tables import print_json
    from ledger.course.lecture import is_lecture
    from ledger.report.files import require_writable

    refuse_unsearched(layout, search=search)
    require_writable(out)
    if is_lecture(spec):
        if layout:
            raise click.UsageError("--with changes the layout of a plan, and a lecture holds many")
        paths = lecture_paths(spec, overrides, out, formats)
    else:
        from ledger.spec.load import load_plan

        typesets(formats)
        setting = paper_ahead() if "pdf" in formats else None
        plan = with_better_layout(load_plan(spec, overrides), layout)
        paths = plan_paths(plan, out, formats, setting, search=search)
    if as_json:
        print_json({"schema": "ledger-report/1", "files": [str(path) for path in paths]})
        return
    for path in paths:
        click.echo(path)


def refuse_unsearched(layout: str | None, *, search: bool) -> None:
    """Raises a usage error where the best of the layouts is asked for, and no search of them, by one hand."""
    typed = click.get_current_context().get_parameter_source("search") == ParameterSource.COMMANDLINE
    if layout and typed and not search:
        raise click.UsageError(
            f"--with {layout} searches the plan's layouts, which --no-search forbids: drop one of them"
        )


def plan_paths(
    plan: Plan, out: Path, formats: tuple[str, ...], setting: Callable[..., Callable[[], bytes]] | None, *, search: bool
) -> list[Path]:
    """The files of a plan, made from nothing but the files that they carry; `setting` begins to set a PDF."""
    from ledger.books import compile_plan
    from ledger.report.seals.opening import sealed, with_books

    with sealed(plan) as (sealed_plan, seal):
        page_panel = panel_beside(sealed_plan) if "html" in formats and not setting else None
        from ledger.report.write import (
            assemble_report,  # beside the panel: what makes a page loads slowly
            write_report,
        )

        compiled = compile_plan(sealed_plan)
        click.echo(compiled.verdict.headline, err=True)
        searches = search and bool({*SEARCHED} & {*formats})
        layouts = search_layouts(plan, whole=True) if searches else None
        report = assemble_report(compiled, formats, layouts, with_books(seal, compiled, layouts), page_panel)
        return write_report(report, out, formats, setting=setting)


def paper_ahead() -> Callable[..., Callable[[], bytes]]:
    """A process that sets a PDF, the longest part of a report, and loads what it needs for that meanwhile."""
    return prepare_in_background(_typeset, _load_typesetter)


def _typeset(*paper: Any) -> bytes:
    """The PDF of what `ledger.report.pdf.paper` gives."""
    from ledger.report.pdf import render_pdf

    return render_pdf(*paper)


def _load_typesetter() -> None:
    from ledger.report.pdf import load_weasyprint

    load_weasyprint()


def panel_beside(plan: Plan) -> Callable[[], LiveView | LoadView]:
    """The panel of a page, which takes longer than the page itself, made in a process of its own meanwhile."""
    return run_in_background(partial(_panel, plan))


def _panel(plan: Plan) -> LiveView | LoadView:
    """The panel of a plan, from `ledger.report.views.live`."""
    from ledger.report.views.live import panel

    return panel(plan)


def typesets(formats: tuple[str, ...]) -> None:
    """Raises a usage error, or SpecError, where what draws formulas or sets the PDF of these formats is missing."""
    if {"html", "pdf"} & {*formats} and find_spec("ziamath") is None:
        raise click.UsageError(
            "ziamath is not installed, and html and pdf show formulas with it; `pip install ziamath` installs it, and "
            "`--format md,json` does without"
        )
    if "pdf" in formats:
        from ledger.report.pdf import require_typesetter

        require_typesetter(formats)


def lecture_paths(spec: str, overrides: tuple[str, ...], out: Path, formats: tuple[str, ...]) -> list[Path]:
    """The files of a lecture, whose questions hold their own overrides."""
    if overrides:
        raise click.UsageError(
            "--set changes a plan, and a lecture holds many; write `set:` beside the plan it is about"
        )
    typesets(formats)
    from ledger.course.lecture import load_lecture

    lecture = load_lecture(spec)
    from ledger.course.answer import answers
    from ledger.course.report import write_lecture

    all_answers = tuple(answers(lecture))
    missed = [answer.question.name for answer in all_answers if not answer.holds]
    click.echo(
        f"{len(all_answers)} questions, {f'unexpected: {chr(44).join(missed)}' if missed else 'all as expected'}",
        err=True,
    )
    return write_lecture(lecture, all_answers, out, formats)


# --- work in a process of its own ---

Result = TypeVar("Result")

FORKS = sys.platform == "linux"  # elsewhere a fork of a program with system libraries is not safe


def can_fork() -> bool:
    """Whether a forked process is safe here, and has a core of its own."""
    return FORKS and len(os.sched_getaffinity(0)) > 1


def run_in_background(work: Callable[[], Result]) -> Callable[[], Result]:
    """Begins `work` in a forked process where a second core is free; the returned function waits for its result.

    The result can be pickled. A process that fails says nothing: its work is done here, and fails here as it would
    have.
    """
    if not can_fork():
        return work
    forking = get_context("fork")
    parent_end, child_end = forking.Pipe(duplex=False)
    process = forking.Process(target=_send_result, args=(child_end, work), daemon=True)
    with interrupt_held(forking):
        process.start()
    child_end.close()
    return _PendingResult(parent_end, process, work)


class _BackgroundProcess(Generic[Result]):
    """A process that runs `work`, which is done here where the process fails; it is ended with the last reference."""

    def __init__(self, parent_end: Connection, process: ForkProcess, work: Callable[..., Result]) -> None:
        self._pipe, self._process, self._work = parent_end, process, work
        self._forgotten = finalize(self, _end_process, parent_end, process)


class _PendingResult(_BackgroundProcess[Result]):
    """Waits for what a process sends."""

    def __call__(self) -> Result:
        try:
            return cast(Result, self._pipe.recv())
        except (EOFError, OSError):
            return self._work()
        finally:
            self._forgotten.detach()
            self._pipe.close()
            self._process.join()


def _end_process(pipe: Connection, process: ForkProcess) -> None:
    """Ends a process whose result nobody waits for, which would else wait for ever to send it."""
    pipe.close()
    process.terminate()
    process.join()


def _send_result(pipe: Connection, work: Callable[[], Any]) -> None:
    """In the process: the result, or nothing where there is none."""
    end_with_parent()
    with suppress(BaseException), pipe:
        pipe.send(work())


def prepare_in_background(
    work: Callable[..., Result], prepare: Callable[[], object]
) -> Callable[..., Callable[[], Result]]:
    """Begins a process for work whose arguments come later: it calls `prepare` at once, then waits for them."""
    if not can_fork():
        return partial(partial, work)
    forking = get_context("fork")
    parent_end, child_end = forking.Pipe()
    process = forking.Process(target=_answer_once, args=(child_end, parent_end, work, prepare), daemon=True)
    with interrupt_held(forking):
        process.start()
    child_end.close()

    return _WaitingProcess(parent_end, process, work)


class _WaitingProcess(_BackgroundProcess[Result]):
    """Sends its arguments to a process that waits for them."""

    def __call__(self, *given: Any) -> Callable[[], Result]:
        work = partial(self._work, *given)
        try:
            self._pipe.send(given)
        except OSError:
            return work
        self._forgotten.detach()
        return _PendingResult(self._pipe, self._process, work)


def _answer_once(pipe: Connection, ours: Connection, work: Callable[..., Any], prepare: Callable[[], object]) -> None:
    """In the process: one result for one set of arguments, or nothing where there is none."""
    end_with_parent()
    ours.close()
    with suppress(BaseException), pipe:
        prepare()
        pipe.send(work(*pipe.recv()))
