"""A few steps of one role, replayed: weights and states, micro-batches in the order of the schedule, the update."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ledger.books.bindings import bindings
from ledger.books.evaluate import exact
from ledger.evidence.replay.allocator import Allocator
from ledger.evidence.replay.passes import UnitPasses, Value, unit_passes
from ledger.model.program import ENDS, ROOT, Program, program, wrapped
from ledger.model.schedule import Role, micro_batches
from ledger.model.sharding import gathered
from ledger.model.tensors import sized
from ledger.spec.plan import Plan

STEPS = 2  # the second one finds the blocks of the first
PAIRS = 3  # micro-batches between filling and draining; the second finds the blocks of the first


@dataclass(frozen=True)
class Replayed:
    """The most bytes that were allocated at once, and those reserved for all of it."""

    allocated: int
    reserved: int


def replayed(plan: Plan, role: Role) -> Replayed:
    """The first steps of one device of a role."""
    value = exact(bindings(plan, role))
    run = _Run(plan, role, program(plan, role), value, Allocator(expandable=plan.stack.expandable))
    run.begin()
    for step in range(STEPS):
        run.step(first=step == 0)
    return Replayed(run.memory.peak, run.memory.reserved)


class _Run:
    """The state of a replay: which layer instances there are, and what is allocated."""

    def __init__(self, plan: Plan, role: Role, mine: Program, value: Value, memory: Allocator) -> None:
        self.plan, self.role, self.program, self.value, self.memory = plan, role, mine, value, memory
        passes = [unit_passes(unit, value) for unit in mine.units]
        self.instances: list[UnitPasses] = [one for one in passes for _ in range(one.count)]
        self.sharded = mine.sharding.splits("weights")
        self.whole = {
            name: (
                int(value(gathered(weights, mine.sharding, plan.precision.compute))),
                int(value(gathered(weights, mine.sharding, plan.precision.reduction))),
            )
            for name, _, weights in wrapped(mine.units)
        }

    # --- what lasts ---

    def _weights(self) -> Iterator[tuple[str, int, int, int]]:
        """Every weight: name, elements held, elements of its gradient, elements updated here."""
        sharding = self.program.sharding
        for name, count, weights in wrapped(self.program.units):
            for layer in range(int(self.value(count))):
                for weight in weights:
                    held = [int(self.value(sharding.held(what, weight))) for what in ("weights", "gradients", "optimizer")]
                    yield f"{name}.{layer}.{weight.name}", held[0], held[1], held[2]

    def _bytes(self, dtype: str, elements: int) -> int:
        return int(self.value(sized(dtype, elements)))

    def begin(self) -> None:
        precision = self.plan.precision
        for name, held, _, _ in self._weights():
            self.memory.allocate(f"w {name}", self._bytes(precision.weights, held))
        if self._buckets():
            for name, held, _, _ in self._weights():
                self.memory.allocate(f"b {name}", self._bytes(precision.weights, held))
        if self._main_gradients():
            for name, _, held, _ in self._weights():
                self.memory.allocate(f"g {name}", self._bytes(precision.gradients, held))
        if precision.master:
            for name, _, _, held in self._weights():
                self.memory.allocate(f"m {name}", self._bytes(precision.master, held))

    def _buckets(self) -> bool:
        return self.plan.stack.buckets and self.plan.parallelism.zero == 0 and self.plan.parallelism.data > 1

    def _main_gradients(self) -> bool:
        return self.plan.precision.gradients != self.plan.precision.weights

    # --- a step ---

    def step(self, *, first: bool) -> None:
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
        self.gather(ROOT)
        for index, one in enumerate(self.instances):
            self.gather(one.name)
            for name, size in one.forward:
                self._request(self._local(batch, index, one, name), size)
            if index and one.entry and one.entry not in one.kept:
                self.memory.free(self._local(batch, index, one, one.entry))
            self.reshard(one.name)
        self.reshard(ROOT)

    def backward(self, batch: int) -> None:
        self.gather(ROOT)
        for index in reversed(range(len(self.instances))):
            one = self.instances[index]
            self.gather(one.name)
            weights = set(one.weights)
            for name, size in one.backward:
                physical = f"{batch} {index} {name}" if name in weights else self._local(batch, index, one, name)
                self._request(physical, size)
            self.memory.free(self._local(batch, index, one, one.upstream))
            self.reduce(batch, index, one)
            self.reshard(one.name)
        self.memory.free(f"{batch} -1 gradient")
        if self.plan.stack.accumulation == "after_backward":
            for index, one in enumerate(self.instances):
                for name in one.weights:
                    self.memory.free(f"{batch} {index} {name}")
        self.reshard(ROOT)

    def _request(self, name: str, size: int) -> None:
        if size:
            if name not in self.memory.held:
                self.memory.allocate(name, size)
        else:
            self.memory.free(name)

    def _local(self, batch: int, index: int, one: UnitPasses, name: str) -> str:
        """The storage that a unit's name stands for: what it shares with its neighbours has one name for both."""
        if name == one.entry:
            return f"{batch} {index - 1} output"
        if name == one.output:
            return f"{batch} {index} output"
        if name == one.downstream:
            return f"{batch} {index - 1} gradient"
        if name == one.upstream:
            return f"{batch} {index} gradient"
        return f"{batch} {index} {name}"

    # --- weights that are held split ---

    def gather(self, name: str) -> None:
        if self.sharded and name in self.whole and f"whole {name}" not in self.memory.held:
            self.memory.allocate(f"flat {name}", self.whole[name][0], "gather")
            self.memory.allocate(f"whole {name}", self.whole[name][0])
            if name == ROOT:
                self.memory.free(f"flat {name}")

    def reshard(self, name: str) -> None:
        if self.sharded and name in self.whole:
            self.memory.free(f"whole {name}")
            self.memory.free(f"flat {name}")

    def reduce(self, batch: int, index: int, one: UnitPasses) -> None:
        """The gradients of a unit's weights: kept as they are, added to what is there, or scattered."""
        names = [f"{batch} {index} {name}" for name in one.weights]
        if self.plan.stack.accumulation == "after_backward":
            return
        if self.sharded and one.name not in ENDS:
            self.memory.free("to reduce")
            self.memory.allocate("to reduce", self.whole[one.name][1])
        for name in names:
            if self._main_gradients() or self.sharded or batch:
                self.memory.free(name)
        if self.sharded and index == 0:
            self.memory.free("to reduce")
            self.memory.allocate("to reduce", self.whole[ROOT][1])
            self.memory.free("to reduce")
            for name, _, held, _ in self._weights():
                if f"g {name}" not in self.memory.held:
                    self.memory.allocate(f"g {name}", self._bytes(self.plan.precision.gradients, held), "reduce")

    # --- the update ---

    def update(self, *, first: bool) -> None:
        precision = self.plan.precision
        if first:
            for name, _, _, held in self._weights():
                for state in range(2):
                    self.memory.allocate(f"s{state} {name}", self._bytes(precision.states, held))
        if self.plan.parallelism.zero in (1, 2) and self.plan.stack.gathers == "copied":
            self._flat_gather()
        for index, one in enumerate(self.instances):
            for name in one.weights:
                for batch in range(PAIRS + len(self.instances)):
                    self.memory.free(f"{batch} {index} {name}")
        if self.sharded:
            for name, _, _, _ in self._weights():
                self.memory.free(f"g {name}")

    def _flat_gather(self) -> None:
        """Weights are gathered into a buffer for each rank, and NCCL gathers those into one."""
        share = sum(self._bytes(self.plan.precision.weights, held) for _, _, _, held in self._weights())
        ranks = self.plan.parallelism.data
        names = [f"rank {rank}" for rank in range(ranks)]
        self.memory.allocate("mine", share)
        for name in names:
            self.memory.allocate(name, share)
        self.memory.allocate("flat", share * ranks)
        for name in ("mine", "flat", *names):
            self.memory.free(name)
