"""Encoders of images, with a head over classes. Defaults: transformers 5.23, configuration_<family>.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ledger.spec.imports.huggingface import terms
from ledger.spec.imports.huggingface import terms as fields
from ledger.spec.imports.huggingface.family import Family, depth
from ledger.spec.imports.huggingface.terms import ConfigField, Term, Values

LABELS = 2  # of a configuration that says nothing of them (PreTrainedConfig)


def classes(values: Values) -> int:
    """The number of classes: as many as are counted, or named."""
    names_by_number = values["id2label"]
    return int(values["num_labels"] or (LABELS if names_by_number is None else len(names_by_number)))


def names_differ(values: Values) -> str:
    """The clash of a number of classes with as many names as it has not; empty where there is none."""
    count, names = values["num_labels"], values["id2label"]
    return f"{count} labels, and {len(names)} have names" if count and names and count != len(names) else ""


def side(name: str, index: int) -> Any:
    """The height or the width of a field that is one number of a square, or both."""
    return lambda values: values[name][index] if isinstance(values[name], list) else values[name]


def _image_sizes(values: Values) -> dict[str, int]:
    sizes = [[side(name, index)(values) for index in range(2)] for name in ("image_size", "patch_size")]
    (height, width), (patch, _) = sizes
    return {"height": height, "width": width, "channels": values["num_channels"], "patch": patch}


def _tokens(values: Values) -> int:
    image = _image_sizes(values)
    return (image["height"] // image["patch"]) * (image["width"] // image["patch"]) + 1


def _image_fields(image: Any) -> Values:
    """The fields of an image; values that no class accepts where a model reads none."""
    if image is None:
        return {"image_size": 0, "patch_size": 0, "num_channels": 0}
    sides = image.height if image.height == image.width else [image.height, image.width]
    return {"image_size": sides, "patch_size": image.patch, "num_channels": image.channels}


PAIRS = {"type": ["integer", "array"], "items": fields.sizes.schema, "minItems": 2, "maxItems": 2}
SIDES = fields.FieldKind({**fields.sizes.schema, **PAIRS}, "a whole number of at least 1, or two of them")
NAMES = fields.FieldKind({"type": ["object", "null"], "minProperties": 1}, "names of classes by number")

IMAGES: Mapping[str, Family] = {
    "vit": Family(
        config="ViTConfig",
        architecture="ViTForImageClassification",
        fields={
            **fields.sizes(hidden_size=768, num_attention_heads=12, intermediate_size=3072, num_channels=3),
            **depth(12),
            **SIDES(image_size=224),
            **fields.sizes(patch_size=16),
            **fields.wholes(2).or_null()(num_labels=None),
            "id2label": ConfigField(None, NAMES),
            **fields.activations(hidden_act="gelu"),
            **fields.dropouts(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0),
            **fields.flags(qkv_bias=True),
        },
        terms=(
            terms.same_field("hidden_size", "d_model"),
            Term(("image",), _image_sizes, _image_fields),
            terms.derived_term("embedding.learned_positions", _tokens),
            terms.same_field("hidden_dropout_prob", "embedding.dropout", "residual_dropout"),
            *terms.norms("layer", bias=True),
            Term(("head.classes",), classes, lambda count: {"num_labels": count}),
            *terms.fixed_values("head", bias=True),
            *(terms.HEADS, terms.EQUAL_HEADS, terms.SPLIT_WIDTH),
            terms.same_field("qkv_bias", "attention.qkv_bias"),
            *terms.fixed_values("attention", out_bias=True, bidirectional=True),
            terms.same_field("attention_probs_dropout_prob", "attention.dropout"),
            *(*terms.mlp("plain"), *terms.fixed_values("mlp", bias=True)),
        ),
        ignored=frozenset({"encoder_stride", "layer_norm_eps", "pooler_act", "pooler_output_size"}),
        clashes={"num_labels": names_differ},
        stack="encoder",
        layers="vit.layers",
    )
}
