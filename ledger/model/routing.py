"""The router of a mixture of experts: a score of every expert for every token, of which the largest few are chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ledger.model import tape as moves
from ledger.model.causes import BIAS, Module, Parameter
from ledger.model.dims import Dim, symbol
from ledger.model.elementwise import Pointwise
from ledger.model.tape import Tape
from ledger.model.tensors import Tensor
from ledger.spec.kernel_classes import ELEMENTWISE, LOSS, REDUCTION, SOFTMAX
from ledger.spec.plan import MLP, Group, Router

CHOSEN = "batch seq top_k"
ROUTER = Module("mlp", "router")


@dataclass(frozen=True)
class Routed:
    """For each token, the experts it was given to (`index`) and what they weigh; both (batch seq top_k).

    Where all experts run on all tokens, `weights` are of all experts (batch seq routes): 0 for those not chosen.
    """

    index: Tensor
    weights: Tensor


def is_of_router(tensor: Tensor) -> bool:
    """Whether it is a weight of the router, or its gradient.

    No module of Megatron-Core's multiplies by it, so that no product adds to its gradient (moe/router.py, gating).
    """
    return tensor.parameter is not None and tensor.parameter.module == ROUTER


def routed(tape: Tape, x: Tensor, spec: MLP) -> Routed:
    """The experts of every token of x (batch seq d_model), chosen as the model's router does."""
    logits = _logits(tape, x, spec.router)
    chosen = SCORES[spec.router.scores](tape, logits, spec)
    weights = _normalize(tape, chosen.weights) if spec.router.normalize else chosen.weights
    return replace(chosen, weights=tape.cast(weights, logits.dtype) if spec.router.weights == "input" else weights)


def route_by_map(tape: Tape, x: Tensor, spec: MLP) -> Routed:
    """The routing of Megatron-Core: scores have the dtype of the logits, and add up where they are chosen.

    megatron/core/transformer/moe/moe_utils.py, topk_routing_with_score_function: scores that are normalised are a
    softmax of the chosen logits.
    """
    logits = _logits(tape, x, spec.router)
    if spec.router.scores == "sigmoid":
        chosen = _sigmoid(tape, logits, spec)
        total = tape.pointwise("mlp/weights.sum", chosen.weights, dims=chosen.weights.dims[:2], kernel=REDUCTION)
        shares = tape.pointwise("mlp/weights.divide", chosen.weights, total, saves=[chosen.weights, total])
        return replace(chosen, weights=shares)
    if spec.router.scores == "softmax" and not spec.router.normalize:
        return _softmax(tape, logits, spec, logits.dtype)
    chosen = _softmax_of_chosen(tape, logits, spec, "fp32")
    return replace(chosen, weights=tape.cast(chosen.weights, logits.dtype))


def _logits(tape: Tape, x: Tensor, router: Router) -> Tensor:
    """One number for each expert. A router in fp32 casts input and weight, which autocast casts back.

    A fused one reads them as they are (Megatron-Core, moe_utils.py, `RouterGatingLinearFunction`).
    """
    module = ROUTER
    weight = _router_weight(tape, tape.weight(module, "routes d_model"))
    bias = _router_weight(tape, tape.weight(Parameter(module, BIAS), "routes")) if router.bias else None
    wide = router.dtype == "fp32" and not tape.precision.autocast
    einsum = "batch seq d_model, routes d_model -> batch seq routes"
    if wide and tape.kernels.router == "fused":
        return tape.contract(module, einsum, x, weight, bias=bias, result_dtype="fp32")
    return tape.contract(module, einsum, x, weight, bias=bias, dtype="fp32" if wide else "")


def _router_weight(tape: Tape, weight: Tensor) -> Tensor:
    """A weight of the router; where experts are cut within, each device weighs parts of results: gradients add up.

    Where rows are moved by maps, each routes tokens of its own.
    """
    axis = tape.layout.splits.get("d_ff")
    return moves.gather_or_share(tape, weight, axis) if axis and not tape.routes_own else weight


# --- scores, each as the real code orders them ---


def _softmax(tape: Tape, logits: Tensor, spec: MLP, dtype: str = "") -> Routed:
    scores = tape.pointwise("mlp/scores", logits, dtype="fp32", kernel=SOFTMAX, flops=5, saves=["out"])
    scores = tape.cast(scores, dtype) if dtype else scores
    if spec.router.groups > 1:
        best = _best_groups(tape, scores)
        scores = tape.pointwise("mlp/masked", scores, best, dtype=scores.dtype, saves=[best])
    return _choose_largest(tape, scores)


def _softmax_of_chosen(tape: Tape, logits: Tensor, _: MLP, dtype: str = "") -> Routed:
    chosen = _choose_largest(tape, logits)
    weights = tape.pointwise("mlp/scores", chosen.weights, dtype=dtype, kernel=SOFTMAX, flops=5, saves=["out"])
    return replace(chosen, weights=weights)


