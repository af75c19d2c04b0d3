"""What a plan says in Megatron-Core's own words: the fields of its configurations, and why it cannot say the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ledger.lab.verification.layouts import missing_kernels
from ledger.model.schedule import group_order, micro_batches
from ledger.spec.architecture import FOREIGN_PARTS
from ledger.spec.plan import Group, Plan, Recompute
from ledger.spec.precision import WHOLE_TENSOR, Recipe
from ledger.spec.stages import chunks

Fields = dict[str, Any]

BUILT = {
    "attention": ("cudnn", "cudnn_grouped"),
    "norm": ("fused",),
    "activation": ("fused", "fused_gated"),
    "loss": ("fused", "softmax_in_place"),
    "optimizer": ("fused",),
    "experts": ("grouped_mm",),
}
EXCHANGES = {"all_gather": "all_gather", "ring": "p2p", "all_to_all": "a2a"}
ACTIVATIONS = ("silu", "gelu", "gelu_tanh", "relu2")
# Parts that a plan's `components` name, as `recompute_modules` has them.
MODULES = {
    "core": "core_attn",
    "norm": "layernorm",
    "activation": "moe_act",
    "up_projection": "mla_up_proj",
    "mlp": "mlp",
    "experts": "moe",
}
OPTIMIZERS = {"adam": "adam", "adamw": "adam", "sgd": "sgd", "momentum": "sgd"}


def refusal(plan: Plan) -> str:
    """Why Megatron-Core cannot be asked about a plan; empty where it can."""
    return next((reason for refuse in REFUSALS.values() if (reason := refuse(plan))), "")


def transformer(plan: Plan) -> Fields:
    """Fields of TransformerConfig, or of MLATransformerConfig where attention is latent; dtypes by name."""
    model, layout, kernels = plan.model, plan.parallelism, plan.kernels
    group = model.groups[0]
    dense = next((candidate for candidate in model.groups if not candidate.mlp.experts), group)
    fields: Fields = {
        "num_layers": len(model.layers),
        "hidden_size": model.d_model,
        "num_attention_heads": group.attention.heads,
        "ffn_hidden_size": dense.mlp.d_ff,
        "normalization": "RMSNorm" if model.norm.kind == "rms" else "LayerNorm",
        "layernorm_zero_centered_gamma": model.norm.unit_offset,
        "hidden_dropout": float(model.residual_dropout),
        "attention_dropout": float(group.attention.dropout),
        "add_bias_linear": group.attention.out_bias,
        "add_qkv_bias": group.attention.qkv_bias,
        "gated_linear_unit": group.mlp.kind != "plain",
        "bias_activation_fusion": group.mlp.activation != "relu2",  # which is compiled by itself
        "bias_dropout_fusion": kernels.residual == "fused",
        "apply_rope_fusion": kernels.rotary == "fused",
        "masked_softmax_fusion": False,  # of attention that is not one kernel
        "persist_layer_norm": True,
        "attention_softmax_in_fp32": False,  # as above
        "cross_entropy_loss_fusion": kernels.loss == "fused" or plan.stack.loss_sums == "joined",
        "cross_entropy_fusion_impl": "te" if kernels.loss == "fused" else "native",
        "gradient_accumulation_fusion": plan.stack.accumulation == "fused",
        "tensor_model_parallel_size": layout.tensor,
        "pipeline_model_parallel_size": layout.pipeline,
        "context_parallel_size": layout.context,
        "expert_model_parallel_size": layout.expert,
        "sequence_parallel": layout.sequence != "off",
        "deallocate_pipeline_outputs": True,
        "perform_initialization": False,
        "enable_autocast": False,
        **_attention(group),
        **_stages(plan),
        **_recomputation(plan),
        **_quantisation(plan.precision.matmul),
    }
    if layout.context > 1:
        fields["cp_comm_type"] = EXCHANGES[layout.context_exchange]
    return {**fields, **_experts(plan)}


def _attention(group: Group) -> Fields:
    attention = group.attention
    if not attention.expanded:
        return {
            "num_query_groups": attention.kv_heads,
            "kv_channels": attention.head_dim,
            "qk_layernorm": attention.qk_norm == "head",
        }
    return {
        "multi_latent_attention": True,
        "q_lora_rank": attention.q_rank or None,
        "kv_lora_rank": attention.kv_rank,
        "qk_head_dim": attention.nope_head_dim,
        "qk_pos_emb_head_dim": attention.rope_head_dim,
        "v_head_dim": attention.v_head_dim,
        "qk_layernorm": True,  # norms of both latents
        "rope_type": "yarn",  # what its fused rotation needs
        "rotary_base": attention.rotary_base or 10000,
    }


def _stages(plan: Plan) -> Fields:
    """How many chunks a stage has, and which layers, where they are not even."""
    layout = plan.parallelism
    if layout.pipeline == 1:
        return {}
    sizes = chunks(plan.model, layout)
    fields: Fields = {"overlap_p2p_comm": layout.interleave > 1, "batch_p2p_comm": layout.interleave == 1}
    if len(set(sizes)) > 1:
        decoders = [["decoder"] * size for size in sizes]
        decoders[0] = ["embedding", *decoders[0]]
        decoders[-1] = [*decoders[-1], "loss"]
        return {**fields, "pipeline_model_parallel_layout": decoders}
    return fields


def _recomputation(plan: Plan) -> Fields:
    """Fields that say which activations of a layer backward computes again, and in how many layers."""
    recompute = plan.recompute
    if recompute.policy == "none":
        return {}
    if recompute.policy in WHOLE_LAYERS:
        method, count = WHOLE_LAYERS[recompute.policy](recompute)
        return {"recompute_granularity": "full", "recompute_method": method, "recompute_num_layers": count}
    parts = ("core",) if recompute.policy == "selective" else recompute.components
    return {"recompute_granularity": "selective", "recompute_modules": [MODULES[part] for part in parts]}


WHOLE_LAYERS: Mapping[str, Callable[[Recompute], tuple[str, int]]] = {
    "full": lambda _: ("uniform", 1),
    "segment": lambda recompute: ("uniform", recompute.segment),
    "layers": lambda recompute: ("block", recompute.layers),
}


def _quantisation(recipe: Recipe | None) -> Fields:
    """The recipe in which matmuls multiply."""
    if recipe is None:
        return {}
    gradients = "hybrid" if recipe.gradient == "fp8_e5m2" else "e4m3"
    fields: Fields = {"fp8": gradients, "fp8_recipe": recipe_name(recipe)}
    if recipe.history:
        fields |= {"fp8_amax_history_len": recipe.history, "fp8_amax_compute_algo": "max"}
    return fields


def recipe_name(recipe: Recipe) -> str:
    """Transformer Engine's name of a recipe; empty where it has none."""
    blocks = (recipe.activation_block, recipe.weight_block)
    named = {
        (WHOLE_TENSOR, WHOLE_TENSOR): "delayed" if recipe.history else "tensorwise",
        ((1, 128), (128, 128)): "blockwise",
        ((1, 32), (1, 32)): "mxfp8",
    }
    return named.get(blocks, "") if recipe.format == "fp8_e4m3" else ""


