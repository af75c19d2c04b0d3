"""Tokens to their experts and back by a map of every token and expert, which forward and backward read.

Megatron-Core's dispatcher (megatron/core/transformer/moe/token_dispatcher.py, MoEAlltoAllTokenDispatcher) with
Transformer Engine's permutation (transformer_engine/pytorch/permutation.py). Rows and their scores move together. Each
device sends rows of its own part of the sequence; those that share an expert's matrices then gather them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ledger.model import dispatch
from ledger.model.collectives import Collective, collective
from ledger.model.contraction import Grouped
from ledger.model.dims import Dim, symbol
from ledger.model.elementwise import Pointwise
from ledger.model.operations import Operation, differentiable
from ledger.model.product_frames import FrameLifetimes
from ledger.model.tape import Tape
from ledger.model.tensors import REMEMBERED, Split, Tensor, product
from ledger.spec.kernel_classes import COPY, ELEMENTWISE, REDUCTION
from ledger.spec.plan import MLP

AXIS, REGION = dispatch.AXIS, "experts"


@dataclass(frozen=True)
class RowMove(Pointwise):
    """Rows, and the scores beside them, put in another order by a map, which is all that backward reads."""

    def gradients(self) -> tuple[Operation, ...]:
        """One kernel moves the gradients of all results back."""
        upstream = tuple(tensor.gradient for tensor in self.outputs)
        gradients = tuple(tensor.gradient for tensor in self.inputs if differentiable(tensor))
        return (Pointwise(f"{self.name}.gradient", COPY, (*self.saves, *upstream), gradients),) if gradients else ()


@dataclass(frozen=True)
class Rows:
    """Rows by expert (experts slots d_model) and the score of each (experts slots)."""

    rows: Tensor
    scores: Tensor

    @property
    def both(self) -> tuple[Tensor, Tensor]:
        """Rows and scores, which move together."""
        return self.rows, self.scores


def held_rows(operations: Sequence[Operation]) -> FrameLifetimes:
    """The storages that frames of Python hold while experts run, though nothing reads them any more.

    Until rows are back: the layer's input, rows as they were sent and as they arrived (megatron/core/transformer/moe/
    moe_layer.py, custom_forward); until parts of rows are put together: what experts give (routed_experts_compute);
    until the last product: the result of the first (experts.py, TEGroupedMLP.forward).
    """
    operations_by_name = {op.name: op for op in operations}
    if not isinstance(back := operations_by_name.get("mlp/summed"), RowMove):
        return ()
    first, *_, last = (op for op in operations if isinstance(op, Grouped))
    returned = frozenset({back.inputs[0].storage})
    entering = (operations_by_name["mlp/rows"].inputs[0].storage, "mlp/rows", "mlp/rows.received")
    parts = [op for op in operations if isinstance(op, Collective) and op.collective == "reduce_scatter"]
    ready = [op.inputs[0].storage for op in parts if REGION in op.region]
    late_parts = [(last.output.storage, frozenset(ready))] if ready else []
    return (
        *((name, returned) for name in entering),
        (first.output.storage, frozenset({last.inputs[0].storage})),
        *late_parts,
    )


def score_map(tape: Tape, weights: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """The scores of all experts for each token, 0 for those not chosen, and which are chosen: (batch seq routes).

    The dispatcher keeps both until its next pass (`self.probs`, `self.routing_map`).
    """
    dims = (*index.dims[:2], *tape.dims("routes"))
    remembered = Tensor("mlp/score_map.kept", dims, weights.dtype, REMEMBERED, index.split)
    scores = replace(tape.activation("mlp/score_map", dims, weights.dtype, index.split), view_of=remembered.name)
    chosen = Tensor("mlp/chosen.map", dims, "bool", REMEMBERED, index.split)
    tape.record(Pointwise(scores.name, COPY, (weights, index), (scores, remembered), (index,)))
    tape.record(Pointwise(chosen.name, ELEMENTWISE, (index,), (chosen,), flops=0))
    return scores, chosen


def row_map(tape: Tape, chosen: Tensor) -> Tensor:
    """The places of each token's rows and their experts: twice as many int32 as experts, and one.

    transformer_engine/pytorch/triton/permutation.py, make_row_id_map; the dispatcher keeps it until its next pass.
    """
    (routes,) = tape.dims("routes")
    width = Dim("map", 2 * routes.symbol + 1)
    result = Tensor("mlp/rows.map", (*chosen.dims[:2], width), "int32", REMEMBERED, chosen.split)
    tape.record(Pointwise(result.name, REDUCTION, (chosen,), (result,), flops=0))
    return result


def gather_choices(tape: Tape, x: Tensor, scores: Tensor, index: Tensor, spec: MLP) -> Rows:
    """A row of x (batch seq d_model), and its score, for each choice of a token, by expert."""
    dims = dispatch.slots(tape, spec, received=False)
    split = tuple(("slots", axis) for _, axis in x.split)
    rows = tape.activation("mlp/rows", (*dims, x.dims[-1]), x.dtype, split)
    weights = tape.activation("mlp/row_weights", dims, scores.dtype, split)
    return _move_rows(tape, "mlp/rows", (x, scores), (rows, weights), index)


def dispatch_to_experts(tape: Tape, rows: Rows, spec: MLP) -> Rows:
    """Rows on the devices of their experts, by expert there, with how many there are of each.

    Devices that share the matrices of an expert gather the rows that each of them was sent.
    """
    _gather_counts(tape, rows)
    moved: tuple[Tensor, ...] = rows.both
    if dispatch.splits_experts(tape):
        dims = dispatch.slots(tape, spec, received=True)
        split = (("experts", AXIS), *rows.rows.split)
        moved = tuple(_dispatch(tape, tensor, (*dims, *tensor.dims[2:]), split) for tensor in moved)
    for axis in _sharing_axes(tape, rows.rows):
        moved = tuple(_gather_rows(tape, tensor, axis) for tensor in moved)
    return Rows(*moved) if _holds_one_expert(tape, spec) else _sort_by_expert(tape, Rows(*moved))


def return_to_tokens(tape: Tape, rows: Tensor, like: Tensor, spec: MLP) -> Tensor:
    """Results on the devices of their tokens, in the order in which they were sent (`like`)."""
    result = rows
    if not _holds_one_expert(tape, spec):
        result = replace(rows, name="mlp/ready", view_of="")
        _move_rows(tape, result.name, (rows,), (result,), _chunk_map(tape, "mlp/ready.map", rows))
    for axis in _sharing_axes(tape, like):
        scattered = result.on((*result.split, ("slots", axis)), f"{result.name}.sum")
        result = tape.record(collective(f"{result.name}.reduce_scatter", "reduce_scatter", axis, result, scattered))
    if not dispatch.splits_experts(tape):
        return result
    back = tape.activation("mlp/back", like.dims, rows.dtype, like.split)
    return tape.record(collective("mlp/combine", "all_to_all", AXIS, result, back))


def combine_experts(tape: Tape, rows: Tensor, index: Tensor, x: Tensor) -> Tensor:
    """The results of all experts that a token used, added up where the token is: (batch seq d_model)."""
    result = tape.activation("mlp/summed", x.dims, rows.dtype, x.split)
    return _move_rows(tape, result.name, (rows,), (result,), index).rows


def _sort_by_expert(tape: Tape, arrived: Rows) -> Rows:
    """Rows arrive device by device, and are sorted by the experts of this one."""
    names = "mlp/rows.grouped", "mlp/row_weights.grouped"
    rows, scores = (replace(t, name=name, view_of="") for name, t in zip(names, arrived.both, strict=True))
    return _move_rows(tape, rows.name, arrived.both, (rows, scores), _chunk_map(tape, "mlp/grouped.map", arrived.rows))


def _holds_one_expert(tape: Tape, spec: MLP) -> bool:
    """Whether each device holds one expert of a layer, so that nothing is to be sorted."""
    return tape.layout.expert_degree == spec.experts


def _chunk_map(tape: Tape, name: str, rows: Tensor) -> Tensor:
    """The place that each row goes to, an int32 (Transformer Engine, permutation.py, make_chunk_sort_map)."""
    result = Tensor(name, rows.dims[:2], "int32", "index", rows.split)
    tape.record(Pointwise(name, REDUCTION, (), (result,), flops=0))
    return result


def _move_rows(tape: Tape, name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], index: Tensor) -> Rows:
    tape.record(RowMove(name, COPY, (*inputs, index), tuple(outputs), (index,)))
    return Rows(outputs[0], outputs[-1])


def _dispatch(tape: Tape, source: Tensor, dims: tuple[Dim, ...], split: Split) -> Tensor:
    result = tape.activation(f"{source.name}.received", dims, source.dtype, split)
    return tape.record(collective(f"{source.name}.dispatch", "all_to_all", AXIS, source, result))


def _gather_rows(tape: Tape, tensor: Tensor, axis: str) -> Tensor:
    result = tensor.on(tuple(pair for pair in tensor.split if pair[1] != axis), f"{tensor.name}.gathered")
    return tape.record(collective(f"{tensor.name}.all_gather", "all_gather", axis, tensor, result))


def _sharing_axes(tape: Tape, rows: Tensor) -> list[str]:
    """The axes that cut an expert's matrices, over which rows are held in parts."""
    return [axis for _, axis in rows.split if axis == tape.layout.splits.get("d_ff")]


def _gather_counts(tape: Tape, rows: Rows) -> None:
    """Writes the gather of how many rows each device sends to each expert, by all that hold experts (`preprocess`)."""
    (routes,) = tape.dims("routes")
    axes = [*([AXIS] if dispatch.splits_experts(tape) else ()), *_sharing_axes(tape, rows.rows)]
    if not axes:
        return
    every = Dim("counts", product(routes.symbol, *(symbol(axis) for axis in axes)))
    gathered = Tensor("mlp/counts.received.index", (every,), "int64", "index")
    sent_counts = Tensor("mlp/counts.index", (every,), "int64", "index", tuple(("counts", axis) for axis in axes))
    tape.record(collective("mlp/counts", "all_gather", axes[0], sent_counts, gathered))
