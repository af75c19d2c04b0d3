"""Moments of a step: what runs, beside what; and stocks, as many of which are alive at each of them as a rule says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import sympy

from ledger.books.entries import Entry, Lifetime
from ledger.books.evaluate import Value
from ledger.books.parameter_traffic import ModuleFetches, Profile, by_module
from ledger.books.resources import stock
from ledger.model.causes import BRIDGE, ENDS, INPUT, LOSS, OUTPUT, Cause
from ledger.model.dims import symbol
from ledger.model.exchanges import ends_apart
from ledger.model.fsdp_units import MODEL
from ledger.model.losses import UNIT
from ledger.model.operations import ONE, ZERO
from ledger.model.program import Program
from ledger.model.recompute import segment
from ledger.model.schedule import Role, group_order
from ledger.model.tensors import CeilDiv
from ledger.model.unit import Unit
from ledger.spec.plan import Plan

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"


@dataclass(frozen=True)
class Surroundings:
    """What one set of gathered weights stands beside, in a pass: the sets before and after it in this pass.

    `inside` counts the layers of this set that the pass left behind; `closes` says that no further one follows.
    `moving`: the unit of the layer whose activations go to the host meanwhile, or come back for the next backward.
    `gathered`: what is there while it runs, where modules gather their own weights.
    """

    before: str = ""
    after: str = ""
    inside: int = 0
    closes: bool = True
    moving: str = ""
    gathered: Profile | None = None


@dataclass(frozen=True)
class Moment:
    """A moment: `unit` runs in a `phase` (nothing in the optimizer).

    `passed_layers` are the layers of each unit left behind.
    """

    name: str
    title: str
    phase: str
    unit: str = ""
    passed_layers: Mapping[str, sympy.Expr] = field(default_factory=dict)
    surroundings: Surroundings = Surroundings()


AliveCount = Callable[[Moment], sympy.Expr]  # how many of a thing are alive at a moment


@dataclass(frozen=True)
class Timeline:
    """The moments of a step in order; `counts` has the layers of each unit that this device holds.

    `chunked`: they may lie in several chunks, which micro-batches pass one after the other.
    """

    points: tuple[Moment, ...]
    counts: Mapping[str, sympy.Expr]
    chunked: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the moments."""
        return tuple(point.name for point in self.points)

    @property
    def titles(self) -> Mapping[str, str]:
        """What each moment is called, for people."""
        return {point.name: point.title for point in self.points}

    @property
    def all_moments(self) -> Lifetime:
        """All moments of the step."""
        return Lifetime(0, len(self.points) - 1)

    @property
    def last(self) -> Lifetime:
        """The last moment alone, at which the optimizer updates."""
        return Lifetime(len(self.points) - 1, len(self.points) - 1)

    def saved(self, unit: Unit) -> AliveCount:
        """Layers of a unit that wait for their backward pass; the one that runs is not among them."""

        def waiting(point: Moment) -> sympy.Expr:
            if point.phase == OPTIMIZER:
                return ZERO
            passed, elsewhere = point.passed_layers[unit.name], self._in_other_chunks(unit, point)
            if point.phase == FORWARD:
                return passed + elsewhere
            return self.counts[unit.name] - passed - (1 if point.unit == unit.name else 0) + elsewhere

        return waiting

    def flying(self, unit: Unit, in_flight: sympy.Expr) -> AliveCount:
        """Layers that hold other micro-batches in both passes, so many where most are in flight.

        Where a step has no more micro-batches than stages, the first chunk runs before all others forward, and after
        them backward.
        """

        def alive(point: Moment) -> sympy.Expr:
            if point.phase == OPTIMIZER:
                return ZERO
            if not self.chunked or not self._first_chunk(unit, point):
                return in_flight
            return in_flight * (_is_steady() + (ONE - _is_steady()) / symbol("chunks"))

        return alive

    def _first_chunk(self, unit: Unit, point: Moment) -> bool:
        """Whether layers near the start of the model run, of which few are left behind forward, or wait in backward."""
        layers = point.passed_layers[unit.name]
        if point.phase == BACKWARD:
            layers = self.counts[unit.name] - layers - (1 if point.unit == unit.name else 0)
        return bool(layers.is_Integer) and unit.name not in (*ENDS, UNIT)

    def _in_other_chunks(self, unit: Unit, point: Moment) -> sympy.Expr:
        """While the first chunk runs, layers of other chunks in which as many micro-batches wait as ever.

        A micro-batch comes to a chunk when the one before it has passed others (Narayanan et al. 2021, figure 4), so
        that a device holds nearly as much while the first layers run as while the last ones do.
        """
        if not self.chunked or not self._first_chunk(unit, point):
            return ZERO
        return self.counts[unit.name] * (ONE - ONE / symbol("chunks")) * _is_steady()

    def through(self, unit: str) -> AliveCount:
        """Layers of a unit whose backward pass is over."""

        def done(point: Moment) -> sympy.Expr:
            if point.phase == OPTIMIZER:
                return self.counts[unit]
            return ZERO if point.phase == FORWARD else point.passed_layers[unit]

        return done


