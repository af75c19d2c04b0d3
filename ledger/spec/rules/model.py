"""Rules on the model, on the sequences it is trained with, and on mixtures of experts."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from ledger.spec.architecture import MOST_LAYERS
from ledger.spec.paths import Places, divisors, multiples
from ledger.spec.plan import Accelerator, Assumptions, Group, Kernels, Model, Parallelism, Precision, Run, Serve, Stack
from ledger.spec.precision import HALF
from ledger.spec.problems import Problem


def layers_are_not_too_many(model: Model, at: Places) -> Iterator[Problem]:
    """All groups together have no more layers than one group may have."""
    layers = sum(group.repeat for group in model.groups)
    if layers > MOST_LAYERS:
        yield Problem(at("model.layers"), f"the model has {layers} layers", f"at most {MOST_LAYERS} in all groups")


def heads_share_keys(model: Model, at: Places) -> Iterator[Problem]:
    """Every key-value head serves the same number of query heads."""
    for group in model.groups:
        heads, kv_heads = group.attention.heads, group.attention.kv_heads
        if kv_heads and heads % kv_heads:
            message = f"heads = {heads} is no multiple of kv_heads = {kv_heads}"
            field = f"model.layers.{group.name}.attention.kv_heads"
            yield Problem(at(field), message, divisors(heads))


def rotary_is_even(model: Model, at: Places) -> Iterator[Problem]:
    """Rotary positions turn pairs of numbers."""
    for group in model.groups:
        if group.attention.rope_head_dim % 2:
            message = f"rope_head_dim = {group.attention.rope_head_dim} is no even number"
            place = at(f"model.layers.{group.name}.attention.rope_head_dim")
            yield Problem(place, message, "pairs of numbers are rotated")
        share, width = group.attention.rotary, group.attention.head_dim
        rotated = share * width
        if rotated.denominator != 1 or rotated % 2:
            message = f"rotary = {float(share)} of head_dim = {width} is no even number"
            yield Problem(at(f"model.layers.{group.name}.attention.rotary"), message, "pairs of numbers are rotated")


def groups_have_names_of_their_own(model: Model, at: Places) -> Iterator[Problem]:
    """Accounts begin with the group's name."""
    names = [group.name for group in model.groups]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield Problem(at(f"model.layers.{name}"), f"two groups are named `{name}`", "give each group its own name")


def groups_take_turns(model: Model, at: Places) -> Iterator[Problem]:
    """A pattern names groups that are there, and uses up the layers of each."""
    if not model.order:
        return
    place = at("model.order" if "model.order" in at.origins else "model.alternating")
    names = [group.name for group in model.groups]
    unknown = [name for name in dict.fromkeys(model.order) if name not in names]
    if unknown:
        message = f"no group is named {' or '.join(f'`{name}`' for name in unknown)}"
        yield Problem(place, message, f"groups are {', '.join(names)}")
        return
    layers = sum(group.repeat for group in model.groups)
    turns = [model.order[layer % len(model.order)] for layer in range(layers)]
    repeats = {group.name: group.repeat for group in model.groups}
    counts = {name: turns.count(name) for name in names}
    if counts != repeats:
        repeats_text = " and ".join(str(count) for count in repeats.values())
        if "model.order" not in at.origins:
            message = f"alternating groups repeat {repeats_text} times"
            yield Problem(place, message, "groups that take turns repeat equally often")
            return
        listed = ", ".join(f"`{name}` {count}" for name, count in counts.items())
        message = f"{layers} layers in this order do not repeat their groups {repeats_text} times"
        yield Problem(place, message, f"in this order: {listed}")


def bare_models_have_no_layers(model: Model, at: Places) -> Iterator[Problem]:
    """A parameter count stands in place of sizes, not beside them."""
    sizes = [key for key in ("d_model", "layers", "vocab") if f"model.{key}" in at.origins]
    if model.bare and sizes:
        message = f"`parameters` beside {', '.join(f'`{key}`' for key in sizes)}: the sizes say how many there are"
        yield Problem(at("model.parameters"), message, "leave `parameters` out; `expect:` can assert it")


def gate_and_up_are_there(model: Model, at: Places) -> Iterator[Problem]:
    """One projection for gate and up is of a gated feed-forward part."""
    for group in model.groups:
        path = f"model.layers.{group.name}.mlp.fused_gate_up"
        if group.mlp.fused_gate_up and group.mlp.kind != "gated":
            yield Problem(at(path), f"`{group.name}` has no gate: its mlp is {group.mlp.kind}", "`kind: gated`")


