"""A few steps of one role, replayed: weights and states, micro-batches in the order of the schedule, the update."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ledger.books.closed import Books
from ledger.evidence.replay.allocator import Allocator
from ledger.evidence.replay.passes import UnitPasses, unit_passes
from ledger.model.exchanges import ends_apart
from ledger.model.schedule import micro_batches
from ledger.model.sharding import gathered
from ledger.model.tensors import Tensor, sized
from ledger.model.wrapping import INPUT, OUTPUT, ROOT, wrapped
from ledger.spec.plan import Plan

STEPS = 2  # the second one finds the blocks of the first
PAIRS = 2  # micro-batches between filling and draining; the second finds the blocks of the first


@dataclass(frozen=True)
class Held:
    """Bytes of one weight on this device: itself, its gradient, and the share of it that is updated here."""

    weight: int
    gradient: int
    updated: int


@dataclass(frozen=True)
class Replayed:
    """The most bytes that were allocated at once, and those reserved for all of it."""

    allocated: int
    reserved: int


def replayed(plan: Plan, book: Books) -> Replayed:
    """The first steps of one device of a role."""
    run = _Run(plan, book)
    run.begin()
    for step in range(STEPS):
        run.step(first=step == 0)
    return Replayed(run.memory.peak, run.memory.reserved)


class _Run:
    """The state of a replay: which layer instances there are, and what is allocated."""

    def __init__(self, plan: Plan, book: Books) -> None:
        self.plan, self.book, self.role = plan, book, book.role
        self.program, self.value = book.program, book.value
        self.memory = Allocator(expandable=plan.stack.expandable)
        passes = [unit_passes(unit, self.value) for unit in self.program.units]
        self.instances: list[UnitPasses] = [one for one in passes for _ in range(one.count)]
        self.sharded = self.program.sharding.splits("weights")
        self.whole = {
            name: (
                int(self.value(gathered(weights, self.program.sharding, plan.precision.compute))),
                int(self.value(gathered(weights, self.program.sharding, plan.precision.reduction))),
            )
            for name, weights in self._sets()
        }
        self.weights = tuple(self._weights())
        self.fresh: set[str] = set()  # gradients of weights that wait for the update

    # --- what lasts ---

    def _sets(self) -> Iterator[tuple[str, tuple[Tensor, ...]]]:
        """The weights of one layer of each unit, and those of the root, or of each end that moves by itself."""
        alone = ends_apart(self.plan, self.program.units)
        yield from ((unit.name, unit.weights) for unit in self.program.units if unit.name in alone)
        yield from ((name, weights) for name, _, weights in wrapped(self.program.units) if not alone or name != ROOT)

    def _weights(self) -> Iterator[tuple[str, Held]]:
        """Every weight and what is held of it, layer by layer."""
        sharding, precision = self.program.sharding, self.plan.precision
        for name, count, weights in wrapped(self.program.units):
            sizes = [
                Held(
                    int(self.value(sized(precision.weights, sharding.held("weights", weight)))),
                    int(self.value(sized(precision.gradients, sharding.held("gradients", weight)))),
                    int(self.value(sized(precision.weights, sharding.held("optimizer", weight)))),
                )
                for weight in weights
            ]
            for layer in range(int(self.value(count))):
                yield from ((f"{name}.{layer}.{w.name}", size) for w, size in zip(weights, sizes, strict=True))

    def begin(self) -> None:
        """Weights, buckets, main gradients and master copies, in the order frameworks make them."""
        for name, held in self.weights:
            self.memory.allocate(f"w {name}", held.weight)
        if self.plan.stack.buckets and self.plan.parallelism.zero == 0 and self.plan.parallelism.data > 1:
            for name, held in self.weights:
                self.memory.allocate(f"b {name}", held.weight)
        if self._main_gradients():
            for name, held in self.weights:
                self.memory.allocate(f"g {name}", held.gradient)
        self._keep("master")

    def _keep(self, category: str) -> None:
        """What the books hold of a category all the time, layer by layer."""
        for entry in self.book.ledger.select(f"memory.{category}"):
            size = int(self.value(entry.amount))
            for layer in range(int(self.value(entry.times))):
                self.memory.allocate(f"{category} {entry.account} {layer}", size)

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
            if one.name == OUTPUT:  # a head that moves by itself stays for its backward
                self.memory.free(f"flat {OUTPUT}")
            else:
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
            self._forget()
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
        self.fresh.update(f"{batch} {index} {name}" for name in one.weights)
        if self.plan.stack.accumulation == "after_backward":
            return
        if self.sharded:
            own = one.name in self.whole
            self._scatter(one.name if own else ROOT, wanted=own or index == 0)
        if self._main_gradients() or self.sharded or batch:
            self._forget([f"{batch} {index} {name}" for name in one.weights])

    def _scatter(self, name: str, *, wanted: bool) -> None:
        """Whole gradients are copied into one buffer, which waits for the next one's turn."""
        if not wanted or name not in self.whole:
            return
        self.memory.free("to reduce")
        self.memory.allocate("to reduce", self.whole[name][1])
        if name in (ROOT, INPUT):
            self.memory.free("to reduce")
            for weight, held in self.weights:
                if f"g {weight}" not in self.memory.held:
                    self.memory.allocate(f"g {weight}", held.gradient, "reduce")

    def _forget(self, names: Sequence[str] = ()) -> None:
        for name in names or tuple(self.fresh):
            self.memory.free(name)
            self.fresh.discard(name)

    # --- the update ---

    def update(self, *, first: bool) -> None:
        """States appear with the first update; weights that were updated in shares are gathered."""
        if first:
            self._keep("optimizer")
        passing = dict(self._temporaries())
        for name, size in passing.items():
            self.memory.allocate(name, size)
        for name in passing:
            self.memory.free(name)
        if self.plan.parallelism.zero in (1, 2) and self.plan.stack.gathers == "copied":
            self._flat_gather()
        self._forget()
        if self.sharded:
            for name, _ in self.weights:
                self.memory.free(f"g {name}")

    def _temporaries(self) -> Iterator[tuple[str, int]]:
        """What the update needs beside states, each kind as one request."""
        for entry in self.book.ledger.select("memory.workspace", account="optimizer/"):
            yield entry.account, int(self.value(entry.amount) * self.value(entry.times))

    def _flat_gather(self) -> None:
        """Weights are gathered into a buffer for each rank, and NCCL gathers those into one."""
        share = sum(held.updated for _, held in self.weights)
        ranks = self.plan.parallelism.data
        names = [f"rank {rank}" for rank in range(ranks)]
        self.memory.allocate("mine", share)
        for name in names:
            self.memory.allocate(name, share)
        self.memory.allocate("flat", share * ranks)
        for name in ("mine", "flat", *names):
            self.memory.free(name)