def _is_steady() -> sympy.Expr:
    """1 where chunks take turns in several rounds, of one micro-batch for each stage; 0 where there is one round."""
    rounds = CeilDiv(symbol("micro_batches"), symbol("pipeline"))
    return CeilDiv(rounds - 1, symbol("micro_batches"))


def always(count: sympy.Expr) -> AliveCount:
    """Equally many at every moment."""
    return lambda _: count


def until_update(count: sympy.Expr) -> AliveCount:
    """Equally many in both passes."""
    return lambda point: ZERO if point.phase == OPTIMIZER else count


def post_stock(  # noqa: PLR0913 - the arguments are the facts of one stock
    line: Timeline,
    cause: Cause,
    category: str,
    amount: sympy.Expr,
    alive: AliveCount,
    why: str,
) -> Iterator[Entry]:
    """The entries of a stock: one for each stretch of moments over which equally many are alive."""
    counts = [alive(point) for point in line.points]
    first = 0
    for index in range(1, len(counts) + 1):
        if index == len(counts) or counts[index] != counts[first]:
            if counts[first] != ZERO:
                yield Entry(cause, stock(category), Lifetime(first, index - 1), amount, counts[first], why)
            first = index


# --- moments of a step at which memory can be fullest ---


def timeline(program: Program, plan: Plan, role: Role, value: Value, *, chunked: bool | None = None) -> Timeline:
    """Forward through the units, backward through them, then the optimizer; `chunked`, if not as the plan, as there."""
    counts = {unit.name: unit.count for unit in program.units}
    moved = program.sharding.splits("weights") and plan.parallelism.wrap != MODEL
    separate_ends = ends_apart(plan, program.units) if moved else ()
    size = plan.parallelism.wrap if moved else 1
    leave = {unit.name for unit in program.units if unit.hosted and plan.stack.overlap.host == "compute"}
    layers = tuple(sequence(program, plan, role.layers, value))
    profiles = ModuleFetches(program, plan, value, layers).profiles if moved and by_module(plan) else {}
    layer_pass = _Pass(layers, counts, size, moved, separate_ends, frozenset(leave), profiles)
    ends = [unit.name for unit in program.units if unit.name in ENDS]
    points: list[Moment] = []
    if INPUT in ends:
        points.append(layer_pass.end(FORWARD, INPUT))
    points.extend(layer_pass.layers(FORWARD))
    last_ends = [name for name in (OUTPUT, LOSS) if name in ends]
    points.extend(layer_pass.end(FORWARD, name) for name in last_ends)
    points.extend(layer_pass.end(BACKWARD, name) for name in reversed(last_ends))
    points.extend(layer_pass.layers(BACKWARD))
    if INPUT in ends:
        points.append(layer_pass.end(BACKWARD, INPUT))
    points.append(Moment(OPTIMIZER, "optimizer update", OPTIMIZER))
    return Timeline(tuple(points), counts, plan.parallelism.interleave > 1 if chunked is None else chunked)


def sequence(program: Program, plan: Plan, layers: Sequence[int], value: Value) -> Iterator[str]:
    """The unit of each layer of a device that holds so many of each group, from the input on."""
    if plan.model.bare:
        return
    groups = [group.name for group in plan.model.groups]
    names_by_group: dict[str, list[str]] = {group: [] for group in groups}
    for unit in program.units:
        if unit.name not in (*ENDS, UNIT):
            names_by_group[unit.group] += [unit.name] * int(value(unit.count))
    layers_of = {group: iter(_layers_in_order(names, plan)) for group, names in names_by_group.items()}
    remaining = dict(zip(groups, layers, strict=True))
    bridged = all(unit.name != BRIDGE for unit in program.units)
    for index in group_order(plan.model):
        if not bridged and not plan.model.groups[index].encodes_source:
            bridged = True
            yield BRIDGE
        if remaining[groups[index]]:
            remaining[groups[index]] -= 1
            yield next(layers_of[groups[index]])
    yield from (unit.name for unit in program.units if unit.name == UNIT for _ in range(int(value(unit.count))))


def _layers_in_order(names: Sequence[str], plan: Plan) -> Sequence[str]:
    """The layers of a group in order: of every n, the first is rebuilt; of a segment, the last rebuilds it."""
    kinds, policy = tuple(dict.fromkeys(names)), plan.recompute
    counted = policy.policy == "segment" or (policy.policy == "every" and policy.every > 1)
    if not counted or len(kinds) < 2:
        return names
    if policy.policy == "every":
        return [kinds[index % policy.every != 0] for index in range(len(names))]
    chunk = len(names) // plan.parallelism.interleave
    length = segment(policy, len(names), plan.parallelism.interleave)
    layers = [kinds[(index % chunk + 1) % length == 0] for index in range(len(names))]
    for last in range(chunk - 1, len(names), chunk):
        layers[last] = kinds[-1]
    return layers


