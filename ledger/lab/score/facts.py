"""A row of published facts, typed: what the columns of the contract say, or why they cannot be read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ledger.evidence.tables import TableRow
from ledger.spec.json_schemas import PublishedSchema
from ledger.spec.kinds import DIALECT
from ledger.spec.values import Schema

Share = float  # from 0 to below 1


@dataclass(frozen=True)
class Facts:
    """The numbers and words of one row; None or empty for what was not published. Bytes, seconds, sequences.

    `stack`: the software of a run of one's own, by its name in the library or as a path; publications are known by
    their `source_id`. `paths`: cells of columns that are paths of a plan; `cells`: every cell as it is written.
    """

    id: str
    source: str
    source_id: str
    kind: str
    model_name: str
    hardware: str
    dtype: str
    data_parallel_kind: str
    recompute: str
    optimizer: str
    mem_convention: str
    score_time: str | None
    score_mem: str | None
    notes: str
    stack: str
    plan: str
    family: str
    activation: str
    norm: str
    positions: str
    n_params: float | None
    dropout: Share | None
    layers: int | None
    hidden: int | None
    ffn_hidden: int | None
    heads: int | None
    kv_heads: int | None
    head_dim: int | None
    vocab: int | None
    n_experts: int | None
    top_k: int | None
    moe_ffn_hidden: int | None
    seq_len: int | None
    n_gpus: int | None
    dp: int | None
    tp: int | None
    pp: int | None
    cp: int | None
    ep: int | None
    interleave: int | None
    micro_batch: int | None
    global_batch: int | None
    grad_accum: int | None
    gated_mlp: bool | None
    tied_embeddings: bool | None
    sequence_parallel: bool | None
    torch_compile: bool | None
    flash_attention: bool | None
    bias: bool | None
    measured_step_s: float | None
    derived_step_s: float | None
    measured_tokens_per_s_per_gpu: float | None
    measured_peak_mem_gib: float | None
    paths: Mapping[str, str] = field(default_factory=dict)
    cells: Mapping[str, str] = field(default_factory=dict)


FACT_COLUMNS = tuple(column.name for column in fields(Facts) if column.name not in ("paths", "cells"))
NEEDED_COLUMNS = ("id", "hardware", "n_gpus", "seq_len")
# Parts of a plan that are columns by their own names; `stack`, `optimizer` and `recompute` are columns of their own.
PART_COLUMNS = ("model", "precision", "accelerator", "cluster", "kernels", "parallelism", "run", "train", "assumptions")
NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
LEAST, MOST = 1e-12, 1e18  # of what anybody measures, in the units of the columns
LARGEST_COUNT = 2**53  # up to which a spreadsheet keeps numbers whole
GRADES = ("A", "B", "C")  # how complete a description is; the first counts
TRUTH = {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}


def _column(kind: str, words: str, **bounds: float) -> Schema:
    return {"type": [kind, "null"], **bounds, "description": words}


# The schema of a cell by the type of its fact; an empty cell is null.
COLUMN_KINDS: Mapping[str, Schema] = {
    "str": {"type": "string"},
    "int | None": _column("integer", f"a whole number from 1 to {LARGEST_COUNT}", minimum=1, maximum=LARGEST_COUNT),
    "float | None": _column("number", f"a number from {LEAST:g} to {MOST:g}", minimum=LEAST, maximum=MOST),
    "Share | None": _column("number", "a number from 0 to below 1", minimum=0, exclusiveMaximum=1),
    "bool | None": _column("boolean", "true or false"),
    "str | None": {"enum": [*GRADES, "", None], "description": f"one of {', '.join(GRADES)}, or empty"},
}


class UnreadableError(ValueError):
    """A cell that does not say what its column is for; the message has its place."""


def row_schema(title: str, kinds: Mapping[str, Schema]) -> PublishedSchema:
    """The schema of a row as a JSON object; columns that are not among these are paths of a plan, or are not read."""
    others = {"type": "string"}
    head = {"$schema": DIALECT, "title": title, "type": "object"}
    return PublishedSchema({**head, "properties": dict(kinds), "additionalProperties": others})


TRAINED_RUN = row_schema(
    "A row of a table of training runs that `ledger score` reads",
    {column.name: COLUMN_KINDS[str(column.type)] for column in fields(Facts) if column.name in FACT_COLUMNS},
)


def facts(row: TableRow) -> Facts:
    """The row typed; raises UnreadableError for the first cell that is not of its column's kind."""
    return Facts(**read_cells(row, TRAINED_RUN))


def read_cells(row: TableRow, schema: PublishedSchema) -> dict[str, Any]:
    """The values of the columns of a schema, and `paths` and `cells` as in `Facts`.

    Raises UnreadableError for the first value that the schema does not allow.
    """
    kinds = schema.content["properties"]
    values = {name: _cell_value(row, name, kind) for name, kind in kinds.items()}
    for error in schema.errors(values):
        name = error.absolute_path[0]
        fault = f"is not {kinds[name]['description']}".replace("not one of", "none of")
        raise UnreadableError(f"{row.place(name)}: `{name}` = `{row.text(name)}` {fault}")
    written = {name: cell.text for name, cell in row.cells.items() if cell.text}
    return values | {"paths": {name: text for name, text in written.items() if is_path(name)}, "cells": written}


def _cell_value(row: TableRow, name: str, kind: Schema) -> Any:
    """A cell as JSON has it: `float` alone would take `1_0`, `nan`, and digits of every script for numbers."""
    text, types = row.text(name), kind.get("type", ())
    if "boolean" in types:
        return TRUTH.get(text.lower(), text or None)
    if {"integer", "number"} & {*types} and NUMBER.fullmatch(text):
        return int(float(text)) if "integer" in types and float(text).is_integer() else float(text)
    is_null = "null" in types if "type" in kind else name not in row.cells  # a table without grades
    return None if is_null and not text else text


def is_path(column: str) -> bool:
    """Whether a column is a path of a plan: a part of it, or a name with a dot."""
    return column in PART_COLUMNS or "." in column
