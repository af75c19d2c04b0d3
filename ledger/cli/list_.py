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
    entries = [entry for each in kinds for entry in library.entries(each)]
    told = [_told(entry, library, alone=kinds == [STACK]) for entry in entries]
    if as_json:
        print_json(told)
        return
    hidden = {"kind", "title", "source"} if kinds == [STACK] else set()
    columns = [name for name in told[0] if name not in hidden] if told else ["kind", "name", "title"]
    print_table(columns, [[one[name] for name in columns] for one in told])


def _told(entry: LibraryEntry, library: Library, *, alone: bool) -> dict[str, str]:
    """What is said of a spec, column by column."""
    said = {"kind": entry.kind, "name": entry.name, "title": entry.title}
    if not alone:
        return said
    from ledger.spec.load import load_stack

    stack = load_stack(entry.name, library=library)
    facts = {name: getattr(stack, name) for name in OF_A_STACK}
    return {**said, **facts, "scored on": ", ".join(stack.scored_on) or "nothing", "assumes": _assumed(stack)}


def _assumed(stack: Stack) -> str:
    """What changes figures most, and where stacks differ."""
    return ", ".join(_assumptions(stack))


def _assumptions(stack: Stack) -> Iterator[str]:
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
        yield f"bf16 as {_format(wide)}"
    yield f"recompute {stack.checkpoint}"


def _format(given: Any) -> str:
    """A precision, by name or as one that is changed."""
    if not isinstance(given, Mapping):
        return str(given)
    changed = ", ".join(f"{key} {value}" for key, value in given.items() if key != "base")
    return f"{given['base']} with {changed}"
