"""Problems of the steps that an author writes: dims, weights and results that are not there or do not fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ledger.spec.components import COMMON_DIMS, KEY, PAIRS, REDUCTIONS, STEPS, shape
from ledger.spec.paths import Places
from ledger.spec.plan import ComponentStep, CustomPart
from ledger.spec.problems import Location, Problem
from ledger.spec.windows import (
    ConvolutionRoles,
    Term,
    Window,
    has_windows,
    parse_einsum,
    parse_reduction,
    roles,
    terms,
    window,
)

RESULT = " ".join(COMMON_DIMS)
# Names and letters of the sizes that a plan has already (ledger/model/dims.py): a formula could not tell them apart.
NAMES_OF_SIZES = frozenset(
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


def step_problems(custom: CustomPart, path: str, at: Places) -> Iterator[Problem]:
    """The problems of a component at this path, or of the steps of the group that it is like."""
    yield from _name_problems(custom, path, at)
    steps = f"model.layers.{custom.like}.block.steps" if custom.like else f"{path}.steps"
    shapes: Shapes = {"x": custom.takes}
    for index, step in enumerate(custom.steps):
        where = f"{steps}.{index}"
        kinds = [kind for kind in STEPS if f"{where}.{kind}" in at.origins]
        if len(kinds) != 1:
            stated = f"{' and '.join(f'`{kind}`' for kind in kinds)}" if kinds else "nothing"
            yield Problem(at(where), f"a step does one thing, and this does {stated}", f"one of {', '.join(STEPS)}")
            return
        if step.name in shapes:
            yield Problem(at(f"{where}.name"), f"two results are named `{step.name}`", "give each step its own name")
        missing = [name for name in step.of if name not in shapes]
        if missing:
            message = f"`{missing[0]}` is no result of a step before"
            yield Problem(at(f"{where}.of"), message, f"there are {', '.join(shapes)}")
            return
        problems = list(_kind_problems(custom, step, shapes, where, at))
        yield from problems
        if problems:
            return
        shapes[step.name] = shape(step, shapes)
    if custom.steps and custom.takes == COMMON_DIMS and shapes[custom.steps[-1].name] != COMMON_DIMS:
        result = " ".join(shapes[custom.steps[-1].name])
        yield Problem(at(f"{steps}.{len(custom.steps) - 1}"), f"the result is `{result}`", f"it must be `{RESULT}`")


def _name_problems(custom: CustomPart, path: str, at: Places) -> Iterator[Problem]:
    layer_dims = (
        COMMON_DIMS if custom.takes == COMMON_DIMS else COMMON_DIMS[:1]
    )  # of weights; the sequence is in no weight
    known_dims = {*layer_dims, *(name for name, _ in custom.dims)}
    for name, _ in custom.dims:
        if name in (*COMMON_DIMS, *NAMES_OF_SIZES):
            yield Problem(at(f"{path}.dims.{name}"), f"`{name}` is a dim of the model already", "choose another name")
    for weight, dims in custom.weights:
        for unknown in [name for name in dims if name not in known_dims]:
            message = f"weight `{weight}` has the unknown dim `{unknown}`"
            yield Problem(at(f"{path}.weights.{weight}"), message, f"dims are {', '.join(sorted(known_dims))}")
        if not any(weight in (step.weight, step.bias) for step in custom.steps):
            yield Problem(at(f"{path}.weights.{weight}"), f"weight `{weight}` is used by no step", "leave it out")
    for axis, names in custom.split:
        for unknown in [name for name in names if name not in known_dims - set(COMMON_DIMS)]:
            message = f"`{unknown}` is no dim of this component"
            help_text = f"its own dims are {', '.join(name for name, _ in custom.dims)}"
            yield Problem(at(f"{path}.split.{axis}"), message, help_text)


def _kind_problems(
    custom: CustomPart, step: ComponentStep, shapes: Shapes, where: str, at: Places
) -> Iterator[Problem]:
    if step.weight and step.kind not in ("einsum", "norm"):
        yield Problem(at(f"{where}.weight"), f"a weight of {step.kind}", "only an einsum and a norm have one")
    if step.kind == "einsum":
        yield from _einsum_problems(custom, step, shapes, where, at)
        return
    needed = 2 if step.kind in PAIRS else 1
    if len(step.of) != needed:
        message = f"{step.kind} takes {needed} result{'s' * (needed > 1)}, not {len(step.of)}"
        yield Problem(at(where), message, f"`of: [{', '.join(['x', *shapes][:needed])}]`")
        return
    first, *other_dims = (shapes[name] for name in step.of)
    both = " and ".join(f"`{' '.join(shapes[name])}`" for name in step.of)
    if step.kind == "norm":
        yield from _norm_problems(custom, step, first, where, at)
    if step.kind in REDUCTIONS:
        yield from reduction_problems(custom, step, first, f"{where}.{step.kind}", at)
    if step.kind == "softmax" and first[-2:] != ("seq", KEY):
        message = f"softmax over `{KEY}` of `{' '.join(first)}`"
        yield Problem(at(f"{where}.softmax"), message, f"scores end with `seq {KEY}`")
    if step.kind == "scan" and not (
        "seq" in first and set(first) <= set(other_dims[0]) and other_dims[0][:2] == COMMON_DIMS[:2]
    ):
        help_text = "a decay and an input that begins with `batch seq` and has its dims"
        yield Problem(at(f"{where}.scan"), f"scan of {both}", help_text)
    if step.kind == "add" and set(first) != set(other_dims[0]) and not set(first) > set(other_dims[0]):
        yield Problem(at(f"{where}.of"), f"add of {both}", "the second has dims of the first")
    if step.kind in ("add", "multiply") and [n for n in first if n in other_dims[0]] != [
        n for n in other_dims[0] if n in first
    ]:
        yield Problem(at(f"{where}.of"), f"{step.kind} of {both}", "both must have the dims they share in one order")


def _norm_problems(custom: CustomPart, step: ComponentStep, x: Term, where: str, at: Places) -> Iterator[Problem]:
    """Batch norm keeps dims that follow the first, and has a factor and an addend for each of their places."""
    weights = dict(custom.weights)
    if len(x) < 2 or x[0] != COMMON_DIMS[0]:
        yield Problem(at(f"{where}.norm"), f"batch norm of `{' '.join(x)}`", "its second dim is that of channels")
        return
    if not (step.weight and step.bias):
        yield Problem(at(where), "batch norm has a factor and an addend", "`weight: NAME, bias: NAME`")
    for key in ("weight", "bias"):
        name = getattr(step, key)
        dims = weights.get(name, ())
        if name and (not dims or dims != x[1 : 1 + len(dims)] or dims != weights.get(step.weight)):
            fault = f"is `{' '.join(dims)}`" if dims else "is not there"
            yield Problem(at(f"{where}.{key}"), f"{key} `{name}` {fault}", f"`{name}: {x[1]}` among the weights")


def _sum_problems(step: ComponentStep, einsum: tuple[Term, Term, Term], where: str, at: Places) -> Iterator[Problem]:
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
        yield Problem(at(where), "it sums over no dim", "`multiply: [a, b]` is a product element by element")
    unsummed = [name for name in {*first, *second} if name not in out and (name in first) != (name in second)]
    if unsummed:
        message = f"`{unsummed[0]}` is in one operand and not in the result"
        yield Problem(at(where), message, "what is summed over is in both operands")


def _einsum_problems(
    custom: CustomPart, step: ComponentStep, shapes: Shapes, where: str, at: Places
) -> Iterator[Problem]:
    einsum, weights = parse_einsum(step.einsum), dict(custom.weights)
    if einsum is None:
        message = f"`{step.einsum}` is no einsum of two operands over named dims"
        yield Problem(at(f"{where}.einsum"), message, "`batch seq d_model, latent d_model -> batch seq latent`")
        return
    first, second, out = einsum
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
        yield from _bias_problems(custom, step, out, where, at)
        return
    for term, dims, ordinal in zip((first, second), operands, ("first", "second"), strict=True):
        seen_again = tuple(KEY if name == "seq" and KEY in term else name for name in dims)
        if term not in (dims, seen_again):
            message = f"the {ordinal} operand is `{' '.join(dims)}`, but the einsum says `{' '.join(term)}`"
            yield Problem(at(f"{where}.einsum"), message, "dims are named in the order in which the tensor has them")
    yield from _sum_problems(step, einsum, f"{where}.einsum", at)
    yield from _bias_problems(custom, step, out, where, at)


def _bias_problems(custom: CustomPart, step: ComponentStep, out: Term, where: str, at: Places) -> Iterator[Problem]:
    """A bias is over the last dims of a product, and over the channels of a convolution's result."""
    if not step.bias:
        return
    bias_dims, convolution = dict(custom.weights)[step.bias], roles(step.einsum) if has_windows(step.einsum) else None
    if bias_dims != ((*convolution.groups, *convolution.filters) if convolution else out[-len(bias_dims) :]):
        message = f"bias `{step.bias}` {'is not of the channels' if convolution else 'does not end the result'}"
        yield Problem(at(f"{where}.bias"), message, f"the result is `{' '.join(out)}`")


