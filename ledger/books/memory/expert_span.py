"""When in a pass through its layer the routed experts run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ledger.books.memory.liveness import LiveTensors
from ledger.books.memory.timeline import FORWARD
from ledger.model.collectives import Collective
from ledger.model.units import Unit

REGION = "experts"
AFTER = 3


@dataclass(frozen=True)
class Span:
    """The steps of a pass between which a layer's experts run, `first` to `last`.

    What backward rebuilds of them before anything asks for their gradients, it rebuilds up to `rebuilt`.
    """

    first: int
    last: int
    rebuilt: int

    def stretch(self, place: int) -> int:
        """0 before the experts run, 1 while they are rebuilt, 2 while they run, `AFTER`."""
        return (place >= self.first) + (place >= self.first and place > self.rebuilt) + (place > self.last)


def span(unit: Unit, phase: str, steps: Sequence[LiveTensors]) -> Span:
    """Where the experts of a unit run; after all steps where a pass runs none of them.

    Backward begins with their gradients, or where they are rebuilt before those.
    """
    mine = {step.name for step in unit.written if REGION in step.region}
    written = [place for place, alive in enumerate(steps) if alive.step in mine]
    if phase == FORWARD:
        return Span(written[0], written[-1], written[0] - 1)
    gradients, around = [step.name for step in unit.backward], mine | set(_leaving(unit))
    own = [index for index, step in enumerate(unit.backward) if step.forward in around]
    if not own:  # no gradient passes through them
        return Span(len(steps), len(steps) - 1, len(steps) - 1)
    places = {alive.step: place for place, alive in enumerate(steps)}
    before = max((places[name] for name in gradients[: own[0]]), default=0)
    asked = before + 1
    early = bool(written) and written[0] < asked
    first = written[0] if early else asked
    return Span(first, places[gradients[own[-1]]], written[-1] if early else first - 1)


def _leaving(unit: Unit) -> Iterator[str]:
    """The transfers of what the experts give."""
    made = {tensor.name for step in unit.written if REGION in step.region for tensor in step.outputs}
    return (step.name for step in unit.written if isinstance(step, Collective) and step.inputs[0].name in made)
