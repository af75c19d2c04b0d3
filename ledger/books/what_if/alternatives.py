"""Other layouts of the same run on the same devices, and those tried that no other of them beats in time and memory.

Many layouts share one program: their books are written once for each structure and valued for each layout, memory
first, then the time of those that fit. What is returned has books of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from ledger.books.compiled_roles import CompiledRole, bound_role, compile_roles, whole, with_flows, with_memory
from ledger.books.compiler import reserved_bytes
from ledger.books.counts import state_bytes, whole_parameters
from ledger.books.memory.peak import peak_bytes
from ledger.books.price_changes import step_time
from ledger.books.results import Number
from ledger.books.totals import run
from ledger.books.verdict import HEADROOM
from ledger.books.what_if.sizes import divisors
from ledger.model.program import Program, program
from ledger.model.schedule import Role, micro_batches, roles
from ledger.spec.inputs import spec_text, violations
from ledger.spec.plan import Plan, Recompute, Stages

DEGREES = (1, 2, 4, 8, 16)
LARGEST_BATCH = 32


@dataclass(frozen=True)
class Alternative:
    """Another layout: the inputs that differ, as a spec would say them, and its totals."""

    changes: Mapping[str, str]
    totals: Mapping[str, Number]


@dataclass(frozen=True)
class Candidate:
    """A layout valued on shared books: seconds of a step and bytes reserved, both subject to its own compilation."""

    plan: Plan
    reserved: int
    seconds: float


@dataclass(frozen=True)
class Shelf:
    """What layouts of one structure share: programs, and books with their stocks or their flows alone."""

    programs: dict[object, Program] = field(default_factory=dict)
    holding: dict[object, CompiledRole] = field(default_factory=dict)
    flowing: dict[object, CompiledRole] = field(default_factory=dict)

    def held(self, plan: Plan, role: Role) -> CompiledRole:
        """The stocks of a role, valued under a plan."""
        return self._valued(plan, role, self.holding, with_memory)

    def spent(self, plan: Plan, role: Role) -> CompiledRole:
        """The flows of a role, valued under a plan."""
        return self._valued(plan, role, self.flowing, with_flows)

    def _valued(
        self,
        plan: Plan,
        role: Role,
        known: dict[object, CompiledRole],
        write: Callable[[Plan, CompiledRole], CompiledRole],
    ) -> CompiledRole:
        key = structure(plan, role)
        if key not in self.programs:
            self.programs[key] = program(plan, role)
        mine = bound_role(plan, role, self.programs[key])
        if key not in known:
            known[key] = write(plan, mine)
        return replace(known[key], role=role, value=mine.value)


def alternatives(plan: Plan, limit: int = 8) -> tuple[Alternative, ...]:
    """At most `limit` legal layouts that leave the plan's headroom free, fastest first.

    They are the Pareto front of step time and reserved memory among the layouts that are tried.
    """
    if plan.model.bare:
        return ()
    shelf = Shelf()
    count = int(whole_parameters(whole(plan)))
    possible = (layout for layout in layouts(plan) if state(layout, count) <= room(plan))
    found = [candidate for layout in possible for candidate in fitting(layout, shelf)]
    chosen = [candidate for candidate in front(found) if changed(plan, candidate.plan)]
    rows = [Alternative(changed(plan, one.plan), compared(one.plan)) for one in chosen[:limit]]
    held = [row for row in rows if row.totals["memory.reserved"] <= room(plan)]
    return tuple(sorted(held, key=lambda row: row.totals["time.step"]))


def room(plan: Plan) -> float:
    """Bytes of a device that may be reserved under the plan's headroom policy."""
    return plan.accelerator.memory - HEADROOM[plan.assumptions.headroom]


def compared(plan: Plan) -> dict[str, Number]:
    """The totals that layouts are compared by, as compiling the plan on its own gives them."""
    books = compile_roles(plan, roles(plan))
    step = step_time(plan, books)
    worst = max(books, key=peak_bytes)
    memory = {"memory.reserved": reserved_bytes(plan, worst), "memory.capacity": plan.accelerator.memory}
    return {**memory, "time.step": step, **dict(run(plan, step))}


