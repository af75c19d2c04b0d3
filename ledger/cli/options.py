"""Arguments and options that verbs share: the spec, overrides, and machine-readable output."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from math import isfinite
from typing import Any, TypeVar

import click

from ledger.cli import completion
from ledger.spec.problems import Problem

Function = TypeVar("Function", bound=Callable[..., Any])


class Amount(click.FloatRange):
    """A number in a range; neither `nan`, which lies in every range, nor infinity."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number; click's usage error for what is none."""
        number: float = super().convert(value, param, ctx)
        if not isfinite(number):
            self.fail(f"{number} is no amount", param, ctx)
        return number


def spec_argument(function: Function) -> Function:
    """SPEC: a path, REV:path or -."""
    return click.argument("spec", type=click.Path(allow_dash=True), shell_complete=completion.specs)(function)


def specs_argument(metavar: str) -> Callable[[Function], Function]:
    """One or more plans, as `metavar` names them; `-` is one too."""
    kind = click.Path(allow_dash=True)
    return click.argument("specs", nargs=-1, required=True, metavar=metavar, type=kind, shell_complete=completion.specs)


def set_option(function: Function) -> Function:
    """--set key=value, any number of times."""
    return click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="KEY=VALUE",
        shell_complete=completion.settings,
        help="Override a value of the spec, as in run.micro_batch=2; null unsets it.",
    )(function)


def json_option(function: Function) -> Function:
    """`--json`, which a command gets as `as_json`: it prints a published record and nothing else."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def format_options(formats: Sequence[str], default: str) -> Callable[[Function], Function]:
    """--format, and --json for one of `formats`."""
    kind = click.Choice(formats)

    def decorated(function: Function) -> Function:
        with_json = click.option("--json", "form", flag_value="json", type=kind, help="Print JSON.")(function)
        return click.option("--format", "form", type=kind, default=default, show_default=True)(with_json)

    return decorated


def gates_option(examples: str) -> Callable[[Function], Function]:
    """--fail-on CONDITION, any number of times."""
    help_text = f"Exit with 1 on such a change: {examples}, fits, headroom."
    return click.option("--fail-on", "gates", multiple=True, metavar="CONDITION", help=help_text)


def total_option(name: str, help_text: str) -> Callable[[Function], Function]:
    """An option that takes the name of a total."""
    return click.option(name, default="", metavar="TOTAL", shell_complete=completion.totals, help=help_text)


def conditions_option(help_text: str) -> Callable[[Function], Function]:
    """--subject-to CONDITION, any number of times."""
    return click.option("--subject-to", "conditions", multiple=True, metavar="CONDITION", help=help_text)


# --- problems as text with the source line, or as JSON ---


def tell(problems: Iterable[Problem], sources: Mapping[str, str] | None = None) -> None:
    """Writes the problems to stderr, each in its line of the source."""
    from ledger.spec.render import render_problems

    if text := render_problems(problems, sources):
        click.echo(text, err=True)


def as_record(problem: Problem) -> dict[str, Any]:
    """The problem for machines."""
    where = problem.where
    return {
        "file": where.file,
        "line": where.line,
        "column": where.column,
        "message": problem.message,
        "help": problem.help,
        "rule": problem.rule,
    }


def no_such_name(problem: Problem) -> click.UsageError:
    """A name that a plan does not have is bad usage: it is an argument, and in no file."""
    return click.UsageError(f"{problem.message}; {problem.help}")


# --- garbage collection while plans are compiled ---

UNTOUCHED = 200_000  # new objects before garbage is looked for: books are made of many, and stay


@contextmanager
def rarely() -> Iterator[None]:
    """Objects that hold each other are searched for rarely meanwhile, a tenth of a report's time otherwise."""
    thresholds = gc.get_threshold()
    gc.set_threshold(UNTOUCHED)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


# --- packages that are not installed with the program ---

FOR_STEPS = ("torch", "transformers")  # what runs a training step; the extra `evidence` has them


def installed(why: str, needed: Sequence[str] = FOR_STEPS) -> None:
    """Raises a usage error that says `why` PyTorch is needed, and how to get what is missing."""
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        packages = "-e '.[evidence]'" if needed is FOR_STEPS else " ".join(missing)
        place = " in ledger's folder" if needed is FOR_STEPS else ""
        raise click.UsageError(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed, and {why}; "
            f"`pip install {packages}`{place} installs what is needed"
        )
