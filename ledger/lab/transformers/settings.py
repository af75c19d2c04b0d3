"""The configuration of each architecture of transformers, from the sizes of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ledger.lab.transformers.features import dense, layer_order, mlp_of

if TYPE_CHECKING:
    from ledger.spec.plan import Model

# Where transformers has another name for a nonlinearity than a model spec.
NAMES = {
    "gelu_tanh": "gelu_pytorch_tanh",
    "clamped_swiglu": "silu",  # GPT-OSS writes its own and leaves this one unused
}


def _activation(kind: str) -> str:
    return NAMES.get(kind, kind)


def _common(model: Model) -> dict[str, Any]:
    """What every family but GPT-2 names alike."""
    group = model.groups[0]
    return {
        "vocab_size": model.vocab,
        "hidden_size": model.d_model,
        "intermediate_size": group.mlp.d_ff,
        "num_hidden_layers": len(layer_order(model)),
        "num_attention_heads": group.attention.heads,
        "max_position_embeddings": max(model.max_seq_len, 1),
        "attention_dropout": float(group.attention.dropout),
        "tie_word_embeddings": model.tied,
        "hidden_act": _activation(group.mlp.activation),
    }


def gpt2(model: Model) -> dict[str, Any]:
    """GPT2Config."""
    group = model.groups[0]
    return {
        "vocab_size": model.vocab,
        "n_positions": model.learned_positions,
        "n_embd": model.d_model,
        "n_layer": len(layer_order(model)),
        "n_head": group.attention.heads,
        "n_inner": group.mlp.d_ff,
        "activation_function": _activation(group.mlp.activation),
        "attn_pdrop": float(group.attention.dropout),
        "resid_pdrop": float(model.residual_dropout),
        "embd_pdrop": float(model.embedding_dropout),
        "tie_word_embeddings": model.tied,
    }


def gpt_neox(model: Model) -> dict[str, Any]:
    """GPTNeoXConfig."""
    group = model.groups[0]
    rotary = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": float(group.attention.rotary)}
    return _common(model) | {
        "hidden_dropout": float(model.residual_dropout),
        "use_parallel_residual": group.residual == "parallel",
        "rope_parameters": rotary,
    }


def grouped(model: Model) -> dict[str, Any]:
    """Families whose heads share keys and values; all there is to Qwen2."""
    attention = model.groups[0].attention
    return _common(model) | {"num_key_value_heads": attention.kv_heads, "head_dim": attention.head_dim}


def llama(model: Model) -> dict[str, Any]:
    """LlamaConfig."""
    group = model.groups[0]
    return grouped(model) | {"attention_bias": group.attention.qkv_bias, "mlp_bias": group.mlp.bias}


def mistral(model: Model) -> dict[str, Any]:
    """MistralConfig: every layer has the window."""
    return grouped(model) | {"sliding_window": model.groups[0].attention.window}


def gemma2(model: Model) -> dict[str, Any]:
    """Gemma2Config: a window in the layers that have one."""
    attention = model.groups[0].attention
    settings = grouped(model)
    return settings | {
        "hidden_activation": settings.pop("hidden_act"),
        "query_pre_attn_scalar": attention.head_dim,
        "sliding_window": next((g.attention.window for g in model.groups if g.attention.window), None),
        "layer_types": _layer_types(model),
        "final_logit_softcapping": model.head_softcap,
        "attn_logit_softcapping": attention.softcap,
    }


def phi(model: Model) -> dict[str, Any]:
    """PhiConfig: attention and MLP beside each other read one norm."""
    rotary = {
        "rope_type": "default",
        "rope_theta": 1e4,
        "partial_rotary_factor": float(model.groups[0].attention.rotary),
    }
    return _common(model) | {
        "num_key_value_heads": model.groups[0].attention.kv_heads,
        "resid_pdrop": float(model.residual_dropout),
        "embd_pdrop": float(model.embedding_dropout),
        "rope_parameters": rotary,
    }


def llama4(model: Model) -> dict[str, Any]:
    """Llama4TextConfig: some layers in chunks and rotated, others neither; some with experts, others without."""
    rotating = [bool(group.attention.rotary) for group in layer_order(model)]
    group, mlp = model.groups[0], mlp_of(model)
    return _common(model) | {
        "num_key_value_heads": group.attention.kv_heads,
        "head_dim": group.attention.head_dim,
        "attention_bias": group.attention.qkv_bias,
        "intermediate_size": mlp.d_ff,
        "intermediate_size_mlp": next((g.mlp.d_ff for g in model.groups if not g.mlp.experts), mlp.d_ff),
        "moe_layers": [index for index, plain in enumerate(dense(model)) if not plain],
        "num_local_experts": max(mlp.experts, 1),
        "num_experts_per_tok": max(mlp.top_k, 1),
        "no_rope_layers": [int(one) for one in rotating],
        "attention_chunk_size": next((g.attention.chunk for g in model.groups if g.attention.chunk), None),
        "attn_temperature_tuning": any(g.attention.temperature for g in model.groups),
    }


def olmo2(model: Model) -> dict[str, Any]:
    """Olmo2Config."""
    attention = model.groups[0].attention
    return _common(model) | {"num_key_value_heads": attention.kv_heads, "attention_bias": attention.qkv_bias}


def qwen3(model: Model) -> dict[str, Any]:
    """Qwen3Config: a window in the layers that have one, one answer for all biases of attention."""
    window = next((g.attention.window for g in model.groups if g.attention.window), None)
    return grouped(model) | {
        "attention_bias": model.groups[0].attention.qkv_bias,
        "use_sliding_window": window is not None,
        "sliding_window": window,
        "layer_types": _layer_types(model),
    }


def gemma3(model: Model) -> dict[str, Any]:
    """Gemma3TextConfig: rotary positions of two bases, one for the layers with a window."""
    bases = {bool(g.attention.window): float(g.attention.rotary_base) for g in model.groups}
    kinds = {"sliding_attention": True, "full_attention": False}
    return gemma2(model) | {
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": bases.get(windowed, 1e4)} for kind, windowed in kinds.items()
        },
    }


def mixtral(model: Model) -> dict[str, Any]:
    """MixtralConfig: experts in every layer."""
    mlp = mlp_of(model)
    return mistral(model) | {
        "intermediate_size": mlp.d_ff,
        "num_local_experts": mlp.experts,
        "num_experts_per_tok": mlp.top_k,
    }


def gpt_oss(model: Model) -> dict[str, Any]:
    """GptOssConfig: experts in every layer, a window in the layers that have one."""
    mlp, attention = mlp_of(model), model.groups[0].attention
    return grouped(model) | {
        "attention_bias": attention.qkv_bias,
        "sliding_window": next((g.attention.window for g in model.groups if g.attention.window), None),
        "layer_types": _layer_types(model),
        "num_local_experts": mlp.experts,
        "num_experts_per_tok": mlp.top_k,
    }


def qwen2_moe(model: Model) -> dict[str, Any]:
    """Qwen2MoeConfig: experts in every layer but those that are named, and a gated shared one."""
    return _among_dense(model) | {"shared_expert_intermediate_size": mlp_of(model).shared_d_ff}


def qwen3_moe(model: Model) -> dict[str, Any]:
    """Qwen3MoeConfig: experts in every layer but those that are named, one window for all."""
    attention = model.groups[0].attention
    window = {"use_sliding_window": attention.window is not None, "sliding_window": attention.window}
    return _among_dense(model) | window | {"attention_bias": attention.qkv_bias}


def _among_dense(model: Model) -> dict[str, Any]:
    """What both of Qwen's configurations with experts name alike."""
    mlp = mlp_of(model)
    layers = dense(model)
    return grouped(model) | {
        "intermediate_size": next((group.mlp.d_ff for group in model.groups if not group.mlp.experts), 1),
        "moe_intermediate_size": mlp.d_ff,
        "num_experts": mlp.experts,
        "num_experts_per_tok": mlp.top_k,
        "norm_topk_prob": mlp.router.normalize,
        "mlp_only_layers": [index for index, plain in enumerate(layers) if plain],
    }