def layouts(plan: Plan) -> Iterator[Plan]:
    """The legal layouts in a fixed order, each with the smallest micro-batch."""
    mesh, devices = plan.parallelism, plan.cluster.devices
    tensors = sorted({mesh.tensor, *(one for one in DEGREES if one <= plan.cluster.devices_per_node)})
    pipelines = sorted({mesh.pipeline, *(one for one in DEGREES if one <= len(plan.model.groups) * 8)})
    policies = dict.fromkeys((plan.recompute, Recompute("none"), Recompute("full")))
    for tensor, pipeline, policy in product(tensors, pipelines, policies):
        data, rest = divmod(devices, tensor * pipeline * mesh.context)
        if rest:
            continue
        for zero in sorted({1, 3, mesh.zero} if pipeline == 1 else {mesh.zero if mesh.pipeline > 1 else 1}):
            kept = mesh if pipeline == mesh.pipeline else replace(mesh, interleave=1, schedule="", stages=Stages())
            spread = replace(
                kept,
                data=data,
                tensor=tensor,
                pipeline=pipeline,
                zero=zero if data * mesh.context > 1 else 0,
                sequence=(mesh.sequence if mesh.sequence != "off" else "save_gathered") if tensor > 1 else "off",
            )
            other = replace(plan, parallelism=spread, recompute=policy, run=replace(plan.run, micro_batch=1))
            if not violations(other):
                yield other


def state(plan: Plan, count: int) -> float:
    """Bytes of state on one device if stages were equal: less than any of its moments holds."""
    mesh, rates = plan.parallelism, state_bytes(plan)
    parts = {"weights": 3, "gradients": 2, "master": 1, "optimizer": 1}
    shards = {what: mesh.data * mesh.context if mesh.zero >= stage else 1 for what, stage in parts.items()}
    return count / (mesh.tensor * mesh.pipeline) * sum(float(rates[what]) / shards[what] for what in parts)


def fitting(layout: Plan, shelf: Shelf) -> Iterator[Candidate]:
    """The layout with the largest micro-batch that leaves the headroom free, whose matmuls are largest."""
    share, best = layout.run.global_batch // layout.parallelism.data, None
    for size in sorted(size for size in divisors(share) if size <= LARGEST_BATCH):
        plan = replace(layout, run=replace(layout.run, micro_batch=size))
        found = merged(roles(plan))
        needed = max(reserved_bytes(plan, shelf.held(plan, role)) for role in {found[0], found[-1]})
        if needed > room(plan):
            break
        best = plan, found, needed
    if best:
        plan, found, needed = best
        yield Candidate(plan, needed, step_time(plan, [shelf.spent(plan, role) for role in found]))


def merged(found: Sequence[Role]) -> tuple[Role, ...]:
    """The first role, the last, and all between them as one."""
    if len(found) < 3:
        return tuple(found)
    inner = found[1:-1]
    stages = tuple(stage for role in inner for stage in role.stages)
    between = replace(inner[0], stages=stages, devices=sum(role.devices for role in inner))
    return found[0], between, found[-1]


def structure(plan: Plan, role: Role) -> tuple[object, ...]:
    """What decides which operations a role runs and which formulas are posted; everything else is a size."""
    mesh = plan.parallelism
    held = (role.first, role.last, tuple(bool(count) for count in role.layers))
    split = (mesh.tensor > 1, mesh.sequence, mesh.context > 1, mesh.data > 1, mesh.zero)
    return (*held, *split, plan.recompute, micro_batches(plan) > 1)


def front(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Those that no other beats in one of time and memory without losing in the other, fastest first."""
    best: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda one: (one.seconds, one.reserved)):
        if not best or candidate.reserved < best[-1].reserved:
            best.append(candidate)
    return best


ORDER = ("schedule", "stages")  # which follow where another number of stages takes its default


def changed(plan: Plan, other: Plan) -> dict[str, str]:
    """The inputs of a layout that differ, as a spec would say them."""
    found = {
        f"parallelism.{name}": str(value)
        for name, value in vars(other.parallelism).items()
        if value != getattr(plan.parallelism, name) and name not in ORDER
    }
    if other.recompute != plan.recompute:
        found["recompute"] = spec_text(other.recompute, "recompute")
    if other.run != plan.run:
        found["run.micro_batch"] = str(other.run.micro_batch)
    return found