def _experts(plan: Plan) -> Fields:
    """Experts and their router, where there are any."""
    mlp = next((group.mlp for group in plan.model.groups if group.mlp.experts), None)
    if mlp is None:
        return {}
    sparse = [int(bool(plan.model.groups[index].mlp.experts)) for index in group_order(plan.model)]
    scores = mlp.router.scores
    return {
        "num_moe_experts": mlp.experts,
        "moe_ffn_hidden_size": mlp.d_ff,
        "moe_router_topk": mlp.top_k,
        "moe_layer_freq": sparse,
        "moe_grouped_gemm": True,
        "moe_token_dispatcher_type": "alltoall",
        "moe_permute_fusion": True,
        "moe_router_load_balancing_type": "aux_loss" if mlp.router.auxiliary_loss else "none",
        "moe_aux_loss_coeff": 0.01 if mlp.router.auxiliary_loss else 0.0,
        "moe_router_pre_softmax": scores == "softmax" and not mlp.router.normalize,
        "moe_router_score_function": "sigmoid" if scores.startswith("sigmoid") else "softmax",
        "moe_router_dtype": "fp32" if mlp.router.dtype == "fp32" else None,
        "moe_router_enable_expert_bias": scores == "sigmoid",  # what corrects which experts are chosen
        "moe_shared_expert_intermediate_size": mlp.shared_d_ff or None,
        **({"moe_router_num_groups": mlp.router.groups, "moe_router_group_topk": 1} if mlp.router.groups > 1 else {}),
    }


