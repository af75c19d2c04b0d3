"""Rules on the formats that parts of a model are stored in."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.spec.places import Places
from ledger.spec.plan import Kernels, Model, Parallelism, Precision, Serve, Train
from ledger.spec.problems import Problem
from ledger.spec.rules.training import LAYER_PARTS, MODEL_ENDS

BASE = "precision.weights.base"


def stored_weights_are_frozen(model: Model, precision: Precision, train: Train, at: Places) -> Iterator[Problem]:
    """What is only stored quantised has no gradient (bitsandbytes, Params4bit: `requires_grad=False`)."""
    if not precision.weights.is_stored_only or train.lora is not None or _leaves_matrices(model, train):
        return
    message = f"weights in {precision.weights.base} cannot be trained, and this plan trains matrices of layers"
    yield Problem(at(BASE), message, "`train: {lora: {rank: 16, targets: [q, v]}}`, or weights in bf16")


def quantised_weights_are_gathered(precision: Precision, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """What is quantised before it is gathered is gathered: by ZeRO 3."""
    recipe = precision.matmul
    if recipe is not None and recipe.weights == "gathered" and parallelism.zero < 3:
        message = f"precision.matmul.weights: gathered with zero = {parallelism.zero}, which gathers no weights for use"
        yield Problem(at("precision.matmul.weights"), message, "`weights: kept` or `weights: anew`, or `zero: 3`")


def second_layouts_are_of_lasting_weights(precision: Precision, at: Places) -> Iterator[Problem]:
    """A layout is made of another one where that lasts, and where there are two."""
    recipe = precision.matmul
    if recipe is not None and recipe.turned == "anew" and not recipe.turns:
        why = "backward makes all copies anew" if not recipe.lasts else "there is one layout"
        message = f"precision.matmul.turned: anew has no effect: {why}"
        yield Problem(at("precision.matmul.turned"), message, "leave `turned` out")


def _leaves_matrices(model: Model, train: Train) -> bool:
    """Whether no matrix of a layer is trained."""
    names = set(train.names)
    if train.kind == "only":
        return names <= {*MODEL_ENDS, "attention_norm", "mlp_norm"}
    whole = {group.name for group in model.groups} <= names
    return train.kind == "frozen" and (whole or {*LAYER_PARTS[:2]} <= names)


def stored_weights_are_multiplied_wide(
    model: Model, precision: Precision, kernels: Kernels, at: Places
) -> Iterator[Problem]:
    """What is only stored quantised is brought back to `compute`, by a kernel before each product with it."""
    if not precision.weights.is_stored_only:
        return
    base = precision.weights.base
    if precision.matmul is not None:
        message = (
            f"weights in {base} are brought back to {precision.compute}, and a matmul recipe would quantise them anew"
        )
        yield Problem(at(BASE), message, "leave out `matmul`, or keep weights in bf16")
    kinds = {group.mlp.kind for group in model.groups}
    if "experts" in kinds and kernels.experts == "batched_mm":
        message = f"batched_mm copies rows of the experts' weights, which are not there as rows in {base}"
        yield Problem(at("kernels.experts"), message, "`grouped_mm` or `eager`")
    if "custom" in kinds:
        message = f"products of a custom feed-forward part do not bring back weights in {base}"
        yield Problem(at(BASE), message, "`mlp: {kind: gated}` or `plain`, or weights in bf16")


def experts_of_another_format_serve(precision: Precision, serve: Serve | None, at: Places) -> Iterator[Problem]:
    """Experts in a format of their own are weights that nobody trains (gpt-oss: MXFP4 in its checkpoint)."""
    if precision.weights.experts and serve is None:
        message = f"experts in {precision.weights.experts} beside other matrices in {precision.weights.base} can serve"
        help_text = "leave `experts` out, so that they are kept as `base`"
        yield Problem(at("precision.weights.experts"), f"{message}, and this plan trains", help_text)


def adapters_have_a_format(train: Train, at: Places) -> Iterator[Problem]:
    """A format of adapters is of a plan that trains some."""
    if at.states("precision.weights.adapters") and train.lora is None:
        message = "`precision.weights.adapters` has no effect: the plan trains no adapters"
        yield Problem(at("precision.weights.adapters"), message, "`train: {lora: ...}`, or leave it out")


def formats_have_their_parts(model: Model, at: Places) -> Iterator[Problem]:
    """A format that a plan states itself is of weights that the model has."""
    if at.states("precision.weights.head") and model.tied:
        message = "`precision.weights.head` has no effect: the head's weight is the embedding's"
        yield Problem(at("precision.weights.head"), message, "`embedding:` says what both are kept in")
    if at.states("precision.weights.experts") and not any(group.mlp.experts for group in model.groups):
        message = "`precision.weights.experts` has no effect: the model has no experts"
        yield Problem(at("precision.weights.experts"), message, "leave it out")
