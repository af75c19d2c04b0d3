"""How many collectives DeepSpeed makes of what the ledger counts layer by layer: the same bytes in other pieces."""

from __future__ import annotations

from collections.abc import Mapping

from ledger.books.compiled_roles import CompiledRole
from ledger.evidence.verdicts import KnownDifference
from ledger.lab.judges.deepspeed.flat_weights import OF_REPLICAS, FlatWeights, filled, flat_weights
from ledger.model import dtypes
from ledger.model.formats import trained_dtype
from ledger.model.schedule import micro_batches
from ledger.spec.plan import Plan

REDUCED = "comm.all_reduce.data.backward.count"
GATHERED = "comm.all_gather.data.optimizer"


def calls(plan: Plan, _: CompiledRole, mine: Mapping[str, int]) -> Mapping[str, KnownDifference]:
    """By figure, what DeepSpeed makes of the ledger's number of calls, `mine`."""
    flat = flat_weights(plan)
    if plan.parallelism.zero == 3:
        return {}
    found = {REDUCED: KnownDifference("gradients move in buckets", _reductions(plan, flat) - mine.get(REDUCED, 0))}
    if plan.parallelism.zero:
        count, amount = mine.get(f"{GATHERED}.count", 0), mine.get(f"{GATHERED}.bytes", 0)
        whole = flat.share * flat.ranks * int(dtypes.size(trained_dtype(plan)))
        found |= {
            f"{GATHERED}.count": KnownDifference("weights are gathered in one call", 1 - count),
            f"{GATHERED}.bytes": KnownDifference("shares are stretches of all weights", whole - amount),
        }
    return found


def _reductions(plan: Plan, flat: FlatWeights) -> int:
    """All-reduces of a step."""
    most = plan.stack.reduction_buffer
    if plan.parallelism.zero == 0:
        return len(list(filled(flat.sizes, OF_REPLICAS)))
    if plan.parallelism.zero == 1:
        return flat.reductions(range(len(flat.sizes)), most)
    return int(micro_batches(plan)) * flat.reductions(flat.backward, most)
