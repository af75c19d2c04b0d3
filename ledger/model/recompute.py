"""Recompute policies: what a unit saves, in which format, what backward runs again, and for which layers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import isqrt

import sympy

from ledger.model import dtypes
from ledger.model.collectives import Collective
from ledger.model.contraction import Contraction
from ledger.model.dims import symbol
from ledger.model.elementwise import Pointwise
from ledger.model.operations import ONE, ZERO, Operation, total
from ledger.model.quantised import STAYING, Quantise, is_projection, matrix, scales_along
from ledger.model.tensors import CeilDiv, Tensor, product
from ledger.spec.kernel_classes import ATTENTION, COPY, GROUPED, MATMUL, NORM, QUANTISE
from ledger.spec.plan import Recompute
from ledger.spec.precision import Stored


@dataclass(frozen=True)
class Segment:
    """A stretch of forward that backward runs again, before the first reader of `rebuilt`; it starts from `entry`.

    `reentrant`: it is one function of autograd, so it runs again before any of its gradients.
    """

    entry: tuple[Tensor, ...]
    again: tuple[Operation, ...]
    rebuilt: tuple[Tensor, ...]
    reentrant: bool = False


@dataclass(frozen=True)
class SavedActivations:
    """`saved` lives from forward to backward; each segment brings back what else backward reads.

    `further_layers`: so many further layers like this one stand rebuilt while this one runs backward.
    """

    saved: tuple[Tensor, ...]
    segments: tuple[Segment, ...] = ()
    further_layers: sympy.Expr = ZERO

    @property
    def again(self) -> tuple[Operation, ...]:
        """The operations that backward runs a second time."""
        return tuple(operation for segment in self.segments for operation in segment.again)

    @property
    def rebuilt(self) -> tuple[Tensor, ...]:
        """The tensors that a second run brings back."""
        return tuple(tensor for segment in self.segments for tensor in segment.rebuilt)


def read_in_backward(kept: SavedActivations, backward: Sequence[Operation]) -> SavedActivations:
    """Saved tensors that backward reads: a compiler of both passes drops the others, checkpointing's cache does not."""
    reads = {t.storage for op in (*backward, *kept.again) for t in op.inputs}
    reads |= {t.storage for segment in kept.segments for t in segment.entry}
    return replace(kept, saved=tuple(tensor for tensor in kept.saved if tensor.storage in reads))


@dataclass(frozen=True)
class Component:
    """A part that recompute can name, by the region it is written in.

    `discards`: the result goes too, and is rebuilt before its readers run backward (Megatron-Core,
    `CheckpointWithoutOutput`); else the result is kept where others save it, as any checkpointed module's.
    """

    region: str
    discards: bool = False


# Megatron-Core's `--recompute-modules`: core_attn, mlp and moe are checkpointed; layernorm, moe_act and mla_up_proj
# discard their output. It offers no checkpointing of a whole attention module; torch.utils.checkpoint around one does.
COMPONENTS: Mapping[str, Component] = {
    "core": Component("core"),
    "attention": Component("attention"),
    "mlp": Component("mlp"),
    "experts": Component("experts"),
    "norm": Component("norm", discards=True),
    "activation": Component("activation", discards=True),
    "up_projection": Component("up_projection", discards=True),
    "loss_chunk": Component("loss_chunk"),
    "predicting_layer": Component("predicting_layer"),
}


def discarded_regions(recompute: Recompute) -> frozenset[str]:
    """The regions whose results are made anew for whoever reads them in backward."""
    return frozenset(COMPONENTS[name].region for name in recompute.components if COMPONENTS[name].discards)


# --- what is saved ---


def saved_by(operations: Sequence[Operation], among: Sequence[Operation] = ()) -> tuple[Tensor, ...]:
    """The tensors that autograd keeps: each storage once, views as what they look into, no weights, casts included.

    `among`: where the tensors behind views are looked for, if not in `operations`.
    """
    owners = {t.name: t for op in among or operations for t in (*op.outputs, *op.inputs) if not t.view_of}
    saved: dict[str, Tensor] = {}
    for operation in operations:
        for tensor in operation.saves:
            if tensor.role != "weight":
                saved.setdefault(tensor.storage, owners.get(tensor.storage, tensor))
    return tuple(saved.values())


