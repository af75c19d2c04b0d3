"""What is wrong with the steps that an author writes: every dim, weight and result is there, and they fit."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.spec.components import GIVEN, KEY, PAIRS, REDUCTIONS, STEPS, shape
from ledger.spec.places import Places
from ledger.spec.plan import ComponentStep, Custom
from ledger.spec.problems import Problem
from ledger.spec.windowed_steps import convolution_problems, reduction_problems
from ledger.spec.windows import Term, has_windows, parsed, roles

RESULT = " ".join(GIVEN)
# Names and letters of the sizes that a plan has already (ledger/model/dims.py): a formula could not tell them apart.
TAKEN = frozenset(
    """
    attended bands capacity_factor cf chunk chunks classes context convolution cp d_ff data document dp ep expert
    experts frames head_dim heads hit hosted im image_channels image_height image_width imbalance in_flight key kv_heads
    kv_rank layers loss_chunks loss_rows micro_batches nope_head_dim one parameters patch pipeline
    positions pp predictions q_rank rank read redone relative_buckets replicate returns rope_head_dim rotary_dim routes
    rp scan_chunk segment
    sends shared_d_ff source_seq state_groups state_size tensor token_types top_k tp v_head_dim vocab
    w2 waiting ways window
    """.split()  # noqa: SIM905 - as a literal, one name a line, these would be a page
)
Shapes = dict[str, Term]


def step_problems(custom: Custom, path: str, at: Places) -> Iterator[Problem]:
    """What is wrong with a component at this path, or with the steps of the group that it is like."""
    yield from _names(custom, path, at)
    steps = f"model.layers.{custom.like}.block.steps" if custom.like else f"{path}.steps"
    shapes: Shapes = {"x": custom.takes}
    for index, step in enumerate(custom.steps):
        where = f"{steps}.{index}"
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
    if custom.steps and custom.takes == GIVEN and shapes[custom.steps[-1].name] != GIVEN:
        found = " ".join(shapes[custom.steps[-1].name])
        yield Problem(at(f"{steps}.{len(custom.steps) - 1}"), f"the result is `{found}`", f"it must be `{RESULT}`")


def _names(custom: Custom, path: str, at: Places) -> Iterator[Problem]:
    given = GIVEN if custom.takes == GIVEN else GIVEN[:1]  # of weights; the sequence is in no weight
    known = {*given, *(name for name, _ in custom.dims)}
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
    if step.weight and step.kind not in ("einsum", "norm"):
        yield Problem(at(f"{where}.weight"), f"a weight of {step.kind}", "only an einsum and a norm have one")
    if step.kind == "einsum":
        yield from _einsum(custom, step, shapes, where, at)
        return
    needed = 2 if step.kind in PAIRS else 1
    if len(step.of) != needed:
        message = f"{step.kind} takes {needed} result{'s' * (needed > 1)}, not {len(step.of)}"
        yield Problem(at(where), message, f"`of: [{', '.join(['x', *shapes][:needed])}]`")
        return
    first, *others = (shapes[name] for name in step.of)
    both = " and ".join(f"`{' '.join(shapes[name])}`" for name in step.of)
    if step.kind == "norm":
        yield from _norm(custom, step, first, where, at)
    if step.kind in REDUCTIONS:
        yield from reduction_problems(custom, step, first, f"{where}.{step.kind}", at)
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


def _norm(custom: Custom, step: ComponentStep, x: Term, where: str, at: Places) -> Iterator[Problem]:
    """Batch norm keeps dims that follow the first, and has a factor and an addend for each of their places."""
    weights = dict(custom.weights)
    if len(x) < 2 or x[0] != GIVEN[0]:
        yield Problem(at(f"{where}.norm"), f"batch norm of `{' '.join(x)}`", "its second dim is that of channels")
        return
    if not (step.weight and step.bias):
        yield Problem(at(where), "batch norm has a factor and an addend", "`weight: NAME, bias: NAME`")
    for key in ("weight", "bias"):
        name = getattr(step, key)
        own = weights.get(name, ())
        if name and (not own or own != x[1 : 1 + len(own)] or own != weights.get(step.weight)):
            found = f"is `{' '.join(own)}`" if own else "is not there"
            yield Problem(at(f"{where}.{key}"), f"{key} `{name}` {found}", f"`{name}: {x[1]}` among the weights")


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
    for name in (step.weight, step.bias):
        if name and name not in weights:
            yield Problem(at(where), f"there is no weight `{name}`", f"weights are {', '.join(weights)}")
            return
    if len(step.of) != (1 if step.weight else 2):
        message = "an einsum takes one result and a weight, or two results"
        yield Problem(at(where), message, "`weight: NAME`, or `of: [NAME, NAME]`")
        return
    operands = (shapes[step.of[0]], weights[step.weight] if step.weight else shapes[step.of[1]])
    if has_windows(step.einsum):
        yield from convolution_problems(custom, step, operands, f"{where}.einsum", at)
        yield from _bias(custom, step, out, where, at)
        return
    for term, dims, what in zip((first, second), operands, ("first", "second"), strict=True):
        seen_again = tuple(KEY if name == "seq" and KEY in term else name for name in dims)
        if term not in (dims, seen_again):
            message = f"the {what} operand is `{' '.join(dims)}`, but the einsum says `{' '.join(term)}`"
            yield Problem(at(f"{where}.einsum"), message, "dims are named in the order in which the tensor has them")
    yield from _sums(step, found, f"{where}.einsum", at)
    yield from _bias(custom, step, out, where, at)


def _bias(custom: Custom, step: ComponentStep, out: Term, where: str, at: Places) -> Iterator[Problem]:
    """A bias is over the last dims of a product, and over the channels of a convolution's result."""
    if not step.bias:
        return
    own, found = dict(custom.weights)[step.bias], roles(step.einsum) if has_windows(step.einsum) else None
    if own != ((*found.groups, *found.filters) if found else out[-len(own) :]):
        message = f"bias `{step.bias}` {'is not of the channels' if found else 'does not end the result'}"
        yield Problem(at(f"{where}.bias"), message, f"the result is `{' '.join(out)}`")
