"""When weights are gathered and gradients reduced: bucket by bucket, or module by module from a queue."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

import sympy

from ledger.books.evaluate import Exact, Value
from ledger.model.causes import ENDS, INPUT, LOSS, OUTPUT
from ledger.model.exchanges import Exchanged, copied_to_buckets, sent_dtype
from ledger.model.formats import trained_dtype
from ledger.model.operations import Operation, total
from ledger.model.program import Program
from ledger.model.sharding import exchange
from ledger.model.tensors import Tensor, sized
from ledger.model.unit import Unit
from ledger.spec.plan import Plan
from ledger.spec.stack import Stack

AT_THE_END = ""  # where no gradient is left that finds the buffer full


@dataclass(frozen=True)
class ModuleSpan:
    """A module of a pass, and the bytes that are gathered while it runs and after it."""

    module: str
    inside: int
    after: int


@dataclass(frozen=True)
class Profile:
    """What is gathered and reduced while a layer runs: its modules in order, those that are rebuilt apart.

    `reduced`: gradients that find the buffer full, with the bytes of the copy that is reduced then. `larger`: gradients
    that are larger than the buffer and wait for the next one as they are; `entering`: the bytes of one before them.
    """

    again: tuple[ModuleSpan, ...] = ()
    modules: tuple[ModuleSpan, ...] = ()
    reduced: tuple[tuple[str, int], ...] = ()
    larger: tuple[tuple[str, int], ...] = ()
    entering: int = 0


def by_module(plan: Plan) -> bool:
    """Whether weights are gathered module by module."""
    layout = plan.parallelism
    plain = layout.data * layout.context > 1 and layout.replicate == layout.expert == 1 and not plan.model.bare
    return plan.stack.unshard == "modules" and layout.zero == 3 and plain


@dataclass(frozen=True)
class ModuleFetches:
    """A micro-batch of a device that holds all layers, in this order."""

    program: Program
    plan: Plan
    value: Value
    layers: tuple[str, ...]  # the unit of each

    @cached_property
    def order(self) -> ModuleOrder:
        """The modules of the step."""
        return ModuleOrder(self.program, self.layers)

    @cached_property
    def weights(self) -> Mapping[Key, ModuleWeight]:
        """Sizes of every weight of every layer; a tied one is there once."""
        sharding, weights = self.program.sharding, dict[Key, ModuleWeight]()
        for unit in self.program.units:
            for layer in self.order.places(unit.name):
                for weight in unit.weights:
                    elements, padded = (int(self.value(size)) for size in (weight.elements(), sharding.padded(weight)))
                    weights.setdefault((weight.name, layer), ModuleWeight(unit.name, elements, padded))
        return weights

    @property
    def small(self) -> Iterator[tuple[Key, ModuleWeight]]:
        """Weights that are never let go."""
        most = self.plan.stack.persistent
        return ((key, weight) for key, weight in self.weights.items() if weight.elements <= most)

    @cached_property
    def bytes_each(self) -> int:
        """Bytes of an element that is gathered."""
        return int(self.value(sized(sent_dtype(self.plan), sympy.Integer(1))))

    @cached_property
    def reduced_each(self) -> int:
        """Bytes of an element that is reduced."""
        return int(self.value(sized(self.plan.precision.reduction, sympy.Integer(1))))

    @cached_property
    def run(self) -> FetchQueue:
        """The queue of fetches after a micro-batch has run through it."""
        events = tuple(self.order.events())
        begun = [visit for begins, visit in events if begins]
        run = FetchQueue(begun, self.weights, frozenset(dict(self.small)), self.plan.stack, self.bytes_each)
        for begins, visit in events:
            run.enter_module(visit) if begins else run.end(visit)
        return run

    @cached_property
    def profiles(self) -> Mapping[tuple[str, str, int], Profile]:
        """What is gathered and reduced while a layer runs, by pass, unit and layer."""
        spans: dict[tuple[str, str, int], tuple[list[ModuleSpan], list[ModuleSpan]]] = {}
        last = ModuleSpan("", 0, 0)
        for visit, (inside, after) in self.run.bytes_by_visit.items():
            span = ModuleSpan(visit.module, inside, after)
            if visit.weights:
                spans.setdefault((visit.phase, visit.unit, visit.layer), ([], []))[not visit.again].append(span)
            if visit.phase == FORWARD:
                last = ModuleSpan("", after, after)
        profiles = {key: Profile(tuple(again), tuple(modules)) for key, (again, modules) in spans.items()}
        for phase in (FORWARD, BACKWARD) if LOSS in self.order.units else ():
            profiles[phase, LOSS, END] = Profile(modules=(last,))
        return {key: self._with_gradients(key, profile) for key, profile in profiles.items()}

    def _with_gradients(self, key: tuple[str, str, int], profile: Profile) -> Profile:
        phase, unit, layer = key
        if phase == FORWARD:
            return profile
        names = [weight.name for weight in written_weights(self.order.units[unit])]
        filled = self.filled
        at_the_end = {name: filled.copies[filled.rest][-1] for name in names if (name, layer) == filled.rest}
        copies = {name: filled.copies.get((name, layer), [])[: -1 if name in at_the_end else None] for name in names}
        reduced = [(name, amount) for name, amounts in copies.items() for amount in amounts]
        reduced += [(AT_THE_END, amount) for amount in at_the_end.values()]
        larger = [(name, self.filled.larger[name, layer]) for name in names if (name, layer) in self.filled.larger]
        entering = self.filled.larger_by_next.get((names[0], layer), 0) if names else 0
        return replace(profile, reduced=tuple(reduced), larger=tuple(larger), entering=entering)

    @cached_property
    def filled(self) -> FilledBuckets:
        """The buckets of a micro-batch's gradients."""
        buckets = FilledBuckets(self.weights, self.plan.stack.reduction_buffer, self.reduced_each)
        # a weight that the input looks up as well has its gradient when both parts are there
        units = self.order.units
        looked_up = {weight.name for weight in units[INPUT].weights} if INPUT in units else set[str]()
        for unit, layer in self._backward_order():
            for weight in written_weights(units[unit]):
                waits = unit == OUTPUT and weight.name in looked_up
                if (weight.name, layer) not in buckets.seen and not waits:
                    buckets.add((weight.name, layer))
        buckets.finish()
        return buckets

    def _backward_order(self) -> Iterator[tuple[str, int]]:
        if OUTPUT in self.order.units:
            yield OUTPUT, END
        yield from ((name, place) for place, name in reversed(tuple(enumerate(self.layers))))
        if INPUT in self.order.units:
            yield INPUT, END

    def exchanges(self) -> Iterator[Exchanged]:
        """The calls of a micro-batch, and once a step a gather of each weight that is not let go before."""
        yield from _numbered_calls(
            "all_gather",
            ((phase, *self._call(keys), self.bytes_each * self._padded(keys)) for phase, keys in self.run.gathers),
        )
        reduced = (
            (BACKWARD, *self._call(keys), self.reduced_each * self._padded(keys)) for keys in self.filled.reduced
        )
        yield from _numbered_calls("reduce_scatter", reduced)
        small = (("optimizer", *self._call((key,)), self.bytes_each * self._padded((key,))) for key, _ in self.small)
        yield from _numbered_calls("all_gather", small, per_step=True)

    def _call(self, keys: Sequence[Key]) -> tuple[str, str]:
        """The unit that a call of several weights begins with, and its first and last weight."""
        ends = dict.fromkeys(module_of(name) for name, _ in (keys[0], keys[-1]))
        return self.weights[keys[0]].unit, " to ".join(ends)

    def _padded(self, keys: Iterable[Key]) -> int:
        return sum(self.weights[key].padded for key in keys)


