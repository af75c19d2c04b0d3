"""Rules on components that a model's author writes: every dim, weight and result is there, and they fit."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.spec.components import GIVEN, KEY, STEPS, shape
from ledger.spec.places import Places, divisors
from ledger.spec.plan import ComponentStep, Custom, Model, Parallelism
from ledger.spec.problems import Problem
from ledger.spec.windows import Term, parsed

RESULT = " ".join(GIVEN)
# Names and letters of the sizes that a plan has already (ledger/model/dims.py): a formula could not tell them apart.
TAKEN = frozenset(
    """
    attended capacity_factor cf chunk chunks context convolution cp d_ff data document dp ep expert experts head_dim
    heads hit hosted im imbalance in_flight key kv_heads kv_rank layers loss_chunks micro_batches nope_head_dim one
    parameters pipeline positions pp predictions q_rank rank read redone replicate returns rope_head_dim rotary_dim
    routes rp scan_chunk segment sends shared_d_ff state_groups state_size tensor token_types top_k tp v_head_dim vocab
    w2 waiting ways window
    """.split()  # noqa: SIM905 - as a literal, one name a line, these would be a page
)
Shapes = dict[str, Term]


def custom_components_are_sound(model: Model, at: Places) -> Iterator[Problem]:
    """Names are there before they are used, einsums parse and fit, and what comes out fits the residual stream."""
    for group in model.groups:
        for part, custom in group.written.items():
            yield from _sound(custom, f"model.layers.{group.name}.{part}", at)


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
        shapes[step.name] = shape(step, shapes)
    if custom.steps and shapes[custom.steps[-1].name] != GIVEN:
        found = " ".join(shapes[custom.steps[-1].name])
        yield Problem(at(f"{path}.steps.{len(custom.steps) - 1}"), f"the result is `{found}`", f"it must be `{RESULT}`")


def _names(custom: Custom, path: str, at: Places) -> Iterator[Problem]:
    known = {*GIVEN, *(name for name, _ in custom.dims)}  # of weights; the sequence is in no weight
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
    needed = 1 if step.kind in ("activation", "softmax") else 2
    if len(step.of) != needed:
        message = f"{step.kind} takes {needed} result{'s' * (needed > 1)}, not {len(step.of)}"
        yield Problem(at(where), message, f"`of: [{', '.join(['x', *shapes][:needed])}]`")
        return
    first, *others = (shapes[name] for name in step.of)
    both = " and ".join(f"`{' '.join(shapes[name])}`" for name in step.of)
    if step.kind == "softmax" and first[-2:] != ("seq", KEY):
        message = f"softmax over `{KEY}` of `{' '.join(first)}`"
        yield Problem(at(f"{where}.softmax"), message, f"scores end with `seq {KEY}`")
    if step.kind == "scan" and not ("seq" in first and set(first) <= set(others[0]) and others[0][:2] == GIVEN[:2]):
        message = f"scan of {both}"
        yield Problem(
            at(f"{where}.scan"), message, "a decay and an input that begins with `batch seq` and has its dims"
        )
    if step.kind == "add" and set(first) != set(others[0]) and not set(first) > set(others[0]):
        yield Problem(at(f"{where}.of"), f"add of {both}", "the second has dims of the first")
    if step.kind in ("add", "multiply") and [n for n in first if n in others[0]] != [
        n for n in others[0] if n in first
    ]:
        yield Problem(at(f"{where}.of"), f"{step.kind} of {both}", "both must have the dims they share in one order")


def _sums(step: ComponentStep, einsum: tuple[Term, Term, Term], where: str, at: Places) -> Iterator[Problem]:
    """A product sums over dims of both operands, and its result has the others, each once."""
    first, second, out = einsum
    if (KEY in first and step.of[0] == "x") or (KEY in second and step.of[1:] == ("x",)):
        message = f"`x` itself is read as `{KEY}`"
        yield Problem(at(where), message, "multiply it by a weight first, as keys and values are made")
    stray = [name for name in out if name not in (*first, *second)]
    if stray or len(set(out)) < len(out):
        message = f"`{stray[0]}` is in no operand" if stray else "a dim is in the result twice"
        yield Problem(at(where), message, "the result has dims of the operands, each once")
    if not stray and set(out) >= {*first, *second}:
        message = "it sums over no dim"
        yield Problem(at(where), message, "`multiply: [a, b]` is a product element by element")
    alone = [name for name in {*first, *second} if name not in out and (name in first) != (name in second)]
    if alone:
        message = f"`{alone[0]}` is in one operand and not in the result"
        yield Problem(at(where), message, "what is summed over is in both operands")


def _einsum(custom: Custom, step: ComponentStep, shapes: Shapes, where: str, at: Places) -> Iterator[Problem]:
    found, weights = parsed(step.einsum), dict(custom.weights)
    if found is None:
        message = f"`{step.einsum}` is no einsum of two operands over named dims"
        yield Problem(at(f"{where}.einsum"), message, "`batch seq d_model, latent d_model -> batch seq latent`")
        return
    first, second, out = found
    if "(" in step.einsum:
        message = "a window over a dim, in a part of a layer: convolutions are known of single operations alone"
        yield Problem(at(f"{where}.einsum"), message, "ask of it as an `operation:` of a lecture")
        return
    for name in (step.weight, step.bias):
        if name and name not in weights:
            yield Problem(at(where), f"there is no weight `{name}`", f"weights are {', '.join(weights)}")
            return
    if len(step.of) != (1 if step.weight else 2):
        message = "an einsum takes one result and a weight, or two results"
        yield Problem(at(where), message, "`weight: NAME`, or `of: [NAME, NAME]`")
        return
    operands = (shapes[step.of[0]], weights[step.weight] if step.weight else shapes[step.of[1]])
    for term, dims, what in zip((first, second), operands, ("first", "second"), strict=True):
        seen_again = tuple(KEY if name == "seq" and KEY in term else name for name in dims)
        if term not in (dims, seen_again):
            message = f"the {what} operand is `{' '.join(dims)}`, but the einsum says `{' '.join(term)}`"
            yield Problem(at(f"{where}.einsum"), message, "dims are named in the order in which the tensor has them")
    yield from _sums(step, found, f"{where}.einsum", at)
    if step.bias and weights[step.bias] != out[-len(weights[step.bias]) :]:
        yield Problem(
            at(f"{where}.bias"), f"bias `{step.bias}` does not end the result", f"the result is `{' '.join(out)}`"
        )


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