def deepseek_v3(model: Model) -> dict[str, Any]:
    """DeepseekV3Config; where no layer has experts its defaults for them shape nothing."""
    own = {"rope_interleave": model.groups[0].attention.rotary_form == "pairs"}
    return _latent(model) | own | _deepseek_experts(model)


def deepseek_v2(model: Model) -> dict[str, Any]:
    """DeepseekV2Config; where no layer has experts its defaults for them shape nothing."""
    greedy = "group_limited_greedy" if mlp_of(model).router.groups > 1 else "greedy"
    own = {"mlp_bias": model.groups[0].mlp.bias, "topk_method": greedy}
    return _latent(model) | own | _deepseek_experts(model)


def _deepseek_experts(model: Model) -> dict[str, Any]:
    """Experts after the dense layers; how many groups a token may use shapes nothing."""
    mlp = mlp_of(model)
    if not mlp.experts or not mlp.shared:
        return {}
    return {
        "intermediate_size": next((group.mlp.d_ff for group in model.groups if not group.mlp.experts), 1),
        "moe_intermediate_size": mlp.d_ff,
        "n_routed_experts": mlp.experts,
        "num_experts_per_tok": mlp.top_k,
        "n_shared_experts": mlp.shared.count,
        "n_group": mlp.router.groups,
        "topk_group": max(1, mlp.router.groups // 2),
        "norm_topk_prob": mlp.router.normalize,
        "first_k_dense_replace": sum(dense(model)),
    }


def _latent(model: Model) -> dict[str, Any]:
    attention = model.groups[0].attention
    return _common(model) | {
        "num_key_value_heads": attention.heads,
        "q_lora_rank": attention.q_rank or None,
        "kv_lora_rank": attention.kv_rank,
        "qk_nope_head_dim": attention.nope_head_dim,
        "qk_rope_head_dim": attention.rope_head_dim,
        "v_head_dim": attention.v_head_dim,
        "attention_bias": attention.qkv_bias,
        "first_k_dense_replace": len(layer_order(model)),
    }


def _layer_types(model: Model) -> list[str]:
    return ["sliding_attention" if group.attention.window else "full_attention" for group in layer_order(model)]
