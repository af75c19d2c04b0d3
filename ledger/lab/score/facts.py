"""A row of published facts, typed: what the columns of the contract say, or why they cannot be read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ledger.evidence.tables import TableRow

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
CELL_KINDS = {
    "int | None": f"a whole number from 1 to {LARGEST_COUNT}",
    "float | None": f"a number from {LEAST:g} to {MOST:g}",
    "Share | None": "a number from 0 to below 1",
    "bool | None": "true or false",
}


class UnreadableError(ValueError):
    """A cell that does not say what its column is for; the message has its place."""


def facts(row: TableRow) -> Facts:
    """The row typed; raises UnreadableError for the first cell that is not of its column's kind."""
    cells: dict[str, Any] = {}
    for column in fields(Facts):
        name, kind = column.name, str(column.type)
        if name not in FACT_COLUMNS:
            continue
        # a grade is a column that the table may do without
        cells[name] = grade(row, name) if kind == "str | None" else read_cell(row, name, kind)
    written = {name: cell.text for name, cell in row.cells.items() if cell.text}
    return Facts(**cells, paths={name: text for name, text in written.items() if is_path(name)}, cells=written)


def read_cell(row: TableRow, name: str, kind: str) -> Any:
    """The value of a cell by the kind of its column; raises UnreadableError for one that is not of that kind."""
    text = row.text(name)
    try:
        return CELL_READERS[kind](text) if text or kind == "str" else None
    except (ValueError, OverflowError, KeyError):
        message = f"{row.place(name)}: `{name}` = `{text}` is not {CELL_KINDS[kind]}"
        raise UnreadableError(message) from None


def is_path(column: str) -> bool:
    """Whether a column is a path of a plan: a part of it, or a name with a dot."""
    return column in PART_COLUMNS or "." in column


def grade(row: TableRow, name: str) -> str | None:
    """A grade, empty where the row is not to be compared; None where the table has no grades."""
    if name not in row.cells:
        return None
    text = row.text(name)
    if text and text not in GRADES:
        raise UnreadableError(f"{row.place(name)}: `{name}` = `{text}` is none of {', '.join(GRADES)}, or empty")
    return text


def _number(text: str, is_legal: Callable[[float], bool]) -> float:
    """A legal number as programs print it: `float` alone takes `1_0`, `nan`, and digits of every script."""
    if not NUMBER.fullmatch(text) or not is_legal(float(text)):
        raise ValueError(text)
    return float(text)


CELL_READERS: Mapping[str, Callable[[str], Any]] = {
    "str": str,
    "int | None": lambda text: int(_number(text, lambda n: n == int(n) and 1 <= n <= LARGEST_COUNT)),
    "float | None": lambda text: _number(text, lambda n: LEAST <= n <= MOST),
    "Share | None": lambda text: _number(text, lambda n: 0 <= n < 1),
    "bool | None": lambda text: TRUTH[text.lower()],
}
