"""Architectures whose attention and feed-forward part may run side by side. Defaults: transformers 5.23."""

from __future__ import annotations

from collections.abc import Mapping

from ledger.spec.imports.huggingface import patterns, terms
from ledger.spec.imports.huggingface import terms as fields
from ledger.spec.imports.huggingface.family import PARTLY_ROTARY, UNSHAPED, Family, decoder, grouped

NO_DROPOUT = fields.only(0.0, 0)
COHERE = (
    *(*terms.OUTSIDE, *terms.norms("layer", "shared", wide=True), *terms.fixed_values("", residual="parallel")),
    *(*terms.GROUPED, terms.same_field("logit_scale", "head.scale")),
    *(terms.BIASES, terms.DROPOUT, *terms.mlp("gated")),
)
COHERE_FIELDS = {
    **decoder(width=8192, layers=40, heads=64, positions=8192, vocabulary=256000),
    **grouped(None, 22528, tied=True),
    **fields.sizes(head_dim=None),
    **fields.factors(logit_scale=0.0625),
    **fields.flags(attention_bias=False),
}
# As published files have it, of what the classes always do.
COHERE_UNSHAPED = UNSHAPED | {"layer_norm_eps", "model_max_length"}
ROTATES_PAIRS = terms.fixed_values("attention", rotary=1, rotary_form="wide_pairs")


def _places(values: terms.Values) -> str:
    """One norm for both parts, or one each; in the second of Falcon's architectures one each unless it says so."""
    second = values["new_decoder_architecture"]
    if not (second or values["parallel_attn"]):
        return "pre"
    return "pre" if second and values["num_ln_in_parallel_attn"] in (None, 2) else "shared"


def _norms_differ(values: terms.Values) -> str:
    if values["num_ln_in_parallel_attn"] == 2 and values["parallel_attn"] and not values["new_decoder_architecture"]:
        return "`num_ln_in_parallel_attn` is 2 without `new_decoder_architecture`"
    return ""


def _key_heads(values: terms.Values) -> int:
    heads: int = values["num_attention_heads"]
    if values["multi_query"] and not values["new_decoder_architecture"]:
        return 1
    return values["num_kv_heads"] or heads


def _residual_form(values: terms.Values) -> str | None:
    return "parallel" if values["new_decoder_architecture"] or values["parallel_attn"] else None


PARALLEL: Mapping[str, Family] = {
    "stablelm": Family(
        config="StableLmConfig",
        architecture="StableLmForCausalLM",
        fields={
            **decoder(width=2560, layers=32, heads=32, positions=4096, vocabulary=50304),
            **PARTLY_ROTARY,
            **fields.sizes_or_null(num_key_value_heads=32),
            **fields.sizes(intermediate_size=6912),
            **fields.activations(hidden_act="silu"),
            **fields.dropouts(attention_dropout=0.0),
            **fields.flags(tie_word_embeddings=False, use_qkv_bias=False, use_parallel_residual=False),
            **fields.flags(qk_layernorm=False),
            **fields.shares(partial_rotary_factor=0.25),
            "hidden_dropout": NO_DROPOUT,  # of feed-forward parts alone
        },
        terms=(
            *(*terms.OUTSIDE, *terms.fixed_values("norm", kind="layer", bias=True)),
            *(terms.HEADS, terms.KEY_HEADS, terms.SPLIT_WIDTH, terms.partly_rotary("partial_rotary_factor")),
            *(terms.same_field("use_qkv_bias", "attention.qkv_bias"), terms.DROPOUT, *terms.mlp("gated")),
            terms.choice("qk_layernorm", "attention.qk_norm", {True: "heads", False: None}),
            terms.choice("use_parallel_residual", "residual", {True: "parallel", False: None}),
            terms.derived_term("norms", lambda values: "shared" if values["use_parallel_residual"] else "pre"),
        ),
        ignored=UNSHAPED | {"layer_norm_eps"},
    ),
    "cohere": Family(
        config="CohereConfig",
        architecture="CohereForCausalLM",
        divides=False,
        fields={**COHERE_FIELDS, **fields.flags(use_qk_norm=False)},
        terms=(
            *(*COHERE, *ROTATES_PAIRS),
            terms.choice("use_qk_norm", "attention.qk_norm", {True: "heads", False: None}),
        ),
        ignored=COHERE_UNSHAPED,
    ),
    "cohere2": Family(
        config="Cohere2Config",
        architecture="Cohere2ForCausalLM",
        divides=False,
        fields={
            **COHERE_FIELDS,
            **fields.sizes_or_null(sliding_window=4096),
            **fields.sizes(sliding_window_pattern=4),
            **fields.layer_types(*fields.SLIDING)(layer_types=None),
        },
        terms=(*COHERE, *terms.terms_of_kinds("local", *ROTATES_PAIRS, terms.WINDOW)),
        patterns=(patterns.ALL_BUT_EVERY,),
        ignored=COHERE_UNSHAPED
        | {"layer_switch", "order_of_interleaved_layers", "position_embedding_type", "rotary_pct", "use_qk_norm"}
        | {"use_embedding_sharing", "use_gated_activation", "use_parallel_block", "use_parallel_embedding"},
    ),
    "falcon": Family(
        config="FalconConfig",
        architecture="FalconForCausalLM",
        fields={
            **decoder(width=4544, layers=32, heads=71, positions=2048, vocabulary=65024),
            **fields.rotary_parameters()(rope_parameters=None, rope_scaling=None),
            **fields.sizes_or_null(num_kv_heads=None, ffn_hidden_size=None),
            **fields.activations(activation="gelu"),
            **fields.flags(bias=False, multi_query=True, new_decoder_architecture=False, parallel_attn=True),
            **fields.flags(tie_word_embeddings=True),
            **fields.wholes(1, 2).or_null()(num_ln_in_parallel_attn=None),
            "alibi": fields.only(False),  # a bias on scores that grows with distance
            "hidden_dropout": NO_DROPOUT,  # of both parts together
            "attention_dropout": NO_DROPOUT,  # of what a part adds where one follows the other
        },
        terms=(
            *(*terms.OUTSIDE, *terms.fixed_values("norm", kind="layer", bias=True), terms.HEADS, terms.SPLIT_WIDTH),
            terms.Term(("norms",), _places, lambda norms: {"num_ln_in_parallel_attn": 1 if norms == "shared" else 2}),
            terms.Term(
                ("residual",),
                _residual_form,
                lambda residual: dict.fromkeys(("new_decoder_architecture", "parallel_attn"), residual == "parallel"),
            ),
            terms.Term(
                ("attention.kv_heads",), _key_heads, lambda heads: {"num_kv_heads": heads, "multi_query": heads == 1}
            ),
            *terms.fixed_values("attention", fused_qkv=True, rotary=1, softmax="input"),
            terms.same_field("bias", "attention.qkv_bias", "attention.out_bias", "mlp.bias"),
            *terms.mlp(
                "plain",
                terms.Term(
                    ("mlp.d_ff",),
                    lambda values: values["ffn_hidden_size"] or 4 * values["hidden_size"],
                    lambda width: {"ffn_hidden_size": width},
                ),
                terms.activation("activation"),
            ),
        ),
        aliases={"n_embed": "hidden_size"},
        clashes={"num_ln_in_parallel_attn": _norms_differ},
        ignored=frozenset({"apply_residual_connection_post_layernorm", "auto_map", "layer_norm_epsilon", "rope_theta"}),
        layers="transformer.h",
    ),
}
