"""`ledger list`: what the library of specs holds."""

from __future__ import annotations

from pathlib import Path

import click

from ledger.cli.options import json_option

PACKAGE = Path(__file__).resolve().parent.parent


def library() -> Path:
    """The folder of specs: inside an installed package, or at the top of a checkout."""
    installed = PACKAGE / "_data" / "specs"
    return installed if installed.is_dir() else PACKAGE.parent / "specs"


@click.command(name="list")
@click.argument("kind", required=False)
@json_option
def command(kind: str | None, *, as_json: bool) -> None:
    """List the parts that a plan can name.

    KIND narrows it: accelerators, models, ...
    """
    from ledger.cli.tables import print_json, print_table

    kinds = sorted(path.name for path in library().iterdir() if path.is_dir())
    if kind is not None and kind not in kinds:
        raise click.UsageError(f"no kind {kind!r}; there are {', '.join(kinds)}")
    rows = [row for each in kinds if kind in {None, each} for row in named(library() / each)]
    if as_json:
        print_json([dict(zip(("kind", "name", "title"), row, strict=True)) for row in rows])
    else:
        print_table(("kind", "name", "title"), rows)


def named(folder: Path) -> list[tuple[str, str, str]]:
    """Kind, name and title of every spec in a folder; the title is what the key after `spec:` says."""
    return [(folder.name, path.stem, title(path)) for path in sorted(folder.glob("*.yaml"))]


def title(path: Path) -> str:
    """The title of a spec; raises SpecError where the file is not a spec."""
    from ledger.spec.reader import read

    fields = read(path.read_text(encoding="utf-8"), str(path)).fields
    first = next((node.value for key, node in fields.items() if key != "spec"), "")
    return first if isinstance(first, str) else ""
