"""Rules on components that a model's author writes: every dim, weight and result is there, and they fit."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.spec.places import Places, divisors
from ledger.spec.plan import Model, Parallelism
from ledger.spec.problems import Problem
from ledger.spec.written_steps import step_problems


def custom_components_are_sound(model: Model, at: Places) -> Iterator[Problem]:
    """Names are there before they are used, einsums parse and fit, and what comes out fits the residual stream."""
    for group in model.groups:
        for part, custom in group.written.items():
            if custom.steps:  # what is like another one, and that is not there, is told elsewhere
                yield from step_problems(custom, f"model.layers.{group.name}.{part}", at)


OWN = ("dims", "weights", "steps", "split")


def steps_are_of_custom_attention(model: Model, at: Places) -> Iterator[Problem]:
    """Only attention of its author's own has steps."""
    for group in model.groups:
        path = f"model.layers.{group.name}.attention"
        for key in [key for key in OWN if f"{path}.{key}" in at.origins and not group.attention.custom]:
            message = f"`{key}` belongs to no attention of kind {group.attention.kind}"
            yield Problem(at(f"{path}.{key}"), message, "`kind: custom` has steps of its own")


def custom_dims_have_one_size(model: Model, at: Places) -> Iterator[Problem]:
    """Formulas know a dim of a layer by its name alone."""
    for group in model.groups:
        sizes: dict[str, int] = {}
        for part, custom in group.written.items():
            for name, size in custom.dims:
                if sizes.setdefault(name, size) != size:
                    message = f"`{name}` is {size} here and {sizes[name]} in another part of `{group.name}`"
                    yield Problem(at(f"model.layers.{group.name}.{part}.dims.{name}"), message, "choose another name")


def tokens_that_see_each_other_are_together(model: Model, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """What an author writes out over a sequence has all of it on one device: no exchange is known for it."""
    cuts = {"context": parallelism.context > 1, "sequence": parallelism.sequence != "off" and parallelism.tensor > 1}
    for group in model.groups:
        for part in [part for part, custom in group.written.items() if custom.mixes]:
            for key in [key for key, cut in cuts.items() if cut]:
                message = (
                    f"{key} = {getattr(parallelism, key)} cuts the sequence that {part} of `{group.name}` reads whole"
                )
                yield Problem(at(f"parallelism.{key}"), message, "`sequence: off` and `context: 1`")


def fields_belong_to_their_kind(model: Model, at: Places) -> Iterator[Problem]:
    """Only a custom component has steps, and it has nothing else."""
    own = OWN
    others = ("d_ff", "activation", "bias", "experts", "top_k", "router", "shared", "capacity_factor")
    for group in model.groups:
        path = f"model.layers.{group.name}.mlp"
        strange = others if group.mlp.kind == "custom" else own
        for key in [key for key in strange if f"{path}.{key}" in at.origins]:
            message = f"`{key}` belongs to no feed-forward part of kind {group.mlp.kind}"
            help_text = "its steps say all" if group.mlp.kind == "custom" else "`kind: custom` has steps of its own"
            yield Problem(at(f"{path}.{key}"), message, help_text)


def custom_dims_split(model: Model, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Tensor parallelism gives every device an equal part of what the author says it cuts."""
    for group in model.groups:
        for custom in group.written.values():
            sizes = dict(custom.dims)
            for name in [name for _, names in custom.split for name in names if name in sizes]:
                if sizes[name] % parallelism.tensor:
                    message = (
                        f"{name} = {sizes[name]} of `{group.name}` does not split over tensor = {parallelism.tensor}"
                    )
                    yield Problem(at("parallelism.tensor"), message, divisors(sizes[name]))
