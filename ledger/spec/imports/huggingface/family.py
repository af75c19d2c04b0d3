"""A family of transformers: a configuration class's fields, and the model that they describe, read both ways."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

from ledger.spec.architecture import Group, Model
from ledger.spec.imports.huggingface import terms as fields
from ledger.spec.imports.huggingface.patterns import LayerPattern
from ledger.spec.imports.huggingface.terms import ConfigField, Term, Values
from ledger.spec.imports.text import Part, arranged
from ledger.spec.json_schemas import PublishedSchema

# What a spec states even where it is false.
SHOWN = frozenset({"embedding.tied", "norm.final", "attention.key_bias", "attention.masked"})
OUTSIDE = ("d_model", "vocab", "image", "sound", "max_seq_len", "embedding", "norm", "head")  # in the order of a spec
AFTER = ("residual_dropout", "residual_scale", "residual_dtype", "multi_token")  # its layers
LAYER = ("reads", "cross_attention", "attention", "mlp", "norms", "residual")
USUAL = ("experts", "global")  # kinds that names of groups leave out
# Where a model has what a spec has in another place.
PLACES = {
    "embedding.tied": "tied",
    "embedding.learned_positions": "learned_positions",
    "embedding.positions_each": "positions_each",
    "embedding.scale": "scale_embedding",
    "embedding.multiplier": "embedding_multiplier",
    "embedding.dropout": "embedding_dropout",
    "head.bias": "head_bias",
    "head.classes": "classes",
    "head.softcap": "head_softcap",
    "embedding.types": "token_types",
    "embedding.norm": "embedding_norm",
    "head.scale": "head_scale",
    "head.transform": "head_transform",
    "head.scale_input": "head_input_scale",
    "multi_token.depth": "predictions",
    "mlp.shared.d_ff": "mlp.shared_d_ff",
}


@dataclass(frozen=True)
class Family:
    """One architecture of transformers: its classes, the fields with their defaults, and what they say of a model.

    `aliases` are other names of a field (`attribute_map`); `ignored` are fields of this class alone that shape nothing,
    `unbuilt` such that count parts which the architecture leaves out, each with its path in a spec. `clashes`: fields
    with what speaks against their value among the others, empty where nothing does. `follows`: fields that a
    configuration which is written has from its others. `assumed`: in words, what a model has where its
    file lacks a field.
    """

    config: str
    architecture: str
    fields: Mapping[str, ConfigField]
    terms: tuple[Term, ...]
    patterns: tuple[LayerPattern, ...] = ()
    divides: bool = True  # whether the class refuses a width that its heads do not divide
    aliases: Mapping[str, str] = field(default_factory=dict)
    ignored: frozenset[str] = frozenset()
    unbuilt: Mapping[str, str] = field(default_factory=dict)
    clashes: Mapping[str, Callable[[Values], str]] = field(default_factory=dict)
    follows: Mapping[str, Callable[[Values], Any]] = field(default_factory=dict)
    stack: str = "decoder"  # what layers of one kind are
    formerly: tuple[str, ...] = ()  # names that the architecture had, in files that were saved then
    layers: str = "model.layers"  # where the architecture has its list of layers
    further: str = ""  # where it has those of its decoder, if the first are an encoder's
    assumed: Mapping[str, str] = field(default_factory=dict)
    of_blocks: bool = False  # whether its layers are blocks, each written out whole

    @cached_property
    def schema(self) -> PublishedSchema:
        """The schema of its files: fields that shape the model, and those of transformers without effect."""
        stated = {**fields.FIXED, **self.fields}
        stated |= {alias: stated[name] for alias, name in self.aliases.items() if name in stated}
        properties = {name: field.schema for name, field in stated.items()}
        ignored = dict.fromkeys(sorted(self.ignored | (fields.WITHOUT_EFFECT - stated.keys())), True)
        return PublishedSchema({"type": "object", "properties": properties | ignored, "additionalProperties": False})

    def depth(self, values: Values) -> int:
        """The number of layers."""
        return int(values["num_hidden_layers"])

    def document(self, values: Values) -> Part:
        """The parts of the model spec that these values of all fields describe."""
        terms = [(term, term.read(values)) for term in self.terms if not term.kinds]
        outside_layers = _nest_values(terms)
        axes = [pattern.read(values) for pattern in self.patterns]
        kinds = list(zip(*axes, strict=True)) if axes else [()] * values["num_hidden_layers"]
        names = {layer_kinds: _group_name(layer_kinds, axes) for layer_kinds in dict.fromkeys(kinds)}
        parts = {}
        for layer_kinds, name in names.items():
            layer_terms = [term for term in self.terms if not term.kinds or set(term.kinds) & set(layer_kinds)]
            parts[name] = _pick(_nest_values((term, term.read(values)) for term in layer_terms), LAYER)
        layers = arranged([names[layer_kinds] for layer_kinds in kinds], parts, self.stack)
        return {**_pick(outside_layers, OUTSIDE), **layers, **_pick(outside_layers, AFTER)}

    def configuration(self, model: Model) -> Values:
        """The fields whose values describe a model, as far as this family can say it."""
        written: dict[str, Any] = {"num_hidden_layers": len(model.layers)}
        for pattern in self.patterns:
            written |= pattern.write([pattern.kind(group) for group in model.layers])
        for term in self.terms:
            groups = [group for group in model.groups if self._has_term(group, term)]
            if groups:
                for name, value in term.write(_model_value(model, groups[0], term.paths[0])).items():
                    written_before = written.get(name)
                    written[name] = {**written_before, **value} if isinstance(written_before, dict) else value
        return written | {name: derive(written) for name, derive in self.follows.items()}

    def _has_term(self, group: Group, term: Term) -> bool:
        return not term.kinds or any(pattern.kind(group) in term.kinds for pattern in self.patterns)


@dataclass(frozen=True)
class Wrapping:
    """A model of text and more: the part of its file that is the decoder's, and that decoder's family.

    `outside`: fields of the decoder that stand around the part. `foreign_fields`: what is not the decoder's in files of
    before there was such a part; a class that never had such files names none.
    """

    part: str
    family: str
    outside: tuple[str, ...] = ()
    foreign_fields: frozenset[str] = frozenset()


def _model_value(model: Model, group: Group, path: str) -> Any:
    """The value of a model at a path of its spec; at a path of a layer, that of the group."""
    value: Any = group if path.partition(".")[0] in LAYER else model
    for name in PLACES.get(path, path).split("."):
        value = getattr(value, name, None)
    return float(value) if isinstance(value, Fraction) else value


def _group_name(kinds: Sequence[str], axes: Sequence[Sequence[str]]) -> str:
    """A group's name: the kind of its layers; with a second way to differ also what is unusual of them."""
    further = zip(kinds[1:], axes[1:], strict=True)
    return "_".join((*kinds[:1], *(kind for kind, axis in further if kind not in USUAL and len(set(axis)) > 1)))


