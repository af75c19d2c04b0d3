"""A mixture of experts: the router, tokens to their experts and back, the experts themselves, and shared ones.

Each kernel choice writes what transformers 5.23 runs: one kernel over groups of rows, a copy of its expert's weights
for every row, or a loop over experts (integrations/moe.py); or all experts on all tokens (models/llama4). Where experts
are split over devices, rows travel as in torchtitan (distributed/expert_parallel.py): tensor parallelism cuts every
expert, and one reduction ends the layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import sympy

from ledger.model import dispatch, dtypes, routing, row_maps
from ledger.model import tape as moves
from ledger.model.activations import activation
from ledger.model.cache import weight_of_reached_experts
from ledger.model.causes import BIAS, Module, Parameter
from ledger.model.dims import Dim, listed
from ledger.model.elementwise import Addition, Pointwise, Weighed
from ledger.model.routing import Routed, routed
from ledger.model.tape import Tape
from ledger.model.tensors import Tensor
from ledger.spec.kernel_classes import COPY, ELEMENTWISE, REDUCTION
from ledger.spec.plan import MLP

PAIR = Dim("pair", sympy.Integer(2))  # a token and its choice
# The two projections of all experts: dims of a row before and after, and of an expert's weight.
PROJECTIONS = {"gate_up": ("d_model", "two d_ff"), "down": ("d_ff", "d_model")}


def experts(tape: Tape, x: Tensor, spec: MLP) -> Tensor:
    """Every token through its `top_k` experts and through the shared ones; x and result (batch seq d_model)."""
    if tape.routes_own:
        return _mapped_experts(tape, x, spec)
    axis = tape.layout.splits.get("d_ff")
    if axis:
        x = moves.gather_or_share(tape, x, axis)
    chosen = routed(tape.inside("router"), x, spec)
    result = KERNELS[tape.kernels.experts](tape.inside("experts"), x, chosen, spec)
    if spec.shared:
        result = _add_shared(tape, result, shared(tape, x, spec))
    return moves.reduce_to_stream(tape, result, axis) if axis else result


def _add_shared(tape: Tape, routed_result: Tensor, shared: Tensor) -> Tensor:
    """The sum of routed and shared experts; all experts on all tokens are added into the shared one's result."""
    if tape.kernels.experts != "dense":
        return tape.pointwise("mlp/both", routed_result, shared, add=True)
    result = replace(shared, name="mlp/both", view_of=shared.storage)
    return tape.record(Addition(result.name, ELEMENTWISE, (shared, routed_result), (result,)))


def _weight(tape: Tape, projection: str) -> Tensor:
    """The weights of all experts as one tensor, cut by rows of experts where FSDP holds it split."""
    before, after = PROJECTIONS[projection]
    names = listed(f"experts {after} {before}")
    dims = tuple(TWO if name == "two" else tape.dims(name)[0] for name in names)
    return tape.weight(Module("mlp", projection), dims, lead=len(dims) - 1)


def _bias(tape: Tape, projection: str) -> Tensor:
    bias = Parameter(Module("mlp", projection), BIAS)
    bias_weight = tape.weight(bias, _weight(tape, projection).dims[:-1], lead=2)
    return weight_of_reached_experts(bias_weight) if tape.cache else bias_weight


# --- one kernel over groups of rows ---


def _grouped_experts(tape: Tape, x: Tensor, chosen: Routed, spec: MLP) -> Tensor:
    """Tokens sorted by expert; one kernel multiplies each group with its expert's matrix."""
    order = dispatch.in_order(tape, chosen, spec)
    rows = dispatch.gather_choices(tape, x, order)
    weights = dispatch.ordered(tape, chosen.weights, order)
    rows = _weigh_inputs(tape, rows, weights, spec)
    arrived = dispatch.dispatch_to_experts(tape, rows, spec) if dispatch.splits_experts(tape) else rows
    inside = tape.kernels.weighing == "activation"
    scores = dispatch.sent_along(tape, weights, arrived) if inside else None
    owner = replace(order.owner, dims=arrived.dims[:2], split=arrived.split)
    index = (owner, dispatch.ends(order, arrived))
    joint = _group_product(tape, "gate_up", arrived, index, spec)
    active = activated_product(tape, joint, spec, scores)
    out = _group_product(tape, "down", active, index, spec)
    back = dispatch.return_to_tokens(tape, out, rows) if dispatch.splits_experts(tape) else out
    result = dispatch.restore_token_order(
        tape, back if inside else _weigh_results(tape, back, weights, spec), order, chosen
    )
    return tape.cast(dispatch.summed(tape, result, spec), x.dtype)