def _numbered_calls(
    collective: str, calls: Iterable[tuple[str, str, str, int]], *, per_step: bool = False
) -> Iterator[Exchanged]:
    """Calls by pass, unit, weights and bytes; those between the same weights that differ in bytes are numbered."""
    alike: Counter[tuple[str, str, str]] = Counter()
    for (phase, unit, weights, amount), count in Counter(calls).items():
        alike[phase, unit, weights] += 1
        number = alike[phase, unit, weights]
        moved = exchange(collective, "data", sympy.Integer(amount), per_step=per_step)
        name = f"{moved.name} of {weights}" + (f" ({number})" if number > 1 else "")
        yield unit, sympy.Integer(count), phase, replace(moved, name=name)


# --- the order of modules in a step, as DeepSpeed's hooks see them ---

FORWARD, BACKWARD = "forward", "backward"
END = -1  # the layer of what is no layer
Key = tuple[str, int]  # a weight and its layer


@dataclass(frozen=True)
class Visit:
    """A module that runs in a pass; one that has no weights of its own still fetches ahead. `again`: it is rebuilt."""

    phase: str
    unit: str
    layer: int
    module: str
    weights: tuple[Key, ...] = ()
    again: bool = False


@dataclass(frozen=True)
class ModuleOrder:
    """The modules of a micro-batch on a device that holds these layers in this order."""

    program: Program
    layers: tuple[str, ...]  # the unit of each

    @cached_property
    def units(self) -> Mapping[str, Unit]:
        """The units of the device by the names that layers have in `layers`."""
        return {unit.name: unit for unit in self.program.units}

    def places(self, unit: str) -> Sequence[int]:
        """The layers that are of a unit."""
        return (END,) if unit in ENDS else [place for place, name in enumerate(self.layers) if name == unit]

    def events(self) -> Iterator[tuple[bool, Visit]]:
        """Modules as they begin (true) and end."""
        yield from self._forward_events()
        yield from self._backward_events()

    def _forward_events(self) -> Iterator[tuple[bool, Visit]]:
        if INPUT in self.units:
            for name in ("", "model"):
                yield True, Visit(FORWARD, INPUT, END, name)
            yield from self._unit_events(FORWARD, INPUT, END)
            operations = (operation for unit in self.program.units for operation in unit.forward)
            if any(tensor.role == "table" for operation in operations for tensor in operation.inputs):
                yield True, Visit(FORWARD, INPUT, END, "rotary")
        for place, name in enumerate(self.layers):
            yield True, Visit(FORWARD, name, place, "layer")
            yield from self._unit_events(FORWARD, name, place)
        if OUTPUT in self.units:
            yield from self._unit_events(FORWARD, OUTPUT, END)

    def _unit_events(self, phase: str, unit: str, layer: int, *, again: bool = False) -> Iterator[tuple[bool, Visit]]:
        """The modules of a unit in order; of a rebuilt one the last never ends, since rebuilding stops there."""
        operations = self.units[unit].saving.again if again else self.units[unit].forward
        visits = [Visit(phase, unit, layer, *module, again) for module in self.modules(operations, layer)]
        for visit in visits:
            yield True, visit
            if visit.weights and not (again and visit is visits[-1]):
                yield False, visit

    def _backward_events(self) -> Iterator[tuple[bool, Visit]]:
        if OUTPUT in self.units:
            yield True, Visit(BACKWARD, OUTPUT, END, "")
            for place, visit in enumerate(self._backward_visits(OUTPUT, END)):
                if place == 1:
                    yield True, Visit(BACKWARD, OUTPUT, END, "model")
                yield True, visit
                yield False, visit
        for place, name in reversed(tuple(enumerate(self.layers))):
            yield True, Visit(BACKWARD, name, place, "layer")
            visits = tuple(self._backward_visits(name, place))
            first = next((index for index, visit in enumerate(visits) if visit.weights), 0)
            for index, visit in enumerate(visits):
                yield True, visit
                if index == first and self.units[name].saving.again:
                    yield True, Visit(BACKWARD, name, place, "layer", again=True)
                    yield from self._unit_events(BACKWARD, name, place, again=True)
                if visit.weights:
                    yield False, visit
        if INPUT in self.units:
            for visit in self._backward_visits(INPUT, END):
                yield True, visit

    def _backward_visits(self, unit: str, layer: int) -> Iterator[Visit]:
        """The modules of a unit as backward visits them: what holds others begins before them."""
        modules = list(self.modules(self.units[unit].forward, layer))
        containers = {name for name, weights in modules if not weights and "/" not in name}
        begun: set[str] = set()
        for name, weights in reversed([module for module in modules if module[0] not in containers]):
            part = name.split("/")[0]
            if part in containers - begun:
                begun.add(part)
                yield Visit(BACKWARD, unit, layer, part)
            yield Visit(BACKWARD, unit, layer, name, weights)

    def modules(self, operations: Iterable[Operation], layer: int) -> Iterator[tuple[str, tuple[Key, ...]]]:
        """Modules by the weights that operations read, with the activation's, and the parts that hold several."""
        weights_by_module: dict[str, dict[str, None]] = {}
        for operation in operations:
            for tensor in operation.inputs:
                if tensor.role == "weight":
                    weights_by_module.setdefault(module_of(tensor.storage), {})[tensor.storage] = None
            if operation.name.endswith("/activation"):
                weights_by_module.setdefault(operation.name, {})
        parts = Counter(name.split("/")[0] for name in weights_by_module)
        begun: set[str] = set()
        for name, weights in weights_by_module.items():
            part = name.split("/")[0]
            if parts[part] > 1 and part not in begun and layer != END:
                begun.add(part)
                yield part, ()
            yield name, tuple((weight, layer) for weight in weights)


