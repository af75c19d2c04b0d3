"""A row of published serving results, typed: what the columns of the contract say, or why they cannot be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ledger.evidence.tables import TableRow
from ledger.lab.score.facts import CELL_KINDS, CELL_READERS, UnreadableError, grade, is_path

SERVE = "serve"  # the kind of a row that serves
SERVING_COLUMNS = ("id", "hardware", "n_gpus", "prompt_len", "output_len")
GRADE = "score"  # the column of how complete a description is
COUNTED_GRADES = ("A", "B")  # of descriptions that are complete enough to be counted
UNLIMITED = ("inf", "infinity", "max")  # request rates of a benchmark that sends everything at once


@dataclass(frozen=True)
class ServingFacts:
    """The numbers and words of one row; None or empty for what was not published. Tokens, sequences, seconds, GiB.

    `concurrency` is None where the engine chose; `request_rate` in requests a second, infinite where all arrive at
    once. Lengths of a distribution are means. `paths` and `cells` as in `Facts`.
    """

    id: str
    source: str
    source_id: str
    kind: str
    model_name: str
    family: str
    hardware: str
    dtype_weights: str
    dtype_cache: str
    dtype_compute: str
    engine: str
    engine_version: str
    batching: str
    stack: str
    notes: str
    layers: int | None
    hidden: int | None
    ffn_hidden: int | None
    heads: int | None
    kv_heads: int | None
    head_dim: int | None
    vocab: int | None
    n_experts: int | None
    top_k: int | None
    n_gpus: int | None
    tp: int | None
    pp: int | None
    ep: int | None
    dp: int | None
    prompt_len: float | None
    output_len: float | None
    concurrency: float | None
    measured_ttft_s: float | None
    measured_time_per_token_s: float | None
    measured_output_tokens_per_s: float | None
    measured_total_tokens_per_s: float | None
    measured_requests_per_s: float | None
    measured_memory_gib: float | None
    request_rate: float | None
    grade: str | None
    paths: Mapping[str, str]
    cells: Mapping[str, str]


READ_APART = ("request_rate", "grade", "paths", "cells")


def is_served(row: TableRow) -> bool:
    """Whether a row is of a model that is served."""
    return row.text("kind").lower() == SERVE


def serving_facts(row: TableRow) -> ServingFacts:
    """The row typed; raises UnreadableError for the first cell that is not of its column's kind."""
    cells: dict[str, Any] = {}
    for one in fields(ServingFacts):
        if one.name not in READ_APART:
            cells[one.name] = _cell(row, one.name, str(one.type))
    written = {name: cell.text for name, cell in row.cells.items() if cell.text}
    return ServingFacts(
        **cells,
        request_rate=_rate(row),
        grade=grade(row, GRADE),
        paths={name: text for name, text in written.items() if is_path(name)},
        cells=written,
    )


def _rate(row: TableRow) -> float | None:
    text = row.text("request_rate").lower()
    return float("inf") if text in UNLIMITED else _cell(row, "request_rate", "float | None")


def _cell(row: TableRow, name: str, kind: str) -> Any:
    text = row.text(name)
    try:
        return CELL_READERS[kind](text) if text or kind == "str" else None
    except (ValueError, OverflowError, KeyError):
        message = f"{row.place(name)}: `{name}` = `{text}` is not {CELL_KINDS[kind]}"
        raise UnreadableError(message) from None
