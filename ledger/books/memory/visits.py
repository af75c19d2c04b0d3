"""The moments of a step at which memory can be fullest.

A device runs its layers in sequence. Between layers that stand in the same surroundings (what was gathered for the
next one, what of the one before is still being sent) bytes change by the same amount from layer to layer, so only the
first and the last of them can be the fullest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import sympy

from ledger.books.evaluate import Value
from ledger.books.memory.timeline import BACKWARD, FORWARD, OPTIMIZER, Point, Surroundings, Timeline
from ledger.books.module_fetches import ModuleFetches, Profile, by_module
from ledger.model.checkpointing import segment
from ledger.model.exchanges import ends_apart
from ledger.model.fsdp_units import BRIDGE, ENDS, INPUT, LOSS, MODEL, OUTPUT
from ledger.model.multi_token import UNIT
from ledger.model.operations import ZERO
from ledger.model.program import Program
from ledger.model.schedule import Role, order
from ledger.spec.plan import Plan


def timeline(program: Program, plan: Plan, role: Role, value: Value, *, chunked: bool | None = None) -> Timeline:
    """Forward through the units, backward through them, then the optimizer; `chunked`, if not as the plan, as there."""
    counts = {unit.name: unit.count for unit in program.units}
    moved = program.sharding.splits("weights") and plan.parallelism.wrap != MODEL
    alone = ends_apart(plan, program.units) if moved else ()
    size = plan.parallelism.wrap if moved else 1
    leave = {unit.name for unit in program.units if unit.hosted and plan.stack.overlap.host == "compute"}
    layers = tuple(sequence(program, plan, role.layers, value))
    profiles = ModuleFetches(program, plan, value, layers).profiles if moved and by_module(plan) else {}
    passing = _Passing(layers, counts, size, moved, alone, frozenset(leave), profiles)
    ends = [unit.name for unit in program.units if unit.name in ENDS]
    points: list[Point] = []
    if INPUT in ends:
        points.append(passing.end(FORWARD, INPUT))
    points.extend(passing.layers(FORWARD))
    rest = [name for name in (OUTPUT, LOSS) if name in ends]
    points.extend(passing.end(FORWARD, name) for name in rest)
    points.extend(passing.end(BACKWARD, name) for name in reversed(rest))
    points.extend(passing.layers(BACKWARD))
    if INPUT in ends:
        points.append(passing.end(BACKWARD, INPUT))
    points.append(Point(OPTIMIZER, "optimizer update", OPTIMIZER))
    return Timeline(tuple(points), counts, plan.parallelism.interleave > 1 if chunked is None else chunked)


def sequence(program: Program, plan: Plan, layers: Sequence[int], value: Value) -> Iterator[str]:
    """The unit of each layer of a device that holds so many of each group, from the input on."""
    if plan.model.bare:
        return
    groups = [group.name for group in plan.model.groups]
    held: dict[str, list[str]] = {group: [] for group in groups}
    for unit in program.units:
        if unit.name not in (*ENDS, UNIT):
            held[unit.group] += [unit.name] * int(value(unit.count))
    waiting = {group: iter(_in_turn(names, plan)) for group, names in held.items()}
    left = dict(zip(groups, layers, strict=True))
    bridged = all(unit.name != BRIDGE for unit in program.units)
    for index in order(plan.model):
        if not bridged and not plan.model.groups[index].encodes_source:
            bridged = True
            yield BRIDGE
        if left[groups[index]]:
            left[groups[index]] -= 1
            yield next(waiting[groups[index]])
    yield from (unit.name for unit in program.units if unit.name == UNIT for _ in range(int(value(unit.count))))


def _in_turn(names: Sequence[str], plan: Plan) -> Sequence[str]:
    """The layers of a group in order: of every n, the first is rebuilt; of a segment, the last rebuilds it."""
    kinds, policy = tuple(dict.fromkeys(names)), plan.recompute
    counted = policy.policy == "segment" or (policy.policy == "every" and policy.every > 1)
    if not counted or len(kinds) < 2:
        return names
    if policy.policy == "every":
        return [kinds[index % policy.every != 0] for index in range(len(names))]
    chunk = len(names) // plan.parallelism.interleave
    length = segment(policy, len(names), plan.parallelism.interleave)
    found = [kinds[(index % chunk + 1) % length == 0] for index in range(len(names))]
    for last in range(chunk - 1, len(names), chunk):
        found[last] = kinds[-1]
    return found


@dataclass(frozen=True)
class _Passing:
    """A pass over a device's layers, `size` of which move as one where weights are `moved` at all."""

    sequence: tuple[str, ...]
    counts: Mapping[str, sympy.Expr]
    size: int
    moved: bool
    alone: tuple[str, ...] = ()  # ends that are sets of their own
    leave: frozenset[str] = frozenset()  # units whose activations move to the host and back while others run
    profiles: Mapping[tuple[str, str, int], Profile] = field(default_factory=dict)  # where modules gather their own

    def end(self, phase: str, name: str) -> Point:
        """An end of the model runs, before all layers or after them."""
        over = (phase == FORWARD) == (name != INPUT)
        neighbour = self.sequence[0 if name == INPUT else -1] if self.moved and self.sequence else ""
        beside = Surroundings(before=neighbour) if over else Surroundings(after=neighbour)
        beside = replace(beside, moving=self.moving(self.sequence[-1:] if name != INPUT else ()))
        beside = replace(beside, gathered=self.profiles.get((phase, name, -1)))
        visited = self.visited(phase)
        left = self.left(phase, name, visited, len(visited) if over else 0)
        return Point(f"{phase}/{name}", f"{phase}, {name}", phase, name, left, beside)

    def visited(self, phase: str) -> Sequence[str]:
        """The layers in the order of a pass."""
        return self.sequence if phase == FORWARD else self.sequence[::-1]

    def layers(self, phase: str) -> Iterator[Point]:
        """The layers of a pass that can be the fullest, in order."""
        visited = self.visited(phase)
        around = {index: self.around(phase, visited, index) for index in range(len(visited))}
        around = {index: key for index, key in around.items() if key[1].inside in (0, self.size - 1)}
        last = {key: index for index, key in around.items()}
        first = {key: index for index, key in reversed(around.items())} if phase == BACKWARD else {}
        for index in sorted({*first.values(), *last.values()}):
            unit, beside = around[index]
            name, title = _called(phase, unit, visited[: index + 1].count(unit), visited.count(unit))
            yield Point(name, title, phase, unit, self.left(phase, unit, visited, index), beside)

    def around(self, phase: str, visited: Sequence[str], index: int) -> tuple[str, Surroundings]:
        """A layer, and what it stands beside."""
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
        before = layers[start - 1] if start else first * (first in self.alone)
        after = layers[stop] if stop < len(layers) else last * (last in self.alone)
        layer = index if phase == FORWARD else len(visited) - 1 - index
        gathered = self.profiles.get((phase, visited[index], layer))
        return visited[index], Surroundings(before, after, place - start, place + 1 == stop, moving, gathered)

    def moving(self, near: Sequence[str]) -> str:
        """The neighbour of a layer, if there is one and its activations move meanwhile."""
        return next((name for name in near if name in self.leave), "")

    def left(self, phase: str, unit: str, visited: Sequence[str], index: int) -> dict[str, sympy.Expr]:
        """What the pass left behind: layers counted from its start, or from its end where that is nearer."""
        ends = [INPUT, unit, OUTPUT, LOSS] if unit not in ENDS else list(ENDS)
        ends = ends if phase == FORWARD else ends[::-1]
        behind = ends[: ends.index(unit)]
        found = {name: count if name in behind else ZERO for name, count in self.counts.items()}
        gone = Counter(visited[:index])
        for name, whole in Counter(visited).items():
            rest = whole - gone[name]
            found[name] = sympy.Integer(gone[name]) if gone[name] < rest else self.counts[name] - rest
        return found


def _called(phase: str, unit: str, place: int, whole: int) -> tuple[str, str]:
    """The name and the title of the layer that a pass visits in this place among all of its unit.

    The layers that are usually fullest have the names of their unit alone: the last of forward, the first of backward.
    """
    name = f"{phase}/{unit}"
    if unit == BRIDGE:
        return name, f"{phase}, {unit}"
    number = place if phase == FORWARD else whole - place + 1
    title = f"{phase}, {_nth(number, whole)} layer of {unit}"
    if place == (whole if phase == FORWARD else 1):
        return name, title
    if phase == BACKWARD and place == whole:
        return f"{name}/end", title
    return f"{name}/{place if place <= whole - place + 1 else place - whole - 1}", title


def _nth(number: int, whole: int) -> str:
    """The place of a layer in words: counted from the first, or from the last where that is nearer."""
    back = whole - number + 1
    if back == 1:
        return "last"
    if number == 1:
        return "first"
    near = min(number, back)
    ending = "th" if near % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(near % 10, "th")
    ordinal = f"{near}{ending}"
    return f"{ordinal} last" if back < number else ordinal