def module_of(weight: str) -> str:
    """The module of a weight: all but the last part of its name."""
    return weight.rpartition(".")[0]


# --- gradients in a buffer that is reduced when it is full (DeepSpeed's ZeRO 3) ---


@dataclass(frozen=True)
class ModuleWeight:
    """A weight of one layer: elements, and with the padding that makes them equal shares."""

    unit: str
    elements: int
    padded: int


@dataclass
class FilledBuckets:
    """Gradients that are copied into a buffer, and reduced out of a copy of it before the first that does not fit.

    One that is larger than the buffer waits as it is, and is reduced by itself, without a copy where it needs no
    padding (deepspeed/runtime/zero/stage3.py, coalesced_collectives.py).
    """

    weights: Mapping[Key, ModuleWeight]
    most: int  # elements that the buffer has
    bytes_each: int  # of an element that is reduced
    reduced: list[tuple[Key, ...]] = field(default_factory=list)
    copies: dict[Key, list[int]] = field(default_factory=dict)  # by the gradient that finds no room
    larger: dict[Key, int] = field(default_factory=dict)
    larger_by_next: dict[Key, int] = field(default_factory=dict)  # of a larger one, by the gradient that comes next
    bucket: list[Key] = field(default_factory=list)
    bucket_elements: int = 0  # elements in it
    seen: dict[Key, None] = field(default_factory=dict)
    rest: Key = ("", END)  # the last gradient of all, after which what is left in the buffer is reduced

    def add(self, key: Key) -> None:
        """The gradient of a weight is there."""
        elements = self.weights[key].elements
        if self.bucket and self.bucket_elements + elements > self.most:
            if self.bucket[-1] in self.larger:
                self.larger_by_next[key] = self.larger[self.bucket[-1]]
            self._reduce(key)
        if elements > self.most:
            self.larger[key] = self.bytes_each * elements
        self.bucket.append(key)
        self.bucket_elements += elements
        self.seen[key] = None

    def finish(self) -> None:
        """What the buffer still has when backward is over is reduced."""
        if self.bucket:
            self.rest = self.bucket[-1]
            self._reduce(self.rest)

    def _reduce(self, at: Key) -> None:
        weights = [self.weights[key] for key in self.bucket]
        copied = len(weights) > 1 or weights[0].padded > weights[0].elements
        elements = sum(weight.padded for weight in weights) if copied else 0
        self.copies.setdefault(at, []).append(self.bytes_each * elements)
        self.reduced.append(tuple(self.bucket))
        self.bucket.clear()
        self.bucket_elements = 0


