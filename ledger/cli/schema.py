"""`ledger schema`: the JSON Schemas of what is read and printed."""

from __future__ import annotations

from pathlib import Path

import click

PACKAGE = Path(__file__).resolve().parent.parent
FOLDERS = (PACKAGE / "spec" / "schemas", PACKAGE / "cli" / "schemas")
SUFFIX = ".schema.json"


def schemas() -> dict[str, Path]:
    """Kind -> file of its schema: what specs/ holds, and the output of verbs."""
    files = (path for folder in FOLDERS for path in sorted(folder.glob(f"*{SUFFIX}")))
    return {path.name.removesuffix(SUFFIX): path for path in files}


@click.command(name="schema")
@click.argument("kind", required=False)
def command(kind: str | None) -> None:
    """Print the JSON Schema of KIND.

    KIND is what a spec holds (plan, accelerator, ...) or a verb with --json (show, score, ...). Without it, all
    are listed.
    """
    known = schemas()
    if kind is None:
        for name in known:
            click.echo(name)
        return
    if kind not in known:
        raise click.UsageError(f"no schema {kind!r}; there are {', '.join(known)}")
    click.echo(known[kind].read_text(encoding="utf-8"), nl=False)
