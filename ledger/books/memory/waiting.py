"""What a schedule that puts gradients of weights off holds for them: their operands, of all micro-batches that wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ledger.books.entries import Entry
from ledger.books.memory.liveness import storages
from ledger.books.memory.passing import scores, standing
from ledger.books.memory.timeline import Timeline, posted, until_update
from ledger.model.causes import Cause, Purpose
from ledger.model.dims import symbol
from ledger.model.fsdp_units import ENDS
from ledger.model.program import Program
from ledger.model.schedule import schedule
from ledger.model.tensors import Tensor
from ledger.model.units import Unit
from ledger.spec.plan import Plan


def waiting(program: Program, plan: Plan, line: Timeline) -> Iterator[Entry]:
    """Inputs and output gradients of the contractions whose weight gradients come later, each storage once."""
    if not schedule(plan.parallelism).delays:
        return
    why = "operands of weight gradients that are put off"
    for unit in program.units:
        # an end belongs to one chunk, and what waits while that one runs is of that chunk alone
        layers = symbol("chunks") if unit.name in ENDS else unit.count
        for tensor in operands(unit):
            cause = Cause(unit.name, tensor.name, state="waiting")
            held = "logits" if scores(tensor) else "activations"
            count = until_update(layers * symbol("waiting"))
            yield from posted(line, cause, held, tensor.bytes(), count, why)


def operands(unit: Unit) -> tuple[Tensor, ...]:
    """What the weight gradients of a unit read; of what is gathered again for them, the share it is gathered from.

    A gradient that somebody holds is not added to in place: each value that a storage has had is a tensor of its own.
    """
    place = storages(unit)
    share = {step.output.name: step.inputs[0] for step in unit.backward if step.purpose is Purpose.GATHERED_AGAIN}
    written: Counter[str] = Counter()
    found: dict[tuple[str, int], Tensor] = {}
    for step in unit.backward:
        if step.purpose is Purpose.WEIGHT_GRADIENT:
            for tensor in (share.get(read.name, read) for read in step.inputs):
                found.setdefault((place(tensor), written[place(tensor)]), tensor)
        written.update(place(tensor) for tensor in step.outputs)
    return tuple(tensor for tensor in found.values() if not standing(tensor))
