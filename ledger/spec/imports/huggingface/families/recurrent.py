"""Architectures whose layers keep a state of all tokens before. Defaults: transformers 5.23, configuration_<family>.py."""

from __future__ import annotations

from collections.abc import Mapping

from ledger.spec.imports.huggingface import fields, terms
from ledger.spec.imports.huggingface.family import Family
from ledger.spec.imports.huggingface.terms import Values


def _inner(values: Values) -> str:
    """Mamba-2 states its inner width twice."""
    inner, expanded = values["num_heads"] * values["head_dim"], values["expand"] * values["hidden_size"]
    stated = f"{values['num_heads']} heads of {values['head_dim']}"
    if inner != expanded:
        return f"`expand` makes {expanded:g} of `hidden_size`, and {stated} are {inner} wide"
    return f"{stated} do not share {values['n_groups']} groups" if values["num_heads"] % values["n_groups"] else ""


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
}
