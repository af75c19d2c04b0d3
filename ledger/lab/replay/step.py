"""A few steps of one role, replayed: weights and states, micro-batches in the order of the schedule, the update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ledger.books.compiled_roles import CompiledRole
from ledger.lab.replay import flat
from ledger.lab.replay.allocator import Allocator
from ledger.lab.replay.clock import Clock
from ledger.lab.replay.kernel_seconds import UNPRICED_SECONDS, KernelSeconds, kernel_seconds
from ledger.lab.replay.numbered import FIRST_NUMBERS, NumberedPasses, NumberedRequest, number_storages
from ledger.lab.replay.passes import GRADIENT, unit_passes
from ledger.lab.replay.weights import gathered_units, gradients, weight_bytes
from ledger.model.formats import trained_dtype
from ledger.model.fsdp_units import INPUT, OUTPUT, ROOT
from ledger.model.schedule import micro_batches
from ledger.model.sharding import gathered
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
    run.begin()
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
        self.layers = [one for unit, one in zip(passes, units, strict=True) for _ in range(unit.count)]
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

    def begin(self) -> None:
        """Weights, buckets, main gradients and master copies, in the order frameworks make them."""
        for name, size in self.weights:
            self.memory.allocate(f"w {name}", size.weight)
        if self.plan.stack.buckets and self.plan.parallelism.zero == 0 and self.plan.parallelism.data > 1:
            for name, size in self.weights:
                self.memory.allocate(f"b {name}", size.updated)
        if self._has_gradient_sums():
            for name, size in self.weights:
                self.memory.allocate(f"g {name}", size.gradient)
        self._keep("master")

    def _keep(self, category: str) -> None:
        """What the books hold of a category all the time, layer by layer."""
        for entry in (one for one in self.book.ledger.select("memory") if one.resource.category == category):
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
        for index, one in enumerate(self.layers):
            self.gather(one.name)
            begin = self._offset(batch, index)
            self._requests(begin, one.forward, self.seconds["forward", one.name])
            if index and one.spent is not None:
                self.memory.free(begin + one.spent)
            if one.name == OUTPUT:  # a head that moves by itself stays for its backward
                self.memory.free(f"flat {OUTPUT}")
            else:
                self.reshard(one.name)
        self.reshard(ROOT)
        self._wait_for_shapes(last=self.role.last)

    def backward(self, batch: int) -> None:
        """Every layer in reverse, with the gradients of its weights."""
        self._wait_for_shapes(last=self.role.last)
        self.gather(ROOT)
        for index in reversed(range(len(self.layers))):
            one = self.layers[index]
            self.gather(one.name)
            begin = self._offset(batch, index)
            self._requests(begin, one.backward, self.seconds["backward", one.name])
            self.memory.free(begin + one.upstream)
            self.reduce(batch, index, one)
            self.reshard(one.name)
        self.memory.free(self._offset(batch, -1) + FIRST_NUMBERS[GRADIENT])
        if self.plan.stack.accumulation == "after_backward":
            self._accumulate()
        self.reshard(ROOT)
        self._wait_for_shapes(last=self.role.first)

    def _offset(self, batch: int, index: int) -> int:
        """Where the numbers of a layer's storages begin; layer -1 is whatever comes before the first."""
        return (batch * (len(self.layers) + 1) + index + 1) * self.stride

    def _requests(self, begin: int, requests: Sequence[NumberedRequest], seconds: KernelSeconds) -> None:
        """The requests of one pass over a layer whose numbers begin there."""
        memory, held, launch = self.memory, self.memory.held, self.clock.launch
        for kernels, storage, size, used, buffer in requests:
            if kernels:
                launch(*seconds, kernels)
            elif not size:
                memory.free(begin + storage, used=used)
            elif (name := buffer or begin + storage) not in held:
                memory.allocate(name, size)

    def _accumulate(self) -> None:
        """Gradients of all weights are added to their sums, a kernel each."""
        self._launch(len(self.weights))
        self._free_gradients()

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

    def reduce(self, batch: int, index: int, one: NumberedPasses) -> None:
        """The gradients of a unit's weights: kept as they are, added to what is there, or scattered."""
        begin = self._offset(batch, index)
        made = [begin + weight for weight in one.weights]
        self.unused_gradients.update(made)
        if self.plan.stack.accumulation == "after_backward":
            return
        if self.sharded:
            own = one.name in self.unsharded
            self._scatter(one.name if own else ROOT, wanted=own or index == 0)
        if self._has_gradient_sums() or self.sharded or batch:
            self._free_gradients(made)

    def _scatter(self, name: str, *, wanted: bool) -> None:
        """Whole gradients are copied into one buffer, which waits for the next one's turn."""
        if not wanted or name not in self.unsharded:
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
        self._states(first=first, joined=self.plan.stack.replay.update == "flat")
        passing = dict(flat.update_temporaries(self.book))
        for name, size in passing.items():
            self.memory.allocate(name, size)
            self.memory.free(flat.JOINED)  # once there is a copy in the dtype of the states
        self._launch(len(self.weights) * len(self.plan.stack.optimizer_passes))
        for name in passing:
            self.memory.free(name)
        if self.plan.parallelism.zero in (1, 2) and self.plan.stack.gathers == "copied":
            flat.gather_through_copies(self.memory, self.weights, self.plan.parallelism.data)
        self._free_gradients()
        if self.sharded:
            for name, _ in self.weights:
                self.memory.free(f"g {name}")
        self.memory.wait()  # a step's loss is read

    def _states(self, *, first: bool, joined: bool) -> None:
        """States appear with the first update; where it is flat, they and the gradients are one tensor each."""
        if joined:
            flat.allocate_joined_gradients(self.memory, self.weights)
            self._free_gradients()
        if first and not joined:
            self._keep("optimizer")
        elif first:
            for name, size in flat.joined_states(self.book):
                self.memory.allocate(name, size)
