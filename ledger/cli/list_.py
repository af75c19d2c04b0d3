"""`ledger list`: what the library of specs holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from ledger.cli import completion
from ledger.cli.options import json_option

if TYPE_CHECKING:
    from ledger.spec.library import Library, LibraryEntry
    from ledger.spec.stack import Stack

STACK = "stack"
OF_A_STACK = ("framework", "version", "date")


@click.command(name="list")
@click.argument("kind", required=False, shell_complete=completion.kinds)
@json_option
def command(kind: str | None, *, as_json: bool) -> None:
    """List the specs that a plan can name.

    KIND narrows it: accelerator, model, ...; the plural serves as well. Of stacks alone it says what each is and
    assumes.
    """
    from ledger.cli.tables import print_json, print_table
    from ledger.spec.library import FOLDERS, default_library

    kinds = [name for name, folder in FOLDERS.items() if kind in {None, name, folder, f"{name}s"}]
    if not kinds:
        raise click.UsageError(f"no kind {kind!r}; there are {', '.join(FOLDERS)}")
    library = default_library()
    entries = [entry for listed_kind in kinds for entry in library.entries(listed_kind)]
    listed = [_entry_columns(entry, library, details=kinds == [STACK]) for entry in entries]
    if as_json:
        print_json(listed)
        return
    hidden = {"kind", "title", "source"} if kinds == [STACK] else set()
    columns = [name for name in listed[0] if name not in hidden] if listed else ["kind", "name", "title"]
    print_table(columns, [[entry_row[name] for name in columns] for entry_row in listed])


def _entry_columns(entry: LibraryEntry, library: Library, *, details: bool) -> dict[str, str]:
    """The columns of a spec; with `details`, those of a stack."""
    columns = {"kind": entry.kind, "name": entry.name, "title": entry.title}
    if not details:
        return columns
    from ledger.spec.load import load_stack

    stack = load_stack(entry.name, library=library)
    facts = {name: getattr(stack, name) for name in OF_A_STACK}
    return {
        **columns,
        **facts,
        "scored on": ", ".join(stack.scored_on) or "nothing",
        "assumes": ", ".join(_assumptions(stack)),
    }


def _assumptions(stack: Stack) -> Iterator[str]:
    """The assumptions that change figures most, and in which stacks differ."""
    yield "torch.compile" if stack.compiled else "eager"
    yield f"attention {stack.kernels.attention}"
    yield f"loss {stack.kernels.loss}"
    for kind in ("tensor", "data"):
        yield f"{kind} transfers behind {getattr(stack.overlap, kind)}".replace("behind none", "waited for")
    stated = stack.defaults.plan
    for path, word in (("parallelism.sequence", "sequence"), ("parallelism.context_exchange", "context by")):
        if path in stated:
            yield f"{word} {stated[path]}"
    if stack.defaults.formats:
        wide = stack.defaults.formats.get("bf16", "")
        yield f"bf16 as {_format_text(wide)}"
    yield f"recompute {stack.checkpoint}"


def _format_text(precision: Any) -> str:
    """A precision, by name or as one that is changed."""
    if not isinstance(precision, Mapping):
        return str(precision)
    changed = ", ".join(f"{key} {value}" for key, value in precision.items() if key != "base")
    return f"{precision['base']} with {changed}"
