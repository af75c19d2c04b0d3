"""A few steps of one role, replayed: weights and states, micro-batches in the order of the schedule, the update."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ledger.books.compiled_roles import CompiledRole
from ledger.books.evaluate import Value
from ledger.lab.replay.allocator import Allocator, Clock
from ledger.lab.replay.passes import (
    FIRST_NUMBERS,
    GRADIENT,
    UNPRICED_SECONDS,
    KernelSeconds,
    NumberedPasses,
    NumberedRequest,
    kernel_seconds,
    number_storages,
    unit_passes,
)
from ledger.model.causes import INPUT, OUTPUT, ROOT
from ledger.model.exchanges import ends_apart
from ledger.model.formats import stored_bytes, stored_dtype, trained_dtype
from ledger.model.fsdp_units import weights_by_unit
from ledger.model.offloading import weights_on_host
from ledger.model.program import Program
from ledger.model.schedule import micro_batches
from ledger.model.sharding import gathered
from ledger.model.tensors import Tensor, sized
from ledger.model.update import gradient_passes
from ledger.spec.plan import Plan

REPLAYED_STEPS = 2  # the second one finds the blocks of the first
PAIRS = 2  # micro-batches between filling and draining; the second finds the blocks of the first


@dataclass(frozen=True)
class ReplayedMemory:
    """The most bytes that were allocated at once, and those reserved for all of it.

    `reserved` is what is printed after a step; `asked`, the most that was asked for, is more where the device had less.
    """

    allocated: int
    reserved: int
    asked: int


def replay_step(plan: Plan, book: CompiledRole) -> ReplayedMemory:
    """The first steps of one device of a role."""
    run = _ReplayedStep(plan, book)
    run.allocate_lasting()
    for step in range(REPLAYED_STEPS):
        run.step(first=step == 0)
    return ReplayedMemory(run.memory.peak, run.memory.reserved, run.memory.asked)


class _ReplayedStep:
    """The state of a replay: which layer instances there are, and what is allocated."""

    def __init__(self, plan: Plan, book: CompiledRole) -> None:
        self.plan, self.book, self.role = plan, book, book.role
        self.program, self.value = book.program, book.value
        self.clock = Clock()
        capacity = plan.accelerator.memory - plan.stack.context
        self.memory = Allocator(self.clock, expandable=plan.stack.replay.expandable, capacity=capacity)
        passes = [unit_passes(unit, self.value, plan.stack.beside) for unit in self.program.units]
        self.seconds = kernel_seconds(plan, book, passes)
        self.stride, units = number_storages(passes, plan.stack.replay)
        self.layers = [numbered for unit, numbered in zip(passes, units, strict=True) for _ in range(unit.count)]
        self.sharded = self.program.sharding.splits("weights")
        self.unsharded = {
            name: (
                int(self.value(gathered(weights, self.program.sharding, plan.precision.compute))),
                int(self.value(gathered(gradients(weights), self.program.sharding, plan.precision.reduction))),
            )
            for name, weights in gathered_units(plan, self.program)
        }
        self.weights = tuple(weight_bytes(plan, self.program, self.value))
        self.unused_gradients: set[int] = set()  # of weights, until they are added up or the update has read them

    # --- what lasts ---

    def allocate_lasting(self) -> None:
        """Weights, buckets, main gradients and master copies, in the order frameworks make them."""
        for name, size in self.weights:
            self.memory.allocate(f"w {name}", size.weight)
        if self.plan.stack.buckets and self.plan.parallelism.zero == 0 and self.plan.parallelism.data > 1:
            for name, size in self.weights:
                self.memory.allocate(f"b {name}", size.updated)
        if self._has_gradient_sums():
            for name, size in self.weights:
                self.memory.allocate(f"g {name}", size.gradient)
        self._allocate_lasting("master")

    def _allocate_lasting(self, category: str) -> None:
        """Allocates what the books hold of a category all the time, layer by layer."""
        for entry in (
            lasting for lasting in self.book.ledger.select("memory") if lasting.resource.category == category
        ):
            size = int(self.value(entry.amount))
            for layer in range(int(self.value(entry.times))):
                self.memory.allocate(f"{category} {entry.account} {layer}", size)

    def _has_gradient_sums(self) -> bool:
        """Whether gradients are added up in another format than that of the weights."""
        return self.plan.precision.gradients != trained_dtype(self.plan)

    # --- a step ---

    def step(self, *, first: bool) -> None:
        """The micro-batches in the order of 1F1B: filling, a few in turn, draining; then the update."""
        total = micro_batches(self.plan)
        warm = min(total, max(1, -(-self.role.in_flight.numerator // self.role.in_flight.denominator))) - 1
        pairs = min(total - warm, PAIRS)
        waiting: list[int] = []
        for batch in range(warm):
            self.forward(batch)
            waiting.append(batch)
        for batch in range(warm, warm + pairs):
            self.forward(batch)
            waiting.append(batch)
            self.backward(waiting.pop(0))
        for batch in waiting:
            self.backward(batch)
        self.update(first=first)

    def forward(self, batch: int) -> None:
        """Every layer of a micro-batch; weights that are split are gathered before and freed after."""
        self._wait_for_shapes(last=self.role.first)
        self.gather(ROOT)
        for index, layer in enumerate(self.layers):
            self.gather(layer.name)
            begin = self._offset(batch, index)
            self._replay_requests(begin, layer.forward, self.seconds["forward", layer.name])
            if index and layer.spent is not None:
                self.memory.free(begin + layer.spent)
            if layer.name == OUTPUT:  # a head that moves by itself stays for its backward
                self.memory.free(f"flat {OUTPUT}")
            else:
                self.reshard(layer.name)
        self.reshard(ROOT)
        self._wait_for_shapes(last=self.role.last)

    def backward(self, batch: int) -> None:
        """Every layer in reverse, with the gradients of its weights."""
        self._wait_for_shapes(last=self.role.last)
        self.gather(ROOT)
        for index in reversed(range(len(self.layers))):
            layer = self.layers[index]
            self.gather(layer.name)
            begin = self._offset(batch, index)
            self._replay_requests(begin, layer.backward, self.seconds["backward", layer.name])
            self.memory.free(begin + layer.upstream)
            self.reduce(batch, index, layer)
            self.reshard(layer.name)
        self.memory.free(self._offset(batch, -1) + FIRST_NUMBERS[GRADIENT])
        if self.plan.stack.accumulation == "after_backward":  # gradients are added to their sums, a kernel each
            self._launch(len(self.weights))
            self._free_gradients()
        self.reshard(ROOT)
        self._wait_for_shapes(last=self.role.first)

    def _offset(self, batch: int, index: int) -> int:
        """Where the numbers of a layer's storages begin; layer -1 is whatever comes before the first."""
        return (batch * (len(self.layers) + 1) + index + 1) * self.stride

    def _replay_requests(self, begin: int, requests: Sequence[NumberedRequest], seconds: KernelSeconds) -> None:
        """The requests of one pass over a layer whose numbers begin there."""
        memory, storages, launch = self.memory, self.memory.held, self.clock.launch
        for kernels, storage, size, used, buffer in requests:
            if kernels:
                launch(*seconds, kernels)
            elif not size:
                memory.free(begin + storage, used=used)
            elif (name := buffer or begin + storage) not in storages:
                memory.allocate(name, size)

    def _launch(self, kernels: int) -> None:
        self.clock.launch(0.0, UNPRICED_SECONDS, kernels)

    def _wait_for_shapes(self, *, last: bool) -> None:
        """A stage gets or sends what another one needs; hosts that ask the device for shapes wait for it."""
        if not last and self.plan.stack.replay.transfers == "waited":
            self.memory.wait()

    # --- weights that are held split ---

    def gather(self, name: str) -> None:
        """The weights of a unit arrive in one flat buffer and are copied out; the root's buffer goes at once."""
        if self.sharded and name in self.unsharded and f"whole {name}" not in self.memory.held:
            self.memory.allocate(f"flat {name}", self.unsharded[name][0], "gather")
            self.memory.allocate(f"whole {name}", self.unsharded[name][0])
            if name == ROOT:
                self.memory.free(f"flat {name}")

    def reshard(self, name: str) -> None:
        """Gathered weights of a unit are freed."""
        if self.sharded and name in self.unsharded:
            self.memory.free(f"whole {name}")
            self.memory.free(f"flat {name}")

    def reduce(self, batch: int, index: int, layer: NumberedPasses) -> None:
        """The gradients of a unit's weights: kept as they are, added to what is there, or scattered."""
        begin = self._offset(batch, index)
        gradients_made = [begin + weight for weight in layer.weights]
        self.unused_gradients.update(gradients_made)
        if self.plan.stack.accumulation == "after_backward":
            return
        if self.sharded:
            moves_alone = layer.name in self.unsharded
            self._scatter(layer.name if moves_alone else ROOT, is_complete=moves_alone or index == 0)
        if self._has_gradient_sums() or self.sharded or batch:
            self._free_gradients(gradients_made)

    def _scatter(self, name: str, *, is_complete: bool) -> None:
        """Whole gradients are copied into one buffer, which waits for the next one's turn."""
        if not is_complete or name not in self.unsharded:
            return
        self.memory.free("to reduce")
        self.memory.allocate("to reduce", self.unsharded[name][1])
        if name in (ROOT, INPUT):
            self.memory.free("to reduce")
            for weight, size in self.weights:
                if f"g {weight}" not in self.memory.held:
                    self.memory.allocate(f"g {weight}", size.gradient, "reduce")

    def _free_gradients(self, names: Sequence[int] = ()) -> None:
        for name in names or tuple(self.unused_gradients):
            self.memory.free(name)
        self.unused_gradients.difference_update(names or tuple(self.unused_gradients))

    # --- the update ---

    def update(self, *, first: bool) -> None:
        """The update and what it needs; weights that were updated in shares are gathered."""
        if self.plan.stack.replay.recounts:
            self.memory.recount()
        self._make_states(first=first, joined=self.plan.stack.replay.update == "flat")
        passing = dict(update_temporaries(self.book))
        for name, size in passing.items():
            self.memory.allocate(name, size)
            self.memory.free(JOINED)  # once there is a copy in the dtype of the states
        self._launch(len(self.weights) * len(gradient_passes(self.plan)))
        for name in passing:
            self.memory.free(name)
        if self.plan.parallelism.zero in (1, 2) and self.plan.stack.gathers == "copied":
            gather_through_copies(self.memory, self.weights, self.plan.parallelism.data)
        self._free_gradients()
        if self.sharded:
            for name, _ in self.weights:
                self.memory.free(f"g {name}")
        self.memory.wait()  # a step's loss is read

    def _make_states(self, *, first: bool, joined: bool) -> None:
        """States appear with the first update; where it is flat, they and the gradients are one tensor each."""
        if joined:
            self.memory.allocate(JOINED, sum(size.gradient for _, size in self.weights))
            self._free_gradients()
        if first and not joined:
            self._allocate_lasting("optimizer")
        elif first:
            for name, size in joined_states(self.book):
                self.memory.allocate(name, size)


