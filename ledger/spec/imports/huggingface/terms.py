"""The terms of a configuration, each read both ways: config.json to spec, spec to config.json."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

from ledger.spec.imports.text import DEEPEST, LARGEST
from ledger.spec.values import Schema

Values = Mapping[str, Any]  # every field of a configuration, by name


@dataclass(frozen=True)
class Term:
    """One value of a model: its `paths` in a model spec, how it follows from a configuration, and how it is put there.

    `kinds`: the kinds of layers that have it; empty: all of them.
    """

    paths: tuple[str, ...]
    read: Callable[[Values], Any]
    write: Callable[[Any], Values]  # of the value at the first path
    kinds: tuple[str, ...] = ()


def same_field(name: str, *paths: str) -> Term:
    """A field that is the value itself."""
    return Term(paths, itemgetter(name), lambda value: {name: value})


def fixed_values(part: str, **values: Any) -> tuple[Term, ...]:
    """Values that a part of every model of a family has, whatever its configuration; part "" is the layer itself."""
    return tuple(
        derived_term(f"{part}.{name}" if part else name, lambda _, value=value: value)  # type: ignore[misc]
        for name, value in values.items()
    )


def derived_term(path: str, read: Callable[[Values], Any]) -> Term:
    """A value that follows from fields which other terms write."""
    return Term((path,), read, lambda _: {})


def choice(name: str, path: str, meaning: Mapping[Any, Any]) -> Term:
    """A field of a few values, each with its meaning; None is what the spec language takes by itself."""
    written = {word: value for value, word in meaning.items()}
    return Term(
        (path,), lambda values: meaning[values[name]], lambda word: {name: written.get(word, written.get(None))}
    )


def switched(switch: str, name: str, path: str) -> Term:
    """A field that counts only where a second one is true."""
    return Term(
        (path,),
        lambda values: values[name] if values[switch] else None,
        lambda value: {switch: value is not None, name: value},
    )


def activation(name: str = "hidden_act", path: str = "mlp.activation", **further_names: str) -> Term:
    """A nonlinearity under transformers' name; `others` are names that mean something else to a family."""
    meanings = {**ACTIVATIONS, **further_names}
    written = {"gelu_tanh": "gelu_pytorch_tanh"}
    return Term((path,), lambda values: meanings[values[name]], lambda value: {name: written.get(value, value)})


def terms_of_kinds(kinds: str, *terms: Term) -> tuple[Term, ...]:
    """Terms of layers of some kinds alone."""
    return tuple(replace(term, kinds=tuple(kinds.split())) for term in terms)


# Terms outside of layers.
OUTSIDE = (
    same_field("hidden_size", "d_model"),
    same_field("vocab_size", "vocab"),
    Term(("max_seq_len",), itemgetter("max_position_embeddings"), lambda most: {"max_position_embeddings": most or 1}),
    same_field("tie_word_embeddings", "embedding.tied"),
)


def norms(kind: str, place: str = "pre", **options: bool) -> tuple[Term, ...]:
    """All norms of a family, and where a layer has them."""
    return (*fixed_values("norm", kind=kind, **options), *fixed_values("", norms=place))


