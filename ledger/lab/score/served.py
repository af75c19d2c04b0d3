"""What serving rows are scored on: seconds to a first token and for each further one, output tokens a second."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ledger.lab.score.serving_facts import ServingFacts

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
    """What was measured of a row, by figure.

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