# --- storages as large as all weights of a device ---

JOINED = "joined gradients"


def joined_states(book: CompiledRole) -> Iterator[tuple[str, int]]:
    """The states of all weights, each kind as one tensor."""
    bytes_by_kind: dict[str, int] = {}
    for entry in book.ledger.select("memory"):
        if entry.resource.category == "optimizer":
            kind = entry.cause.state
            bytes_by_kind[kind] = bytes_by_kind.get(kind, 0) + int(book.value(entry.amount) * book.value(entry.times))
    yield from ((f"all {kind}", size) for kind, size in bytes_by_kind.items())


def update_temporaries(book: CompiledRole) -> Iterator[tuple[str, int]]:
    """The workspaces of the update, each kind as one request."""
    for entry in book.ledger.select("memory"):
        if entry.resource.category == "workspace" and entry.cause.unit == "optimizer":
            yield entry.account, int(book.value(entry.amount) * book.value(entry.times))


def gather_through_copies(memory: Allocator, weights: Sequence[tuple[str, WeightBytes]], ranks: int) -> None:
    """Weights are gathered into a buffer for each rank, and NCCL gathers those into one."""
    share = sum(size.updated for _, size in weights)
    names = [f"rank {rank}" for rank in range(ranks)]
    memory.allocate("mine", share)
    for name in names:
        memory.allocate(name, share)
    memory.allocate("flat", share * ranks)
    for name in ("mine", "flat", *names):
        memory.free(name)


