"""Experts that no other device has a copy of: ZeRO 2 has nothing to reduce of them."""

from __future__ import annotations

from ledger.books.compiled import Compiled
from ledger.books.memory.moments import Moments
from tests.model import plans

RANKS, EXPERTS = 4, 4
MODEL = plans.layer(plans.MIXTRAL, mlp={"experts": EXPERTS})


def compiled(expert: int) -> Compiled:
    """A mixture of experts on four devices under ZeRO 2, two micro-batches."""
    return plans.compiled(
        model=MODEL,
        cluster={"base": "h100-400g", "devices": RANKS, "devices_per_node": RANKS},
        parallelism={"data": RANKS, "expert": expert, "zero": 2},
        run={"seq_len": 37, "micro_batch": 1, "global_batch": 2 * RANKS},
    )


def copied(one: Compiled) -> tuple[int, int]:
    """Bytes that a layer's backward copies for its reduction, and elements of its weights, experts and others."""
    (book,) = one.books
    moments = Moments(book.program, one.plan, book.timeline)
    point = next(point for point in moments.points if point.name == "backward/decoder")
    steps = list(moments.steps(point, moments.live_steps(point)))
    sources = [held for step in steps for held in step.allocations if held.cause.state == "to_reduce"]
    weights = moments.units["decoder"].weights
    return int(book.value(sources[0].amount)), sum(int(book.value(weight.elements())) for weight in weights)


def test_only_gradients_that_others_share_are_copied_to_be_reduced() -> None:
    """Split over all devices each expert is held once; over half of them two devices have a copy, so all are copied."""
    (book,) = compiled(RANKS).books
    layer = next(unit for unit in book.program.units if unit.name == "decoder")
    experts = sum(int(book.value(weight.elements())) for weight in book.program.sharding.cut(layer.weights))
    amount, elements = copied(compiled(RANKS))
    assert experts > 0
    assert 0 < amount < 4 * (elements - experts) + 4 * RANKS * len(layer.weights)
    shared, everything = copied(compiled(RANKS // 2))
    assert shared >= 2 * everything