@dataclass(frozen=True)
class _Pass:
    """A pass over a device's layers, `size` of which move as one where weights are `moved` at all."""

    sequence: tuple[str, ...]
    counts: Mapping[str, sympy.Expr]
    size: int
    moved: bool
    own_sets: tuple[str, ...] = ()  # ends that are sets of their own
    leave: frozenset[str] = frozenset()  # units whose activations move to the host and back while others run
    profiles: Mapping[tuple[str, str, int], Profile] = field(default_factory=dict)  # where modules gather their own

    def end(self, phase: str, name: str) -> Moment:
        """An end of the model runs, before all layers or after them."""
        over = (phase == FORWARD) == (name != INPUT)
        neighbour = self.sequence[0 if name == INPUT else -1] if self.moved and self.sequence else ""
        around = Surroundings(before=neighbour) if over else Surroundings(after=neighbour)
        around = replace(around, moving=self.moving(self.sequence[-1:] if name != INPUT else ()))
        around = replace(around, gathered=self.profiles.get((phase, name, -1)))
        visited = self.visited(phase)
        passed = self.passed_layers(phase, name, visited, len(visited) if over else 0)
        return Moment(f"{phase}/{name}", f"{phase}, {name}", phase, name, passed, around)

    def visited(self, phase: str) -> Sequence[str]:
        """The layers in the order of a pass."""
        return self.sequence if phase == FORWARD else self.sequence[::-1]

    def layers(self, phase: str) -> Iterator[Moment]:
        """The layers of a pass that can be the fullest, in order."""
        visited = self.visited(phase)
        around = {index: self.surroundings(phase, visited, index) for index in range(len(visited))}
        around = {index: key for index, key in around.items() if key[1].inside in (0, self.size - 1)}
        last = {key: index for index, key in around.items()}
        first = {key: index for index, key in reversed(around.items())} if phase == BACKWARD else {}
        for index in sorted({*first.values(), *last.values()}):
            unit, near = around[index]
            name, title = _moment_name(phase, unit, visited[: index + 1].count(unit), visited.count(unit))
            yield Moment(name, title, phase, unit, self.passed_layers(phase, unit, visited, index), near)

    def surroundings(self, phase: str, visited: Sequence[str], index: int) -> tuple[str, Surroundings]:
        """A layer, and the sets of weights that it stands between."""
        near = visited[index - 1 : index] if phase == FORWARD else visited[index + 1 : index + 2]
        moving = self.moving(near)
        if not self.moved:
            return visited[index], Surroundings(moving=moving)
        if visited[index] == BRIDGE:  # whose weights are the root's
            return BRIDGE, Surroundings(before=visited[index - 1], after=visited[index + 1], moving=moving)
        layers = [name for name in visited if name != BRIDGE]
        place = index - visited[:index].count(BRIDGE)
        start = place - place % self.size
        stop = start + self.size
        first, last = (INPUT, OUTPUT) if phase == FORWARD else (OUTPUT, INPUT)
        before = layers[start - 1] if start else first * (first in self.own_sets)
        after = layers[stop] if stop < len(layers) else last * (last in self.own_sets)
        layer = index if phase == FORWARD else len(visited) - 1 - index
        gathered = self.profiles.get((phase, visited[index], layer))
        return visited[index], Surroundings(before, after, place - start, place + 1 == stop, moving, gathered)

    def moving(self, near: Sequence[str]) -> str:
        """The neighbour of a layer, if there is one and its activations move meanwhile."""
        return next((name for name in near if name in self.leave), "")

    def passed_layers(self, phase: str, unit: str, visited: Sequence[str], index: int) -> dict[str, sympy.Expr]:
        """What the pass left behind: layers counted from its start, or from its end where that is nearer."""
        ends = [INPUT, unit, OUTPUT, LOSS] if unit not in ENDS else list(ENDS)
        ends = ends if phase == FORWARD else ends[::-1]
        passed_ends = ends[: ends.index(unit)]
        passed = {name: count if name in passed_ends else ZERO for name, count in self.counts.items()}
        gone = Counter(visited[:index])
        for name, layers in Counter(visited).items():
            ahead = layers - gone[name]
            passed[name] = sympy.Integer(gone[name]) if gone[name] < ahead else self.counts[name] - ahead
        return passed


def _moment_name(phase: str, unit: str, place: int, layers: int) -> tuple[str, str]:
    """The name and the title of the layer that a pass visits in this place among all of its unit.

    The layers that are usually fullest have the names of their unit alone: the last of forward, the first of backward.
    """
    name = f"{phase}/{unit}"
    if unit == BRIDGE:
        return name, f"{phase}, {unit}"
    number = place if phase == FORWARD else layers - place + 1
    title = f"{phase}, {_nth(number, layers)} layer of {unit}"
    if place == (layers if phase == FORWARD else 1):
        return name, title
    if phase == BACKWARD and place == layers:
        return f"{name}/end", title
    return f"{name}/{place if place <= layers - place + 1 else place - layers - 1}", title


def _nth(number: int, layers: int) -> str:
    """The place of a layer in words: counted from the first, or from the last where that is nearer."""
    back = layers - number + 1
    if back == 1:
        return "last"
    if number == 1:
        return "first"
    near = min(number, back)
    ending = "th" if near % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(near % 10, "th")
    ordinal = f"{near}{ending}"
    return f"{ordinal} last" if back < number else ordinal