# --- weights gathered from a queue, ahead of the modules that need them ---


@dataclass
class FetchQueue:
    """The state of the queue: weights that are there, and those in the buffer of a call that somebody still waits for.

    `live`: elements that are there; `buffers`: of calls of several weights, how many of each nobody has asked for yet.
    """

    visits: Sequence[Visit]
    weights: Mapping[Key, ModuleWeight]
    small: frozenset[Key]  # weights that are never let go
    stack: Stack
    bytes_each: int  # of an element that is gathered
    step: int = 0
    live: int = 0
    gathered: set[Key] = field(default_factory=set)
    joint_calls: dict[Key, tuple[Key, ...]] = field(default_factory=dict)
    buffers: dict[tuple[Key, ...], int] = field(default_factory=dict)
    arriving: set[tuple[Key, ...]] = field(default_factory=set)  # calls that no module has waited for
    last: dict[Key, int] = field(default_factory=dict)  # the latest step that the queue has fetched a weight for
    queue: deque[tuple[Key, int]] = field(default_factory=deque)
    gathers: list[tuple[str, tuple[Key, ...]]] = field(default_factory=list)
    bytes_by_visit: dict[Visit, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.queue.extend((key, step) for step, visit in enumerate(self.visits) for key in visit.weights)
        self.uses: dict[Key, deque[int]] = {}
        self.before = [0]  # elements of all modules before one
        for step, visit in enumerate(self.visits):
            for key in visit.weights:
                self.uses.setdefault(key, deque()).append(step)
            self.before.append(self.before[-1] + sum(self.weights[key].elements for key in visit.weights))
        self.place = {key: place for place, key in enumerate(self.weights)}

    def enter_module(self, visit: Visit) -> None:
        """Gathers what the module needs and is not there, waits for it, then gathers what comes next."""
        self._gather(visit.phase, [key for key in visit.weights if key not in self.gathered and key not in self.small])
        for key in visit.weights:
            self._wait(key)
        unfetched = sum(self.last.get(key, -1) < self.step for key in visit.weights)
        passed: set[Key] = set()
        while self.queue and len(passed) < unfetched:
            key, step = self.queue.popleft()
            self.last[key] = step
            passed.add(key)
        self._gather_ahead(visit.phase)
        self.step += 1
        self.bytes_by_visit[visit] = (self.bytes(), self.bytes())

    def _wait(self, key: Key) -> None:
        """All weights of its call are copied out; the buffer goes when each has been waited for."""
        call = self.joint_calls.pop(key, None)
        if call:
            self.arriving.discard(call)
            self.buffers[call] -= 1
            if not self.buffers[call]:
                del self.buffers[call]

    def _gather_ahead(self, phase: str) -> None:
        most, fetched = min(self.stack.live_parameters - self.live, self.stack.prefetch), 0
        keys: dict[Key, None] = {}
        while self.queue and fetched < most:
            key, step = self.queue.popleft()
            self.last[key] = max(self.last.get(key, -1), step)
            if key not in self.gathered and key not in self.small and key not in keys:
                keys[key] = None
                fetched += self.weights[key].elements
        self._gather(phase, keys)

    def _gather(self, phase: str, keys: Iterable[Key]) -> None:
        call = tuple(sorted(keys, key=self.place.__getitem__))
        if call:
            self.gathers.append((phase, call))
            self.gathered.update(call)
            self.live += self._elements(call)
            if len(call) > 1:
                self.joint_calls.update(dict.fromkeys(call, call))
                self.buffers[call] = len(call)
                self.arriving.add(call)

    def end(self, visit: Visit) -> None:
        """Lets go what the queue has not passed over for a later module, and no module needs soon."""
        inside = self.bytes()
        going = [key for key in visit.weights if key in self.gathered and not self._stays(key)]
        self.gathered.difference_update(going)
        self.live -= self._elements(going)
        self.bytes_by_visit[visit] = (inside, self.bytes())

    def _stays(self, key: Key) -> bool:
        uses = self.uses[key]
        while uses and uses[0] < self.step:
            uses.popleft()
        distance = self.stack.reuse_distance
        soon = bool(uses) and self.before[uses[0]] - self.before[self.step] < distance
        return soon or self.last.get(key, -1) > self.step

    def _elements(self, keys: Iterable[Key]) -> int:
        return sum(self.weights[key].elements for key in keys)

    def bytes(self) -> int:
        """Bytes of whole weights, and of calls' buffers that any of theirs still waits in."""
        buffers = sum(self.weights[key].padded for call in self.buffers for key in call)
        arriving = sum(self._elements(call) for call in self.arriving)
        return self.bytes_each * (self.live - arriving + buffers)


# --- buckets of gradients, as torch's DistributedDataParallel fills them ---

# torch 2.13: _DEFAULT_BUCKET_CAP_MB (torch/nn/parallel/distributed.py) and _DEFAULT_FIRST_BUCKET_BYTES
# (torch/csrc/distributed/c10d/reducer.hpp); the first bucket is smaller only where no size is stated.
DEFAULT, FIRST = 25 * 2**20, 2**20


def parameter_collectives(program: Program, plan: Plan, value: Value) -> Iterator[Exchanged]:
    """The transfers of weights and gradients; where gradients go in buckets, one reduction for each of these."""
    reductions = [call for call in program.exchanges if (call[3].collective, call[3].axis) == ("all_reduce", "data")]
    if not copied_to_buckets(plan) or not reductions:
        yield from program.exchanges
        return
    yield from (call for call in program.exchanges if call not in reductions)
    sizes = [value(sized(trained_dtype(plan), elements)) for elements in ready(program, value)]
    count = sympy.Integer(int(bucket_count(sizes, plan.parallelism.bucket)))
    amount = total(times * moved.amount for _, times, _, moved in reductions) / count
    yield "gradients", count, "backward", replace(reductions[0][3], amount=amount)


def bucket_count(sizes: Iterable[Exact], limit: int = 0) -> int:
    """How many buckets gradients of these sizes fill, in this order; a bucket is full once it reaches its limit.

    torch/csrc/distributed/c10d/reducer.cpp, compute_bucket_assignment_by_size; 0: the default limits.
    """
    full, bucket_bytes = 0, Fraction(0)
    for size in sizes:
        bucket_bytes += size
        if bucket_bytes >= (limit or (DEFAULT if full else FIRST)):
            full, bucket_bytes = full + 1, Fraction(0)
    return full + (bucket_bytes > 0)


def ready(program: Program, value: Value) -> Iterator[sympy.Expr]:
    """Elements of each gradient in the order in which backward has them; that of a tied weight when both uses are."""
    later = {weight.name for unit in program.units if unit.name == INPUT for weight in unit.weights}
    for unit in reversed(program.units):
        written = [w for w in written_weights(unit) if unit.name != OUTPUT or w.name not in later]
        yield from [weight.elements() for weight in written] * int(value(unit.count))


def written_weights(unit: Unit) -> list[Tensor]:
    """The trained weights of a unit, in the order in which their gradients are written."""
    weights = {weight.gradient.name: weight for weight in unit.weights if not weight.frozen}
    order = dict.fromkeys(t.name for operation in unit.backward for t in operation.outputs if t.name in weights)
    return [weights.pop(name) for name in order] + list(weights.values())
