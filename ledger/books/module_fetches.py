"""Weights that are gathered module by module, so many elements ahead, and let go unless they are used again soon.

DeepSpeed's ZeRO 3 (deepspeed/runtime/zero/partitioned_param_coordinator.py, 0.19). A step has one order of modules. At
each module its own weights are gathered if they are not there; then the next ones in that order, until a call has
`prefetch` elements or so many as `live_parameters` are there. After a module its weights go, unless a module within
the next `reuse_distance` elements has them. What the queue passes over depends on the sizes of all weights so far:
no closed form says it, and so it is run through.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import sympy

from ledger.books.buckets import written_weights
from ledger.books.evaluate import Value
from ledger.books.fetch_queue import FetchQueue
from ledger.books.gradient_buckets import FilledBuckets, ModuleWeight
from ledger.books.module_order import BACKWARD, END, FORWARD, Key, ModuleOrder, module_of
from ledger.model.exchanges import Exchanged, sent
from ledger.model.fsdp_units import INPUT, LOSS, OUTPUT
from ledger.model.program import Program
from ledger.model.sharding import exchange
from ledger.model.tensors import sized
from ledger.model.units import Unit
from ledger.spec.plan import Plan

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

    @property
    def units(self) -> Mapping[str, Unit]:
        """The units of the device by the names that layers have in `layers`."""
        return self.order.units

    @cached_property
    def weights(self) -> Mapping[Key, ModuleWeight]:
        """Sizes of every weight of every layer; a tied one is there once."""
        sharding, found = self.program.sharding, dict[Key, ModuleWeight]()
        for unit in self.program.units:
            for layer in self.order.places(unit.name):
                for weight in unit.weights:
                    elements, padded = (int(self.value(each)) for each in (weight.elements(), sharding.padded(weight)))
                    found.setdefault((weight.name, layer), ModuleWeight(unit.name, elements, padded))
        return found

    @property
    def small(self) -> Iterator[tuple[Key, ModuleWeight]]:
        """Weights that are never let go."""
        most = self.plan.stack.persistent
        return ((key, weight) for key, weight in self.weights.items() if weight.elements <= most)

    @cached_property
    def bytes_each(self) -> int:
        """Bytes of an element that is gathered."""
        return int(self.value(sized(sent(self.plan), sympy.Integer(1))))

    @cached_property
    def reduced_each(self) -> int:
        """Bytes of an element that is reduced."""
        return int(self.value(sized(self.plan.precision.reduction, sympy.Integer(1))))

    @cached_property
    def run(self) -> FetchQueue:
        """The queue, run through."""
        events = tuple(self.order.events())
        begun = [visit for begins, visit in events if begins]
        run = FetchQueue(begun, self.weights, frozenset(dict(self.small)), self.plan.stack, self.bytes_each)
        for begins, visit in events:
            run.begin(visit) if begins else run.end(visit)
        return run

    @cached_property
    def profiles(self) -> Mapping[tuple[str, str, int], Profile]:
        """By pass, unit and layer."""
        spans: dict[tuple[str, str, int], tuple[list[ModuleSpan], list[ModuleSpan]]] = {}
        last = ModuleSpan("", 0, 0)
        for visit, (inside, after) in self.run.held.items():
            span = ModuleSpan(visit.module, inside, after)
            if visit.weights:
                spans.setdefault((visit.phase, visit.unit, visit.layer), ([], []))[not visit.again].append(span)
            if visit.phase == FORWARD:
                last = ModuleSpan("", after, after)
        found = {key: Profile(tuple(again), tuple(others)) for key, (again, others) in spans.items()}
        for phase in (FORWARD, BACKWARD) if LOSS in self.units else ():
            found[phase, LOSS, END] = Profile(modules=(last,))
        return {key: self._with_gradients(key, profile) for key, profile in found.items()}

    def _with_gradients(self, key: tuple[str, str, int], profile: Profile) -> Profile:
        phase, unit, layer = key
        if phase == FORWARD:
            return profile
        mine = [weight.name for weight in written_weights(self.units[unit])]
        filled = self.filled
        at_the_end = {name: filled.copies[filled.rest][-1] for name in mine if (name, layer) == filled.rest}
        found = {name: filled.copies.get((name, layer), [])[: -1 if name in at_the_end else None] for name in mine}
        reduced = [(name, amount) for name, amounts in found.items() for amount in amounts]
        reduced += [(AT_THE_END, amount) for amount in at_the_end.values()]
        larger = [(name, self.filled.larger[name, layer]) for name in mine if (name, layer) in self.filled.larger]
        entering = self.filled.waiting.get((mine[0], layer), 0) if mine else 0
        return replace(profile, reduced=tuple(reduced), larger=tuple(larger), entering=entering)

    @cached_property
    def filled(self) -> FilledBuckets:
        """The buckets of a micro-batch's gradients."""
        found = FilledBuckets(self.weights, self.plan.stack.reduction_buffer, self.reduced_each)
        for unit, layer in self._visited_backward():
            for weight in written_weights(self.units[unit]):
                if (weight.name, layer) not in found.seen and not self._comes_again(unit, weight.name):
                    found.add((weight.name, layer))
        found.finish()
        return found

    def _visited_backward(self) -> Iterator[tuple[str, int]]:
        if OUTPUT in self.units:
            yield OUTPUT, END
        yield from ((name, place) for place, name in reversed(tuple(enumerate(self.layers))))
        if INPUT in self.units:
            yield INPUT, END

    def _comes_again(self, unit: str, weight: str) -> bool:
        """Whether the input looks up the same weight, whose gradient is there when both parts are."""
        return unit == OUTPUT and INPUT in self.units and weight in {w.name for w in self.units[INPUT].weights}

    def exchanges(self) -> Iterator[Exchanged]:
        """The calls of a micro-batch, and once a step a gather of each weight that is not let go before."""
        yield from _counted(
            "all_gather", ((phase, *self._call(keys), self._padded(keys)) for phase, keys in self.run.gathers)
        )
        reduced = ((BACKWARD, *self._call(keys), self._reduced(keys)) for keys in self.filled.reduced)
        yield from _counted("reduce_scatter", reduced)
        small = (("optimizer", *self._call((key,)), self._padded((key,))) for key, _ in self.small)
        yield from _counted("all_gather", small, per_step=True)

    def _call(self, keys: Sequence[Key]) -> tuple[str, str]:
        """The unit that a call of several weights begins with, and its first and last weight."""
        ends = dict.fromkeys(module_of(name) for name, _ in (keys[0], keys[-1]))
        return self.weights[keys[0]].unit, " to ".join(ends)

    def _reduced(self, keys: Iterable[Key]) -> int:
        return self.reduced_each * sum(self.weights[key].padded for key in keys)

    def _padded(self, keys: Iterable[Key]) -> int:
        return self.bytes_each * sum(self.weights[key].padded for key in keys)


def _counted(
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