def prefix(operations: Sequence[Operation], *, whole: bool = False) -> tuple[Operation, ...]:
    """The operations that rebuilding runs: up to the last that saves something, and it too if it saves a result.

    PyTorch's checkpointing stops as soon as the last saved tensor is back (torch.utils.checkpoint, early stop); a
    reentrant one runs the `whole` stretch.
    """
    last = max((i for i, op in enumerate(operations) if _saves_activation(op)), default=-1)
    if last < 0:
        return ()
    needed = operations if whole else operations[: last + (1 if operations[last].saves_output else 0)]
    return tuple(op for op in needed if any(tensor.role != STAYING for tensor in op.outputs))


def _saves_activation(operation: Operation) -> bool:
    return any(tensor.role != "weight" for tensor in operation.saves)


def entry(operations: Sequence[Operation], among: Sequence[Operation] = ()) -> tuple[Tensor, ...]:
    """The activations that come from outside, each storage once, as the tensor that owns it."""
    written = {t.storage for op in operations for t in op.outputs if not t.view_of}
    owners = {t.name: t for op in among for t in op.outputs}
    inputs = (t for op in operations for t in op.inputs)
    entering = {
        t.storage: owners.get(t.storage, t) for t in inputs if t.storage not in written and t.role == "activation"
    }
    return tuple(entering.values())


# --- policies of one layer ---


def _save_everything(operations: Sequence[Operation], _: Recompute) -> SavedActivations:
    return SavedActivations(saved_by(operations))


def _rebuild_layer(operations: Sequence[Operation], recompute: Recompute) -> SavedActivations:
    """A layer of which only what enters is kept; all else is rebuilt."""
    if not any(map(_saves_activation, operations)):  # no gradient flows here, so nothing waits for backward
        return SavedActivations(())
    start = entry(operations)
    rebuilt = tuple(t for t in saved_by(operations) if t.storage not in {e.storage for e in start})
    return SavedActivations(
        start, (Segment(start, prefix(operations, whole=recompute.rebuilds_to_end), rebuilt, recompute.reentrant),)
    )


def _rebuild_within_segment(operations: Sequence[Operation], recompute: Recompute) -> SavedActivations:
    """A layer inside a segment of layers: nothing is kept, and all of it runs again to reach the next."""
    return SavedActivations(
        (), (Segment(entry(operations), tuple(operations), saved_by(operations), recompute.reentrant),)
    )


def _rebuild_core(operations: Sequence[Operation], recompute: Recompute) -> SavedActivations:
    """The attention core is rebuilt from query, key and value (Korthikanti et al. 2022, section 5)."""
    return _rebuild_components(operations, replace(recompute, components=("core",)))


def _rebuild_components(operations: Sequence[Operation], recompute: Recompute) -> SavedActivations:
    """Each named component is checkpointed by itself; one inside another goes with the outer one."""
    stretches = tuple(_runs_of_components(operations, recompute.components))
    outside = [op for component, run in stretches if component is None for op in run]
    parts = [(component, run) for component, run in stretches if component]
    saved = {t.storage: t for t in saved_by(outside, operations)}
    saved |= {t.storage: t for _, run in parts if any(map(_saves_activation, run)) for t in entry(run, operations)}
    for component, run in parts:
        for tensor in (t for op in run if component.discards for t in op.outputs):
            saved.pop(tensor.storage, None)
    lost = {t.storage: t for t in saved_by(operations) if t.storage not in saved}
    segments = []
    for component, run in parts:
        written = {t.storage for op in run for t in (*op.saves, *(op.outputs if component.discards else ()))}
        rebuilt = tuple(lost.pop(storage) for storage in [*lost] if storage in written)
        again = tuple(run) if component.discards else prefix(run, whole=recompute.rebuilds_to_end)
        if rebuilt:
            reentrant = recompute.reentrant and not component.discards
            segments.append(Segment(entry(run, operations), again, rebuilt, reentrant))
    return SavedActivations(tuple(saved.values()), tuple(segments))


