"""Rules on models of blocks: layers that are written out whole, between dims of their own."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.spec.components import GIVEN
from ledger.spec.places import Places
from ledger.spec.plan import Custom, Model, Parallelism, Recompute, Train
from ledger.spec.problems import Problem
from ledger.spec.written_steps import step_problems

STEM = "model.stem"
WITHOUT = ("norm", "embedding", "residual_dropout", "residual_scale", "residual_dtype")  # of models of other layers
WHOLE_POLICIES = ("none", "full", "every", "layers")


def models_are_of_blocks_or_of_parts(model: Model, at: Places) -> Iterator[Problem]:
    """Blocks stand between a stem that reads images and a head over classes, and no other layer among them."""
    for group in model.groups:
        path = f"model.layers.{group.name}"
        if group.block and not model.stem:
            yield Problem(at(f"{path}.block"), "a block, and the model has no stem", "`image:` and `stem:`")
            return
        if model.stem and not group.block:
            message = f"`{group.name}` has attention and a feed-forward part, behind a stem"
            yield Problem(at(path), message, "write it out: `block: {input: ..., dims: ..., steps: [...]}`")
            return
        for key in [key for key in ("attention", "mlp", "norms", "residual") if group.block]:
            if f"{path}.{key}" in at.origins:
                message = f"`{key}` beside the block of `{group.name}`"
                yield Problem(at(f"{path}.{key}"), message, "a block is the whole layer: leave it out")
    if model.stem and not model.image:
        yield Problem(at(STEM), "a stem, and no image that it reads", "`image: {height: 224, width: 224, channels: 3}`")
    if model.image and bool(model.stem) == bool(model.image.patch):
        message = (
            "a stem reads pixels, and no patches" if model.stem else "an image is cut into patches, or a stem reads it"
        )
        where = at("model.image.patch" if model.stem else "model.image")
        yield Problem(where, message, "leave `patch` out" if model.stem else "`patch: 16`, or `stem:` of steps")
    for key in WITHOUT if model.stem else ():
        if f"model.{key}" in at.origins:
            yield Problem(at(f"model.{key}"), f"`{key}` of a model of blocks", f"leave `{key}` out: steps say all")


def blocks_are_like_others(model: Model, at: Places) -> Iterator[Problem]:
    """A block that is like another has the steps of a group that writes them out."""
    known = [group.name for group in model.groups if group.block and not group.block.like]
    for group in model.groups:
        if not group.block or not group.block.like:
            continue
        path = f"model.layers.{group.name}.block"
        if group.block.like not in known:
            message = f"`{group.block.like}` is no group that writes its steps out"
            yield Problem(at(f"{path}.like"), message, f"there are {', '.join(known)}")
        for key in [key for key in ("input", "weights", "steps") if f"{path}.{key}" in at.origins]:
            message = f"`{key}` beside `like: {group.block.like}`, which has its own"
            yield Problem(at(f"{path}.{key}"), message, f"leave `{key}` or `like` out")


def stems_are_sound(model: Model, at: Places) -> Iterator[Problem]:
    """A stem reads images: each with channels, rows and columns, as many as the image has."""
    stem, image = model.stem, model.image
    if stem is None:
        return
    if stem.like:
        yield Problem(at(f"{STEM}.like"), "a stem like a block", "write it out: `steps: [...]`")
        return
    yield from step_problems(stem, STEM, at)
    sizes = dict(stem.dims)
    found = tuple(sizes.get(name, 0) for name in stem.takes[1:])
    wanted = (image.channels, image.height, image.width) if image else found
    if stem.takes[:1] != GIVEN[:1] or found != wanted:
        message = f"the stem starts from `{' '.join(stem.takes)}` ({' x '.join(map(str, found))})"
        help_text = f"images of {' x '.join(map(str, wanted))}: `input: batch colours height width`"
        yield Problem(at(f"{STEM}.input"), message, help_text)


def blocks_follow_each_other(model: Model, at: Places) -> Iterator[Problem]:
    """What a layer starts from is what the one before gives, and the head reads channels as wide as the model says."""
    made, by = _given(model.stem, STEM, at), "the stem"
    for group in model.groups:
        path = f"model.layers.{group.name}.block"
        gives = _given(group.block, path, at)
        if not (group.block and gives and made):
            return
        where = at(path)
        unknown = [name for name in group.block.takes[1:] if name not in dict(group.block.dims)]
        if unknown or group.block.takes[:1] != GIVEN[:1]:
            message = f"`{group.name}` starts from `{' '.join(group.block.takes)}`"
            yield Problem(where, message, f"`batch`, then dims of its own{_said(unknown)}")
            return
        for before, name in ((made, by), *((gives, "the layer before"),) * (group.repeat > 1)):
            taken = group.block.sizes_of(group.block.takes)
            if taken != before:
                message = f"`{group.name}` starts from {_sizes(taken)}, and {name} gives {_sizes(before)}"
                yield Problem(where, message, "sizes of `input` are those of what comes before")
                return
        made, by = gives, f"`{group.name}`"
    if model.stem and model.groups and made and made[0] != model.d_model:
        message = f"d_model = {model.d_model}, and {by} gives {made[0]} channels"
        yield Problem(at("model.d_model"), message, f"`d_model: {made[0]}`")


def _given(part: Custom | None, path: str, at: Places) -> tuple[int, ...]:
    """The sizes of what a part gives; none where its steps are not sound."""
    return part.sizes_of(part.gives) if part and part.steps and not any(step_problems(part, path, at)) else ()


def _said(unknown: list[str]) -> str:
    return f"; `{unknown[0]}` has no size" if unknown else ""


def _sizes(sizes: tuple[int, ...]) -> str:
    return " x ".join(map(str, sizes))


def blocks_stand_alone(model: Model, train: Train, at: Places) -> Iterator[Problem]:
    """Adapters are of projections by name, and groups of blocks follow one another."""
    if model.of_blocks and train.lora:
        yield Problem(at("train.lora"), "adapters of a model of blocks are not modelled", "`train: {only: [head]}`")
    if model.of_blocks and model.order:
        place = at("model.order" if "model.order" in at.origins else "model.alternating")
        yield Problem(place, "blocks that take turns are not modelled", "write each group in its place")


def blocks_are_replicated(model: Model, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Each device has all blocks, and norms them over its own images."""
    if not model.of_blocks:
        return
    for axis in ("pipeline", "expert"):  # of tensor and context, models of images are refused
        if getattr(parallelism, axis) > 1:
            message = f"{axis} = {getattr(parallelism, axis)} is not modelled of a model of blocks"
            yield Problem(at(f"parallelism.{axis}"), message, f"`{axis}: 1`; `data` is")
    if parallelism.zero:
        message = f"zero = {parallelism.zero} is not modelled of a model of blocks"
        yield Problem(at("parallelism.zero"), message, "`zero: 0`: each device has all weights")


def blocks_are_rebuilt_whole(model: Model, recompute: Recompute, at: Places) -> Iterator[Problem]:
    """A block is checkpointed as a whole, or not at all."""
    if model.of_blocks and recompute.policy not in WHOLE_POLICIES:
        message = f"recompute {recompute.policy} of a model of blocks is not modelled"
        yield Problem(at("recompute"), message, "`none`, `full`, `{every: n}` or `{layers: n}`")
