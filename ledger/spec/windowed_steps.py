"""What is wrong with steps that read a dim through windows: convolutions and pooling, with dims in PyTorch's order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ledger.spec.components import GIVEN
from ledger.spec.places import Places
from ledger.spec.plan import ComponentStep, Custom
from ledger.spec.problems import Location, Problem
from ledger.spec.windows import Roles, Term, Window, reduction, roles, terms, window

CONVOLUTION = "`batch from (2*rows+tall-1) (2*columns+broad-1), to from tall broad -> batch to rows columns`"
MOST_WINDOWS = 3  # PyTorch convolves over up to three dims


def convolution_problems(
    custom: Custom, step: ComponentStep, operands: tuple[Term, Term], where: str, at: Places
) -> Iterator[Problem]:
    """Images or sequences, channels and windows of the first operand meet the filter that the second one is."""
    first, second, out = terms(step.einsum)
    if not step.weight:
        yield Problem(at(where), "a window over a product of two results", "a convolution has a weight: `weight: NAME`")
        return
    if any(map(window, (*second, *out))):
        yield Problem(at(where), "windows over a weight or a result", f"windows are of what is read: {CONVOLUTION}")
        return
    found = roles(step.einsum)
    if second != operands[1]:
        message = f"the second operand is `{' '.join(operands[1])}`, but the einsum says `{' '.join(second)}`"
        yield Problem(at(where), message, "dims are named in the order in which the tensor has them")
    elif found is None:
        message = f"`{step.einsum}` is no convolution"
        yield Problem(at(where), message, f"one dim of both sides alone, then channels, windows: {CONVOLUTION}")
    elif second != found.filter:
        message = f"the filter is `{' '.join(second)}`"
        yield Problem(at(where), message, f"PyTorch's lie as `{' '.join(found.filter)}`")
    else:
        yield from _reads(custom, first, operands[0], at(where))
        yield from _whole(found, at(where))


def _whole(found: Roles, where: Location) -> Iterator[Problem]:
    if len(found.windows) > MOST_WINDOWS:
        yield Problem(where, f"{len(found.windows)} windows", f"at most {MOST_WINDOWS}")
    if len(found.groups) > 1:
        yield Problem(where, f"`{' '.join(found.groups)}` are groups of a convolution", "merge them into one dim")


def reduction_problems(custom: Custom, step: ComponentStep, x: Term, where: str, at: Places) -> Iterator[Problem]:
    """The largest or the mean in windows of all last dims, or over dims that the result lacks."""
    pattern = getattr(step, step.kind)
    found = reduction(pattern)
    if found is None:
        message = f"`{pattern}` is no reduction of one operand over named dims"
        yield Problem(at(where), message, "`batch wide (2*rows+tall-1) (2*columns+broad-1) -> batch wide rows columns`")
        return
    read, out = found
    through = [over for index in read if (over := window(index))]
    kept = tuple(over.over if (over := window(index)) else index for index in read)
    if through:
        good = out == kept and all(map(window, read[-len(through) :])) and len(read) - len(through) == 2
        wanted = f"`{' '.join(kept)}`, windows last, after two other dims"
    else:
        good = step.kind == "mean" and out == tuple(name for name in read if name in out) and 0 < len(out) < len(read)
        wanted = "some of the dims that are read, in their order" if step.kind == "mean" else "windows: `(2*rows+tall)`"
    if not good:
        yield Problem(at(where), f"{step.kind} of `{' '.join(read)}` to `{' '.join(out)}`", f"there are {wanted}")
        return
    yield from _reads(custom, read, x, at(where))


def _reads(custom: Custom, term: Term, x: Term, where: Location) -> Iterator[Problem]:
    """Each index is the dim that the operand has in its place, or windows that fit it."""
    if len(term) != len(x):
        message = f"`{' '.join(term)}` has {len(term)} dims, and what is read is `{' '.join(x)}`"
        yield Problem(where, message, "a dim or a window for each")
        return
    sizes = dict(custom.dims)
    for index, name in zip(term, x, strict=True):
        over = window(index)
        if over is None and index != name:
            message = f"`{index}` stands where `{name}` is read"
            yield Problem(where, message, "dims are named in the order in which the tensor has them")
        if over is not None:
            yield from _fits(over, name, sizes, where)


def _fits(over: Window, name: str, sizes: Mapping[str, int], where: Location) -> Iterator[Problem]:
    """As many windows as zeros alike at both ends make, or as a sequence with zeros before it makes."""
    if over.tap not in sizes:
        yield Problem(where, f"`{over.tap}` has no size", f"state it in `dims`: `{over.tap}: 3`")
        return
    if name in GIVEN:  # a sequence, whatever its length is
        tap, same = sizes[over.tap], over.over == name and over.stride == 1
        reach = over.dilation * (tap - 1)
        if not (same and over.padding in (reach, reach / 2)):
            message = f"windows over `{name}` that make another one"
            half = f" or `({name}+{over.tap}-{reach // 2})`" if reach and reach % 2 == 0 and over.dilation == 1 else ""
            yield Problem(where, message, f"`({name}+{over.tap}-{reach})`, which sees what is before{half}")
        return
    places, tap = sizes[name], sizes[over.tap]
    made = over.windows(places, tap)
    if over.over not in sizes:
        yield Problem(where, f"`{over.over}` has no size", f"state it in `dims`: `{over.over}: {made}`")
    elif not (over.fits(places, sizes[over.over], tap) or over.is_causal(places, sizes[over.over], tap)):
        message = (
            f"{over.over} = {sizes[over.over]}, but windows of {over.tap} = {tap} over {name} = {places} are {made}"
        )
        yield Problem(where, message, f"`{over.over}: {made}`, or another stride or padding")