def _mapped_experts(tape: Tape, x: Tensor, spec: MLP) -> Tensor:
    """Rows moved by maps, and shared experts before them, as Megatron-Core runs them (moe/moe_layer.py, forward)."""
    always = shared(tape, x, spec, partial=False) if spec.shared else None
    chosen = routing.route_by_map(tape.inside("router"), x, spec)
    inner = tape.inside("experts")
    scores, used = row_maps.score_map(inner, chosen.weights, chosen.index)
    index = row_maps.row_map(inner, used)
    rows = row_maps.gather_choices(inner, x, scores, index, spec)
    arrived = row_maps.dispatch_to_experts(inner, rows, spec)
    joint = _group_product(inner, "gate_up", arrived.rows, None, spec)
    active = activated_product(inner, joint, spec, arrived.scores)
    out = _group_product(inner, "down", active, None, spec)
    result = row_maps.combine_experts(inner, row_maps.return_to_tokens(inner, out, rows.rows, spec), index, x)
    return tape.pointwise("mlp/both", result, always, add=True) if always else result


def _group_product(tape: Tape, name: str, rows: Tensor, index: tuple[Tensor, Tensor] | None, spec: MLP) -> Tensor:
    """Rows (experts slots ...) times the matrices of their experts; biases are copied row by row and added in place.

    `index`: the expert of each row and where experts end, where the device has them as tensors.
    """
    before, after = PROJECTIONS[name]
    result = tape.contract(
        Module("mlp", name),
        f"experts slots {before}, experts {after} {before} -> experts slots {after}",
        rows,
        _weight(tape, name),
        density=dispatch.needed(tape, spec),
        saving=index[1:] if index else (),
        grouped=True,
        partial=True,
    )
    return _add_bias(tape, name, result, index[0]) if spec.bias and index else result


def _add_bias(tape: Tape, name: str, result: Tensor, owner: Tensor) -> Tensor:
    biases = tape.activation(f"mlp/{name}.biases", result.dims, tape.precision.weights.norms, result.split)
    tape.record(Pointwise(biases.name, COPY, (_bias(tape, name), owner), (biases,), (owner,)))
    inside = replace(result, name=f"mlp/{name}.biased", view_of=result.storage)
    return tape.record(Addition(inside.name, ELEMENTWISE, (result, biases), (inside,)))


# --- a copy of its expert for every row ---


def _batched_experts(tape: Tape, x: Tensor, chosen: Routed, spec: MLP) -> Tensor:
    """Every choice of a token is a matrix-vector product with a copy of its expert's weights."""
    index = chosen.index
    rows = tape.activation("mlp/rows", (*index.dims, x.dims[-1]), x.dtype, index.split)
    tape.record(Pointwise(rows.name, COPY, (x,), (rows,)))
    rows = _weigh_inputs(tape, rows, chosen.weights, spec)
    first = _copy_weights(tape, _weight(tape, "gate_up"), index)
    active = activated_product(tape, _row_product(tape, "gate_up", rows, (first, index), spec), spec)
    second = _copy_weights(tape, _weight(tape, "down"), index, previous=first)
    out = _row_product(tape, "down", active, (second, index), spec)
    return tape.cast(dispatch.summed(tape, _weigh_results(tape, out, chosen.weights, spec), spec), x.dtype)


def _row_product(tape: Tape, name: str, rows: Tensor, copies: tuple[Tensor, Tensor], spec: MLP) -> Tensor:
    before, after = PROJECTIONS[name]
    weights, index = copies
    choice = " ".join(dim.name for dim in index.dims)
    einsum = f"{choice} {after} {before}, {choice} {before} -> {choice} {after}"
    result = tape.contract(Module("mlp", name), einsum, weights, rows, partial=True)
    return _add_bias(tape, name, result, index) if spec.bias else result


@dataclass(frozen=True)
class Copied(Pointwise):
    """A copy that is made while an earlier one, the third input, is still there, as the same variable names both."""

    def untouched(self) -> tuple[Tensor, ...]:
        """The earlier copy, which is alive while the new one is made, and is not read."""
        return self.inputs[2:]


def _copy_weights(tape: Tape, weight: Tensor, index: Tensor, previous: Tensor | None = None) -> Tensor:
    """The weights of the chosen expert, for every choice."""
    inner_split = tuple(pair for pair in weight.split if pair[0] != "experts")
    copies = tape.activation(
        f"{weight.name}.copies", (*index.dims, *weight.dims[1:]), weight.dtype, (*index.split, *inner_split)
    )
    earlier = (replace(previous, role="statistic", view_of=previous.storage),) if previous else ()
    return tape.record(Copied(copies.name, COPY, (weight, index, *earlier), (copies,), (index,)))