def _rebuild_logits(operations: Sequence[Operation], _: Recompute) -> SavedActivations:
    """The logits of a loss that goes part by part, if they are rebuilt at all; nothing else of the end."""
    return _rebuild_components(operations, Recompute(components=("loss_chunk",)))


def _runs_of_components(
    operations: Sequence[Operation], named: tuple[str, ...]
) -> Iterator[tuple[Component | None, tuple[Operation, ...]]]:
    """Operations in runs of one named component, or of none."""
    regions = {COMPONENTS[name].region: COMPONENTS[name] for name in named}

    def outermost(operation: Operation) -> Component | None:
        return next((regions[part] for part in operation.region if part in regions), None)

    for component, run in groupby(operations, key=outermost):
        yield component, tuple(run)


def _save_named_kinds(operations: Sequence[Operation], recompute: Recompute) -> SavedActivations:
    """Results of the named kinds of kernel are kept, all else is run again (torch's selective checkpointing)."""
    if not any(map(_saves_activation, operations)):
        return SavedActivations(())
    dropped = set(_second_matmuls(operations, recompute.joined_parts)) if recompute.matmuls == "every_second" else set()

    def is_kept(operation: Operation) -> bool:
        return operation.name not in dropped and any(KINDS[kind](operation) for kind in recompute.keep)

    results = {
        tensor.storage: tensor
        for operation in filter(is_kept, operations)  # of a transfer that copies its operand before, not the copy
        for tensor in (operation.outputs[:1] if isinstance(operation, Collective) else operation.outputs)
    }
    start = entry(operations)
    saved = {**{t.storage: t for t in start}, **results}
    again = tuple(_run_again(prefix(operations, whole=recompute.rebuilds_to_end), is_kept, compiled=recompute.compiled))
    rebuilt = tuple(t for t in saved_by(operations) if t.storage not in saved)
    return SavedActivations(tuple(saved.values()), (Segment(start, again, rebuilt),))


def _run_again(
    operations: Iterable[Operation], is_kept: Callable[[Operation], bool], *, compiled: bool
) -> Iterator[Operation]:
    """The operations whose results are not kept, and the copies that a kept scatter is cut from.

    The copy is an operator of its own before the transfer (torch/distributed/_functional_collectives.py, cat), and
    nobody has its result on file; a compiler drops it, since nothing reads it.
    """
    for operation in operations:
        if not is_kept(operation):
            yield operation
        elif isinstance(operation, Collective) and operation.collective == "reduce_scatter" and not compiled:
            for copy in operation.passing():
                yield Pointwise(f"{operation.name}.copy", COPY, operation.inputs, (copy,))


def _kernel(*families: str) -> Callable[[Operation], bool]:
    return lambda operation: operation.kernel.family in families


# What `keep` can name. Transfers are operators too (torch.ops._c10d_functional), so their results can be kept.
KINDS: Mapping[str, Callable[[Operation], bool]] = {
    "matmul": _kernel(MATMUL, GROUPED),
    "attention": _kernel(ATTENTION),
    "norm": _kernel(NORM),
    "activation": lambda operation: "activation" in operation.region,
    "collective": lambda operation: isinstance(operation, Collective) and operation.collective != "none",
    "reduce_scatter": _kernel("reduce_scatter"),
    "all_to_all": _kernel("all_to_all"),
}


def _second_matmuls(operations: Sequence[Operation], joined: Collection[str]) -> Iterator[str]:
    """The second, fourth, ... of a layer's projections, and the products of two activations.

    torchtitan (distributed/activation_checkpoint.py, 2025) counts aten.mm from 1, and keeps odd ones; aten.bmm is not
    in its list. Products with one matrix count as one.
    """
    matrices: list[str] = []
    for operation in operations:
        if not isinstance(operation, Contraction):
            continue
        if is_projection(operation):
            matrices.extend({matrix(operation, joined)} - set(matrices[-1:]))
        if not is_projection(operation) or len(matrices) % 2 == 0:
            yield operation.name