# Heads of attention: as many of keys as of queries where nothing is said, as wide as fit into the stream.
HEADS = same_field("num_attention_heads", "attention.heads")
KEY_HEADS = Term(
    ("attention.kv_heads",),
    lambda values: values["num_key_value_heads"] or values["num_attention_heads"],
    lambda value: {"num_key_value_heads": value},
)
HEAD_DIM = Term(
    ("attention.head_dim",),
    lambda values: values["head_dim"] or values["hidden_size"] // values["num_attention_heads"],
    lambda value: {"head_dim": value},
)
GROUPED = (HEADS, KEY_HEADS, HEAD_DIM)
EQUAL_HEADS = derived_term("attention.kv_heads", lambda values: values["num_attention_heads"])
SPLIT_WIDTH = derived_term("attention.head_dim", lambda values: values["hidden_size"] // values["num_attention_heads"])
BIASES = same_field("attention_bias", "attention.qkv_bias", "attention.out_bias")
DROPOUT = same_field("attention_dropout", "attention.dropout")
WINDOW = same_field("sliding_window", "attention.window")
ROTARY = fixed_values("attention", rotary=1)


def partly_rotary(share: str) -> Term:
    """A share of each head that is rotated: among the rotary parameters, or in a field of its own."""

    def read(values: Values) -> Any:
        return (values["rope_scaling"] or values["rope_parameters"] or {}).get("partial_rotary_factor", values[share])

    def write(value: Any) -> Values:
        return {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": value}}

    return Term(("attention.rotary",), read, write)


def rotary_base(kind: str, name: str) -> Term:
    """The base of rotation of one kind of layers, in the spelling of transformers 5 or, in `name`, of before it."""

    def read(values: Values) -> int:
        return int((values["rope_parameters"] or {}).get(kind, {}).get("rope_theta", values[name]))

    def write(value: Any) -> Values:
        return {"rope_parameters": {kind: {"rope_type": "default", "rope_theta": float(value)}}}

    return Term(("attention.rotary_base",), read, write)


def mlp(kind: str, width: str | Term = "intermediate_size", nonlinearity: Term | None = None) -> tuple[Term, ...]:
    """A plain or gated feed-forward part, or the like of every expert."""
    inner = same_field(width, "mlp.d_ff") if isinstance(width, str) else width
    return (*fixed_values("mlp", kind=kind), inner, nonlinearity or activation())


def experts(width: str, count: str, nonlinearity: Term | None = None) -> tuple[Term, ...]:
    """Gated experts, of which each token uses a few."""
    top_k = same_field("num_experts_per_tok", "mlp.top_k")
    return (*mlp("experts", width, nonlinearity), same_field(count, "mlp.experts"), top_k)


def router(**parts: str | bool) -> tuple[Term, ...]:
    """Values that every router of a family has."""
    return fixed_values("mlp.router", **parts)


# --- fields of a config.json ---

# Names in transformers' ACT2FN -> names in a model spec.
ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "relu": "relu",
    "relu2": "relu2",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
}
SLIDING = ("full_attention", "sliding_attention")
LINEAR = ("full_attention", "linear_attention")
CHUNKED = ("full_attention", "chunked_attention")


@dataclass(frozen=True)
class FieldKind:
    """The values that fields of a kind may have, as a JSON Schema, and in words."""

    schema: Schema
    must: str

    def __call__(self, **defaults: Any) -> dict[str, ConfigField]:
        """Fields of these names, each with what its configuration class puts where it is absent."""
        return {name: ConfigField(default, self) for name, default in defaults.items()}

    def or_null(self) -> FieldKind:
        """The kind of fields that may also be null."""
        return FieldKind({"anyOf": [{"type": "null"}, self.schema]}, f"{self.must}, or null")


@dataclass(frozen=True)
class ConfigField:
    """A field that shapes the model, and its value where a file does not have it."""

    default: Any
    kind: FieldKind

    @property
    def schema(self) -> Schema:
        """The schema of its values, with what is understood in words."""
        return {**self.kind.schema, "description": self.kind.must, "default": self.default}


def wholes(least: int = 0, most: int | None = None) -> FieldKind:
    """Whole numbers from `least` to `most`."""
    greatest = most or LARGEST
    words = f"a whole number from {least} to {greatest}"
    return FieldKind({"type": "integer", "minimum": least, "maximum": greatest}, words)


def lists(item: Schema, must: str, **bounds: int) -> FieldKind:
    """Lists of values of one schema."""
    return FieldKind({"type": "array", "items": item, **bounds}, must)


def layer_types(*kinds: str) -> FieldKind:
    """The kind of every layer, or null."""
    return FieldKind({"type": ["array", "null"], "items": {"enum": list(kinds)}}, f"a list of {' and '.join(kinds)}")


def rotary_parameters(*, partial: bool = False) -> FieldKind:
    """Rotary positions of any type: they hold no parameter; `partial` allows a share of the head to be rotated."""
    rotated = shares.schema if partial else {"const": 1}
    of_kind = {"type": "object", "properties": {"rope_theta": {"type": "number"}}}
    parts = {"partial_rotary_factor": rotated, **dict.fromkeys(SLIDING, of_kind)}
    words = "null or a mapping" + ("" if partial else ", its partial_rotary_factor 1")
    return FieldKind({"type": ["object", "null"], "properties": parts}, words)


sizes = wholes(1)
sizes_or_null = sizes.or_null()
depths = wholes(1, DEEPEST)
flags = FieldKind({"type": "boolean"}, "true or false")
# A count stands for true unless it is 0.
flags_or_counts = FieldKind({"anyOf": [flags.schema, wholes().schema]}, "true, false or a whole number")
# Null is 0.
dropouts = FieldKind({"type": ["number", "null"], "minimum": 0, "exclusiveMaximum": 1}, "0 or more and below 1")
shares = FieldKind({"type": "number", "minimum": 0, "maximum": 1}, "a number from 0 to 1")
factors = FieldKind({"type": "number", "exclusiveMinimum": 0}, "a number above 0")
caps = factors.or_null()
activations = FieldKind({"enum": list(ACTIVATIONS)}, f"one of {', '.join(ACTIVATIONS)}")
layer_lists = lists(wholes().schema, "a list of layers, counted from 0").or_null()
of_any_kind = FieldKind({}, "anything")


def only(*values: object) -> ConfigField:
    """A field of which these values are understood, the first being that of an absent one."""
    return ConfigField(values[0], FieldKind({"enum": list(values)}, " or ".join(map(json.dumps, values))))


# Fields of every class that would make another model than a decoder with one head over its vocabulary.
FIXED: Mapping[str, ConfigField] = {
    "is_encoder_decoder": only(False),
    "add_cross_attention": only(False),
    "cross_attention_hidden_size": only(None),
    "tie_encoder_decoder": only(False),
    "pruned_heads": only({}),
    "torchscript": only(False),  # true unties the output head
    "use_bidirectional_attention": only(None, False),
    **FieldKind({"type": "null"}, "null; remove it, and say in a plan's `precision` what weights are stored in")(
        quantization_config=None
    ),
    "auto_map": only(None),
}
# Fields of every class that leave shapes, parameters and dropout as they are.
WITHOUT_EFFECT = frozenset(
    """
    _name_or_path _attn_implementation _attn_implementation_autoset _commit_hash _flash_attn_2_enabled _num_labels
    architectures attn_implementation bad_words_ids begin_suppress_tokens bos_token_id cache_implementation
    chunk_size_feed_forward classifier_dropout decoder_start_token_id diversity_penalty do_sample dtype early_stopping
    encoder_no_repeat_ngram_size eos_token_id exponential_decay_length_penalty finetuning_task forced_bos_token_id
    forced_eos_token_id gradient_checkpointing id2label initializer_range is_decoder label2id length_penalty max_length
    min_length model_type no_repeat_ngram_size num_beam_groups num_beams num_labels num_return_sequences
    output_attentions output_hidden_states output_past output_scores pad_token_id prefix pretraining_tp problem_type
    remove_invalid_values repetition_penalty return_dict return_dict_in_generate sep_token_id suppress_tokens
    task_specific_params temperature tf_legacy_loss tokenizer_class top_k top_p torch_dtype transformers_version
    typical_p unk_token_id use_bfloat16 use_cache
    """.split()  # noqa: SIM905 - as a literal, one name a line, these would be two pages
)
