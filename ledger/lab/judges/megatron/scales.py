"""Scales and histories of fp8 as Transformer Engine keeps them, where the ledger's formula has others.

Causes of differences are worked out for layers of attention, whose modules are linear_qkv, linear_proj and
core_attention, which has tensors for three products of its own, and of an MLP with linear_fc1 and linear_fc2, or as
many of both as a device has experts.
"""

from __future__ import annotations

from collections.abc import Mapping

from ledger.books.compiled_roles import CompiledRole
from ledger.evidence.verdicts import KnownDifference
from ledger.lab.judges.megatron.configuration import recipe_name
from ledger.lab.judges.protocol import BETWEEN_PASSES, RoleInstant
from ledger.lab.verification.causes import FP32_BYTES
from ledger.model.quantised import SLOTS
from ledger.model.schedule import micro_batches
from ledger.spec.plan import Plan
from ledger.spec.precision import WHOLE_TENSOR, Recipe

CORE_PRODUCTS = 3  # products that core_attention has tensors for
FORWARD = 3  # slots of a product in forward: input, weight, result
BLOCK = 128  # rows and columns of a block of a weight
BLOCKS, MICRO = "blockwise", "mxfp8"


def lasting_scale_bytes(plan: Plan, book: CompiledRole) -> Mapping[str, KnownDifference]:
    """What Transformer Engine's weights have between steps beyond the ledger's, by figure."""
    if padding := _padded_scale_bytes(plan):
        amount = padding * sum(book.role.layers)
        return {"standing.weights": KnownDifference("scales of one matrix are padded together", amount)}
    recipe = _one_scale_recipe(plan)
    if recipe is None:
        return {}
    layer = FP32_BYTES * (_modules(plan) - 2 * _products(plan)) + _history_bytes(plan, recipe)
    return {"standing.weights": KnownDifference("scales of one matrix are one", layer * sum(book.role.layers))}


def single_scales(at: RoleInstant) -> int:
    """The judge leaves out storages of one number; delayed scaling keeps no inverse of a scale.

    transformer_engine/pytorch/quantization.py: of a module, `amax_history` and `scale`.
    """
    recipe = _one_scale_recipe(at.plan)
    if recipe is None:
        return 0
    pairs = 2 * FP32_BYTES * _modules(at.plan) if recipe.history else 0  # scales of a module's gradients: two numbers
    layer = _history_bytes(at.plan, recipe) - 2 * FP32_BYTES * _products(at.plan) - pairs
    saved = (
        0
        if at.moment in BETWEEN_PASSES or at.plan.recompute.policy == "full"
        else FP32_BYTES * (4 if recipe.history else 3)
    )
    return sum(at.role.layers) * (layer - saved * int(at.role.in_flight))


def stashed_scales(at: RoleInstant) -> int:
    """Histories and scales of forward are copied for the layer's second run, and after it.

    transformer_engine/pytorch/quantization.py, copy_forward_fp8_meta_tensors_for_recompute; the copies of the last run
    stay, and so do those that were put back.
    """
    recipe = _one_scale_recipe(at.plan)
    if recipe is None or not recipe.history or at.plan.recompute.policy != "full":
        return 0
    copies = 2 if at.moment in BETWEEN_PASSES else 3
    return (
        copies * sum(at.role.layers) * (_modules(at.plan) + CORE_PRODUCTS) * FORWARD * FP32_BYTES * (recipe.history + 1)
    )


def padded_scales(at: RoleInstant) -> int:
    """Blocks of linear_qkv's columns are padded to 4 together, not for q, k and v each.

    transformer_engine/pytorch/tensor/float8_blockwise_tensor.py, get_scale_shape.
    """
    return _padded_scale_bytes(at.plan) * sum(at.role.layers)


def turned_columns(at: RoleInstant) -> int:
    """Columns that backward gathers in blocks are turned in a copy: transformer_engine/pytorch/distributed.py."""
    layout = at.plan.parallelism
    if not at.moment.startswith("backward/decoder") or layout.tensor == 1 or layout.sequence == "off":
        return 0
    return at.tokens * at.plan.model.d_model if _has_recipe(at.plan, BLOCKS) else 0