# --- steps that read a dim through windows ---

CONVOLUTION = "`batch from (2*rows+tall-1) (2*columns+broad-1), to from tall broad -> batch to rows columns`"
MOST_WINDOWS = 3  # PyTorch convolves over up to three dims


def convolution_problems(
    custom: CustomPart, step: ComponentStep, operands: tuple[Term, Term], where: str, at: Places
) -> Iterator[Problem]:
    """Images or sequences, channels and windows of the first operand meet the filter that the second one is."""
    first, second, out = terms(step.einsum)
    if not step.weight:
        yield Problem(at(where), "a window over a product of two results", "a convolution has a weight: `weight: NAME`")
        return
    if any(map(window, (*second, *out))):
        yield Problem(at(where), "windows over a weight or a result", f"windows are of what is read: {CONVOLUTION}")
        return
    convolution = roles(step.einsum)
    if second != operands[1]:
        message = f"the second operand is `{' '.join(operands[1])}`, but the einsum says `{' '.join(second)}`"
        yield Problem(at(where), message, "dims are named in the order in which the tensor has them")
    elif convolution is None:
        message = f"`{step.einsum}` is no convolution"
        yield Problem(at(where), message, f"one dim of both sides alone, then channels, windows: {CONVOLUTION}")
    elif second != convolution.filter:
        message = f"the filter is `{' '.join(second)}`"
        yield Problem(at(where), message, f"PyTorch's lie as `{' '.join(convolution.filter)}`")
    else:
        yield from _index_problems(custom, first, operands[0], at(where))
        yield from _role_problems(convolution, at(where))


