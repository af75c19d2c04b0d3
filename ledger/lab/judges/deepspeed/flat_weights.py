"""All weights of a model one after the other, as ZeRO 1 and 2 share them, and the buckets that gradients fill.

deepspeed/runtime/zero/stage_1_and_2.py: each rank updates one stretch of them, whatever weights that cuts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from ledger.books.compiled_roles import Whole, whole
from ledger.model.causes import ENDS, INPUT
from ledger.model.unit import Unit
from ledger.spec.plan import Plan

BEFORE, AFTER = -1, 1 << 30  # layers of what stands before the first, and after the last
OF_REPLICAS = 500_000_000  # elements that replicas reduce together (engine.py, MEMORY_OPT_ALLREDUCE_SIZE)
ALIGNED = 2  # elements of each rank's stretch (nccl_start_alignment_factor)


@dataclass(frozen=True)
class FlatWeight:
    """A weight of one layer, and its elements."""

    name: str
    layer: int
    size: int


@dataclass(frozen=True)
class FlatWeights:
    """Weights in the order in which modules have them, and the `backward` order of their gradients, by place."""

    weights: tuple[FlatWeight, ...]
    backward: tuple[int, ...]
    ranks: int
    tied: int = 0  # elements of an embedding that is the head as well

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Elements of each weight."""
        return tuple(weight.size for weight in self.weights)

    @property
    def parameters(self) -> int:
        """Elements of all weights."""
        return sum(self.sizes)

    @property
    def share(self) -> int:
        """Elements of a rank's stretch."""
        return -(-self.parameters // (ALIGNED * self.ranks)) * ALIGNED

    @property
    def before(self) -> int:
        """Elements of the embedding, with its positions where these are learned."""
        return sum(weight.size for weight in self.weights if weight.layer == BEFORE)

    @cached_property
    def begins(self) -> tuple[int, ...]:
        """Where each weight begins."""
        return (0, *accumulate(self.sizes))[:-1]

    @cached_property
    def touched(self) -> tuple[FlatWeight, ...]:
        """The weights of which the first rank's stretch has any part."""
        pairs = zip(self.begins, self.weights, strict=True)
        return tuple(weight for begin, weight in pairs if begin < self.share)

    @property
    def rank_elements(self) -> int:
        """Elements of the touched weights, whose whole gradients a rank keeps (copy_grads_in_partition)."""
        return sum(weight.size for weight in self.touched)

    @property
    def last_touched(self) -> int:
        """The layer of the last weight that the first rank's stretch has a part of."""
        return self.touched[-1].layer

    @property
    def largest_part(self) -> int:
        """Elements of the largest part of a weight that the first rank's stretch has."""
        pairs = zip(self.begins, self.touched, strict=False)
        return max(min(begin + weight.size, self.share) - begin for begin, weight in pairs)

    def even_shares(self, layer: int = BEFORE) -> int:
        """Elements of a device's shares of the weights from a layer on, each weight cut evenly."""
        return sum(-(-weight.size // self.ranks) for weight in self.weights if weight.layer >= layer)

    def parts(self, place: int) -> Iterator[int]:
        """Elements of a weight by the rank that keeps them."""
        begin, end = self.begins[place], self.begins[place] + self.sizes[place]
        while begin < end:
            until = min(end, (begin // self.share + 1) * self.share)
            yield until - begin
            begin = until

    def buckets(self, places: Sequence[int], most: int) -> list[list[int]]:
        """Weights whose gradients are reduced together, none of which exceeds `most` unless it is alone."""
        buckets: list[list[int]] = [[]]
        bucket_size = 0
        for place in places:
            if bucket_size + self.sizes[place] > most and buckets[-1]:
                buckets.append([])
                bucket_size = 0
            buckets[-1].append(place)
            bucket_size += self.sizes[place]
        return buckets

    def elements(self, bucket: Sequence[int]) -> int:
        """Elements of the gradients in a bucket."""
        return sum(self.sizes[place] for place in bucket)

    def reductions(self, places: Sequence[int], most: int) -> int:
        """All-reduces of these gradients: of what ranks keep of a bucket until it is more than `most`, and the rest."""
        return sum(
            len(list(call_sizes([part for place in bucket for part in self.parts(place)], most)))
            for bucket in self.buckets(places, most)
        )


def call_sizes(sizes: Sequence[int], most: int) -> Iterator[int]:
    """Elements of each call that moves these sizes, made once it has more than `most`; the last one has the rest."""
    pending = 0
    for size in sizes:
        pending += size
        if pending > most:
            yield pending
            pending = 0
    if pending:
        yield pending


def flat_weights(plan: Plan) -> FlatWeights:
    """The weights of a plan's model in the order of its modules, and the order in which backward reaches them."""
    model = whole(plan)
    registered: list[FlatWeight] = []
    reached: list[FlatWeight] = []
    passed = 0
    for unit in model.units:
        earlier = {weight.name for weight in registered if weight.layer == BEFORE}
        sizes = {w.name: int(model.value(w.elements())) for w in unit.weights if f"{INPUT}/{w.name}" not in earlier}
        for layer in _layers(model, unit, passed):
            unit_weights = [FlatWeight(f"{unit.name}/{name}", layer, size) for name, size in sizes.items()]
            reached += unit_weights
            # layers with RMS norms register them after the parts that they are norms of
            norms_last = plan.model.norm.kind == "rms" and unit.name not in ENDS
            registered += [weight for weight in unit_weights if not (norms_last and "_norm/" in weight.name)]
            registered += [weight for weight in unit_weights if norms_last and "_norm/" in weight.name]
        passed += 0 if unit.name in ENDS else int(model.value(unit.count))
    places = {weight: place for place, weight in enumerate(registered)}
    ranks = plan.parallelism.data * plan.parallelism.context
    tied = registered[0].size if plan.model.tied else 0
    return FlatWeights(tuple(registered), tuple(places[weight] for weight in reversed(reached)), ranks, tied)


def _layers(model: Whole, unit: Unit, passed: int) -> Sequence[int]:
    if unit.name in ENDS:
        return (BEFORE if unit.name == INPUT else AFTER,)
    return range(passed, passed + int(model.value(unit.count)))
