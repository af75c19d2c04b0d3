"""The requests of one unit in each pass: storages that appear and disappear, step by step, with their bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import sympy

from ledger.books import liveness
from ledger.books.evaluate import Exact
from ledger.books.liveness import Alive
from ledger.books.passing import standing
from ledger.model.operations import gradient
from ledger.model.tensors import Tensor
from ledger.model.units import Unit

Value = Callable[[sympy.Expr], Exact]
Request = tuple[str, int]  # a storage and its bytes; 0 bytes: it is freed


@dataclass(frozen=True)
class UnitPasses:
    """One unit: its requests in both passes; `entry` is what it reads from the unit before, `output` what it gives.

    `kept` waits for backward; `upstream` is the gradient it receives, `downstream` the one it gives; `weights` are the
    gradients of its weights, in the order they appear.
    """

    name: str
    count: int
    forward: tuple[Request, ...]
    backward: tuple[Request, ...]
    entry: str
    output: str
    kept: frozenset[str]
    upstream: str
    downstream: str
    weights: tuple[str, ...]


def unit_passes(unit: Unit, value: Value) -> UnitPasses:
    """The passes of a unit under these sizes."""
    entries = [t for t in _entries(unit) if not standing(t)]
    entry = entries[0].storage if entries else ""
    output = unit.forward[-1].output.storage
    kept = frozenset(tensor.storage for tensor in unit.kept.saved if not standing(tensor))
    upstream, downstream = gradient(unit.forward[-1].output).storage, ""
    if entries:
        downstream = gradient(entries[0]).storage
    weights = {gradient(weight).storage for weight in unit.weights}
    forward = tuple(_requests(liveness.forward(unit), {entry}, kept | {output, entry}, value))
    start = kept | {entry, upstream}
    backward = tuple(_requests(liveness.backward(unit), start, weights | {downstream}, value))
    made = tuple(name for name, size in backward if size and name in weights)
    count = int(value(unit.count))
    return UnitPasses(unit.name, count, forward, backward, entry, output, kept, upstream, downstream, made)


def _entries(unit: Unit) -> Iterator[Tensor]:
    made = {t.storage for operation in unit.forward for t in operation.outputs}
    seen = set()
    for operation in unit.forward:
        for tensor in operation.inputs:
            if tensor.role == "activation" and tensor.storage not in made and tensor.storage not in seen:
                seen.add(tensor.storage)
                yield tensor


def _requests(
    steps: Sequence[Alive], start: set[str] | frozenset[str], left: set[str] | frozenset[str], value: Value
) -> Iterator[Request]:
    """Each step frees what is gone and takes what is new; at the end all goes but what is `left`."""
    before: dict[str, None] = dict.fromkeys(sorted(filter(None, start)))
    for step in steps:
        now = {t.storage: t for t in step.tensors if not standing(t)}
        yield from ((name, 0) for name in before if name not in now)
        yield from ((name, int(value(t.bytes()))) for name, t in now.items() if name not in before)
        before = dict.fromkeys(now)
    yield from ((name, 0) for name in before if name not in left)