# --- a loop over experts ---


def _looped_experts(tape: Tape, x: Tensor, chosen: Routed, spec: MLP) -> Tensor:
    """A kernel an expert: its tokens are looked up, multiplied, weighed and added to the result."""
    dims = dispatch.slots(tape, spec, received=False)
    split = tuple(("slots", axis) for _, axis in chosen.index.split)
    hits = Tensor("mlp/hits.index", (*dims, PAIR), "int64", "index", split)
    one_hot = Tensor(
        "mlp/one_hot.index", (*chosen.index.dims, *tape.dims("routes")), "int64", "index", chosen.index.split
    )
    tape.record(Pointwise(one_hot.name, ELEMENTWISE, (chosen.index,), (one_hot,), flops=0))
    loop = tape.repeated(dims[0].symbol)
    loop.record(Pointwise(hits.name, REDUCTION, (one_hot,), (hits,), flops=0))
    rows, weights = (
        loop.activation(name, (*dims, *source.dims[dims_before:]), source.dtype, split)
        for name, source, dims_before in (("mlp/rows", x, 2), ("mlp/row_weights", chosen.weights, 3))
    )
    for source, result in ((x, rows), (chosen.weights, weights)):
        loop.record(Pointwise(result.name, COPY, (source, hits), (result,), (hits,)))
    joint = _loop_product(loop, "gate_up", _weigh_inputs(loop, rows, weights, spec), spec)
    out = _loop_product(loop, "down", activated_product(loop, joint, spec), spec)
    weighed = loop.cast(_weigh_results(loop, out, weights, spec), x.dtype)
    result = loop.activation("mlp/summed", x.dims, x.dtype, x.split)
    return loop.record(Pointwise(result.name, COPY, (weighed, hits), (result,), (hits, weighed)))


def _loop_product(tape: Tape, name: str, rows: Tensor, spec: MLP) -> Tensor:
    before, after = PROJECTIONS[name]
    einsum = f"experts slots {before}, experts {after} {before} -> experts slots {after}"
    result = tape.contract(Module("mlp", name), einsum, rows, _weight(tape, name), partial=True)
    return tape.pointwise(f"mlp/{name}.biased", result, _bias(tape, name), add=True) if spec.bias else result


# --- all experts on all tokens ---


def _dense_experts(tape: Tape, x: Tensor, chosen: Routed, spec: MLP) -> Tensor:
    """A copy of all tokens for each expert, scaled by its score for each, which is 0 where it was not chosen."""
    dims = (*tape.dims("experts"), *x.dims[:2])
    rows = tape.pointwise("mlp/rows", x, dims=(*dims, x.dims[-1]), kernel=COPY)
    weights = tape.pointwise("mlp/row_weights", chosen.weights, dims=dims, kernel=COPY)
    joint = _dense_product(tape, "gate_up", _weigh_inputs(tape, rows, weights, spec))
    out = _dense_product(tape, "down", activated_product(tape, joint, spec))
    return tape.pointwise("mlp/summed", out, dims=x.dims, kernel=REDUCTION)


def _dense_product(tape: Tape, name: str, rows: Tensor) -> Tensor:
    """All rows times the matrices of all experts; of the rows that run, the result needs `top_k` for each token."""
    before, after = PROJECTIONS[name]
    experts, top_k = tape.dims("experts top_k")
    einsum = f"experts batch seq {before}, experts {after} {before} -> experts batch seq {after}"
    density = top_k.symbol / experts.symbol
    return tape.contract(Module("mlp", name), einsum, rows, _weight(tape, name), density=density, partial=True)


KERNELS: Mapping[str, Callable[[Tape, Tensor, Routed, MLP], Tensor]] = {
    "grouped_mm": _grouped_experts,
    "batched_mm": _batched_experts,
    "eager": _looped_experts,
    "dense": _dense_experts,
}


def _weigh_inputs(tape: Tape, rows: Tensor, weights: Tensor, spec: MLP) -> Tensor:
    """The rows that experts read: their product with the weights where scores multiply inputs."""
    return tape.cast(weigh_rows(tape, rows, weights), rows.dtype) if spec.router.scales == "input" else rows


def _weigh_results(tape: Tape, rows: Tensor, weights: Tensor, spec: MLP) -> Tensor:
    """The results of experts times the weights, unless these multiplied the inputs."""
    return rows if spec.router.scales == "input" else weigh_rows(tape, rows, weights)


