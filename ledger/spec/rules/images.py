"""Rules on models that read images."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.spec.loss_chunks import CHUNKED_LOSSES
from ledger.spec.places import Places
from ledger.spec.plan import Kernels, Model, Parallelism, Run
from ledger.spec.problems import Problem

# What a model has of tokens that are looked up, or that follow each other, by path.
OF_TEXT = {
    "vocab": "vocab",
    "max_seq_len": "max_seq_len",
    "embedding.tied": "tied",
    "embedding.scale": "scale_embedding",
    "embedding.multiplier": "embedding_multiplier",
    "embedding.types": "token_types",
    "head.transform": "head_transform",
    "head.softcap": "head_softcap",
    "head.scale": "head_scale",
    "multi_token.depth": "predictions",
}


def images_have_classes(model: Model, at: Places) -> Iterator[Problem]:
    """A model reads tokens and predicts tokens, or reads images and tells classes apart."""
    if model.image and not model.classes:
        yield Problem(
            at("model.image"), "a model of images has no `head.classes`", "`head: {classes: 1000, bias: true}`"
        )
    if model.classes and not model.image:
        message = "`head.classes` are of a model of images, and this one reads tokens"
        yield Problem(at("model.head.classes"), message, "leave it out, or say what is read: `image:`")
    for path, name in OF_TEXT.items() if model.image else ():
        if getattr(model, name):
            message = f"`{path}` is of a model of text, and this one reads images"
            yield Problem(at(f"model.{path}"), message, f"leave `{path}` out")


def patches_fill_the_image(model: Model, at: Places) -> Iterator[Problem]:
    """Every pixel is in a patch."""
    for edge in ("height", "width") if model.image and model.image.patch else ():
        pixels, patch = getattr(model.image, edge), model.image.patch if model.image else 1
        if pixels % patch:
            message = f"patches of {patch} pixels do not fill a {edge} of {pixels}"
            help_text = f"`{edge}: {pixels // patch * patch}`" if pixels > patch else f"`patch: {pixels}`"
            yield Problem(at(f"model.image.{edge}"), message, help_text)


def class_token_sees_patches(model: Model, at: Places) -> Iterator[Problem]:
    """The class token stands first: under a causal mask it would see none of the patches."""
    for group in model.groups if model.image and not model.of_blocks else ():
        custom = group.attention.custom
        if custom.causal if custom else not group.attention.bidirectional:
            message = f"the class token is the first, and under the causal mask of `{group.name}` it sees no patch"
            where = at(f"model.layers.{group.name}.attention")
            yield Problem(where, message, "leave `mask` out" if custom else "`bidirectional: true`")


def sequences_are_images(model: Model, run: Run, at: Places) -> Iterator[Problem]:
    """A sequence has the tokens of one image, and each of them a position."""
    if model.image is None:
        if run.images is not None:
            message = "`run.images` is of a model of images, and this one reads tokens"
            yield Problem(at("run.images"), message, "`tokens: 1T tokens`")
        return
    tokens, said = model.image.tokens, f"{model.image.patches} patches and the class token of an image"
    if not model.image.patch:
        said = "an image that a stem reads"
    if run.seq_len != tokens:
        message = f"seq_len = {run.seq_len}, but {said} counts as {tokens} token{'s' * (tokens > 1)}"
        yield Problem(at("run.seq_len"), message, "leave `seq_len` out: it follows from `model.image`")
    if model.learned_positions not in (0, tokens):
        message = f"{model.learned_positions} learned positions, but {said} are {tokens} tokens"
        yield Problem(at("model.embedding.learned_positions"), message, f"`learned_positions: {tokens}`")
    if "run.tokens" in at.origins and run.images is not None:
        message = "both `tokens` and `images` say how long the run is"
        yield Problem(at("run.tokens"), message, "leave `tokens` out: each image is a sequence")


def images_are_whole(model: Model, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Each device has whole images, and a classifier of all classes."""
    for axis in ("tensor", "context") if model.image else ():
        if getattr(parallelism, axis) > 1:
            message = f"{axis} = {getattr(parallelism, axis)} is not modelled of a model of images"
            yield Problem(at(f"parallelism.{axis}"), message, f"`{axis}: 1`; data, ZeRO and pipeline are")


def classes_have_one_row(model: Model, kernels: Kernels, at: Places) -> Iterator[Problem]:
    """Scores of classes are one row an image: there is no sequence of them to take part by part."""
    if model.image and kernels.loss in CHUNKED_LOSSES:
        message = f"a {kernels.loss} loss goes along a sequence, and an image has one row of scores"
        yield Problem(at("kernels.loss"), message, "`kernels: {loss: eager}`")
