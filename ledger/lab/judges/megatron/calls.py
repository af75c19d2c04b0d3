"""How many collectives Megatron-Core makes of what the ledger counts layer by layer: the same bytes in other pieces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ledger.books.compiled_roles import CompiledRole
from ledger.evidence.verdicts import KnownDifference
from ledger.lab.judges.megatron.attention import context_calls
from ledger.lab.judges.megatron.scales import scale_gathers
from ledger.model.causes import Purpose
from ledger.model.modules import WEIGHT
from ledger.model.schedule import micro_batches
from ledger.model.units import Unit
from ledger.spec.plan import Plan

# Least parameters of a bucket: so many, or so many a replica (megatron/core/distributed/distributed_data_parallel.py).
LEAST, A_REPLICA = 40_000_000, 1_000_000
# A layer's modules in the order in which Megatron-Core registers them, each by the ledger's own that it is made of.
LAYER = (
    ("attention/out",),
    ("attention_norm/norm", "attention/q", "attention/k", "attention/v", "attention/qkv"),
    ("attention/q_norm",),
    ("attention/k_norm",),
    ("mlp_norm/norm", "mlp/gate", "mlp/up"),
    ("mlp/down",),
)
NORMS = ("attention_norm/norm", "mlp_norm/norm", "attention/q_norm", "attention/k_norm")
BUCKETED = ("comm.reduce_scatter.data.backward.count", "comm.all_reduce.data.backward.count")
GATHERED = "comm.all_gather.data.optimizer.count"
NORM_SUMS = "comm.all_reduce.tensor.backward.count"


def calls(plan: Plan, book: CompiledRole, mine: Mapping[str, int]) -> Mapping[str, KnownDifference]:
    """By figure, what Megatron-Core makes of the ledger's number of calls, `mine`; nothing where it is not known."""
    found: dict[str, KnownDifference] = {
        **scale_gathers(plan, book),
        **context_calls(plan, book),
        **dict(_summed_whole(plan, book)),
    }
    if norms := sum(_norm_sums(book)):
        found[NORM_SUMS] = KnownDifference("gradients of norms are summed in one call", 1 - norms)
    if buckets := _buckets(plan, book):
        for name in (*BUCKETED, GATHERED):
            if name in mine:
                found[name] = KnownDifference("gradients move in buckets, and weights with them", buckets - mine[name])
    return found


def _summed_whole(plan: Plan, book: CompiledRole) -> Iterator[tuple[str, KnownDifference]]:
    """With learned positions the embedding is summed whole, and split once they are added.

    megatron/core/models/common/embeddings/language_model_embedding.py, `reduce_scatter_embeddings`.
    """
    layout, run = plan.parallelism, plan.run
    if not plan.model.learned_positions or layout.tensor == 1 or layout.sequence == "off" or not book.role.first:
        return
    many, why = int(micro_batches(plan)), "an embedding with positions is summed whole"
    whole = 2 * many * run.micro_batch * run.seq_len // layout.context * plan.model.d_model
    for kind, sign in (("all_reduce", 1), ("reduce_scatter", -1)):
        yield f"comm.{kind}.tensor.forward.count", KnownDifference(why, sign * many)
        yield f"comm.{kind}.tensor.forward.bytes", KnownDifference(why, sign * whole)


def _norm_sums(book: CompiledRole) -> Iterator[int]:
    """Calls of the ledger that sum gradients of weights which each device sees a part of the sequence of."""
    for entry in book.ledger.select("comm"):
        if entry.cause.purpose is Purpose.GRADIENT_SUM:
            yield int(book.value(entry.times))


def _buckets(plan: Plan, book: CompiledRole) -> int:
    """Buckets of a stage: of its first chunk of layers on the first stage, one for every other chunk.

    0 where the order of its parameters is not known here: experts have buffers of their own.
    """
    units = {unit.name: unit for unit in book.program.units}
    layers = [unit for unit in units.values() if unit.name not in ("input", "output", "loss")]
    if len({unit.group for unit in layers}) > 1 or any(not _known(unit) for unit in layers):
        return 0
    chunks = plan.parallelism.interleave
    if not book.role.first:
        return chunks
    held = sum(int(book.value(unit.count)) for unit in layers) // chunks
    sizes = [
        *(_sizes(units["input"], book) if "input" in units else ()),
        *(list(_layer(layers[0], book)) * held if layers else ()),
        *(_sizes(units["output"], book, units["input"]) if "output" in units and chunks == 1 else ()),
    ]
    return filled(reversed(sizes), max(LEAST, A_REPLICA * plan.parallelism.data)) + chunks - 1


def filled(sizes: Iterator[int] | Sequence[int], least: int) -> int:
    """How many buckets parameters of these sizes fill, each full once it holds `least`."""
    full, held = 0, 0
    for size in sizes:
        held += size
        if held >= least:
            full, held = full + 1, 0
    return full + (held > 0)


def _known(unit: Unit) -> bool:
    names = {name for module in LAYER for name in module}
    return all(weight.parameter is not None and str(weight.parameter.module) in names for weight in unit.weights)


def _sizes(unit: Unit, book: CompiledRole, before: Unit | None = None) -> list[int]:
    """Parameters of an end of the model that are not those of the one `before`, to which they may be tied."""
    tied = {weight.name for weight in before.weights} if before else set[str]()
    return [int(book.value(weight.elements())) for weight in unit.weights if weight.name not in tied]


def _layer(unit: Unit, book: CompiledRole) -> Iterator[int]:
    """Parameters of a layer, those of one module's products as one matrix, and their biases as one."""
    for module in LAYER:
        joined = {WEIGHT: 0, "": 0}
        for weight in unit.weights:
            if weight.parameter is None or str(weight.parameter.module) not in module:
                continue
            size = int(book.value(weight.elements()))
            if str(weight.parameter.module) in NORMS:
                yield size
            else:
                joined[WEIGHT if weight.parameter.kind == WEIGHT else ""] += size
        yield from (size for size in joined.values() if size)