# --- the weights of a device, and which are gathered as one ---


@dataclass(frozen=True)
class WeightBytes:
    """Bytes of one weight on a device: itself, its gradient, and the share of it that is updated there; 0: neither."""

    weight: int
    gradient: int
    updated: int


def gathered_units(plan: Plan, program: Program) -> Iterator[tuple[str, tuple[Tensor, ...]]]:
    """The weights of one layer of each unit, and those of the root, or of each end that moves by itself."""
    separate_ends = ends_apart(plan, program.units)
    yield from ((unit.name, unit.weights) for unit in program.units if unit.name in separate_ends)
    yield from (
        (name, weights) for name, _, weights in weights_by_unit(program.units) if not separate_ends or name != ROOT
    )


def weight_bytes(plan: Plan, program: Program, value: Value) -> Iterator[tuple[str, WeightBytes]]:
    """Every weight and what is held of it, layer by layer."""
    sharding, precision, hosted = program.sharding, plan.precision, weights_on_host(plan)
    for name, count, weights in weights_by_unit(program.units):
        sizes = [
            WeightBytes(
                int(value(stored_bytes(precision, weight, sharding, on_host=hosted))),
                0 if hosted else int(value(sized(precision.gradients, sharding.held_elements("gradients", weight)))),
                int(value(sized(stored_dtype(precision, weight), sharding.held_elements("optimizer", weight))))
                if is_trained(weight)
                else 0,
            )
            for weight in weights
        ]
        for layer in range(int(value(count))):
            yield from ((f"{name}.{layer}.{w.name}", size) for w, size in zip(weights, sizes, strict=True))


def gradients(weights: Iterable[Tensor]) -> Iterator[Tensor]:
    """The weights that have a gradient, as wide as gradients are."""
    return (replace(weight, narrow="") for weight in weights if is_trained(weight))


def is_trained(weight: Tensor) -> bool:
    """Whether a weight has a gradient."""
    return not weight.frozen