def transform_is_whole(model: Model, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """What stands between layers and head is held whole by every device."""
    if model.head_transform and parallelism.tensor > 1:
        message = f"tensor = {parallelism.tensor} splits the head, and not the projection before it"
        yield Problem(at("parallelism.tensor"), message, "`tensor: 1`, or a model without `head.transform`")


def sequences_are_stated(model: Model, at: Places) -> Iterator[Problem]:
    """Only a bare model can do without sequences."""
    if not model.bare and "run" in at.origins:
        for key in ("seq_len", "micro_batch", "global_batch"):
            if model.image and key == "seq_len":  # which follows from the image
                continue
            if f"run.{key}" not in at.origins:
                yield Problem(at("run"), f"`run` lacks `{key}`", f"`{key}:` a whole number")


def positions_reach(model: Model, run: Run, at: Places) -> Iterator[Problem]:
    """A learned position table has a row for every token of a sequence."""
    if not model.image and 0 < model.learned_positions < run.seq_len:
        message = f"seq_len = {run.seq_len}, but the model has {model.learned_positions} learned positions"
        yield Problem(at("run.seq_len"), message, f"at most `seq_len: {model.learned_positions}`")


def sequences_are_longer_than_the_model(model: Model, run: Run, at: Places) -> Iterator[Problem]:
    """A model may be trained beyond the length it was made for, but seldom is."""
    if 0 < model.max_seq_len < run.seq_len:
        message = f"seq_len = {run.seq_len}, but the model was made for {model.max_seq_len}"
        yield Problem(at("run.seq_len"), message, "rotary positions must be rescaled for it")


READ = 8  # values of 16 bits that a matmul kernel reads at once: 16 bytes
PADDED = 64  # to which vocabularies are padded (karpathy/nanoGPT: 50257 to 50304; Megatron-LM pads to 128)


def heads_begin_at_whole_reads(  # noqa: PLR0913 - a rule names the parts it reads
    model: Model,
    accelerator: Accelerator,
    stack: Stack,
    serve: Serve | None,
    precision: Precision,
    parallelism: Parallelism,
    at: Places,
) -> Iterator[Problem]:
    """Rows of a head that begin at less than 16 bytes are multiplied by slower kernels; a compiler pads them.

    Measured on an H200: 4 to 6 times as long at 2 bytes, 2.5 times at 4 and 8 (specs/evidence, h200-sxm-2026-11-27).
    """
    columns = model.vocab // parallelism.tensor
    narrow = precision.compute in ("bf16", "fp16") and columns % READ
    if serve or not narrow or model.bare or stack.compiled or accelerator.kind != "gpu":
        return
    step = PADDED * parallelism.tensor
    padded = -(-model.vocab // step) * step
    message = f"the head has {columns} columns on a device, no multiple of {READ}"
    message += ": its matmuls take longer than is predicted"
    yield Problem(at("model.vocab"), message, f"pad it, as in `--set model.vocab={padded}`")


# --- mixtures of experts ---

# Bytes that rows of operands must be whole multiples of (torch 2.13, aten/src/ATen/native/GroupedMMUtils.h).
ROW_BYTES = 16


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
    if degree > 1 and not _expert_groups(model):
        message = f"expert = {degree}, but no layer of the model has experts"
        yield Problem(at("parallelism.expert"), message, "leave `expert` out")
    for group in _expert_groups(model):
        if group.mlp.experts % degree:
            message = f"experts = {group.mlp.experts} of `{group.name}` do not split over expert = {degree}"
            yield Problem(at("parallelism.expert"), message, divisors(group.mlp.experts))


def shared_experts_split(model: Model, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Tensor parallelism gives every device an equal part of the shared experts."""
    axis, parts = parallelism.cutting("shared_d_ff")
    for group in _expert_groups(model):
        if group.mlp.shared_d_ff % parts:
            width = group.mlp.shared_d_ff
            message = f"shared experts {width} wide of `{group.name}` do not split over {axis} = {parts}"
            yield Problem(at(f"parallelism.{axis}"), message, divisors(width))


def fields_belong_to_experts(model: Model, at: Places) -> Iterator[Problem]:
    """Only experts have what says how many there are and how tokens find them."""
    for group in model.groups:
        path = f"model.layers.{group.name}.mlp"
        stated = [
            key for key in ("experts", "top_k", "router", "shared", "capacity_factor") if f"{path}.{key}" in at.origins
        ]
        if stated and group.mlp.kind != "experts":
            message = f"{', '.join(f'`{key}`' for key in stated)} in `{group.name}`, whose mlp is {group.mlp.kind}"
            yield Problem(at(f"{path}.{stated[0]}"), message, "`kind: experts`, or leave them out")


def tokens_find_experts(model: Model, at: Places) -> Iterator[Problem]:
    """A token uses at most all experts, and groups of experts are equal."""
    for group in _expert_groups(model):
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
    sparse, name = _expert_groups(model), kernels.experts
    where, instead = at("kernels.experts"), "`kernels: {experts: grouped_mm}`"
    if sparse and name != "grouped_mm":
        if parallelism.expert > 1:
            yield Problem(where, f"{name} experts do not split over devices (expert = {parallelism.expert})", instead)
        if any(group.mlp.capacity_factor is not None for group in sparse):
            yield Problem(where, f"{name} experts take all tokens that come, and know no capacity", instead)
    operand = _operand_dtype(precision, parallelism)
    if sparse and name == "grouped_mm" and operand in ("fp32", "tf32"):
        message = f"grouped_mm experts cannot run in {operand}, and autocast casts nothing for them"
        yield Problem(where, message, "`kernels: {experts: batched_mm}`, `zero: 3`, or weights in bf16")


def dense_experts_are_scaled_before(model: Model, kernels: Kernels, at: Places) -> Iterator[Problem]:
    """All experts can run on all tokens where rows of those not chosen are 0 from the beginning."""
    for group in _expert_groups(model):
        mlp = group.mlp
        if kernels.experts != "dense" or (mlp.router.scales == "input" and not mlp.bias):
            continue
        why = "have biases" if mlp.bias else "are not scaled by scores before they run"
        message = f"dense experts, and those of `{group.name}` {why}: experts that a token does not use would add to it"
        yield Problem(at("kernels.experts"), message, "`kernels: {experts: grouped_mm}`")


def scores_are_zero_or_chosen(model: Model, kernels: Kernels, at: Places) -> Iterator[Problem]:
    """All experts on all tokens need scores of all of them, of which those not chosen are 0."""
    for group in _expert_groups(model):
        scores = group.mlp.router.scores
        if kernels.experts == "dense" and group.mlp.router.scales == "input" and scores != "sigmoid_of_chosen":
            message = f"dense experts of `{group.name}` with scores by {scores}, which only chosen experts have"
            instead = "`router: {scores: sigmoid_of_chosen}`, or `kernels: {experts: grouped_mm}`"
            yield Problem(at("kernels.experts"), message, instead)


def scores_reach_the_activation(model: Model, kernels: Kernels, at: Places) -> Iterator[Problem]:
    """Scores multiply before the last product where it is linear and each row of its operand belongs to one score."""
    for group in _expert_groups(model) if kernels.weighing == "activation" else ():
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
    if kernels.experts != "grouped_mm" or _operand_dtype(precision, parallelism) not in HALF:
        return
    for group in _expert_groups(model):
        d_ff = group.mlp.d_ff // parallelism.tensor
        for field, width in (("model.d_model", model.d_model), (f"model.layers.{group.name}.mlp.d_ff", d_ff)):
            if width % (ROW_BYTES // 2):
                key = field.split(".")[-1]
                message = f"grouped_mm experts need rows of whole {ROW_BYTES} bytes, and {key} is {width}"
                yield Problem(at(field), message, multiples(width, ROW_BYTES // 2))


def balance_sees_all_layers(model: Model, parallelism: Parallelism, kernels: Kernels, at: Places) -> Iterator[Problem]:
    """The loss for even use is computed from the logits of all layers, beside the loss itself."""
    for group in _expert_groups(model):
        if group.mlp.router.auxiliary_loss and (parallelism.pipeline > 1 or kernels.loss.startswith("chunked")):
            why = f"pipeline = {parallelism.pipeline}" if parallelism.pipeline > 1 else f"{kernels.loss} loss"
            where = at(f"model.layers.{group.name}.mlp.router.auxiliary_loss")
            message = f"auxiliary_loss of `{group.name}` needs the logits of all layers beside the loss, and not {why}"
            yield Problem(where, message, "leave `auxiliary_loss` out: it holds one number a token and expert")


def imbalance_is_possible(parallelism: Parallelism, assumptions: Assumptions, at: Places) -> Iterator[Problem]:
    """The busiest device has at most all tokens."""
    imbalance, degree = assumptions.expert_imbalance, parallelism.expert
    if imbalance > degree > 1:
        message = f"expert_imbalance = {float(imbalance):g} over expert = {degree} devices"
        yield Problem(at("assumptions.expert_imbalance"), message, f"the busiest over the average: 1 to {degree}")


def imbalance_has_an_effect(
    model: Model, parallelism: Parallelism, assumptions: Assumptions, at: Places
) -> Iterator[Problem]:
    """Only tokens that travel to experts on other devices, as many as come, make one device busier than another."""
    if assumptions.expert_imbalance == Fraction(1) or model.bare:
        return
    if not _expert_groups(model):
        message = "expert_imbalance has no effect where no layer has experts"
        yield Problem(at("assumptions.expert_imbalance"), message, "leave it out")
    elif parallelism.expert == 1:
        message = "expert_imbalance has no effect where every device holds all experts"
        yield Problem(at("assumptions.expert_imbalance"), message, "`parallelism: {expert: 8}` splits them")
    elif all(group.mlp.capacity_factor is not None for group in _expert_groups(model)):
        message = "expert_imbalance has no effect where every expert takes its capacity"
        yield Problem(at("assumptions.expert_imbalance"), message, "`capacity_factor` says how many tokens that is")


def _expert_groups(model: Model) -> tuple[Group, ...]:
    return tuple(group for group in model.groups if group.mlp.kind == "experts")


def _operand_dtype(precision: Precision, parallelism: Parallelism) -> str:
    """The dtype in which weights reach a kernel that autocast does not know; FSDP gathers them in the compute dtype."""
    stays_stored = precision.autocast and parallelism.zero != 3 and not precision.weights.is_stored_only
    return precision.weights.base if stays_stored else precision.compute
