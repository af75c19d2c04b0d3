"""The requests of one unit in each pass, step by step: storages as numbers with their bytes, and seconds of kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

from ledger.books.assembly.work import PASSES
from ledger.books.compiled_roles import CompiledRole
from ledger.books.evaluate import Value
from ledger.books.memory import liveness
from ledger.books.memory.liveness import LiveTensors
from ledger.books.memory.steps import outlives_unit
from ledger.books.overlap import comparison_seconds
from ledger.books.price_changes import step_calls
from ledger.model.causes import ENDS
from ledger.model.collectives import Collective
from ledger.model.tensors import Tensor
from ledger.model.unit import Unit
from ledger.spec.plan import Plan, Replay

Request = tuple[str, int]  # a storage and its bytes; 0 bytes: it is freed
KERNEL_LAUNCH: Request = ("", 0)  # the host launches a kernel
OUTPUT, GRADIENT = "output", "gradient"  # what neighbours have one name for


@dataclass(frozen=True)
class UnitPasses:
    """One unit: its requests in both passes; `entry` is what it reads from the unit before, `output` what it gives.

    `saved` waits for backward; `upstream` is the gradient it receives, `downstream` the one it gives; `weights` are the
    gradients of its weights, in the order they appear. `sent` are operands and results of collectives; `buffers` are
    those results that are gathered along the sequence, each with the lasting buffer that a stack may gather it into.
    """

    name: str
    count: int
    forward: tuple[Request, ...]
    backward: tuple[Request, ...]
    entry: str
    output: str
    saved: frozenset[str]
    upstream: str
    downstream: str
    weights: tuple[str, ...]
    sent: frozenset[str] = frozenset()
    buffers: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def shared(self) -> Mapping[str, tuple[int, str]]:
        """The storages that neighbours share: which layer's each is, counted from this one, and its name."""
        gradients = {self.upstream: (0, GRADIENT), self.downstream: (-1, GRADIENT)}
        results = {self.output: (0, OUTPUT), self.entry: (-1, OUTPUT)}
        return gradients | results | {name: (0, name) for name in self.weights}

    def owner(self, name: str) -> tuple[int, str]:
        """Which layer's a storage is, counted from this one, and its name there."""
        return self.shared.get(name, (0, name))


def unit_passes(unit: Unit, value: Value, extra: tuple[int, int] = (0, 0)) -> UnitPasses:
    """The passes of a unit under these sizes, a layer's with so many kernels beside its operations."""
    entries = [t for t in _entering_tensors(unit) if not outlives_unit(t)]
    entry = entries[0].storage if entries else ""
    output = unit.forward[-1].output.storage
    saved = frozenset(tensor.storage for tensor in unit.saving.saved if not outlives_unit(tensor))
    upstream, downstream = unit.forward[-1].output.gradient.storage, ""
    if entries:
        downstream = entries[0].gradient.storage
    weights = {weight.gradient.storage for weight in unit.weights}
    forward = tuple(_requests(liveness.forward(unit), {entry}, saved | {output, entry}, value))
    storage = liveness.storages(unit)
    start = saved | {entry, upstream}
    backward = tuple(_requests(liveness.backward(unit), start, weights | {downstream}, value))
    if unit.name not in ENDS:
        forward, backward = forward + (KERNEL_LAUNCH,) * extra[0], backward + (KERNEL_LAUNCH,) * extra[1]
    appearing = tuple(name for name, size in backward if size and name in weights)
    moved = [op for op in (*unit.forward, *unit.backward) if isinstance(op, Collective) and op.runs]
    gathered = [op.output for op in moved if op.collective == "all_gather"]
    return UnitPasses(
        unit.name,
        int(value(unit.count)),
        forward,
        backward,
        entry,
        output,
        saved,
        upstream,
        downstream,
        appearing,
        frozenset(storage(tensor) for op in moved for tensor in (*op.inputs, *op.outputs)),
        # one of two buffers: that of gradients, or that of all other sequences
        {storage(tensor): "gathered gradients" if tensor.role == "gradient" else "gathered" for tensor in gathered},
    )


def _entering_tensors(unit: Unit) -> Iterator[Tensor]:
    produced = {t.storage for operation in unit.forward for t in operation.outputs}
    seen = set()
    for operation in unit.forward:
        for tensor in operation.inputs:
            if tensor.role == "activation" and tensor.storage not in produced and tensor.storage not in seen:
                seen.add(tensor.storage)
                yield tensor


def _requests(
    steps: Sequence[LiveTensors], start: set[str] | frozenset[str], remaining: set[str] | frozenset[str], value: Value
) -> Iterator[Request]:
    """Each step frees what is gone and takes what is new; at the end all goes but what is `remaining`."""
    before: dict[str, None] = dict.fromkeys(sorted(filter(None, start)))
    for step in steps:
        now = {t.storage: t for t in step.tensors if not outlives_unit(t)}
        yield from ((name, 0) for name in before if name not in now)
        yield from ((name, int(value(t.bytes()))) for name, t in now.items() if name not in before)
        if step.step not in (liveness.ARRIVES, liveness.LEFT):
            yield KERNEL_LAUNCH
        before = dict.fromkeys(now)
    yield from ((name, 0) for name in before if name not in remaining)


