"""All weights of a model one after the other, as ZeRO 1 and 2 share them, and the buckets that gradients fill.

deepspeed/runtime/zero/stage_1_and_2.py: each rank updates one stretch of them, whatever weights that cuts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from ledger.books.compiled_roles import Whole, whole
from ledger.model.fsdp_units import ENDS, INPUT
from ledger.model.units import Unit
from ledger.spec.plan import Plan

ALIGNED = 2  # elements of each rank's stretch (nccl_start_alignment_factor)


@dataclass(frozen=True)
class FlatWeights:
    """Elements of each weight in the order in which modules have them (`sizes`), and as backward gets to them."""

    sizes: tuple[int, ...]
    backward: tuple[int, ...]  # places among `sizes`
    ranks: int

    @property
    def parameters(self) -> int:
        """Elements of all weights."""
        return sum(self.sizes)

    @property
    def share(self) -> int:
        """Elements of a rank's stretch."""
        return -(-self.parameters // (ALIGNED * self.ranks)) * ALIGNED

    @property
    def padding(self) -> int:
        """Elements of all stretches that no weight fills."""
        return self.share * self.ranks - self.parameters

    @cached_property
    def begins(self) -> tuple[int, ...]:
        """Where each weight begins."""
        return (0, *accumulate(self.sizes))[:-1]

    @property
    def touched(self) -> list[int]:
        """Elements of the weights that the first rank's stretch has any part of."""
        return [size for begin, size in zip(self.begins, self.sizes, strict=True) if begin < self.share]

    @property
    def largest_part(self) -> int:
        """Elements of the largest part of a weight that the first rank's stretch has."""
        pairs = zip(self.begins, self.sizes, strict=True)
        return max(min(begin + size, self.share) - begin for begin, size in pairs if begin < self.share)

    def parts(self, place: int) -> Iterator[int]:
        """Elements of a weight by the rank that keeps them."""
        begin, end = self.begins[place], self.begins[place] + self.sizes[place]
        while begin < end:
            until = min(end, (begin // self.share + 1) * self.share)
            yield until - begin
            begin = until

    def buckets(self, places: Sequence[int], most: int) -> list[list[int]]:
        """Weights whose gradients are reduced together, none of which exceeds `most` unless it is alone."""
        found: list[list[int]] = [[]]
        held = 0
        for place in places:
            if held + self.sizes[place] > most and found[-1]:
                found.append([])
                held = 0
            found[-1].append(place)
            held += self.sizes[place]
        return found

    def reductions(self, places: Sequence[int], most: int) -> int:
        """All-reduces of these gradients: of what ranks keep of a bucket until it is more than `most`, and the rest."""
        return sum(
            overfilled([part for place in bucket for part in self.parts(place)], most)
            for bucket in self.buckets(places, most)
        )


def overfilled(sizes: Sequence[int], most: int) -> int:
    """How many calls move things of these sizes, each made once it has more than `most`."""
    return len(list(filled(sizes, most)))


def filled(sizes: Sequence[int], most: int) -> Iterator[int]:
    """What each of them moves."""
    held = 0
    for size in sizes:
        held += size
        if held > most:
            yield held
            held = 0
    if held:
        yield held


def flat_weights(plan: Plan) -> FlatWeights:
    """Those of a plan's model."""
    model = whole(plan)
    registered: list[tuple[int, str]] = []
    reached: list[str] = []
    seen: set[str] = set()
    for unit in model.units:
        named = [weight for weight in unit.weights if weight.name not in seen or unit.name not in ENDS]
        seen |= {weight.name for weight in unit.weights if unit.name in ENDS}
        sizes = {weight.name: int(model.value(weight.elements())) for weight in named}
        last = plan.model.norm.kind == "rms" and unit.name not in ENDS
        ordered = sorted(sizes, key=lambda name: last and "norm" in name.partition("/")[0])
        for layer in range(_layers(model, unit)):
            registered += [(sizes[name], f"{unit.name}/{layer}/{name}") for name in ordered]
            reached += [f"{unit.name}/{layer}/{name}" for name in sizes]
    places = {name: place for place, (_, name) in enumerate(registered)}
    ranks = plan.parallelism.data * plan.parallelism.context
    return FlatWeights(
        tuple(size for size, _ in registered), tuple(places[name] for name in reversed(reached)), ranks
    )


def _layers(model: Whole, unit: Unit) -> int:
    return 1 if unit.name in (*ENDS, INPUT) else int(model.value(unit.count))
