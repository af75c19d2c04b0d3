"""`ledger init`: a first plan to edit."""

from __future__ import annotations

import os
from pathlib import Path

import click

START = Path(__file__).with_name("start.yaml")
BESIDE = ".ledger"  # the folder beside a plan that has its schema
SCHEMA = Path(__file__).resolve().parent.parent / "spec" / "schemas" / "plan.schema.json"


@click.command(name="init")
@click.argument("path", default="plan.yaml", type=click.Path(dir_okay=False, path_type=Path))
def command(path: Path) -> None:
    """Write a plan to start from to PATH (plan.yaml).

    Its first line gives editors completion, also of the library's names, and checks: it names a schema, which is
    written beside the plan (.ledger/plan.schema.json) and may be kept with it.

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
    """The line that leads editors to the plan's schema, which is written beside the plan; none where it cannot be."""
    from ledger.cli.schema import spec_schemas, write_schemas

    schema = schema_of(path)
    try:
        write_schemas(schema.parent, {"plan": spec_schemas()["plan"]})
    except OSError:
        return ""
    address = Path(os.path.relpath(schema, path.resolve().parent)).as_posix()
    return f"# yaml-language-server: $schema={address}\n"


def schema_of(path: Path) -> Path:
    """Where editors find the schema of a plan: in a checkout of this program that of all its plans, else beside it."""
    folder, checkout = path.resolve().parent, SCHEMA.parents[3]
    own = folder.is_relative_to(checkout) and (checkout / "pyproject.toml").is_file()
    return SCHEMA if own else folder / BESIDE / SCHEMA.name
