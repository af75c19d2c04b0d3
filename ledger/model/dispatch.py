"""Tokens to their experts and back: sorted, copied once for each expert they use, sent to the devices that hold it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import sympy

from ledger.model.collectives import collective
from ledger.model.dims import Dim, symbol
from ledger.model.elementwise import Pointwise
from ledger.model.operations import ONE, Operation
from ledger.model.routing import Routed
from ledger.model.tape import Tape
from ledger.model.tensors import Split, Tensor, product
from ledger.spec.kernel_classes import COPY, REDUCTION
from ledger.spec.plan import MLP

AXIS = "expert"


@dataclass(frozen=True)
class Sorted:
    """The origin of each row of the tokens sorted by expert, as int64 indices (experts slots).

    `owner` is its expert, `source` its token, `permutation` its place among all choices; `offsets` says where experts
    begin.
    """

    owner: Tensor
    source: Tensor
    permutation: Tensor
    offsets: Tensor


def slots(tape: Tape, spec: MLP, *, received: bool) -> tuple[Dim, Dim]:
    """Experts, and the rows of each: what one device sends, or what the devices that share experts get together.

    A capacity makes all experts equal; without one, some device gets more than the average.
    """
    experts, top_k, batch, seq = tape.dims("experts top_k batch seq")
    even = product(batch.symbol, seq.symbol, top_k.symbol) / experts.symbol
    if spec.capacity_factor is not None:
        even = product(even, symbol("capacity_factor", tape.suffix))
    if received:
        even = product(even, symbol(AXIS), *((symbol("imbalance"),) if _is_crowded(tape, spec) else ()))
    return experts, Dim("slots", even)


def needed(tape: Tape, spec: MLP) -> sympy.Expr:
    """The share of the rows an expert's kernel runs that are tokens, on a device with an average number of them."""
    if spec.capacity_factor is not None:
        return ONE / symbol("capacity_factor", tape.suffix) if spec.capacity_factor > 1 else ONE
    return ONE / symbol("imbalance") if _is_crowded(tape, spec) else ONE


def _is_crowded(tape: Tape, spec: MLP) -> bool:
    """Whether some device gets more rows than the average; a capacity makes all equal."""
    return splits_experts(tape) and tape.layout.crowded and spec.capacity_factor is None


def splits_experts(tape: Tape) -> bool:
    """Whether experts are split over devices."""
    return AXIS in tape.layout.cuts


def in_order(tape: Tape, routed: Routed, spec: MLP) -> Sorted:
    """The choices of all tokens sorted by expert: one sort, and index arithmetic."""
    dims, split = slots(tape, spec, received=False), tuple(("slots", axis) for _, axis in routed.index.split)
    owner, order, source = (
        Tensor(f"mlp/{name}.index", dims, "int64", "index", split) for name in ("owner", "order", "source")
    )
    offsets = Tensor("mlp/offsets.index", dims[:1], "int32", "index")
    _record(tape, "mlp/sort", (routed.index,), (owner, order))
    _record(tape, "mlp/source", (order,), (source,))
    _record(tape, "mlp/offsets", (owner,), (offsets,))
    return Sorted(owner, source, order, offsets)


def gather_choices(tape: Tape, x: Tensor, order: Sorted) -> Tensor:
    """A row of x (batch seq d_model) for each choice, by expert."""
    dims = (*order.source.dims, x.dims[-1])
    return _place_rows(tape, "mlp/rows", x, order.source, dims)


def dispatch_to_experts(tape: Tape, rows: Tensor, spec: MLP) -> Tensor:
    """Rows on the devices of their experts, by expert there: counts go first, then the rows, which are sorted again."""
    split = (("experts", AXIS), *rows.split)
    counts = Tensor("mlp/counts.index", tape.dims("experts"), "int64", "index")
    _exchange(tape, "mlp/counts", counts, replace(counts, name="mlp/counts.received.index"))
    dims = (*slots(tape, spec, received=True), rows.dims[-1])
    received = tape.activation("mlp/received", dims, rows.dtype, split)
    _exchange(tape, "mlp/dispatch", rows, received)
    return _place_rows(tape, "mlp/grouped", received, _arrival(received), dims)