def _role_problems(convolution: ConvolutionRoles, where: Location) -> Iterator[Problem]:
    if len(convolution.windows) > MOST_WINDOWS:
        yield Problem(where, f"{len(convolution.windows)} windows", f"at most {MOST_WINDOWS}")
    if len(convolution.groups) > 1:
        yield Problem(where, f"`{' '.join(convolution.groups)}` are groups of a convolution", "merge them into one dim")


def reduction_problems(custom: CustomPart, step: ComponentStep, x: Term, where: str, at: Places) -> Iterator[Problem]:
    """The largest or the mean in windows of all last dims, or over dims that the result lacks."""
    pattern = getattr(step, step.kind)
    both_sides = parse_reduction(pattern)
    if both_sides is None:
        message = f"`{pattern}` is no reduction of one operand over named dims"
        yield Problem(at(where), message, "`batch wide (2*rows+tall-1) (2*columns+broad-1) -> batch wide rows columns`")
        return
    operand, out = both_sides
    windows_read = [span for index in operand if (span := window(index))]
    windows_kept = tuple(span.over if (span := window(index)) else index for index in operand)
    if windows_read:
        last = operand[-len(windows_read) :]
        good = out == windows_kept and all(map(window, last)) and len(operand) - len(windows_read) == 2
        expected = f"`{' '.join(windows_kept)}`, windows last, after two other dims"
    else:
        in_order = out == tuple(name for name in operand if name in out)
        good = step.kind == "mean" and in_order and 0 < len(out) < len(operand)
        expected = "windows: `(2*rows+tall)`"
        if step.kind == "mean":
            expected = "some of the dims that are read, in their order"
    if not good:
        yield Problem(at(where), f"{step.kind} of `{' '.join(operand)}` to `{' '.join(out)}`", f"there are {expected}")
        return
    yield from _index_problems(custom, operand, x, at(where))


def _index_problems(custom: CustomPart, term: Term, x: Term, where: Location) -> Iterator[Problem]:
    """Each index is the dim that the operand has in its place, or windows that fit it."""
    if len(term) != len(x):
        message = f"`{' '.join(term)}` has {len(term)} dims, and what is read is `{' '.join(x)}`"
        yield Problem(where, message, "a dim or a window for each")
        return
    sizes = dict(custom.dims)
    for index, name in zip(term, x, strict=True):
        span = window(index)
        if span is None and index != name:
            message = f"`{index}` stands where `{name}` is read"
            yield Problem(where, message, "dims are named in the order in which the tensor has them")
        if span is not None:
            yield from _window_problems(span, name, sizes, where)


def _window_problems(span: Window, name: str, sizes: Mapping[str, int], where: Location) -> Iterator[Problem]:
    """Problems of a window whose count is neither that of even padding nor that of zeros before a sequence."""
    if span.tap not in sizes:
        yield Problem(where, f"`{span.tap}` has no size", f"state it in `dims`: `{span.tap}: 3`")
        return
    if name in COMMON_DIMS:  # a sequence, whatever its length is
        tap, keeps_dim = sizes[span.tap], span.over == name and span.stride == 1
        reach = span.dilation * (tap - 1)
        if not (keeps_dim and span.padding in (reach, reach / 2)):
            message = f"windows over `{name}` that make another one"
            half = f" or `({name}+{span.tap}-{reach // 2})`" if reach and reach % 2 == 0 and span.dilation == 1 else ""
            yield Problem(where, message, f"`({name}+{span.tap}-{reach})`, which sees what is before{half}")
        return
    places, tap = sizes[name], sizes[span.tap]
    count = span.windows(places, tap)
    if span.over not in sizes:
        yield Problem(where, f"`{span.over}` has no size", f"state it in `dims`: `{span.over}: {count}`")
    elif not (span.fits(places, sizes[span.over], tap) or span.is_causal(places, sizes[span.over], tap)):
        message = (
            f"{span.over} = {sizes[span.over]}, but windows of {span.tap} = {tap} over {name} = {places} are {count}"
        )
        yield Problem(where, message, f"`{span.over}: {count}`, or another stride or padding")