def model(plan: Plan) -> Fields:
    """Arguments of GPTModel beside its configuration."""
    attention = plan.model.groups[0].attention
    rotates = bool(attention.rotary) or attention.expanded
    return {
        "vocab_size": plan.model.vocab,
        "max_sequence_length": plan.model.learned_positions or plan.run.seq_len,
        "position_embedding_type": "rope"
        if rotates
        else "learned_absolute"
        if plan.model.learned_positions
        else "none",
        "rotary_percent": float(attention.rotary) or 1.0,
        "rotary_base": attention.rotary_base or 10000,
        "share_embeddings_and_output_weights": plan.model.tied,
    }


def data_parallel(plan: Plan) -> Fields:
    """What a plan says of gradients and shards, as fields of Megatron-Core's DistributedDataParallelConfig."""
    overlap = plan.stack.overlap
    sharded = plan.parallelism.zero == 1
    return {
        "grad_reduce_in_fp32": plan.precision.gradients == "fp32",
        "overlap_grad_reduce": overlap.data == "backward",
        "overlap_param_gather": sharded and overlap.gather == "layer",
        "use_distributed_optimizer": sharded,
        "average_in_collective": True,
    }


def optimizer(plan: Plan) -> Fields:
    """What a plan says of the update and its number formats, as fields of Megatron-Core's OptimizerConfig."""
    sharded = plan.parallelism.zero == 1
    return {
        "optimizer": OPTIMIZERS[plan.optimizer.name],
        "lr": 1e-4,
        "sgd_momentum": 0.9 if plan.optimizer.name == "momentum" else 0.0,
        "bf16": True,
        "use_distributed_optimizer": sharded,
        "overlap_param_gather": sharded and plan.stack.overlap.gather == "layer",
    }


def _kernels(plan: Plan) -> str:
    built = {name: kernels for name, kernels in BUILT.items() if name != "experts" or _experts(plan)}
    missing = missing_kernels(plan, built)
    return f"{missing}: Transformer Engine's layers have kernels of their own" if missing else ""


def _layout(plan: Plan) -> str:
    layout = plan.parallelism
    if layout.zero > 1:
        return f"parallelism.zero = {layout.zero}: the distributed optimizer is ZeRO-1"
    if layout.replicate > 1:
        return "parallelism.replicate: the judge has one instance of the distributed optimizer"
    if layout.offload:
        return f"parallelism.offload = {layout.offload}: the judge's ranks have no host apart"
    if layout.tensor > 1 and layout.sequence == "save_gathered":
        return "parallelism.sequence = save_gathered: Transformer Engine gathers again in backward"
    if layout.scheduled not in ("1f1b", "interleaved"):
        return f"parallelism.schedule = {layout.scheduled}: Megatron-Core has 1F1B, also interleaved"
    if layout.interleave > 1 and micro_batches(plan) % layout.pipeline:
        return f"parallelism.interleave = {layout.interleave}: its micro-batches come in rounds of all stages"
    if plan.model.tied and layout.pipeline > 1:
        return "model.embedding.tied with a pipeline: the judge's stages share no weights"
    return ""


