"""One pass of a device that serves, priced: its kernels and transfers, each at the sizes of what runs in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import sympy

from ledger.books.bindings import bindings
from ledger.books.entries import Entry, Ledger, nonzero
from ledger.books.evaluate import Exact, Value, exact
from ledger.books.posting import of_phase, of_sends
from ledger.books.results import KernelTime
from ledger.books.serving import lengths
from ledger.books.serving.calls import priced_rows
from ledger.books.serving.floor import experts_hit
from ledger.model.cached_attention import per_sequence
from ledger.model.causes import OUTPUT
from ledger.model.dims import symbol
from ledger.model.operations import Operation
from ledger.model.program import sends
from ledger.model.schedule import Role, roles
from ledger.model.serving import served_units
from ledger.model.unit import Unit
from ledger.spec.plan import Attention, Group, Plan, Serve

PREFILL, DECODE = "prefill", "decode"
Of = Callable[[Attention], Fraction]  # tokens, by how a layer attends


@dataclass(frozen=True)
class Shape:
    """What one device has of a pass: sequences, new tokens of each, and what a query attends to and a pass reads.

    `sampled`: tokens of the pass that the head scores.
    """

    sequences: Fraction
    tokens: Fraction
    sampled: Fraction
    attended: Of
    read: Of


def prompt_shape(serve: Serve, prompt: int) -> Shape:
    """A pass over a chunk of one prompt, of its mean size; its last token is scored once in all of its passes."""
    passes = lengths.chunks(serve, prompt)
    return Shape(
        Fraction(1),
        passes.size,
        1 / passes.count,
        lambda attention: lengths.attended_in_prompt(serve, attention, prompt),
        lambda attention: lengths.read_in_prompt(serve, attention, prompt),
    )


def mean_prompt_shape(serve: Serve) -> Shape:
    """A pass over a chunk of a prompt, on average over all prompts."""
    passes = lengths.mean_chunks(serve)
    return Shape(
        Fraction(1),
        passes.size,
        1 / passes.count,
        lambda attention: lengths.attended_in_prompts(serve, attention),
        lambda attention: lengths.read_in_prompts(serve, attention),
    )


def decode_shape(serve: Serve, sequences: Fraction) -> Shape:
    """One new token of each of so many sequences."""

    def attended(attention: Attention) -> Fraction:
        return lengths.attended_in_decoding(serve, attention)

    return Shape(sequences, Fraction(1), sequences, attended, attended)


@dataclass(frozen=True)
class Phase:
    """What a role runs in a pass of one kind: products over all tokens, what each sequence does by itself, the head."""

    name: str
    units: tuple[Unit, ...]
    joint: Ledger
    separate: Ledger
    head: Ledger

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The entries of all three ledgers."""
        return self.joint.entries + self.separate.entries + self.head.entries


@dataclass(frozen=True)
class ServedRole:
    """One kind of device of a plan that serves, with what it runs of prompts and of decoding."""

    plan: Plan
    role: Role

    @cached_property
    def prefill(self) -> Phase:
        """Passes over prompts: as many new tokens of a sequence as a chunk has, after those that wait in the cache."""
        return _post_phase(self.plan, self.role, PREFILL)

    @cached_property
    def decode(self) -> Phase:
        """Passes that give each sequence its next token."""
        return _post_phase(self.plan, self.role, DECODE)

    def value(self, shape: Shape) -> Value:
        """Formulas of this role under the sizes of a pass."""
        return exact(self.sizes(shape))

    def sizes(self, shape: Shape) -> dict[sympy.Symbol, Exact]:
        """Every symbol that a formula of a pass may use."""
        of_pass = {symbol("batch"): shape.sequences, symbol("seq"): shape.tokens, symbol("micro_batches"): 1}
        for group in self.plan.model.groups:
            suffix = group.name if len(self.plan.model.groups) > 1 else ""
            of_pass[symbol("attended", suffix)] = shape.attended(group.attention)
            of_pass[symbol("read", suffix)] = shape.read(group.attention)
            if group.mlp.experts:
                shared = shape.sequences * shape.tokens * self.plan.parallelism.expert
                of_pass[symbol("hit", suffix)] = Fraction(experts_hit(group, float(shared)))
        return {**self.bound, **of_pass}

    @cached_property
    def bound(self) -> dict[sympy.Symbol, Exact]:
        """The symbols whose values no pass changes."""
        return bindings(self.plan, self.role)

    def scored(self, shape: Shape) -> Shape:
        """What the head sees of a pass: the tokens that it scores."""
        return Shape(Fraction(1), shape.sampled, shape.sampled, shape.attended, shape.read)

    def rows(self, phase: Phase, shape: Shape) -> tuple[KernelTime, ...]:
        """Every kernel and transfer of a pass of one kind, with its price."""
        value, scored = self.value(shape), self.value(self.scored(shape))
        parts = ((phase.joint, value), (phase.separate, value), (phase.head, scored))
        return tuple(row for ledger, at_sizes in parts for row in priced_rows(ledger, self.plan, at_sizes))

    def mixed_rows(self, prompt: Shape, decoding: Shape) -> tuple[KernelTime, ...]:
        """A pass over a chunk of a prompt and the next token of sequences: products run over the tokens of both."""
        tokens = prompt.sequences * prompt.tokens + decoding.sequences * decoding.tokens
        both = Shape(Fraction(1), tokens, prompt.sampled + decoding.sampled, prompt.attended, prompt.read)
        parts = (
            (self.prefill.joint, self.value(both)),
            (self.prefill.separate, self.value(prompt)),
            (self.decode.separate, self.value(decoding)),
            (self.prefill.head, self.value(self.scored(both))),
        )
        return tuple(row for ledger, at_sizes in parts for row in priced_rows(ledger, self.plan, at_sizes))


