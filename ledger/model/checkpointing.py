"""Which layers of a device are recomputed, and how many of them at once: the parts that a policy cuts a group into."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import isqrt

import sympy

from ledger.model.dims import symbol
from ledger.model.operations import ONE, ZERO
from ledger.model.tensors import CeilDiv
from ledger.spec.plan import Recompute

WITHIN = "within"


@dataclass(frozen=True)
class Part:
    """Layers of one group on one device that recompute treats alike, in the order of the forward pass.

    `label` sets the name of their unit apart; `beside`: so many further layers stand rebuilt with each; `held` is the
    count as a number where one is known; `hosted`: what they save waits in host memory.
    """

    label: str
    count: sympy.Expr
    policy: str
    beside: sympy.Expr = ZERO
    held: int = 0
    hosted: bool = False

    def apart(self, first: int) -> Part:
        """The first layer of these alone (`first` = 1), or the others (0)."""
        if first:
            return replace(self, label=f"{self.label}.first", count=ONE, held=1)
        return replace(self, count=self.count - 1, held=self.held - 1)


def parts(recompute: Recompute, suffix: str, layers: int, redone: int, chunks: int) -> tuple[Part, ...]:
    """The parts of a group that has `layers` layers on a device, in `chunks`; `redone` of them are recomputed."""
    count = symbol("layers", suffix)
    if recompute.policy == "every" and recompute.every > 1:
        return _two(CeilDiv(count, recompute.every), count, -(-layers // recompute.every), layers)
    if recompute.policy == "layers":
        if redone == 0:
            return (Part("", count, "none", held=layers),)
        return _two(symbol("redone", suffix), count, redone, layers)
    length = segment(recompute, layers, chunks) if recompute.policy == "segment" else 1
    if length > 1:
        return tuple(_segments(suffix, chunks, even=(layers // chunks) % length == 0))
    whole_layers = recompute.policy in ("every", "segment")
    return (Part("", count, "full" if whole_layers else recompute.policy, held=layers),)


def hosted(asked: int | None, layers: Sequence[int], chunks: int) -> tuple[int, ...]:
    """Of each group's layers on a device, those whose activations leave: none, all (0), or the first of each chunk."""
    if asked is None:
        return (0,) * len(layers)
    return among_first(asked * chunks, layers) if asked else tuple(layers)


def hosting(found: Sequence[Part], suffix: str, leaving: int) -> tuple[Part, ...]:
    """The same parts where activations of the first `leaving` layers wait in host memory: of all, or of one part."""
    if not leaving:
        return tuple(found)
    if len(found) > 1 or leaving == found[0].held:
        return tuple(replace(part, hosted=True) for part in found)
    (part,), count = found, symbol("hosted", suffix)
    first = replace(part, label=f"{part.label}.hosted", count=count, held=leaving, hosted=True)
    return first, replace(part, count=part.count - count, held=part.held - leaving)


def _two(again: sympy.Expr, count: sympy.Expr, redone: int, layers: int) -> tuple[Part, ...]:
    """Layers that are recomputed, and those that are not, where there are any."""
    if redone == layers:
        return (Part("", count, "full", held=layers),)
    return Part(".recomputed", again, "full", held=redone), Part("", count - again, "none", held=layers - redone)


def _segments(suffix: str, chunks: int, *, even: bool) -> Iterator[Part]:
    """The layers inside segments, and the last of each, whose backward pass begins by rebuilding all of them.

    The last segment of a chunk may be shorter than the others.
    """
    count, length = symbol("layers", suffix), symbol("segment", suffix)
    segments = CeilDiv(count / chunks, length)
    yield Part(f".{WITHIN}", count - chunks * segments, WITHIN)
    if even:
        yield Part("", chunks * segments, "full", length - 1)
        return
    yield Part("", chunks * (segments - 1), "full", length - 1)
    yield Part(".short", sympy.Integer(chunks), "full", count / chunks - length * (segments - 1) - 1)


def segment(recompute: Recompute, layers: int, chunks: int) -> int:
    """Layers of a segment: as many as are asked for, or the square root of those in a chunk, rounded up.

    One input is kept for each segment and one segment is rebuilt at a time, so both grow as the square root of the
    depth (Chen et al. 2016, section 4.1; Megatron-LM, `--recompute-method uniform`).
    """
    held = max(1, layers // chunks)
    return min(recompute.segment or 1 + isqrt(held - 1), held)


def redone(recompute: Recompute, layers: Sequence[int], chunks: int) -> tuple[int, ...]:
    """Of each group's layers on a device, those among the first n of its stage (`--recompute-method block`)."""
    return among_first(recompute.layers * chunks, layers)


def among_first(first: int, layers: Sequence[int]) -> tuple[int, ...]:
    """Of each group's layers on a device, how many are among so many `first` ones."""
    left, found = first, []
    for held in layers:
        found.append(min(left, held))
        left -= found[-1]
    return tuple(found)
