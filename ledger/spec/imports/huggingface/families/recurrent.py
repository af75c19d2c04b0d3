"""Architectures whose layers keep a state of tokens before. Defaults: transformers 5.23, configuration_<family>.py."""

from __future__ import annotations

from collections.abc import Mapping

from ledger.spec.imports.huggingface import fields, patterns, terms
from ledger.spec.imports.huggingface.families import experts
from ledger.spec.imports.huggingface.families.common import PARTLY_ROTARY, decoder, grouped
from ledger.spec.imports.huggingface.family import Family
from ledger.spec.imports.huggingface.terms import Values


def _inner(values: Values) -> str:
    """Mamba-2 states its inner width twice."""
    inner, expanded = values["num_heads"] * values["head_dim"], values["expand"] * values["hidden_size"]
    stated = f"{values['num_heads']} heads of {values['head_dim']}"
    if inner != expanded:
        return f"`expand` makes {expanded:g} of `hidden_size`, and {stated} are {inner} wide"
    return f"{stated} do not share {values['n_groups']} groups" if values["num_heads"] % values["n_groups"] else ""


def _shared(values: Values) -> str:
    """Heads of values share those of keys evenly."""
    heads, keys = values["linear_num_value_heads"], values["linear_num_key_heads"]
    return f"{heads} heads of values cannot share {keys} of keys" if heads % keys else ""


RECURRENT: Mapping[str, Family] = {
    "mamba2": Family(
        config="Mamba2Config",
        architecture="Mamba2ForCausalLM",
        divides=False,
        fields={
            **fields.sizes(hidden_size=4096, num_heads=128, head_dim=64, vocab_size=32768),
            **fields.depths(num_hidden_layers=64),
            **fields.sizes(state_size=128, expand=2, conv_kernel=4, n_groups=8, chunk_size=256),
            **fields.flags(use_bias=False, use_conv_bias=True, residual_in_fp32=True, tie_word_embeddings=False),
            "hidden_act": fields.only("silu", "swish"),
        },
        terms=(
            *(terms.same("hidden_size", "d_model"), terms.same("vocab_size", "vocab")),
            *(terms.same("tie_word_embeddings", "embedding.tied"), *terms.norms("rms")),
            terms.choice("residual_in_fp32", "residual_dtype", {True: "fp32", False: None}),
            *(*terms.fixed("attention", kind="mamba2"), terms.same("num_heads", "attention.heads")),
            *(terms.same("head_dim", "attention.head_dim"), terms.same("state_size", "attention.state.size")),
            *(terms.same("n_groups", "attention.state.groups"), terms.same("chunk_size", "attention.state.chunk")),
            terms.same("conv_kernel", "attention.state.convolution"),
            terms.same("use_conv_bias", "attention.state.convolution_bias"),
            terms.same("use_bias", "attention.qkv_bias", "attention.out_bias"),
            *terms.fixed("mlp", kind="none"),
        ),
        # steps of time begin there, and are clamped to no other shape; gates come before the norm whatever a file says
        ignored=frozenset(
            """
            layer_norm_epsilon norm_before_gate rescale_prenorm_residual rms_norm time_step_floor time_step_limit
            time_step_max time_step_min time_step_rank
            """.split()  # noqa: SIM905 - as a literal, one name a line, these would be half of the row
        ),
        clashes={"num_heads": _inner},
        follows={"expand": lambda values: values["num_heads"] * values["head_dim"] // values["hidden_size"]},
        layers="backbone.layers",
    ),
    "qwen3_next": Family(
        config="Qwen3NextConfig",
        architecture="Qwen3NextForCausalLM",
        divides=False,
        fields={
            **decoder(width=2048, layers=48, heads=16, positions=32768, vocabulary=151936),
            **grouped(2, 5632),
            **PARTLY_ROTARY,
            **experts.BALANCE,
            **fields.sizes(decoder_sparse_step=1),
            **fields.layer_lists(mlp_only_layers=None),
            **fields.shares(partial_rotary_factor=0.25),
            **fields.sizes(head_dim=256, num_key_value_heads=2, num_experts=512, num_experts_per_tok=10),
            **fields.sizes(moe_intermediate_size=512, shared_expert_intermediate_size=512),
            **fields.sizes(linear_conv_kernel_dim=4, linear_key_head_dim=128, linear_value_head_dim=128),
            **fields.sizes(linear_num_key_heads=16, linear_num_value_heads=32, full_attention_interval=4),
            **fields.flags(attention_bias=False, norm_topk_prob=True),
            **fields.layer_types(*fields.LINEAR)(layer_types=None),
            "hidden_act": fields.only("silu", "swish"),
        },
        terms=(
            *(*terms.OUTSIDE, *terms.norms("rms", unit_offset=True)),
            *terms.of(
                "linear",
                *terms.fixed("attention", kind="gated_delta"),
                terms.same("linear_num_value_heads", "attention.heads"),
                terms.same("linear_value_head_dim", "attention.head_dim"),
                terms.same("linear_key_head_dim", "attention.state.size"),
                terms.same("linear_num_key_heads", "attention.state.groups"),
                *terms.fixed("attention.state", chunk=64),
                terms.same("linear_conv_kernel_dim", "attention.state.convolution"),
            ),
            *terms.of(
                "global",
                *(*terms.fixed("attention", kind="gated", qk_norm="head"), *terms.GROUPED, terms.BIASES),
                *(terms.partly_rotary("partial_rotary_factor"), *terms.fixed("attention", rotary_form="joined_halves")),
                terms.DROPOUT,
            ),
            *experts.QWEN,
            *terms.of("experts", terms.same("shared_expert_intermediate_size", "mlp.shared.d_ff")),
            *terms.of("experts", *terms.fixed("mlp.shared", gated=True)),
        ),
        patterns=(patterns.EVERY_STEP, patterns.LINEAR),
        clashes={"linear_num_value_heads": _shared},
        aliases={"num_local_experts": "num_experts"},
        ignored=experts.ROUTED_UNSHAPED | {"max_window_layers", "sliding_window", "use_sliding_window"},
    ),
}
