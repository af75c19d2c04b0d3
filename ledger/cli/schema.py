"""`ledger schema`: the JSON Schemas of what is read and printed."""

from __future__ import annotations

from pathlib import Path

import click
from click.shell_completion import CompletionItem

PRINTED = Path(__file__).resolve().parent / "schemas"  # of what verbs print with --json
SUFFIX = ".schema.json"


def spec_schemas() -> dict[str, str]:
    """The schemas of what specs/ holds, by kind, as text."""
    import json

    from ledger.course.questions import LECTURE
    from ledger.spec.kinds import TYPES, published

    types = {**TYPES, "lecture": LECTURE}
    return {kind: f"{json.dumps(published(types[kind]), indent=1, ensure_ascii=False)}\n" for kind in sorted(types)}


def verb_schemas() -> dict[str, str]:
    """The schemas of what verbs print, by verb, as text."""
    files = sorted(PRINTED.glob(f"*{SUFFIX}"))
    return {path.name.removesuffix(SUFFIX): path.read_text(encoding="utf-8") for path in files}


def write_schemas(folder: Path, kinds: dict[str, str]) -> None:
    """Schemas as files, for editors; one that is as it should be is left alone."""
    from ledger.report.files import replace_file

    for kind, text in kinds.items():
        replace_file(folder / f"{kind}{SUFFIX}", text.encode())


def _kinds(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - click's
    """What there is a schema of, as shells complete it."""
    return [CompletionItem(kind) for kind in (*spec_schemas(), *verb_schemas()) if kind.startswith(incomplete)]


@click.command(name="schema")
@click.argument("kind", required=False, shell_complete=_kinds)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="A folder: KIND's schema, or every spec's, a file each.",
)
def command(kind: str | None, out: Path | None) -> None:
    """Print the JSON Schema of KIND.

    KIND is what a spec holds (plan, accelerator, ...) or a verb with --json (show, score, ...). Without it, all
    are listed. Each is complete in itself, and lists the library's names as they are now.
    """
    known = spec_schemas() | verb_schemas()
    if kind is not None and kind not in known:
        raise click.UsageError(f"no schema {kind!r}; there are {', '.join(known)}")
    if out is not None:
        write_schemas(out, {kind: known[kind]} if kind else spec_schemas())
    elif kind is not None:
        click.echo(known[kind], nl=False)
    else:
        for name in known:
            click.echo(name)