def served_roles(plan: Plan) -> tuple[ServedRole, ...]:
    """The roles of a plan's devices, from the first stage to the last."""
    copied = with_copied_heads(plan)
    return tuple(ServedRole(copied, role) for role in roles(plan))


def with_copied_heads(plan: Plan) -> Plan:
    """The plan as its devices have it: where key-value heads are fewer than tensor parallelism, one on each device."""
    tensor = plan.parallelism.tensor

    def with_heads(group: Group) -> Group:
        heads = group.attention.heads_over(tensor, copies=True).get("kv_heads", group.attention.kv_heads)
        return replace(group, attention=replace(group.attention, kv_heads=heads))

    return replace(plan, model=replace(plan.model, groups=tuple(map(with_heads, plan.model.groups))))


def _post_phase(plan: Plan, role: Role, name: str) -> Phase:
    units = served_units(plan, role, decodes=name == DECODE)
    posted: list[tuple[Unit, object, Entry]] = []
    for unit in units:
        posted.extend((unit, entry.operation, entry) for entry in of_phase(unit, name, unit.forward, plan))
    between = nonzero(
        entry
        for count, phase, moved in sends(plan, role)
        if phase == "forward"
        for entry in of_sends([(count, name, moved)])
    )

    def chosen(is_chosen: Callable[[Unit, object], bool]) -> tuple[Entry, ...]:
        return nonzero(entry for unit, operation, entry in posted if is_chosen(unit, operation))

    return Phase(
        name,
        units,
        Ledger(role.name, chosen(lambda unit, op: unit.name != OUTPUT and not _is_per_sequence(op)) + between),
        Ledger(role.name, chosen(lambda unit, op: unit.name != OUTPUT and _is_per_sequence(op))),
        Ledger(role.name, chosen(lambda unit, _: unit.name == OUTPUT)),
    )


def _is_per_sequence(operation: object) -> bool:
    return isinstance(operation, Operation) and per_sequence(operation)


# --- seconds ---

RowsOf = Callable[[ServedRole], Sequence[KernelTime]]


@dataclass(frozen=True)
class PassTime:
    """Seconds of a pass through all stages, and how long it keeps the slowest of them."""

    through: float
    slowest: float

    def after(self, host: float) -> PassTime:
        """The times where each pass waits for its host so long."""
        return PassTime(self.through + host, self.slowest + host)

    def cycle(self, at_once: float) -> float:
        """Seconds from one pass of the same sequences to the next, where so many groups of them take turns."""
        return max(self.through, at_once * self.slowest)


def pass_time(served: Sequence[ServedRole], rows_of: RowsOf) -> PassTime:
    """A pass of all roles: kernels and transfers one after the other, and what its host takes longer than they do."""
    stages = [(len(role.role.stages), stage_seconds(role.plan, rows_of(role))) for role in served]
    return PassTime(sum(count * seconds for count, seconds in stages), max(seconds for _, seconds in stages))


def stage_seconds(plan: Plan, rows: Sequence[KernelTime]) -> float:
    """Seconds of one stage: nothing runs beside anything else, and the host launches ahead of the device.

    A step that only decodes is launched as one where it is replayed as a CUDA graph. A CPU is its own host: it has no
    graphs, and launches nothing while it computes.
    """
    device, launches = sum(float(row.seconds) * row.times for row in rows), sum(row.times for row in rows)
    if plan.accelerator.kind == "cpu":
        return device + float(plan.stack.launch) * launches
    if plan.stack.engine.graphs and all(row.when == DECODE for row in rows):
        return device
    return max(device, float(plan.stack.launch) * launches)


def host_seconds(plan: Plan, sequences: float) -> float:
    """What the device waits for in a step of so many sequences: scheduling, inputs, tokens that were drawn."""
    return plan.stack.engine.step + plan.stack.engine.sequence * sequences


def sums(rows: Sequence[KernelTime], of: Callable[[KernelTime], float]) -> Mapping[str, float]:
    """Seconds, bytes or FLOPs of a pass by what limits each kernel."""
    by_bound: dict[str, float] = {}
    for row in rows:
        by_bound[row.bound] = by_bound.get(row.bound, 0.0) + of(row) * row.times
    return by_bound
