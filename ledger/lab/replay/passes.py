"""The requests of one unit in each pass: storages that appear and disappear, step by step, with their bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ledger.books.evaluate import Value
from ledger.books.memory import liveness
from ledger.books.memory.liveness import LiveTensors
from ledger.books.memory.passing import standing
from ledger.model.collectives import Collective
from ledger.model.fsdp_units import ENDS
from ledger.model.tensors import Tensor
from ledger.model.units import Unit

Request = tuple[str, int]  # a storage and its bytes; 0 bytes: it is freed
KERNEL_LAUNCH: Request = ("", 0)  # the host launches a kernel
OUTPUT, GRADIENT = "output", "gradient"  # what neighbours have one name for


@dataclass(frozen=True)
class UnitPasses:
    """One unit: its requests in both passes; `entry` is what it reads from the unit before, `output` what it gives.

    `kept` waits for backward; `upstream` is the gradient it receives, `downstream` the one it gives; `weights` are the
    gradients of its weights, in the order they appear. `sent` are operands and results of collectives; `buffers` are
    those results that are gathered along the sequence, each with the lasting buffer that a stack may gather it into.
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
    sent: frozenset[str] = frozenset()
    buffers: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def shared(self) -> Mapping[str, tuple[int, str]]:
        """What neighbours have one name for: which layer's it is, counted from this one, and the name."""
        gradients = {self.upstream: (0, GRADIENT), self.downstream: (-1, GRADIENT)}
        results = {self.output: (0, OUTPUT), self.entry: (-1, OUTPUT)}
        return gradients | results | {name: (0, name) for name in self.weights}

    def owner(self, name: str) -> tuple[int, str]:
        """Which layer's a storage is, counted from this one, and its name there."""
        return self.shared.get(name, (0, name))


def unit_passes(unit: Unit, value: Value, beside: tuple[int, int] = (0, 0)) -> UnitPasses:
    """The passes of a unit under these sizes, a layer's with so many kernels `beside` its operations."""
    entries = [t for t in _entries(unit) if not standing(t)]
    entry = entries[0].storage if entries else ""
    output = unit.forward[-1].output.storage
    kept = frozenset(tensor.storage for tensor in unit.kept.saved if not standing(tensor))
    upstream, downstream = unit.forward[-1].output.gradient.storage, ""
    if entries:
        downstream = entries[0].gradient.storage
    weights = {weight.gradient.storage for weight in unit.weights}
    forward = tuple(_requests(liveness.forward(unit), {entry}, kept | {output, entry}, value))
    storage = liveness.storages(unit)
    start = kept | {entry, upstream}
    backward = tuple(_requests(liveness.backward(unit), start, weights | {downstream}, value))
    if unit.name not in ENDS:
        forward, backward = forward + (KERNEL_LAUNCH,) * beside[0], backward + (KERNEL_LAUNCH,) * beside[1]
    made = tuple(name for name, size in backward if size and name in weights)
    moved = [op for op in (*unit.forward, *unit.backward) if isinstance(op, Collective) and op.runs]
    return UnitPasses(
        unit.name,
        int(value(unit.count)),
        forward,
        backward,
        entry,
        output,
        kept,
        upstream,
        downstream,
        made,
        frozenset(storage(tensor) for op in moved for tensor in (*op.inputs, *op.outputs)),
        {storage(op.output): _buffer(op.output) for op in moved if op.collective == "all_gather"},
    )


def _buffer(gathered: Tensor) -> str:
    """One of two buffers: that of gradients, or that of all other sequences."""
    return "gathered gradients" if gathered.role == "gradient" else "gathered"


def _entries(unit: Unit) -> Iterator[Tensor]:
    made = {t.storage for operation in unit.forward for t in operation.outputs}
    seen = set()
    for operation in unit.forward:
        for tensor in operation.inputs:
            if tensor.role == "activation" and tensor.storage not in made and tensor.storage not in seen:
                seen.add(tensor.storage)
                yield tensor


def _requests(
    steps: Sequence[LiveTensors], start: set[str] | frozenset[str], left: set[str] | frozenset[str], value: Value
) -> Iterator[Request]:
    """Each step frees what is gone and takes what is new; at the end all goes but what is `left`."""
    before: dict[str, None] = dict.fromkeys(sorted(filter(None, start)))
    for step in steps:
        now = {t.storage: t for t in step.tensors if not standing(t)}
        yield from ((name, 0) for name in before if name not in now)
        yield from ((name, int(value(t.bytes()))) for name, t in now.items() if name not in before)
        if step.step not in (liveness.ARRIVES, liveness.LEFT):
            yield KERNEL_LAUNCH
        before = dict.fromkeys(now)
    yield from ((name, 0) for name in before if name not in left)
