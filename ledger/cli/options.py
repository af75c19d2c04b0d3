"""What several verbs take: the spec, overrides, and machine-readable output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

Function = TypeVar("Function", bound=Callable[..., Any])


def _assignments(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """The overrides as typed; one without `=` is a usage error."""
    for text in value:
        if not text.partition("=")[1] or not text.partition("=")[0].strip():
            message = f"{text!r} is no assignment; write key=value, as in run.micro_batch=2"
            raise click.BadParameter(message, ctx=ctx, param=param)
    return value


def spec_argument(function: Function) -> Function:
    """SPEC: a path, REV:path or -."""
    return click.argument("spec", type=click.Path(allow_dash=True))(function)


def set_option(function: Function) -> Function:
    """--set key=value, any number of times."""
    return click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="KEY=VALUE",
        callback=_assignments,
        help="Override a value of the spec, as in run.micro_batch=2.",
    )(function)


def json_option(function: Function) -> Function:
    """--json."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)