# --- requests with numbers for storages ---

FIRST_NUMBERS = {OUTPUT: 0, GRADIENT: 1}  # what neighbours share comes first in every layer, so that both find it


class NumberedRequest(NamedTuple):
    """So many kernels, or a storage with its bytes; 0 bytes: it is freed. `used`: a collective may be at work on it.

    A storage in a `buffer` that lasts goes by the name of that.
    """

    kernels: int
    storage: int
    size: int
    used: bool
    buffer: str


@dataclass(frozen=True)
class NumberedPasses:
    """The requests of both passes of a unit, the gradient it receives, and those of its weights.

    `spent` is what it has read from the unit before and does not keep.
    """

    name: str
    forward: tuple[NumberedRequest, ...]
    backward: tuple[NumberedRequest, ...]
    upstream: int
    weights: tuple[int, ...]
    spent: int | None


def number_storages(units: Sequence[UnitPasses], replay: Replay) -> tuple[int, list[NumberedPasses]]:
    """How many numbers a layer has, and every unit with its storages numbered."""
    tables = [_numbers(unit) for unit in units]
    stride = max(map(len, tables), default=0)
    return stride, [_passes(unit, table, stride, replay) for unit, table in zip(units, tables, strict=True)]


def _numbers(unit: UnitPasses) -> dict[str, int]:
    numbers = dict(FIRST_NUMBERS)
    for name in (unit.entry, unit.upstream, *unit.weights, *(name for name, _ in (*unit.forward, *unit.backward))):
        numbers.setdefault(unit.owner(name)[1], len(numbers))
    return numbers


def _passes(unit: UnitPasses, table: dict[str, int], stride: int, replay: Replay) -> NumberedPasses:
    def number(name: str) -> int:
        shift, inner = unit.owner(name)
        return shift * stride + table[inner]

    def requests(plain: Sequence[Request]) -> Iterator[NumberedRequest]:
        for (name, size), alike in groupby(plain):
            if (name, size) == KERNEL_LAUNCH:
                if replay.recorded:  # else nothing waits for the device but the end of a step
                    yield NumberedRequest(sum(1 for _ in alike), 0, 0, False, "")
            elif not replay.gather_buffers or name not in unit.buffers:
                yield NumberedRequest(0, number(name), size, replay.recorded and name in unit.sent, "")
            elif size:
                yield NumberedRequest(0, 0, size, False, unit.buffers[name])

    return NumberedPasses(
        unit.name,
        tuple(requests(unit.forward)),
        tuple(requests(unit.backward)),
        number(unit.upstream),
        tuple(map(number, unit.weights)),
        number(unit.entry) if unit.entry and unit.entry not in unit.saved else None,
    )


# --- seconds of a kernel on the host and on the device ---

UNPRICED_SECONDS = 1e-6  # seconds on the device of a kernel in a unit that the books have no time for

KernelSeconds = tuple[float, float]  # of the host, and of the device


def kernel_seconds(
    plan: Plan, book: CompiledRole, units: Sequence[UnitPasses]
) -> Mapping[tuple[str, str], KernelSeconds]:
    """Seconds of the host and of the device for a kernel of each pass and unit.

    Devices of a group wait for the slowest of their hosts. Without synchronisation between stages each host runs ahead
    until its launch queue is full, so launches are hidden and take 0 s; where stages wait for each other with every
    micro-batch, a launch takes what the stack says.
    """
    if plan.stack.replay.recorded and plan.parallelism.pipeline > 1 and plan.stack.replay.transfers == "waited":
        return dict(_priced_seconds(plan, book, units))
    return {(name, unit.name): (0.0, UNPRICED_SECONDS) for unit in units for name in ("forward", "backward")}


def _priced_seconds(
    plan: Plan, book: CompiledRole, units: Sequence[UnitPasses]
) -> Iterator[tuple[tuple[str, str], KernelSeconds]]:
    table = step_calls([book])
    (priced,) = table.rows(plan)
    (timed,) = table.times(plan, (priced,))
    for unit in units:
        extra = (0, 0) if unit.name in ENDS else plan.stack.beside
        for name, requests, more in zip(("forward", "backward"), (unit.forward, unit.backward), extra, strict=True):
            kernels = sum(request is KERNEL_LAUNCH for request in requests) or 1
            unit_pass = timed.passes.get((name, unit.name))
            device = (unit_pass.seconds - unit_pass.launch) / (kernels * unit.count) if unit_pass else UNPRICED_SECONDS
            rows = [row for row in priced if row.cause.unit == unit.name and row.when in PASSES[name]]
            compared = comparison_seconds(rows, plan) / (timed.count * unit.count)
            host = plan.stack.launch * (kernels - more) + plan.stack.call * more + compared
            yield (name, unit.name), (host / kernels, device)
