"""Which transformers class a model is, and its configuration: the judge never sees the compiler's own operations."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ledger.lab.transformers.families import FAMILIES, Family
from ledger.lab.transformers.features import features, layer_order

if TYPE_CHECKING:
    from ledger.spec.plan import Model

__all__ = ["NoReferenceError", "family", "layer_order", "transformers_config", "with_layers"]


class NoReferenceError(ValueError):
    """transformers has no class for this model; the message says what the nearest one lacks."""


def family(model: Model) -> Family:
    """The architecture whose layers these are; raises `NoReferenceError` where there is none."""
    if model.predictions:
        raise NoReferenceError(f"{model.title}: transformers leaves out what predicts further tokens")
    if model.bare:
        raise NoReferenceError(f"{model.title}: only a parameter count is known")
    own = features(model)
    wanting = {
        name: [key for key, value in candidate.requires.items() if own[key] != value]
        for name, candidate in FAMILIES.items()
    }
    nearest = min(wanting, key=lambda name: len(wanting[name]))
    if wanting[nearest]:
        differences = ", ".join(f"{key} = {own[key]}" for key in wanting[nearest])
        raise NoReferenceError(f"{model.title}: the nearest transformers class, {nearest}, does not have {differences}")
    return FAMILIES[nearest]


def transformers_config(model: Model) -> Any:
    """The transformers configuration of `model`, every size and dropout set; raises `NoReferenceError`."""
    import transformers

    architecture = family(model)
    unused = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    return getattr(transformers, architecture.configuration)(**architecture.settings(model), **unused)


def with_layers(model: Model, count: int) -> Model:
    """`model` with `count` layers, all of its first group."""
    return replace(model, groups=(replace(model.groups[0], repeat=count),), order=())
