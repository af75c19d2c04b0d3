"""`ledger init`: a first plan to edit."""

from __future__ import annotations

import os
from pathlib import Path

import click

START = Path(__file__).with_name("start.yaml")
SCHEMA = Path(__file__).resolve().parent.parent / "spec" / "schemas" / "plan.schema.json"


@click.command(name="init")
@click.argument("path", default="plan.yaml", type=click.Path(dir_okay=False, path_type=Path))
def command(path: Path) -> None:
    """Write a plan to start from to PATH (plan.yaml).

    Its first line gives editors completion and checks.

    A file that exists is left as it is.
    """
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(modeline(path) + START.read_text(encoding="utf-8"))
    except FileExistsError:
        raise click.UsageError(f"{path} exists already; name another file") from None
    click.echo(path)
    click.echo(f"next: ledger check {path}; ledger report {path}", err=True)


def modeline(path: Path) -> str:
    """The line that leads editors to the plan's schema; none where the package's folder takes no file."""
    from ledger.cli.schema import spec_schemas, write_schemas

    try:
        write_schemas(SCHEMA.parent, {"plan": spec_schemas()["plan"]})
    except OSError:
        return ""
    return f"# yaml-language-server: $schema={schema_address(path)}\n"


def schema_address(path: Path) -> str:
    """The plan's schema as an editor finds it from `path`: relative inside a checkout, else by its full address."""
    checkout = SCHEMA.parents[3]
    folder = path.resolve().parent
    if folder.is_relative_to(checkout) and (checkout / "pyproject.toml").is_file():
        return Path(os.path.relpath(SCHEMA, folder)).as_posix()
    return SCHEMA.as_uri()