def norm_gradient(at: RoleInstant) -> int:
    """The norm's gradient in bf16 is made while copies of its products' are there, its columns in fp8 are not.

    transformer_engine/pytorch/module/layernorm_linear.py, backward; of a split sequence it is a share, and no peak.
    """
    unsplit = at.plan.parallelism.sequence == "off" and at.moment.startswith("backward/decoder")
    return at.tokens * at.plan.model.d_model if unsplit and _one_scale_recipe(at.plan) else 0


def scale_gathers(plan: Plan, book: CompiledRole) -> Mapping[str, KnownDifference]:
    """Collectives of scales in blocks, by figure, and of gradients in columns: each a call beside that of the rows.

    transformer_engine/pytorch/distributed.py, _all_gather_fp8_blockwise and _all_gather_mxfp8. Two inputs of a layer
    are gathered, in forward and again in backward, and two gradients.
    """
    layout, run = plan.parallelism, plan.run
    if layout.tensor == 1 or layout.sequence == "off" or plan.recompute.policy != "none":
        return {}
    if not (_has_recipe(plan, BLOCKS) or _has_recipe(plan, MICRO)):
        return {}
    data = run.micro_batch * run.seq_len // layout.context * plan.model.d_model
    scales = data // 32  # fp32 of 128 values, or a byte of 32
    many = sum(book.role.layers) * int(micro_batches(plan))
    amounts = {
        "forward.count": 2,
        "forward.bytes": 2 * scales,
        "backward.count": 2 + 2 * 3,
        "backward.bytes": 2 * scales + 2 * (data + 2 * scales),
    }
    return {
        f"comm.all_gather.tensor.{name}": KnownDifference("scales and columns are gathered apart", many * amount)
        for name, amount in amounts.items()
    }


def _padded_scale_bytes(plan: Plan) -> int:
    """Bytes of a layer's scales where q, k and v are padded together, beyond those where each is padded."""
    if not _has_recipe(plan, BLOCKS):
        return 0
    attention = plan.model.groups[0].attention
    tensor, width = plan.parallelism.tensor, attention.head_dim
    rows = (attention.heads + 2 * attention.kv_heads) * width // tensor
    joined_blocks, heads_by_part = -(-rows // BLOCK), (attention.heads, attention.kv_heads, attention.kv_heads)
    separate_blocks = sum(-(-heads * width // tensor // BLOCK) for heads in heads_by_part)
    return FP32_BYTES * -(-plan.model.d_model // BLOCK) * (-(-joined_blocks // 4) * 4 - separate_blocks)


def _has_recipe(plan: Plan, name: str) -> bool:
    return plan.precision.matmul is not None and recipe_name(plan.precision.matmul) == name


def _history_bytes(plan: Plan, recipe: Recipe) -> int:
    """Of a layer, one number a slot less than the ledger's; core_attention has slots, and gate and up are one."""
    if not recipe.history:
        return 0
    numbers = (_modules(plan) + CORE_PRODUCTS) * (recipe.history + 1)
    return FP32_BYTES * SLOTS * (numbers - _products(plan) * (recipe.history + 2))


def _one_scale_recipe(plan: Plan) -> Recipe | None:
    """The recipe of a model with layers of one kind that has one scale a tensor; None of others."""
    recipe, group = plan.precision.matmul, plan.model.groups[0]
    alike = len(plan.model.groups) == 1 and group.attention.kind != "latent" and not group.mlp.shared
    return recipe if recipe is not None and alike and recipe.activation_block == WHOLE_TENSOR else None


def _modules(plan: Plan) -> int:
    """Products with weights of a layer in Transformer Engine, those of each expert apart."""
    return 2 + 2 * max(1, plan.model.groups[0].mlp.experts // plan.parallelism.expert)


def _products(plan: Plan) -> int:
    """Products with weights of a layer in the ledger: q, k, v and out, and those of the MLP or of all experts."""
    mlp = plan.model.groups[0].mlp
    return 4 + (3 if mlp.kind == "gated" else 2)
