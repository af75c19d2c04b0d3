"""How many sequences an engine takes at once: those that memory, and its share of it, has room for at their end."""

from __future__ import annotations

from ledger.books.serving.memory import MORE, Held
from ledger.books.serving.passes import mean_prompt_shape
from ledger.books.serving.steady import Service


def room(service: Service) -> int:
    """The most sequences in flight over all replicas whose whole outputs there is room for; 0 where for none.

    No more than the engine decodes in a step (`max_num_seqs`).
    """
    engine = service.plan.stack.engine
    few, many = 0, 1
    while many < MORE and _fits(service, many):
        few, many = many, 2 * many
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (middle, many) if _fits(service, middle) else (few, middle)
    return (min(few, engine.sequences) if engine.sequences else few) * service.replicas


def _fits(service: Service, each: int) -> bool:
    engine, capacity = service.plan.stack.engine, service.plan.accelerator.memory
    for role in service.roles:
        held = Held(role, each)
        if held.reserved > capacity:
            return False
        cache = sum(stock.bytes for stock in held.full_cache.values())
        others = held.reserved - cache + held.activations * (_largest_step(service, each) - 1)
        if engine.memory_of == "left" and cache > engine.memory * (capacity - others):
            return False
        if engine.memory_of == "device" and cache + others > engine.memory * capacity:
            return False
    return True


def _largest_step(service: Service, each: int) -> float:
    """Tokens of the largest step that buffers are laid out for, over those of one prompt and all sequences."""
    tokens = float(mean_prompt_shape(service.serve).tokens) + each / service.plan.parallelism.pipeline
    return max(1.0, service.plan.stack.engine.tokens / tokens)
