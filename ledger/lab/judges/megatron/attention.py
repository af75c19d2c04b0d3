"""What attention saves and sends in Transformer Engine otherwise than in the ledger.

Values are a view of one matrix's result, where the core is checkpointed by itself. Over context, gathered keys and
values are not kept but gathered again, results of both halves of the sequence are kept, and a ring sends gradients in
the dtype of keys.
"""

from __future__ import annotations

from collections.abc import Mapping

from ledger.books.compiled_roles import CompiledRole
from ledger.evidence.verdicts import KnownDifference
from ledger.lab.verification.causes import FP32_BYTES, INT64_BYTES
from ledger.model.schedule import micro_batches
from ledger.spec.plan import Plan

STATE = 16  # bytes: seed and offset of a kernel's dropout


def rebuilds_core(plan: Plan) -> bool:
    """Whether the core, and no more of attention, is checkpointed: megatron/core/transformer/attention.py."""
    policy = plan.recompute
    return policy.policy == "selective" or "core" in policy.components


def extra_saved_bytes(plan: Plan) -> int:
    """Bytes that a layer saves beside the ledger's, without what is one number."""
    ranks, policy = plan.parallelism.context, plan.recompute.policy
    saved_bytes = unrotated_bytes(plan) if rebuilds_core(plan) else 0
    if ranks == 1 or policy != "none":
        return saved_bytes
    if plan.parallelism.context_exchange == "all_gather":
        return saved_bytes + _width(plan, "heads") - 2 * (ranks - 1) * _width(plan, "kv_heads") + STATE
    return saved_bytes + ((ranks - 1) * STATE if plan.parallelism.context_exchange == "ring" else 0)


def context_calls(plan: Plan, book: CompiledRole) -> Mapping[str, KnownDifference]:
    """Exchanges of keys, values and their gradients in backward, by figure.

    transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py, AttnFuncWithCPAndKVAllGather and
    AttnFuncWithCPAndKVP2P.
    """
    ranks, exchange = plan.parallelism.context, plan.parallelism.context_exchange
    many, both = sum(book.role.layers) * int(micro_batches(plan)), 2 * _width(plan, "kv_heads")
    if ranks == 1 or exchange not in ("all_gather", "ring"):
        return {}
    kind, why, count, amount = (
        ("all_gather", "keys and values are gathered again", 2, ranks * both)
        if exchange == "all_gather"
        else ("send", "gradients travel with keys, and as they do", 1 - ranks, -(ranks + 1) * both)
    )
    return {
        f"comm.{kind}.context.backward.count": KnownDifference(why, many * count),
        f"comm.{kind}.context.backward.bytes": KnownDifference(why, many * amount),
    }


def unrotated_bytes(plan: Plan) -> int:
    """Bytes of queries and keys before rotation, of one layer and micro-batch."""
    return _width(plan, "heads") + _width(plan, "kv_heads")


def _width(plan: Plan, heads: str) -> int:
    """Bytes of queries, or of keys, of one layer and micro-batch on a device, in bf16."""
    attention, run, layout = plan.model.groups[0].attention, plan.run, plan.parallelism
    tokens = run.micro_batch * run.seq_len // layout.context
    return 2 * tokens * int(getattr(attention, heads)) * attention.head_dim // layout.tensor


def saved(plan: Plan) -> Mapping[str, KnownDifference]:
    """By figure, what a layer saves beyond the ledger's bytes; with tensors of one number, as the type of mask."""
    amount = extra_saved_bytes(plan)
    if not amount or plan.model.groups[0].attention.kind == "latent":
        return {}
    gathers = plan.parallelism.context > 1 and plan.parallelism.context_exchange == "all_gather"
    single = FP32_BYTES * rebuilds_core(plan) + INT64_BYTES * gathers
    cause = KnownDifference("what attention saves in Transformer Engine", amount + single)
    return {f"saved.{group.name}": cause for group in plan.model.groups}