def _nest_values(terms: Iterable[tuple[Term, Any]]) -> dict[str, Any]:
    """Values at dotted paths as mappings within mappings, without what the spec language takes by itself."""
    root: dict[str, Any] = {}
    for term, value in terms:
        for path in term.paths if value or SHOWN & set(term.paths) else ():
            *outer, last = path.split(".")
            holder = root
            for name in outer:
                holder = holder.setdefault(name, {})
            holder[last] = value
    return root


def _pick(part: Part, keys: Sequence[str]) -> Part:
    return {key: part[key] for key in keys if key in part}


# --- fields that many families have in common ---

ROTARY = {
    **fields.rotary_parameters()(rope_parameters=None, rope_scaling=None),
    "partial_rotary_factor": fields.only(1.0, 1),
}
PARTLY_ROTARY = fields.rotary_parameters(partial=True)(rope_parameters=None, rope_scaling=None)
UNSHAPED = frozenset({"is_llama_config", "max_sequence_length", "rms_norm_eps", "rope_interleaved", "rope_theta"})


def depth(layers: int) -> dict[str, ConfigField]:
    """The number of layers."""
    return fields.depths(num_hidden_layers=layers)


def decoder(width: int, layers: int, heads: int, positions: int, vocabulary: int) -> dict[str, ConfigField]:
    """The fields that every decoder has."""
    return {
        **fields.sizes(hidden_size=width, num_attention_heads=heads),
        **depth(layers),
        **fields.sizes(max_position_embeddings=positions, vocab_size=vocabulary),
    }


def grouped(
    heads: int | None, d_ff: int, *, head_dim: int | None = None, act: str = "silu", tied: bool = False
) -> dict[str, ConfigField]:
    """Further fields of decoders with rotary positions and grouped queries: heads of keys, a feed-forward width.

    `heads` of None: as many as of queries. A class that puts a number for `head_dim` takes no null.
    """
    return {
        **ROTARY,
        **fields.sizes_or_null(num_key_value_heads=heads, head_dim=head_dim),
        **fields.sizes(intermediate_size=d_ff),
        **fields.activations(hidden_act=act),
        **fields.dropouts(attention_dropout=0.0),
        **fields.flags(tie_word_embeddings=tied),
    }
