"""`ledger init`: a first plan to edit."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import click

START = Path(__file__).with_name("start.yaml")
SCHEMA = Path(__file__).resolve().parent.parent / "spec" / "schemas" / "plan.schema.json"
BESIDE = ".ledger"  # the folder of the schema of plans outside a checkout


@click.command(name="init")
@click.argument("path", default="plan.yaml", type=click.Path(dir_okay=False, path_type=Path))
def command(path: Path) -> None:
    """Write a plan to start from to PATH (plan.yaml).

    Its first line gives editors completion and checks, by a schema that knows what the library has today: that of the
    checkout, or .ledger/plan.schema.json beside the plan.

    A file that exists is left as it is.
    """
    from ledger.whole_files import create_file

    try:
        create_file(path, partial(started, path))
    except FileExistsError:
        raise click.UsageError(f"{path} exists already; name another file") from None
    click.echo(path)
    click.echo(f"next: ledger check {path}; ledger report {path}", err=True)


def started(path: Path) -> bytes:
    """The plan to start from, for a path."""
    return (modeline(path) + START.read_text(encoding="utf-8")).encode()


def modeline(path: Path) -> str:
    """The line that leads editors to the plan's schema, relative to the plan; none where no schema can be written."""
    from ledger.cli.schema import spec_schemas, write_schemas

    folder = path.resolve().parent
    schema = schema_file(folder)
    try:
        write_schemas(schema.parent, {"plan": spec_schemas()["plan"]})
    except OSError:
        return ""
    return f"# yaml-language-server: $schema={Path(os.path.relpath(schema, folder)).as_posix()}\n"


def schema_file(folder: Path) -> Path:
    """The schema file of the plans in a folder: in a checkout that of the package, else in a folder beside them."""
    checkout = SCHEMA.parents[3]
    if folder.is_relative_to(checkout) and (checkout / "pyproject.toml").is_file():
        return SCHEMA
    return folder / BESIDE / SCHEMA.name
