"""Serving rows: their published facts, typed, and the figures that they are scored on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from math import inf

from ledger.evidence.tables import TableRow
from ledger.lab.score.facts import COLUMN_KINDS, read_cells, row_schema

TTFT, TIME_PER_TOKEN, TOKENS_PER_SECOND = FIGURES = ("ttft", "time_per_token", "output_tokens_per_s")
UNITS: Mapping[str, str] = {TTFT: "ttft_s", TIME_PER_TOKEN: "time_per_token_s", TOKENS_PER_SECOND: TOKENS_PER_SECOND}
TITLES: Mapping[str, str] = {
    TTFT: "first token",
    TIME_PER_TOKEN: "time per token",
    TOKENS_PER_SECOND: "output tokens a second",
}


@dataclass(frozen=True)
class ServedScore:
    """The figures of one row by name: predicted, measured, and as the data sheet alone would have them (`floor`).

    `counts`: whether summaries are made of it. `concurrency`: sequences in flight that were predicted.
    """

    predicted: Mapping[str, float]
    measured: Mapping[str, float]
    floor: Mapping[str, float]
    counts: bool
    concurrency: float

    @property
    def errors(self) -> Mapping[str, float]:
        """Predicted over measured, minus one, of each figure that was measured."""
        return {
            name: self.predicted[name] / value - 1 for name, value in self.measured.items() if self.predicted.get(name)
        }

    @property
    def floor_shares(self) -> Mapping[str, float]:
        """The share of the measured time that the data sheet accounts for; of a rate, its share of the limit."""
        return {
            name: value / self.floor[name] if name == TOKENS_PER_SECOND else self.floor[name] / value
            for name, value in self.measured.items()
            if self.floor.get(name)
        }


def measured_figures(row: ServingFacts) -> dict[str, float]:
    """The figures that were measured of a row.

    Tokens a second of one sequence that say the same as its time per token are not counted twice.
    """
    stated = {
        TTFT: row.measured_ttft_s,
        TIME_PER_TOKEN: row.measured_time_per_token_s,
        TOKENS_PER_SECOND: row.measured_output_tokens_per_s,
    }
    return {name: value for name, value in stated.items() if value is not None}


def errors_of(rows: Iterable[ServedScore | None], figure: str) -> list[float]:
    """The errors of one figure over rows that count."""
    return [row.errors[figure] for row in rows if row and row.counts and figure in row.errors]


# --- the facts of a serving row ---

SERVE = "serve"  # the kind of a row that serves
SERVING_COLUMNS = ("id", "hardware", "n_gpus", "prompt_len", "output_len")
GRADE = "score"  # the column of how complete a description is
COUNTED_GRADES = ("A", "B")  # of descriptions that are complete enough to be counted


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


RATE = "request_rate"
READ_APART = (RATE, "grade", "paths", "cells")
NUMBER = COLUMN_KINDS["float | None"]
UNLIMITED = "^([iI][nN][fF]([iI][nN][iI][tT][yY])?|[mM][aA][xX])$"  # of a benchmark that sends everything at once
SERVED_RUN = row_schema(
    "A row of a table of serving results that `ledger score` reads",
    {
        **{row.name: COLUMN_KINDS[str(row.type)] for row in fields(ServingFacts) if row.name not in READ_APART},
        RATE: {**NUMBER, "type": ["number", "string", "null"], "pattern": UNLIMITED},
        GRADE: COLUMN_KINDS["str | None"],
    },
)


def is_served(row: TableRow) -> bool:
    """Whether a row is of a model that is served."""
    return row.text("kind").lower() == SERVE


def serving_facts(row: TableRow) -> ServingFacts:
    """The row typed; raises UnreadableError for the first cell that is not of its column's kind."""
    values = read_cells(row, SERVED_RUN)
    rate, grade = values.pop(RATE), values.pop(GRADE)
    return ServingFacts(**values, request_rate=inf if isinstance(rate, str) else rate, grade=grade)
