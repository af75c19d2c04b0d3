"""`ledger schema`: the JSON Schemas of what is read and printed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

PRINTED = Path(__file__).resolve().parent / "schemas"  # of what verbs print with --json
SUFFIX = ".schema.json"


def spec_schemas() -> dict[str, str]:
    """The schemas of what specs/ holds, by kind, as text."""
    from ledger.course.questions import LECTURE
    from ledger.spec.kinds import LIBRARY_PARTS, TYPES, json_schema
    from ledger.spec.library import default_library

    types = {**TYPES, "lecture": LECTURE}
    names = {kind: default_library().names(kind) for kind in LIBRARY_PARTS}
    return {kind: _text(offering(json_schema(types[kind]), names, kind)) for kind in sorted(types)}


def incoming_schemas() -> dict[str, str]:
    """The schemas of what others write and verbs read, by what it is, as text."""
    from ledger.evidence.microbenchmarks.samples import timing_schema
    from ledger.lab.score.facts import TRAINED_RUN
    from ledger.lab.score.served import SERVED_RUN
    from ledger.report.seals.seal import seal_schema
    from ledger.spec.imports.huggingface.config import config_schema

    contents = {
        "config": config_schema(),
        "seal": seal_schema().content,
        "timing": timing_schema().content,
        "run": TRAINED_RUN.content,
        "served-run": SERVED_RUN.content,
    }
    return {kind: _text(content) for kind, content in contents.items()}


def _text(schema: Mapping[str, Any]) -> str:
    return f"{json.dumps(schema, indent=1, ensure_ascii=False)}\n"


def offering(schema: Any, names: Mapping[str, Sequence[str]], kind: str = "") -> Any:
    """A schema that lists the names that the library has of a part, for editors to offer; others stay allowed.

    `kind` is that of the part that the schema is about, which its key says.
    """
    if isinstance(schema, list):
        return [offering(part, names, kind) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") == "string" and "pattern" not in schema and names.get(kind):
        text = {key: schema[key] for key in ("description",) if key in schema}  # of the key, where editors look for it
        return {"anyOf": [{"enum": list(names[kind])}, {key: schema[key] for key in schema if key not in text}], **text}
    inner = {key: offering(value, names, kind if key == "anyOf" else "") for key, value in schema.items()}
    for group in ("properties", "$defs"):
        for key, value in schema.get(group, {}).items():
            # A part's own title goes by its kind; what it is based on is another of that kind.
            about = kind if key == "base" else key if group == "$defs" or _names_a_part(value) else ""
            inner[group][key] = offering(value, names, about)
    return inner


def _names_a_part(schema: Any) -> bool:
    """Whether a property takes a part by name or written out."""
    return isinstance(schema, dict) and any("$ref" in alternative for alternative in schema.get("anyOf", ()))


def verb_schemas() -> dict[str, str]:
    """The schemas of what verbs print, by verb, as text."""
    files = sorted(PRINTED.glob(f"*{SUFFIX}"))
    return {path.name.removesuffix(SUFFIX): path.read_text(encoding="utf-8") for path in files}


def _all_schemas() -> dict[str, str]:
    return spec_schemas() | incoming_schemas() | verb_schemas()


def write_schemas(folder: Path, kinds: dict[str, str]) -> None:
    """Schemas as files, for editors; one that is as it should be is left alone."""
    from ledger.whole_files import replace_files

    replace_files({folder / f"{kind}{SUFFIX}": text.encode() for kind, text in kinds.items()})


def _complete_kinds(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - click's
    """Completion of the kinds that have a schema."""
    return [CompletionItem(kind) for kind in _all_schemas() if kind.startswith(incomplete)]


@click.command(name="schema")
@click.argument("kind", required=False, shell_complete=_complete_kinds)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="A folder: KIND's schema, or every spec's, a file each.",
)
def command(kind: str | None, out: Path | None) -> None:
    """Print the JSON Schema of KIND.

    KIND is what a spec holds (plan, accelerator, ...), what a verb reads that others write (config, a config.json;
    seal, of a report; timing, a record of evidence; run and served-run, rows of a table to score) or a verb with
    --json (show, score, ...). Without it, all are listed. Each is complete in itself, and lists the library's names
    as they are now.
    """
    schemas = _all_schemas()
    if kind is not None and kind not in schemas:
        raise click.UsageError(f"no schema {kind!r}; there are {', '.join(schemas)}")
    if out is not None:
        write_schemas(out, {kind: schemas[kind]} if kind else spec_schemas())
    elif kind is not None:
        click.echo(schemas[kind], nl=False)
    else:
        for name in schemas:
            click.echo(name)