def _sigmoid(tape: Tape, logits: Tensor, spec: MLP) -> Routed:
    """Experts are chosen by scores that a bias without gradient corrects, and weighed by the scores themselves."""
    scores = tape.pointwise("mlp/scores", logits, flops=4, saves=["out"])
    index = _chosen_index(tape)
    corrected = Tensor("mlp/corrected", scores.dims, scores.dtype, "statistic", scores.split)
    tape.record(Pointwise(corrected.name, ELEMENTWISE, (_detach(scores),), (corrected,), flops=0))
    if spec.router.groups > 1:
        best = _best_groups(tape, corrected)
        tape.record(Pointwise("mlp/masked", ELEMENTWISE, (corrected, best), (corrected,), flops=0))
    tape.record(Pointwise("mlp/top_k", REDUCTION, (corrected,), (index,), flops=0))
    weights = tape.pointwise("mlp/chosen", scores, index, dims=index.dims, dtype=scores.dtype, saves=[index, scores])
    return Routed(index, weights)


def _sigmoid_of_chosen(tape: Tape, logits: Tensor, _: MLP) -> Routed:
    """A sigmoid in fp32 of the chosen logits; all others are minus infinity where all experts run on all tokens."""
    chosen = _choose_largest(tape, logits)
    values = chosen.weights
    if tape.kernels.experts == "dense":
        index = chosen.index
        values = tape.pointwise("mlp/scattered", values, index, dims=logits.dims, dtype=values.dtype, saves=[index])
    scores = tape.pointwise("mlp/scores", tape.cast(values, "fp32"), flops=4, saves=["out"])
    return replace(chosen, weights=scores)


SCORES: Mapping[str, Callable[[Tape, Tensor, MLP], Routed]] = {
    "softmax": _softmax,
    "softmax_of_chosen": _softmax_of_chosen,
    "sigmoid": _sigmoid,
    "sigmoid_of_chosen": _sigmoid_of_chosen,
}


def _choose_largest(tape: Tape, scores: Tensor) -> Routed:
    """The `top_k` largest scores, of which the indices are saved."""
    index = _chosen_index(tape)
    weights = tape.activation("mlp/top_k", index.dims, scores.dtype, scores.split)
    tape.record(Pointwise(weights.name, REDUCTION, (scores,), (weights, index), (index,)))
    return Routed(index, weights)


def _normalize(tape: Tape, weights: Tensor) -> Tensor:
    """Weights divided by their sum, which autocast takes in fp32 as well."""
    total = tape.pointwise("mlp/weights.sum", weights, dims=weights.dims[:2], dtype="fp32", kernel=REDUCTION)
    return tape.pointwise("mlp/weights.divide", weights, total, dtype=weights.dtype, saves=[weights, total])


def _best_groups(tape: Tape, scores: Tensor) -> Tensor:
    """A mask of the experts whose group is one of a token's best."""
    mask = Tensor("mlp/groups.mask", scores.dims, "bool", "mask", scores.split)
    tape.record(Pointwise("mlp/groups", REDUCTION, (_detach(scores),), (mask,), flops=0))
    return mask


def _detach(scores: Tensor) -> Tensor:
    """Scores for a choice, through which no gradient flows."""
    return replace(scores, role="statistic", view_of=scores.storage)


def _chosen_index(tape: Tape) -> Tensor:
    split = tape.layout.stream if tape.routes_own else tape.layout.inputs
    return Tensor("mlp/top_k.index", tape.dims(CHOSEN), "int64", "index", split)


# --- the loss that keeps experts evenly used ---


def balance(tape: Tape, group: Group) -> None:
    """Writes, of all layers of a group, the softmax of the logits, how often each expert was chosen, and their loss."""
    router = group.mlp.router
    wide = router.dtype == "fp32" and not tape.precision.autocast
    layers = Dim("layers", symbol("layers", tape.suffix))
    dims = (layers, *tape.dims("batch seq routes"))
    name = f"balance/{group.name}"
    logits = tape.activation(f"{name}.logits", dims, "fp32" if wide else tape.matmul_result, tape.layout.inputs)
    dtype = "fp32" if tape.precision.autocast else logits.dtype  # autocast takes a softmax in fp32
    shares = tape.pointwise(f"{name}.scores", logits, dtype=dtype, kernel=SOFTMAX, flops=5, saves=["out"])
    counts = Tensor(f"{name}.counts", dims[-1:], "fp32", "statistic")
    seen = replace(shares, role="statistic", view_of=shares.storage)
    tape.record(Pointwise(f"{name}.chosen", REDUCTION, (seen,), (counts,), flops=0))
    means = tape.pointwise(f"{name}.means", shares, dims=dims[-1:], dtype="fp32", kernel=REDUCTION)
    tape.pointwise(f"{name}.loss", means, counts, dims=(), dtype="fp32", kernel=LOSS, saves=[counts])
