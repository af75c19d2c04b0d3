"""Storages as large as all weights of a device: those of an update over one flat tensor, and those of a flat gather."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ledger.books.compiled_roles import CompiledRole
from ledger.lab.replay.allocator import Allocator
from ledger.lab.replay.weights import WeightBytes

JOINED = "joined gradients"


def allocate_joined_gradients(memory: Allocator, weights: Iterable[tuple[str, WeightBytes]]) -> None:
    """Gradients copied into one tensor of their own dtype."""
    memory.allocate(JOINED, sum(size.gradient for _, size in weights))


def joined_states(book: CompiledRole) -> Iterator[tuple[str, int]]:
    """The states of all weights, each kind as one tensor."""
    found: dict[str, int] = {}
    for entry in book.ledger.select("memory"):
        if entry.resource.category == "optimizer":
            kind = entry.cause.state
            found[kind] = found.get(kind, 0) + int(book.value(entry.amount) * book.value(entry.times))
    yield from ((f"all {kind}", size) for kind, size in found.items())


def update_temporaries(book: CompiledRole) -> Iterator[tuple[str, int]]:
    """What the update needs beside states, each kind as one request."""
    for entry in book.ledger.select("memory"):
        if entry.resource.category == "workspace" and entry.cause.unit == "optimizer":
            yield entry.account, int(book.value(entry.amount) * book.value(entry.times))


def gather_through_copies(memory: Allocator, weights: Sequence[tuple[str, WeightBytes]], ranks: int) -> None:
    """Weights are gathered into a buffer for each rank, and NCCL gathers those into one."""
    share = sum(size.updated for _, size in weights)
    names = [f"rank {rank}" for rank in range(ranks)]
    memory.allocate("mine", share)
    for name in names:
        memory.allocate(name, share)
    memory.allocate("flat", share * ranks)
    for name in ("mine", "flat", *names):
        memory.free(name)