POLICIES: Mapping[str, Callable[[Sequence[Operation], Recompute], SavedActivations]] = {
    "none": _save_everything,
    "selective": _rebuild_core,
    "full": _rebuild_layer,
    "within": _rebuild_within_segment,
    "components": _rebuild_components,
    "keep": _save_named_kinds,
    "loss": _rebuild_logits,
}


# --- saved activations in a narrower format ---

WIDE = 2  # bytes: statistics and scores, in fp32, stay as they are


@dataclass(frozen=True)
class Widen(Quantise):
    """The copy and its scales are read, the tensor is written."""

    def traffic(self) -> sympy.Expr:
        """Bytes: the copy and its scales read once, the tensor written once."""
        return total(tensor.bytes() for tensor in (*self.inputs, *self.outputs))

    def vector(self) -> sympy.Expr:
        """A product for each element."""
        return product(1, self.outputs[0].elements())


def with_stored_activations(
    operations: Sequence[Operation], kept: SavedActivations, rules: Sequence[Stored]
) -> tuple[tuple[Operation, ...], SavedActivations]:
    """Forward with the kernels that narrow what the rules name, and what is then kept instead.

    A copy is made as soon as the tensor is saved. To backward it is a stretch that rebuilds the tensor.
    """
    saved = {tensor.storage: tensor for tensor in kept.saved}
    copies: dict[str, tuple[Tensor, ...]] = {}
    forward: list[Operation] = []
    for operation in operations:
        forward.append(operation)
        for storage, rule in _narrowed_activations(operation, rules, saved):
            if storage not in copies:
                tensor = saved[storage]
                copies[storage] = (replace(tensor, name=f"{tensor.name}.narrow", dtype=rule.format, view_of=""),)
                if rule.block is not None:
                    copies[storage] += (scales_along(tensor, f"{tensor.name}.narrow.scales", rule.block),)
                forward.append(Quantise(f"{storage}.narrow", QUANTISE, (tensor,), copies[storage]))
    waiting = (copies.get(storage, (tensor,)) for storage, tensor in saved.items())
    segments = tuple(
        Segment(narrow, (Widen(f"{storage}.widen", QUANTISE, narrow, (saved[storage],)),), (saved[storage],))
        for storage, narrow in copies.items()
    )
    saved_tensors = tuple(tensor for tensors in waiting for tensor in tensors)
    return tuple(forward), replace(kept, saved=saved_tensors, segments=(*segments, *kept.segments))


def _narrowed_activations(
    operation: Operation, rules: Sequence[Stored], saved: Mapping[str, Tensor]
) -> Iterator[tuple[str, Stored]]:
    """The 16-bit activations that this operation saves under a rule."""
    for rule in rules:
        inside = rule.part in operation.region
        for owner in (saved.get(tensor.storage) for tensor in operation.saves if inside):
            if owner is not None and owner.role == "activation" and dtypes.size(owner.dtype) == WIDE:
                yield owner.storage, rule


# --- which layers are recomputed ---

WITHIN = "within"


@dataclass(frozen=True)
class LayerPart:
    """Layers of one group on one device that recompute treats alike, in the order of the forward pass.

    `label` sets the name of their unit apart; `rebuilt_layers`: so many further layers stand rebuilt with each; `depth`
    is the count as a number where one is known; `hosted`: what they save waits in host memory.
    """

    label: str
    count: sympy.Expr
    policy: str
    rebuilt_layers: sympy.Expr = ZERO
    depth: int = 0
    hosted: bool = False

    def with_first_split(self, first: int) -> LayerPart:
        """The first layer of these alone (`first` = 1), or the others (0)."""
        if first:
            return replace(self, label=f"{self.label}.first", count=ONE, depth=1)
        return replace(self, count=self.count - 1, depth=self.depth - 1)


