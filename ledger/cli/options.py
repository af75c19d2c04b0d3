"""What several verbs take: the spec, overrides, and machine-readable output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ledger.cli import completion

Function = TypeVar("Function", bound=Callable[..., Any])


def spec_argument(function: Function) -> Function:
    """SPEC: a path, REV:path or -."""
    return click.argument("spec", type=click.Path(allow_dash=True), shell_complete=completion.specs)(function)


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
    """--json."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)
