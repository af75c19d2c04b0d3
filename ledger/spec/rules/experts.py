"""Rules on mixtures of experts: what a model may say of them, how they split over devices, which kernels run them."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from ledger.spec.places import Places, divisors, multiples
from ledger.spec.plan import Assumptions, Group, Kernels, Model, Parallelism, Precision
from ledger.spec.problems import Problem
from ledger.spec.recipe import HALF

ROW_BYTES = (
    16  # bytes: what rows of operands must be whole multiples of (torch 2.13, aten/src/ATen/native/GroupedMMUtils.h)
)


def experts_subdivide(parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Expert parallelism subdivides data x context, or what hybrid sharding shards over of it."""
    copies = parallelism.replicate
    shards = parallelism.data * parallelism.context // copies
    over = "data x context" if copies == 1 else f"data x context / replicate = {shards * copies} / {copies}"
    if shards % parallelism.expert:
        message = f"expert = {parallelism.expert} does not divide {over} = {shards}"
        yield Problem(at("parallelism.expert"), message, divisors(shards))
    elif copies > 1 and shards == parallelism.expert > 1:
        message = f"expert = {shards} leaves nothing of {over} over which copies of experts could be sharded"
        yield Problem(at("parallelism.expert"), message, divisors(shards))


def experts_split(model: Model, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Expert parallelism gives every device equally many whole experts of each layer that has some."""
    degree = parallelism.expert
    if degree > 1 and not _sparse(model):
        message = f"expert = {degree}, but no layer of the model has experts"
        yield Problem(at("parallelism.expert"), message, "leave `expert` out")
    for group in _sparse(model):
        if group.mlp.experts % degree:
            message = f"experts = {group.mlp.experts} of `{group.name}` do not split over expert = {degree}"
            yield Problem(at("parallelism.expert"), message, divisors(group.mlp.experts))


def shared_experts_split(model: Model, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Tensor parallelism gives every device an equal part of the shared experts."""
    axis, parts = parallelism.cutting("shared_d_ff")
    for group in _sparse(model):
        if group.mlp.shared_d_ff % parts:
            width = group.mlp.shared_d_ff
            message = f"shared experts {width} wide of `{group.name}` do not split over {axis} = {parts}"
            yield Problem(at(f"parallelism.{axis}"), message, divisors(width))


def fields_belong_to_experts(model: Model, at: Places) -> Iterator[Problem]:
    """Only experts have what says how many there are and how tokens find them."""
    for group in model.groups:
        path = f"model.layers.{group.name}.mlp"
        given = [
            key for key in ("experts", "top_k", "router", "shared", "capacity_factor") if f"{path}.{key}" in at.origins
        ]
        if given and group.mlp.kind != "experts":
            message = f"{', '.join(f'`{key}`' for key in given)} in `{group.name}`, whose mlp is {group.mlp.kind}"
            yield Problem(at(f"{path}.{given[0]}"), message, "`kind: experts`, or leave them out")


def tokens_find_experts(model: Model, at: Places) -> Iterator[Problem]:
    """A token uses at most all experts, and groups of experts are equal."""
    for group in _sparse(model):
        experts, path = group.mlp.experts, f"model.layers.{group.name}.mlp"
        if group.mlp.top_k > experts:
            message = f"top_k = {group.mlp.top_k} of `{group.name}`, which has {experts} experts"
            yield Problem(at(f"{path}.top_k"), message, f"at most `top_k: {experts}`")
        if experts % group.mlp.router.groups:
            message = f"{experts} experts of `{group.name}` are no {group.mlp.router.groups} equal groups"
            yield Problem(at(f"{path}.router.groups"), message, divisors(experts))


def activations_exist(model: Model, at: Places) -> Iterator[Problem]:
    """The clamped activation takes gate and up together, as only experts hold them."""
    for group in model.groups:
        if group.mlp.activation == "clamped_swiglu" and not group.mlp.experts:
            message = f"clamped_swiglu in `{group.name}`, which has no experts"
            yield Problem(at(f"model.layers.{group.name}.mlp.activation"), message, "`silu`, `gelu` or `relu`")


def experts_have_a_kernel(
    model: Model, kernels: Kernels, precision: Precision, parallelism: Parallelism, at: Places
) -> Iterator[Problem]:
    """Only the kernel over groups of rows takes rows from other devices or padded ones; it needs 16-bit weights."""
    sparse, name = _sparse(model), kernels.experts
    where, instead = at("kernels.experts"), "`kernels: {experts: grouped_mm}`"
    if sparse and name != "grouped_mm":
        if parallelism.expert > 1:
            yield Problem(where, f"{name} experts do not split over devices (expert = {parallelism.expert})", instead)
        if any(group.mlp.capacity_factor is not None for group in sparse):
            yield Problem(where, f"{name} experts take all tokens that come, and know no capacity", instead)
    operand = _operand(precision, parallelism)
    if sparse and name == "grouped_mm" and operand in ("fp32", "tf32"):
        message = f"grouped_mm experts cannot run in {operand}, and autocast casts nothing for them"
        yield Problem(where, message, "`kernels: {experts: batched_mm}`, `zero: 3`, or weights in bf16")


def dense_experts_are_scaled_before(model: Model, kernels: Kernels, at: Places) -> Iterator[Problem]:
    """All experts can run on all tokens where rows of those not chosen are 0 from the beginning."""
    for group in _sparse(model):
        mlp = group.mlp
        if kernels.experts != "dense" or (mlp.router.scales == "input" and not mlp.bias):
            continue
        why = "have biases" if mlp.bias else "are not scaled by scores before they run"
        message = f"dense experts, and those of `{group.name}` {why}: experts that a token does not use would add to it"
        yield Problem(at("kernels.experts"), message, "`kernels: {experts: grouped_mm}`")


def scores_are_zero_or_chosen(model: Model, kernels: Kernels, at: Places) -> Iterator[Problem]:
    """All experts on all tokens need scores of all of them, of which those not chosen are 0."""
    for group in _sparse(model):
        scores = group.mlp.router.scores
        if kernels.experts == "dense" and group.mlp.router.scales == "input" and scores != "sigmoid_of_chosen":
            message = f"dense experts of `{group.name}` with scores by {scores}, which only chosen experts have"
            instead = "`router: {scores: sigmoid_of_chosen}`, or `kernels: {experts: grouped_mm}`"
            yield Problem(at("kernels.experts"), message, instead)


def scores_reach_the_activation(model: Model, kernels: Kernels, at: Places) -> Iterator[Problem]:
    """Scores multiply before the last product where it is linear and each row of its operand belongs to one score."""
    for group in _sparse(model) if kernels.weighing == "activation" else ():
        mlp, where = group.mlp, at("kernels.weighing")
        if kernels.experts != "grouped_mm":
            message = f"weighing = activation with {kernels.experts} experts of `{group.name}`, which weigh results"
            yield Problem(where, message, "`kernels: {experts: grouped_mm}`, or `weighing: results`")
        if mlp.bias or mlp.router.scales == "input":
            why = "have biases, which would not be weighed" if mlp.bias else "are weighed before they run"
            yield Problem(where, f"weighing = activation, but experts of `{group.name}` {why}", "`weighing: results`")


def rows_are_aligned(
    model: Model, kernels: Kernels, precision: Precision, parallelism: Parallelism, at: Places
) -> Iterator[Problem]:
    """The kernel over groups of rows reads rows of whole 16 bytes."""
    if kernels.experts != "grouped_mm" or _operand(precision, parallelism) not in HALF:
        return
    for group in _sparse(model):
        own = group.mlp.d_ff // parallelism.tensor
        for field, width in (("model.d_model", model.d_model), (f"model.layers.{group.name}.mlp.d_ff", own)):
            if width % (ROW_BYTES // 2):
                message = (
                    f"grouped_mm experts need rows of whole {ROW_BYTES} bytes, and {field.split('.')[-1]} is {width}"
                )
                yield Problem(at(field), message, multiples(width, ROW_BYTES // 2))


def balance_sees_all_layers(model: Model, parallelism: Parallelism, kernels: Kernels, at: Places) -> Iterator[Problem]:
    """The loss for even use is computed from the logits of all layers, beside the loss itself."""
    for group in _sparse(model):
        if group.mlp.router.auxiliary_loss and (parallelism.pipeline > 1 or kernels.loss.startswith("chunked")):
            why = f"pipeline = {parallelism.pipeline}" if parallelism.pipeline > 1 else f"{kernels.loss} loss"
            where = at(f"model.layers.{group.name}.mlp.router.auxiliary_loss")
            message = f"auxiliary_loss of `{group.name}` needs the logits of all layers beside the loss, and not {why}"
            yield Problem(where, message, "leave `auxiliary_loss` out: it holds one number a token and expert")


def imbalance_is_possible(parallelism: Parallelism, assumptions: Assumptions, at: Places) -> Iterator[Problem]:
    """The busiest device has at most all tokens."""
    given, degree = assumptions.expert_imbalance, parallelism.expert
    if given > degree > 1:
        message = f"expert_imbalance = {float(given):g} over expert = {degree} devices"
        yield Problem(at("assumptions.expert_imbalance"), message, f"the busiest over the average: 1 to {degree}")


def imbalance_has_an_effect(
    model: Model, parallelism: Parallelism, assumptions: Assumptions, at: Places
) -> Iterator[Problem]:
    """Only tokens that travel to experts on other devices, as many as come, make one device busier than another."""
    if assumptions.expert_imbalance == Fraction(1) or model.bare:
        return
    if not _sparse(model):
        message = "expert_imbalance has no effect where no layer has experts"
        yield Problem(at("assumptions.expert_imbalance"), message, "leave it out")
    elif parallelism.expert == 1:
        message = "expert_imbalance has no effect where every device holds all experts"
        yield Problem(at("assumptions.expert_imbalance"), message, "`parallelism: {expert: 8}` splits them")
    elif all(group.mlp.capacity_factor is not None for group in _sparse(model)):
        message = "expert_imbalance has no effect where every expert takes its capacity"
        yield Problem(at("assumptions.expert_imbalance"), message, "`capacity_factor` says how many tokens that is")


def _sparse(model: Model) -> tuple[Group, ...]:
    return tuple(group for group in model.groups if group.mlp.kind == "experts")


def _operand(precision: Precision, parallelism: Parallelism) -> str:
    """The dtype in which weights reach a kernel that autocast does not know; FSDP gathers them in the compute dtype."""
    kept = precision.autocast and parallelism.zero != 3 and not precision.weights.is_stored_only
    return precision.weights.base if kept else precision.compute