def parts(recompute: Recompute, suffix: str, layers: int, redone: int, chunks: int) -> tuple[LayerPart, ...]:
    """The parts of a group that has `layers` layers on a device, in `chunks`; `redone` of them are recomputed."""
    count = symbol("layers", suffix)
    if recompute.policy == "every" and recompute.every > 1:
        return _parts_by_recompute(CeilDiv(count, recompute.every), count, -(-layers // recompute.every), layers)
    if recompute.policy == "layers":
        if redone == 0:
            return (LayerPart("", count, "none", depth=layers),)
        return _parts_by_recompute(symbol("redone", suffix), count, redone, layers)
    length = segment(recompute, layers, chunks) if recompute.policy == "segment" else 1
    if length > 1:
        return tuple(_segment_parts(suffix, chunks, even=(layers // chunks) % length == 0))
    whole_layers = recompute.policy in ("every", "segment")
    return (LayerPart("", count, "full" if whole_layers else recompute.policy, depth=layers),)


def hosted_layers(asked: int | None, layers: Sequence[int], chunks: int) -> tuple[int, ...]:
    """The layers of each group on a device whose activations leave: none, all (0), or the first of each chunk."""
    if asked is None:
        return (0,) * len(layers)
    return layers_among_first(asked * chunks, layers) if asked else tuple(layers)


def hosting(group_parts: Sequence[LayerPart], suffix: str, leaving: int) -> tuple[LayerPart, ...]:
    """The parts where activations of the first `leaving` layers wait in host memory: of all, or of one part."""
    if not leaving:
        return tuple(group_parts)
    if len(group_parts) > 1 or leaving == group_parts[0].depth:
        return tuple(replace(part, hosted=True) for part in group_parts)
    (part,), count = group_parts, symbol("hosted", suffix)
    first = replace(part, label=f"{part.label}.hosted", count=count, depth=leaving, hosted=True)
    return first, replace(part, count=part.count - count, depth=part.depth - leaving)


def _parts_by_recompute(again: sympy.Expr, count: sympy.Expr, redone: int, layers: int) -> tuple[LayerPart, ...]:
    """Layers that are recomputed, and those that are not, where there are any."""
    if redone == layers:
        return (LayerPart("", count, "full", depth=layers),)
    return LayerPart(".recomputed", again, "full", depth=redone), LayerPart(
        "", count - again, "none", depth=layers - redone
    )


def _segment_parts(suffix: str, chunks: int, *, even: bool) -> Iterator[LayerPart]:
    """The layers inside segments, and the last of each, which rebuilds them; a chunk's last segment may be shorter."""
    count, length = symbol("layers", suffix), symbol("segment", suffix)
    segments = CeilDiv(count / chunks, length)
    yield LayerPart(f".{WITHIN}", count - chunks * segments, WITHIN)
    if even:
        yield LayerPart("", chunks * segments, "full", length - 1)
        return
    yield LayerPart("", chunks * (segments - 1), "full", length - 1)
    yield LayerPart(".short", sympy.Integer(chunks), "full", count / chunks - length * (segments - 1) - 1)


def segment(recompute: Recompute, layers: int, chunks: int) -> int:
    """Layers of a segment: as many as are asked for, or the square root of those in a chunk, rounded up.

    One input is kept for each segment and one segment is rebuilt at a time, so both grow as the square root of the
    depth (Chen et al. 2016, section 4.1; Megatron-LM, `--recompute-method uniform`).
    """
    depth = max(1, layers // chunks)
    return min(recompute.segment or 1 + isqrt(depth - 1), depth)


def recomputed_layers(recompute: Recompute, layers: Sequence[int], chunks: int) -> tuple[int, ...]:
    """The layers of each group on a device that are among the first n of its stage (`--recompute-method block`)."""
    return layers_among_first(recompute.layers * chunks, layers)


def layers_among_first(first: int, layers: Sequence[int]) -> tuple[int, ...]:
    """The number of each group's layers on a device that are among so many `first` ones."""
    remaining, counts = first, []
    for depth in layers:
        counts.append(min(remaining, depth))
        remaining -= counts[-1]
    return tuple(counts)