def _precision(plan: Plan) -> str:
    precision = plan.precision
    if (precision.weights.every, precision.master, precision.states) != ("bf16", "fp32", "fp32") or precision.autocast:
        return f"precision = {precision.name}: the judge trains bf16 weights with fp32 masters and states"
    if precision.stored:
        return "precision.stored: Transformer Engine keeps what is saved as it is"
    if precision.matmul and not recipe_name(precision.matmul):
        return f"precision.matmul of {precision.name}: no recipe of Transformer Engine that the judge runs"
    if precision.matmul and (precision.matmul.weights == "only" or precision.matmul.turns):
        return "precision.matmul.weights: only, or turned: anew: parameters that are fp8 themselves are not run"
    return ""


def _training(plan: Plan) -> str:
    recompute = plan.recompute
    if plan.train.kind != "all":
        return f"train = {plan.train.kind}: Megatron-Core trains all weights"
    if plan.optimizer.name not in OPTIMIZERS:
        return f"optimizer = {plan.optimizer.name}: the judge has {', '.join(sorted(set(OPTIMIZERS)))}"
    if recompute.policy in ("every", "keep") or (recompute.policy == "segment" and not recompute.segment):
        return f"recompute = {recompute.policy}: no choice of Megatron-Core's"
    unnamed = [part for part in recompute.components if part not in MODULES]
    if unnamed:
        return f"recompute.components = {', '.join(unnamed)}: no module that Megatron-Core rebuilds"
    return ""


def _foreign_parts(plan: Plan) -> Iterator[str]:
    """The parts of a model that Megatron-Core's GPTModel does not have, a sentence each."""
    described = plan.model
    if described.bare:
        yield "only a parameter count is known"
        return
    for name in described.stated((*FOREIGN_PARTS, "scale_embedding", "head_bias", "head_softcap")):
        yield f"model.{name}: the judge's GPTModel is built without it"
    if described.embedding_dropout != described.residual_dropout:
        yield "model.embedding.dropout: Megatron-Core has one dropout for embedding and residuals"
    if len({(group.attention, group.norms, group.residual) for group in described.groups}) > 1:
        yield "model.layers: the judge's layers have one kind of attention"
    for group in described.groups:
        yield from _foreign_layers(group)


def _foreign_layers(group: Group) -> Iterator[str]:
    attention, mlp = group.attention, group.mlp
    if group.norms != "pre" or group.residual != "sequential":
        yield f"model.layers.{group.name}: norms before each part, one part after the other"
    for name in ("bidirectional", "window", "chunk", "softcap", "sinks", "temperature"):
        if getattr(attention, name):
            yield f"model.layers.{group.name}.attention.{name}: the judge's attention is causal and whole"
    if attention.kind == "gated" or attention.qk_norm not in ("none", "head"):
        yield f"model.layers.{group.name}.attention: kind = {attention.kind}, qk_norm = {attention.qk_norm}"
    if mlp.kind == "custom" or mlp.activation not in ACTIVATIONS:
        yield f"model.layers.{group.name}.mlp: no feed-forward part of Megatron-Core's"
    if mlp.fused_gate_up:
        yield f"model.layers.{group.name}.mlp.fused_gate_up: the stack says which projections are one matrix"
    if mlp.bias != attention.out_bias:
        yield f"model.layers.{group.name}: Megatron-Core has biases in all projections or in none"
    if mlp.router.bias:
        yield f"model.layers.{group.name}.mlp.router.bias: Megatron-Core's router is built without it"
    if mlp.capacity_factor or (mlp.shared and mlp.shared.gated) or mlp.router.scales == "input":
        yield f"model.layers.{group.name}.mlp: the judge's experts take all rows that come"


REFUSALS: Mapping[str, Callable[[Plan], str]] = {
    "model": lambda plan: next(_foreign_parts(plan), ""),
    "kernels": _kernels,
    "layout": _layout,
    "precision": _precision,
    "training": _training,
}
