"""What is alive while one unit runs: the tensors of each step of its forward and backward pass."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import sympy

from ledger.model.operations import Operation, gradient, total
from ledger.model.program import Unit
from ledger.model.tensors import Tensor


@dataclass(frozen=True)
class Alive:
    """The tensors that exist while `step` runs, each storage once."""

    step: str
    tensors: tuple[Tensor, ...]

    def bytes(self, wanted: Iterable[str] | None = None) -> sympy.Expr:
        """Their bytes, or those of some of them by name."""
        names = None if wanted is None else set(wanted)
        return total(tensor.bytes() for tensor in self.tensors if names is None or tensor.name in names)


def forward(unit: Unit) -> tuple[Alive, ...]:
    """Forward: a result is freed after its last reader unless it is kept for backward or leaves the unit.

    What enters is held by the caller until the unit returns.
    """
    entry = _entry(unit)
    kept = {tensor.storage for tensor in unit.kept.saved}
    return _run(unit.forward, entry, kept | set(entry) | {unit.forward[-1].output.storage}, {})


def backward(unit: Unit) -> tuple[Alive, ...]:
    """Backward: what was kept, then what is rebuilt, then gradients; each is freed after its last reader."""
    upstream = gradient(unit.forward[-1].output)
    start = {tensor.storage: tensor for tensor in (*unit.kept.saved, upstream)}
    rebuilt = {tensor.storage for tensor in unit.kept.rebuilt}
    lasting = {gradient(weight).name for weight in unit.weights}
    if unit.kept.again:  # the frame that rebuilds a unit holds its inputs to the end
        lasting |= {tensor.storage for tensor in unit.kept.saved}
    operations = (*unit.kept.again, *unit.backward)
    return _run(operations, start, lasting, _aliases(unit), held=rebuilt | {t.storage for t in unit.kept.saved})


def _entry(unit: Unit) -> dict[str, Tensor]:
    made = {t.storage for op in unit.forward for t in op.outputs}
    inputs = (t for op in unit.forward for t in op.inputs if t.role == "activation" and t.storage not in made)
    return {t.storage: t for t in inputs}


def _run(
    operations: Sequence[Operation],
    start: dict[str, Tensor],
    lasting: set[str],
    aliases: dict[str, str],
    held: frozenset[str] | set[str] = frozenset(),
) -> tuple[Alive, ...]:
    """Allocates results, frees after last use. `held` tensors live until backward has read them for the last time."""
    last: dict[str, int] = {}
    for index, operation in enumerate(operations):
        for tensor in (*operation.inputs, *operation.outputs):
            last[_storage(tensor, aliases)] = index
    alive = {_resolve(name, aliases): tensor for name, tensor in start.items()}
    if not operations:  # nothing runs, yet what was there is there
        return (Alive("nothing", tuple(alive.values())),)
    found = []
    for index, operation in enumerate(operations):
        for tensor in operation.outputs:
            if tensor.role != "weight" and not tensor.view_of:
                alive.setdefault(_storage(tensor, aliases), tensor)
        found.append(Alive(operation.name, tuple(alive.values())))
        done = [
            name for name in alive if last.get(name, -1) <= index and name not in lasting and _ended(name, last, held)
        ]
        for name in done:
            del alive[name]
    return tuple(found)


def _ended(name: str, last: dict[str, int], held: frozenset[str] | set[str]) -> bool:
    """A kept tensor that no listed operation reads stays (its reader is fused away)."""
    return name in last or name not in held


def _storage(tensor: Tensor, aliases: dict[str, str]) -> str:
    return _resolve(tensor.storage, aliases)


def _resolve(name: str, aliases: dict[str, str]) -> str:
    while name in aliases:
        name = aliases[name]
    return name


def _aliases(unit: Unit) -> dict[str, str]:
    """Gradients that live in a storage of another name."""
    return {name: storage for operation in unit.written for name, storage in operation.shared()}
