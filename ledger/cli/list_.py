"""`ledger list`: what the library of specs holds."""

from __future__ import annotations

import click

from ledger.cli.options import json_option


@click.command(name="list")
@click.argument("kind", required=False)
@json_option
def command(kind: str | None, *, as_json: bool) -> None:
    """List the specs that a plan can name.

    KIND narrows it: accelerator, model, ...; the plural serves as well.
    """
    from ledger.cli.tables import print_json, print_table
    from ledger.spec.library import FOLDERS, default_library

    kinds = [name for name, folder in FOLDERS.items() if kind in {None, name, folder, f"{name}s"}]
    if not kinds:
        raise click.UsageError(f"no kind {kind!r}; there are {', '.join(FOLDERS)}")
    library = default_library()
    rows = [(entry.kind, entry.name, entry.title) for each in kinds for entry in library.entries(each)]
    if as_json:
        print_json([dict(zip(("kind", "name", "title"), row, strict=True)) for row in rows])
    else:
        print_table(("kind", "name", "title"), rows)
