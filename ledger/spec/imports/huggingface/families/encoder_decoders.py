"""Encoders, and decoders that attend to their result. Defaults: transformers 5.23, configuration_<family>.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ledger.spec.architecture import Group
from ledger.spec.imports.huggingface import terms
from ledger.spec.imports.huggingface import terms as fields
from ledger.spec.imports.huggingface.family import Family, decoder, depth
from ledger.spec.imports.huggingface.patterns import LayerPattern
from ledger.spec.imports.huggingface.terms import ACTIVATIONS, ConfigField, Term, Values

ENCODER, DECODER = "encoder", "decoder"
GATED, GATED_GELU = "gated-", "gated-gelu"


def _kind(group: Group) -> str:
    return ENCODER if group.encodes_source else DECODER


def _stacks(encoder: str, decoder: str) -> LayerPattern:
    """Layers of an encoder and those of a decoder after them, as many of these where nothing else is said."""

    def read(values: Values) -> list[str]:
        many = values[encoder]
        return [ENCODER] * many + [DECODER] * (values[decoder] or many)

    def write(kinds: Any) -> Values:
        return {encoder: kinds.count(ENCODER), decoder: kinds.count(DECODER)}

    return LayerPattern(read, _kind, write)


SIDES = (
    *terms.terms_of_kinds(
        ENCODER, *terms.fixed_values("", reads="source"), *terms.fixed_values("attention", bidirectional=True)
    ),
    *terms.terms_of_kinds(DECODER, *terms.fixed_values("", cross_attention=True)),
)

# --- T5 ---


def _stated_activation(values: Values) -> str:
    """The activation in `feed_forward_proj`: T5Config takes GELU after a gate as tanh-GELU."""
    stated = values["feed_forward_proj"]
    return "gelu_new" if stated == GATED_GELU else stated.removeprefix(GATED)


def _activation(values: Values) -> str:
    return ACTIVATIONS[values["dense_act_fn"] or _stated_activation(values)]


def _is_gated(values: Values) -> bool:
    return bool(values["feed_forward_proj"].startswith(GATED))


def _written_projection(written: Values) -> str:
    """The field that says both whether there is a gate and what activates it."""
    name, gate = written["dense_act_fn"], GATED if written["is_gated_act"] else ""
    if gate and name == "gelu_new":
        return GATED_GELU
    return f"{gate}gelu_python" if gate and name == "gelu" else f"{gate}{name}"


def _divides_logits(values: Values) -> bool:
    """Whether logits are divided: what is saved of it, else whether the file unties the head, which T5Config undoes."""
    saved = values["scale_decoder_outputs"]
    return bool(values["tie_word_embeddings"] if saved is None else saved)


def _activations_differ(values: Values) -> str:
    named, stated = values["dense_act_fn"], values["feed_forward_proj"]
    if named is None or ACTIVATIONS[named] == ACTIVATIONS[_stated_activation(values)]:
        return ""
    return f"`dense_act_fn` is {named}, and `feed_forward_proj` {stated}"


def _gates_differ(values: Values) -> str:
    gated, stated = values["is_gated_act"], values["feed_forward_proj"]
    return "" if gated in (None, _is_gated(values)) else f"`is_gated_act` is {gated}, and `feed_forward_proj` {stated}"


PROJECTIONS = fields.FieldKind(
    {"enum": [f"{gate}{name}" for gate in ("", GATED) for name in ACTIVATIONS]},
    f"one of {', '.join(ACTIVATIONS)}, alone or behind `{GATED}`",
)
WRITTEN = {"gelu_tanh": "gelu_new"}
T5 = Family(
    config="T5Config",
    architecture="T5ForConditionalGeneration",
    formerly=("T5WithLMHeadModel",),
    fields={
        **fields.sizes(hidden_size=512, num_attention_heads=8, head_dim=64, d_ff=2048),
        **depth(6),
        **fields.depths.or_null()(num_decoder_layers=None),
        **fields.sizes(vocab_size=32128, relative_attention_num_buckets=32),
        **fields.dropouts(dropout_rate=0.1),
        **PROJECTIONS(feed_forward_proj="relu"),
        **fields.activations.or_null()(dense_act_fn=None),
        **fields.flags.or_null()(is_gated_act=None, scale_decoder_outputs=None),
        **fields.flags(tie_word_embeddings=True),
        "is_encoder_decoder": fields.only(True),
        "is_decoder": fields.only(False),
    },
    patterns=(_stacks("num_hidden_layers", "num_decoder_layers"),),
    terms=(
        *(terms.same_field("hidden_size", "d_model"), terms.same_field("vocab_size", "vocab")),
        *terms.fixed_values("embedding", tied=True),  # whatever a file says (T5Config)
        *terms.norms("rms", scales_input=True),
        terms.same_field("dropout_rate", "embedding.dropout", "residual_dropout", "norm.final_dropout"),
        Term(("head.scale_input",), _divides_logits, lambda value: {"scale_decoder_outputs": value}),
        *(terms.HEADS, terms.EQUAL_HEADS, terms.same_field("head_dim", "attention.head_dim")),
        *terms.fixed_values("attention", softmax="unconverted"),
        terms.same_field("dropout_rate", "attention.dropout"),
        terms.same_field("relative_attention_num_buckets", "attention.relative_buckets"),
        Term(
            ("mlp.kind",),
            lambda values: "gated" if _is_gated(values) else "plain",
            lambda kind: {"is_gated_act": kind == "gated"},
        ),
        terms.same_field("d_ff", "mlp.d_ff"),
        terms.same_field("dropout_rate", "mlp.dropout"),
        Term(("mlp.activation",), _activation, lambda value: {"dense_act_fn": WRITTEN.get(value, value)}),
        *SIDES,
    ),
    divides=False,
    aliases={
        "d_model": "hidden_size",
        "num_heads": "num_attention_heads",
        "num_layers": "num_hidden_layers",
        "d_kv": "head_dim",
    },
    ignored=frozenset(
        "initializer_factor layer_norm_epsilon n_positions relative_attention_max_distance".split()  # noqa: SIM905
    ),
    clashes={"dense_act_fn": _activations_differ, "is_gated_act": _gates_differ},
    follows={"feed_forward_proj": _written_projection},
    layers="encoder.block",
    further="decoder.block",
)

# --- Whisper ---

FRAMES_A_TOKEN = 2


def _sound_sizes(values: Values) -> dict[str, int]:
    return {"bands": values["num_mel_bins"], "frames": FRAMES_A_TOKEN * values["max_source_positions"]}


def _sound_fields(sound: Any) -> Values:
    """The fields of a sound; values that no class accepts where a model hears none."""
    if sound is None:
        return {"num_mel_bins": 0, "max_source_positions": 0}
    return {"num_mel_bins": sound.bands, "max_source_positions": sound.tokens}


def _heads(field: str) -> tuple[Term, ...]:
    """Heads of a stack, as many of keys as of queries, and as wide as fit into the stream."""
    width = terms.derived_term("attention.head_dim", lambda values: values["hidden_size"] // values[field])
    return terms.same_field(field, "attention.heads", "attention.kv_heads"), width


WHISPER = Family(
    config="WhisperConfig",
    architecture="WhisperForConditionalGeneration",
    fields={
        **fields.sizes(hidden_size=384, num_attention_heads=6, decoder_attention_heads=6),
        **depth(4),
        **fields.depths(decoder_layers=4),
        **fields.sizes(encoder_ffn_dim=1536, decoder_ffn_dim=1536, vocab_size=51865, num_mel_bins=80),
        **fields.sizes(max_source_positions=1500, max_target_positions=448),
        **fields.activations(activation_function="gelu"),
        **fields.dropouts(dropout=0.0, attention_dropout=0.0, activation_dropout=0.0),
        **fields.flags(tie_word_embeddings=True),
        "encoder_layerdrop": fields.only(0.0, 0),
        "decoder_layerdrop": fields.only(0.0, 0),
        "scale_embedding": ConfigField(False, fields.flags),  # WhisperEncoder and WhisperDecoder multiply by nothing
        "is_encoder_decoder": fields.only(True),
    },
    patterns=(_stacks("num_hidden_layers", "decoder_layers"),),
    terms=(
        *(terms.same_field("hidden_size", "d_model"), terms.same_field("vocab_size", "vocab")),
        Term(("sound",), _sound_sizes, _sound_fields),
        terms.same_field("max_target_positions", "embedding.learned_positions"),
        *terms.fixed_values("embedding", positions_each=True),
        terms.same_field("tie_word_embeddings", "embedding.tied"),
        terms.same_field("dropout", "embedding.dropout", "residual_dropout"),
        *terms.norms("layer", bias=True),
        *terms.terms_of_kinds(ENCODER, *_heads("num_attention_heads")),
        *terms.terms_of_kinds(DECODER, *_heads("decoder_attention_heads")),
        *terms.fixed_values(
            "attention",
            qkv_bias=True,
            key_bias=False,
            out_bias=True,
            softmax="unconverted",
            scaled="queries",
            masked=False,
        ),
        terms.same_field("attention_dropout", "attention.dropout"),
        *terms.fixed_values("mlp", kind="plain"),
        *terms.terms_of_kinds(ENCODER, terms.same_field("encoder_ffn_dim", "mlp.d_ff")),
        *terms.terms_of_kinds(DECODER, terms.same_field("decoder_ffn_dim", "mlp.d_ff")),
        *(terms.activation("activation_function"), *terms.fixed_values("mlp", bias=True)),
        terms.same_field("activation_dropout", "mlp.dropout"),
        *SIDES,
    ),
    aliases={
        "d_model": "hidden_size",
        "encoder_attention_heads": "num_attention_heads",
        "encoder_layers": "num_hidden_layers",
    },
    ignored=frozenset(
        """
        apply_spec_augment classifier_proj_size init_std mask_feature_length mask_feature_min_masks mask_feature_prob
        mask_time_length mask_time_min_masks mask_time_prob median_filter_width use_weighted_layer_sum
        alignment_heads forced_decoder_ids is_multilingual lang_to_id language max_initial_timestamp_index
        no_timestamps_token_id return_timestamps task task_to_id
        """.split()  # noqa: SIM905 - as a literal, one name a line, these would be half of the row
    ),
    layers="model.encoder.layers",
    further="model.decoder.layers",
)

ENCODER_DECODERS: Mapping[str, Family] = {"t5": T5, "whisper": WHISPER}

# --- encoders whose tokens see those after them ---

ENCODERS: Mapping[str, Family] = {
    "bert": Family(
        config="BertConfig",
        architecture="BertForMaskedLM",
        fields={
            **decoder(width=768, layers=12, heads=12, positions=512, vocabulary=30522),
            **fields.sizes(intermediate_size=3072, type_vocab_size=2),
            **fields.activations(hidden_act="gelu"),
            **fields.dropouts(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1),
            "tie_word_embeddings": fields.only(True),  # false keeps a second bias of the head, which nothing reads
            "is_decoder": fields.only(False),  # true masks what comes after
            "position_embedding_type": fields.only("absolute"),
        },
        terms=(
            *(*terms.OUTSIDE, terms.same_field("max_position_embeddings", "embedding.learned_positions")),
            *(terms.same_field("type_vocab_size", "embedding.types"), *terms.fixed_values("embedding", norm=True)),
            terms.same_field("hidden_dropout_prob", "embedding.dropout", "residual_dropout"),
            *(*terms.norms("layer", "residual", bias=True), terms.derived_term("norm.final", lambda _: False)),
            *(terms.activation("hidden_act", "head.transform"), *terms.fixed_values("head", bias=True)),
            *(terms.HEADS, terms.EQUAL_HEADS, terms.SPLIT_WIDTH),
            *terms.fixed_values("attention", qkv_bias=True, out_bias=True, bidirectional=True, softmax="input"),
            terms.same_field("attention_probs_dropout_prob", "attention.dropout"),
            *(*terms.mlp("plain"), *terms.fixed_values("mlp", bias=True)),
        ),
        ignored=frozenset(
            """
            directionality layer_norm_eps pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers
            pooler_size_per_head pooler_type
            """.split()  # noqa: SIM905 - as a literal, one name a line, these would be half of the row
        ),
        stack="encoder",
        layers="bert.encoder.layer",
    )
}