def ends(order: Sorted, rows: Tensor) -> Tensor:
    """The ends of the experts of one device among the rows that it has."""
    expert_split = tuple(pair for pair in rows.split if pair[0] == "experts")
    return order.offsets.on(expert_split, "mlp/offsets.received.index") if expert_split else order.offsets


def sent_along(tape: Tape, weights: Tensor, rows: Tensor) -> Tensor:
    """The weight of every row, on the device that has the row."""
    if not splits_experts(tape):
        return weights
    received = tape.activation("mlp/row_weights.received", rows.dims[:2], weights.dtype, rows.split)
    _exchange(tape, "mlp/row_weights.dispatch", weights, received)
    return _place_rows(tape, "mlp/row_weights.grouped", received, _arrival(rows), received.dims)


def return_to_tokens(tape: Tape, rows: Tensor, like: Tensor) -> Tensor:
    """Results on the devices of their tokens, in the order in which they were sent (`like`)."""
    ready = _place_rows(tape, "mlp/ready", rows, _arrival(rows), rows.dims)
    back = tape.activation("mlp/back", like.dims, rows.dtype, like.split)
    _exchange(tape, "mlp/combine", ready, back)
    return back


def restore_token_order(tape: Tape, rows: Tensor, order: Sorted, routed: Routed) -> Tensor:
    """Rows by expert -> (batch seq top_k d_model)."""
    back = replace(order.permutation, name="mlp/restore.index")
    _record(tape, "mlp/restore.order", (order.permutation,), (back,))
    return _place_rows(tape, "mlp/restored", rows, back, (*routed.index.dims, rows.dims[-1]), routed.index.split)


def ordered(tape: Tape, weights: Tensor, order: Sorted) -> Tensor:
    """The weight of every row, by expert."""
    return _place_rows(tape, "mlp/row_weights", weights, order.permutation, order.permutation.dims)


@dataclass(frozen=True)
class Summed(Pointwise):
    """A sum over the choices of each token, of which every one has the gradient of the sum.

    It is written out once a choice, as nothing else could be seen as rows (aten::expand, then aten::clone).
    """

    def gradients(self) -> tuple[Operation, ...]:
        """One kernel, which writes the gradient of the sum out once for each choice."""
        reads, written = self.output.gradient, self.inputs[0].gradient
        return (Pointwise(f"{self.name}.gradient", COPY, (reads,), (written,)),)


def summed(tape: Tape, rows: Tensor, spec: MLP) -> Tensor:
    """The results of all experts that a token used, added up: (batch seq d_model)."""
    dims = (*rows.dims[:2], rows.dims[-1])
    if spec.top_k == 1:  # its gradient is that of the sum
        return tape.pointwise("mlp/summed", rows, dims=dims, kernel=REDUCTION, add=True)
    result = tape.activation("mlp/summed", dims, rows.dtype, rows.split)
    return tape.record(Summed(result.name, REDUCTION, (rows,), (result,)))


def _arrival(rows: Tensor) -> Tensor:
    """The place of each row, which arrive device by device, among those of its expert."""
    return Tensor("mlp/arrival.index", rows.dims[:2], "int64", "index", rows.split)


def _place_rows(  # noqa: PLR0913 - the arguments are the facts of one copy
    tape: Tape, name: str, x: Tensor, index: Tensor, dims: tuple[Dim, ...], split: Split | None = None
) -> Tensor:
    """Rows of x put in another order: an indexed copy, whose gradient adds up what was copied more than once.

    The result is cut as its index is, or as `split` says where its dims are others.
    """
    result = tape.activation(name, dims, x.dtype, index.split if split is None else split)
    return tape.record(Pointwise(name, COPY, (x, index), (result,), (index,)))


def _exchange(tape: Tape, name: str, source: Tensor, result: Tensor) -> None:
    tape.record(collective(name, "all_to_all", AXIS, source, result))


def _record(tape: Tape, name: str, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> None:
    """Work on indices, which has no gradient."""
    tape.record(Pointwise(name, REDUCTION, inputs, outputs, flops=0))