# --- inside an expert ---

TWO = Dim("two", sympy.Integer(2))  # gate and up
ONE = Dim("one", sympy.Integer(1))
SHARED = "shared_experts"  # the region of the experts that every token uses


def weigh_rows(tape: Tape, rows: Tensor, weights: Tensor, name: str = "mlp/weigh") -> Tensor:
    """Every row times its weight; both are saved."""
    result = tape.activation(name, rows.dims, dtypes.promote(rows.dtype, weights.dtype), rows.split)
    return tape.record(Weighed(name, ELEMENTWISE, (rows, weights), (result,), (rows, weights)))


def activated_product(tape: Tape, joint: Tensor, spec: MLP, scores: Tensor | None = None) -> Tensor:
    """The product of activated gate and up, which are two views of one tensor, and of `scores` of its rows.

    One kernel for all of it saves what it reads (Megatron-Core, fused_bias_swiglu.py, `WeightedSwiGLUFunction`).
    """
    dims, inner = tuple(dim for dim in joint.dims if dim != TWO), tape.inside("activation")
    if tape.kernels.activation == "fused_gated":
        read = [joint, *([scores] if scores else [])]
        return inner.pointwise("mlp/product", *read, dims=dims, dtype=joint.dtype, flops=4 + len(read), saves=read)
    gate, up = tape.views_of_parts(joint, {"mlp/gate": dims, "mlp/up": dims})
    active = _gated_activation(inner, gate, up, spec)
    return inner.cast(weigh_rows(inner, active, scores), active.dtype) if scores else active


def _gated_activation(tape: Tape, gate: Tensor, up: Tensor, spec: MLP) -> Tensor:
    """Activation and product, a kernel each."""
    if spec.activation == "clamped_swiglu":
        return _clamped_swiglu(tape, gate, up)
    active = activation(tape, "mlp/activation", gate, spec.activation)
    return tape.pointwise("mlp/product", active, up, saves=[active, up])


def _clamped_swiglu(tape: Tape, gate: Tensor, up: Tensor) -> Tensor:
    """(up + 1) gate sigmoid(alpha gate), both clamped, a kernel an operator (transformers, modeling_gpt_oss.py)."""
    gate = tape.pointwise("mlp/gate.clamp", gate, saves=[gate])
    up = tape.pointwise("mlp/up.clamp", up, saves=[up])
    sigmoid = tape.pointwise("mlp/sigmoid", tape.pointwise("mlp/scaled", gate), flops=4, saves=["out"])
    active = tape.pointwise("mlp/activation", gate, sigmoid, saves=[gate, sigmoid])
    shifted = tape.pointwise("mlp/up.shift", up, add=True)
    return tape.pointwise("mlp/product", shifted, active, saves=[shifted, active])


def _shared_product(tape: Tape, gate: Tensor, up: Tensor, spec: MLP) -> Tensor:
    if tape.kernels.activation == "fused_gated":
        return tape.pointwise("mlp/shared_product", gate, up, flops=9, saves=[gate, up])
    active = activation(tape, "mlp/shared_activation", gate, spec.activation)
    return tape.pointwise("mlp/shared_product", active, up, saves=[active, up])


def shared(tape: Tape, x: Tensor, spec: MLP, *, partial: bool = True) -> Tensor:
    """The experts that every token uses: a gated MLP, and its own gate if any; `partial`: the caller sums results."""
    tape = tape.inside(SHARED)

    def into(name: str) -> Tensor:
        einsum = "batch seq d_model, shared_d_ff d_model -> batch seq shared_d_ff"
        return tape.linear(Module("mlp", f"shared_{name}"), einsum, x, partial=partial)

    gate, up = into("gate"), into("up")
    product = _shared_product(tape.inside("activation"), gate, up, spec)
    einsum = "batch seq shared_d_ff, d_model shared_d_ff -> batch seq d_model"
    out = tape.linear(Module("mlp", "shared_down"), einsum, product, partial=partial)
    if not (spec.shared and spec.shared.gated):
        return out
    axis = tape.layout.splits.get("d_ff")
    module = Module("mlp", "shared_score")
    weight = tape.weight(module, (ONE, *tape.dims("d_model")))
    weight = moves.gather_or_share(tape, weight, axis) if axis else weight
    score = tape.contract(module, "batch seq d_model, one d_model -> batch seq one", x, weight)
    share = tape.pointwise("mlp/shared_share", score, flops=4, saves=["out"])
    return weigh_rows(tape, out, share, "mlp/shared_scaled")
