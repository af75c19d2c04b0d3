"""What callers hold while a part of a layer runs forward, though nothing saves it: its input, and that of a product."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from ledger.model.collectives import Collective
from ledger.model.operations import Operation
from ledger.model.projections import is_projection

UPDATE = "update"  # the region of what joins parts of a layer, or multiplies one, before the stream
Held = tuple[tuple[str, frozenset[str]], ...]  # a storage, and those that it is not freed before


def held_inputs(operations: Sequence[Operation]) -> Held:
    """What the first products of a part read, gathered or not, is there until its last one has its result.

    What that one reads is there while devices put its result together.
    """
    moved = {op.output.storage: op for op in operations if isinstance(op, Collective)}
    return tuple(pair for part in _parts(operations) for pair in _of_part(part, moved))


def held_updates(operations: Sequence[Operation]) -> Held:
    """What a part gives is a name in the frame of its layer, beside its product with a factor until that is added."""
    joining = (op for op in operations if UPDATE in op.region)
    return tuple((tensor.storage, frozenset({op.output.storage})) for op in joining for tensor in op.inputs)


def _parts(operations: Sequence[Operation]) -> Iterator[tuple[Operation, ...]]:
    """The products of each part of a layer."""
    for block, part in groupby(filter(is_projection, operations), key=lambda operation: operation.block):
        if block:
            yield tuple(part)


def _of_part(part: Sequence[Operation], moved: Mapping[str, Operation]) -> Iterator[tuple[str, frozenset[str]]]:
    read, last = part[0].inputs[0].storage, part[-1]
    result = last.output.storage
    for name in (read, *((moved[read].inputs[0].storage,) if read in moved else ())):
        yield name, frozenset({result})
    if any(op.inputs[0].storage == result for op in moved.values()):
        yield last.inputs[0].storage, frozenset({result})
