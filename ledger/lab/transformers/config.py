"""Which transformers class a model is, and its configuration: the judge never sees the compiler's own operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from ledger.spec.imports.huggingface.recognition import FamilyMatch, nearest_family
from ledger.spec.plan import MLP, Attention

if TYPE_CHECKING:
    from ledger.spec.imports.huggingface.family import Family
    from ledger.spec.plan import Group, Model


class NoReferenceError(ValueError):
    """transformers has no class for this model; the message says what the nearest one lacks."""


def mlp_of(model: Model) -> MLP:
    """The feed-forward part of the model: that of its experts where some layers have them."""
    return next((group.mlp for group in model.groups if group.mlp.experts), model.groups[0].mlp)


def _groups_of_one(model: Model) -> bool:
    return bool(mlp_of(model).experts) and mlp_of(model).router.groups == 1


def _unrotated(model: Model) -> bool:
    return not any(group.attention.rotary for group in model.groups)


def _each_head(model: Model) -> bool:
    return any(group.attention.qk_norm == "heads" for group in model.groups)


def _one_base(model: Model) -> bool:
    return len({g.attention.rotary_base for g in model.groups}) < len({bool(g.attention.window) for g in model.groups})


ROTATES = "has tables of rotation also where nothing rotates"
# What classes run otherwise than the compiler derives it, though their configuration says all of the model.
OTHERWISE: Mapping[str, tuple[Callable[[Model], bool], str]] = {
    "deepseek_v3": (_groups_of_one, "chooses among groups of experts also where there is one"),
    "falcon": (lambda _: True, "runs attention by code of its own, which takes no kernel by name"),
    "gemma3_text": (_one_base, "has tables of its own for each kind of window also where all rotate alike"),
    "gpt_neox": (_unrotated, ROTATES),
    "llama4_text": (_unrotated, ROTATES),
    "phi": (_unrotated, ROTATES),
    "stablelm": (_each_head, "norms each head by a module of its own, one after the other"),
}


STAND_IN_HEADS, STAND_IN_WIDTH = 1, 2  # of parts that are replaced once the model is built


def with_stand_ins(model: Model) -> Model:
    """`model` with common parts where its author wrote their own: what is built around those is transformers'."""
    kinds = [(group.attention, group.mlp) for group in model.groups]
    attention = next((attention for attention, _ in kinds if not attention.custom), None)
    mlp = next((mlp for _, mlp in kinds if not mlp.custom), None)
    attention = attention or Attention(STAND_IN_HEADS, STAND_IN_HEADS, STAND_IN_WIDTH, rotary=Fraction(1))
    mlp = mlp or MLP(STAND_IN_WIDTH)

    def stood_in(group: Group) -> Group:
        return replace(
            group,
            attention=attention if group.attention.custom else group.attention,
            mlp=mlp if group.mlp.custom else group.mlp,
        )

    return replace(model, groups=tuple(map(stood_in, model.groups)))


def is_of_a_family(model: Model) -> bool:
    """Whether a class of transformers has all of the model."""
    return nearest_family(with_stand_ins(model)).fits


def family(model: Model) -> Family:
    """The architecture whose layers these are; raises `NoReferenceError` where there is none."""
    return _matching_family(model).family


def transformers_config(model: Model) -> Any:
    """The transformers configuration of `model`, every size and dropout set; raises `NoReferenceError`."""
    import transformers

    match = _matching_family(model)
    unused = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    starts = {"decoder_start_token_id": 0} if match.family.further else {}
    return getattr(transformers, match.family.config)(**match.configuration, **unused, **starts)


def _matching_family(model: Model) -> FamilyMatch:
    if model.predictions:
        raise NoReferenceError(f"{model.title}: transformers leaves out what predicts further tokens")
    if model.bare:
        raise NoReferenceError(f"{model.title}: only a parameter count is known")
    match = nearest_family(with_stand_ins(model))
    name = f"{model.title}: the nearest transformers class, {match.family.architecture},"
    if match.refused:
        raise NoReferenceError(f"{name} refuses it: {'; '.join(match.refused)}")
    if match.differences:
        raise NoReferenceError(f"{name} does not have {', '.join(match.differences)}")
    differs, how = OTHERWISE.get(match.name, (None, ""))
    if differs and differs(model):
        raise NoReferenceError(f"{name} {how}")
    return match


def with_layers(model: Model, count: int) -> Model:
    """`model` with `count` layers, all of its first group; of one with an encoder and a decoder, so many of both."""
    if model.encoder_groups:
        return replace(model, groups=tuple(replace(group, repeat=count) for group in model.groups), order=())
    return replace(model, groups=(replace(model.groups[0], repeat=count),), order=())
