"""Published serving results predicted: a row becomes a plan that serves, and its figures stand beside the measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from ledger.books.serving.batch import saturated, static_batch
from ledger.books.serving.data_sheet import at_data_sheet
from ledger.books.serving.passes import served_roles
from ledger.books.serving.room import room
from ledger.books.serving.steady import Service
from ledger.evidence.tables import TableRow
from ledger.lab.score.facts import UnreadableError
from ledger.lab.score.row_plans import RowPlan
from ledger.lab.score.rows import ScoreRow
from ledger.lab.score.served import TIME_PER_TOKEN, TOKENS_PER_SECOND, TTFT, ServedScore, measured_figures
from ledger.lab.score.serving_facts import COUNTED_GRADES, ServingFacts, serving_facts
from ledger.lab.score.serving_plans import HEAPS, serving_plan
from ledger.lab.score.software import SkippedError
from ledger.spec.library import Library
from ledger.spec.load import load_plan
from ledger.spec.problems import SpecError

STATIC = "static"


@dataclass(frozen=True)
class ServedPlans:
    """What every row of a table is read with."""

    library: Library
    overrides: tuple[str, ...] = ()

    def service(self, made: RowPlan) -> Service:
        """The service of a row's plan; raises SpecError."""
        plan = load_plan(made.text, (*made.settings, *self.overrides), library=self.library)
        return Service(plan, served_roles(plan))


def predict_served(rows: Iterable[TableRow], library: Library, overrides: tuple[str, ...] = ()) -> Iterator[ScoreRow]:
    """Every row in its order; `overrides` change every plan alike."""
    plans = ServedPlans(library, overrides)
    for row in rows:
        yield _predicted(row, plans)


def _predicted(row: TableRow, plans: ServedPlans) -> ScoreRow:
    group = row.text("source_id") or row.text("source")
    blank = ScoreRow(row.text("id"), row.text("source") or group, group)
    try:
        typed = serving_facts(row)
        made = serving_plan(typed, plans.library)
        service = plans.service(made)
        served, fits = _score(typed, service)
    except (SkippedError, UnreadableError) as error:
        return replace(blank, skipped=str(error))
    except SpecError as error:
        return replace(blank, skipped="; ".join(problem.message for problem in error.problems))
    return replace(
        blank,
        served=served,
        assumed=(*made.assumed, *([] if fits else ["more sequences than the device has memory for"])),
        uncounted="" if served.counts else f"graded {typed.grade} (`score`)",
        stack=made.software.stack.name,
        device=service.plan.accelerator.name,
    )


def _score(row: ServingFacts, service: Service) -> tuple[ServedScore, bool]:
    """The figures of a row, and whether its sequences find memory; raises SkippedError where nothing was measured."""
    measured = measured_figures(row)
    if not measured:
        raise SkippedError("nothing of it was measured that is scored")
    chosen = room(service) if needs_room(row) else 0
    if needs_room(row) and not chosen:
        raise SkippedError("no sequence finds memory beside the weights")
    sequences = row.concurrency or float(chosen)
    predicted = figures(row, service, sequences)
    floor = figures(row, at_data_sheet(service), sequences)
    counts = row.grade is None or row.grade in COUNTED_GRADES
    return ServedScore(predicted, measured, floor, counts, sequences), True


def needs_room(row: ServingFacts) -> bool:
    """Whether the engine took as many sequences as it could."""
    return row.concurrency is None and (row.batching in HEAPS or row.request_rate == float("inf"))


def figures(row: ServingFacts, service: Service, sequences: float) -> Mapping[str, float]:
    """The figures of a row: of a batch that begins as one, or of a service with so many sequences in flight."""
    if row.batching == STATIC or sequences == 1:
        batch = static_batch(service, max(1, round(sequences)))
        return {
            TTFT: batch.first_token,
            TIME_PER_TOKEN: batch.time_per_token,
            TOKENS_PER_SECOND: batch.tokens_per_second,
        }
    if needs_room(row):
        full = saturated(service, sequences)
        return {TIME_PER_TOKEN: full.time_per_token, TOKENS_PER_SECOND: full.tokens_per_second}
    steady = service.at(sequences) if sequences else service.stated
    answer = float(service.serve.output.mean - 1) * steady.time_per_token
    first = max(service.ttft, steady.residence - answer)
    return {TTFT: first, TIME_PER_TOKEN: steady.time_per_token, TOKENS_PER_SECOND: steady.tokens_per_second}


def served_plan(row: TableRow, library: Library) -> RowPlan:
    """The plan of a row; raises SkippedError and UnreadableError."""
    return serving_plan(serving_facts(row), library)
