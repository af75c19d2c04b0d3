"""Rules on components that a model's author writes: every dim, weight and result is there, and they fit."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ledger.spec.feed_forward import GIVEN, STEPS
from ledger.spec.places import Places, divisors
from ledger.spec.plan import ComponentStep, Custom, Model, Parallelism
from ledger.spec.problems import Problem

RESULT = " ".join(GIVEN)
TERM = r"[a-z][a-z0-9_]*(?: [a-z][a-z0-9_]*)*"
EINSUM = re.compile(rf"({TERM}), ({TERM}) -> ({TERM})")
# Names and letters of the sizes that a plan has already (ledger/model/dims.py): a formula could not tell them apart.
TAKEN = frozenset(
    """
    attended capacity_factor cf chunk chunks context cp d_ff data document dp ep expert experts head_dim heads hit
    hosted im imbalance in_flight key kv_heads kv_rank layers loss_chunks micro_batches nope_head_dim one parameters
    pipeline positions pp predictions q_rank rank read redone replicate returns rope_head_dim rotary_dim routes rp
    segment sends shared_d_ff tensor token_types top_k tp v_head_dim vocab w2 waiting ways window
    """.split()  # noqa: SIM905 - as a literal, one name a line, these would be a page
)
Shapes = dict[str, tuple[str, ...]]


def custom_components_are_sound(model: Model, at: Places) -> Iterator[Problem]:
    """Names are there before they are used, einsums parse and fit, and what comes out fits the residual stream."""
    for group in model.groups:
        if group.mlp.custom:
            yield from _sound(group.mlp.custom, f"model.layers.{group.name}.mlp", at)


def fields_belong_to_their_kind(model: Model, at: Places) -> Iterator[Problem]:
    """Only a custom component has steps, and it has nothing else."""
    own = ("dims", "weights", "steps", "split")
    others = ("d_ff", "activation", "bias", "experts", "top_k", "router", "shared", "capacity_factor")
    for group in model.groups:
        path = f"model.layers.{group.name}.mlp"
        strange = others if group.mlp.kind == "custom" else own
        for key in [key for key in strange if f"{path}.{key}" in at.origins]:
            message = f"`{key}` belongs to no feed-forward part of kind {group.mlp.kind}"
            help_text = "its steps say all" if group.mlp.kind == "custom" else "`kind: custom` has steps of its own"
            yield Problem(at(f"{path}.{key}"), message, help_text)


def _sound(custom: Custom, path: str, at: Places) -> Iterator[Problem]:
    yield from _names(custom, path, at)
    shapes: Shapes = {"x": GIVEN}
    for index, step in enumerate(custom.steps):
        where = f"{path}.steps.{index}"
        kinds = [kind for kind in STEPS if f"{where}.{kind}" in at.origins]
        if len(kinds) != 1:
            said = f"{' and '.join(f'`{kind}`' for kind in kinds)}" if kinds else "nothing"
            yield Problem(at(where), f"a step does one thing, and this does {said}", f"one of {', '.join(STEPS)}")
            return
        if step.name in shapes:
            yield Problem(at(f"{where}.name"), f"two results are named `{step.name}`", "give each step its own name")
        missing = [name for name in step.of if name not in shapes]
        if missing:
            message = f"`{missing[0]}` is no result of a step before"
            yield Problem(at(f"{where}.of"), message, f"there are {', '.join(shapes)}")
            return
        problems = list(_step(custom, step, shapes, where, at))
        yield from problems
        if problems:
            return
        shapes[step.name] = _shape(step, shapes)
    if custom.steps and shapes[custom.steps[-1].name] != GIVEN:
        found = " ".join(shapes[custom.steps[-1].name])
        yield Problem(at(f"{path}.steps.{len(custom.steps) - 1}"), f"the result is `{found}`", f"it must be `{RESULT}`")


def _names(custom: Custom, path: str, at: Places) -> Iterator[Problem]:
    known = {*GIVEN, *(name for name, _ in custom.dims)}
    for name, _ in custom.dims:
        if name in (*GIVEN, *TAKEN):
            yield Problem(at(f"{path}.dims.{name}"), f"`{name}` is a dim of the model already", "choose another name")
    for weight, dims in custom.weights:
        for unknown in [name for name in dims if name not in known]:
            message = f"weight `{weight}` has the unknown dim `{unknown}`"
            yield Problem(at(f"{path}.weights.{weight}"), message, f"dims are {', '.join(sorted(known))}")
        if not any(weight in (step.weight, step.bias) for step in custom.steps):
            yield Problem(at(f"{path}.weights.{weight}"), f"weight `{weight}` is used by no step", "leave it out")
    for axis, names in custom.split:
        for unknown in [name for name in names if name not in known - set(GIVEN)]:
            message = f"`{unknown}` is no dim of this component"
            help_text = f"its own dims are {', '.join(name for name, _ in custom.dims)}"
            yield Problem(at(f"{path}.split.{axis}"), message, help_text)


def _step(custom: Custom, step: ComponentStep, shapes: Shapes, where: str, at: Places) -> Iterator[Problem]:
    if step.kind == "einsum":
        yield from _einsum(custom, step, shapes, where, at)
        return
    needed = 1 if step.kind == "activation" else 2
    if len(step.of) != needed:
        message = f"{step.kind} takes {needed} result{'s' * (needed > 1)}, not {len(step.of)}"
        yield Problem(at(where), message, f"`of: [{', '.join(['x', *shapes][:needed])}]`")
    elif len({shapes[name] for name in step.of}) > 1:
        both = " and ".join(f"`{' '.join(shapes[name])}`" for name in step.of)
        yield Problem(at(f"{where}.of"), f"{step.kind} of {both}", "both must have the same dims")


def _einsum(custom: Custom, step: ComponentStep, shapes: Shapes, where: str, at: Places) -> Iterator[Problem]:
    parsed, weights = EINSUM.fullmatch(step.einsum), dict(custom.weights)
    if parsed is None:
        message = f"`{step.einsum}` is no einsum of two operands over named dims"
        yield Problem(at(f"{where}.einsum"), message, "`batch seq d_model, latent d_model -> batch seq latent`")
        return
    first, second, out = (tuple(term.split()) for term in parsed.groups())
    for name in (step.weight, step.bias):
        if name and name not in weights:
            yield Problem(at(where), f"there is no weight `{name}`", f"weights are {', '.join(weights)}")
            return
    if len(step.of) != (1 if step.weight else 2):
        message = "an einsum takes one result and a weight, or two results"
        yield Problem(at(where), message, "`weight: NAME`, or `of: [NAME, NAME]`")
        return
    operands = (shapes[step.of[0]], weights[step.weight] if step.weight else shapes[step.of[1]])
    for term, shape, what in zip((first, second), operands, ("first", "second"), strict=True):
        if term != shape:
            message = f"the {what} operand is `{' '.join(shape)}`, but the einsum says `{' '.join(term)}`"
            yield Problem(at(f"{where}.einsum"), message, "dims are named in the order in which the tensor has them")
    stray = [name for name in out if name not in (*first, *second)]
    if stray or len(set(out)) < len(out):
        message = f"`{stray[0]}` is in no operand" if stray else "a dim is in the result twice"
        yield Problem(at(f"{where}.einsum"), message, "the result has dims of the operands, each once")
    if step.bias and weights[step.bias] != out[-len(weights[step.bias]) :]:
        yield Problem(
            at(f"{where}.bias"), f"bias `{step.bias}` does not end the result", f"the result is `{' '.join(out)}`"
        )


def _shape(step: ComponentStep, shapes: Shapes) -> tuple[str, ...]:
    return tuple(step.einsum.rpartition("->")[2].split()) if step.kind == "einsum" else shapes[step.of[0]]


def custom_dims_split(model: Model, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Tensor parallelism gives every device an equal part of what the author says it cuts."""
    for group in model.groups:
        custom = group.mlp.custom
        sizes = dict(custom.dims) if custom else {}
        for name in [name for _, names in (custom.split if custom else ()) for name in names if name in sizes]:
            if sizes[name] % parallelism.tensor:
                message = f"{name} = {sizes[name]} of `{group.name}` does not split over tensor = {parallelism.tensor}"
                yield Problem(at("parallelism.tensor"), message, divisors(sizes[name]))
