"""Named causes for which PyTorch holds other bytes than the ledger says, each worked out from the plan.

They are what transformers and torch.optim hold beside the tensors of the model, and what no plan would state: copies
of labels, positions, scalars. A cause says how many bytes at which figure, so a cause that is wrong shows as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ledger.books.compiled_roles import whole
from ledger.evidence.verdicts import KnownDifference
from ledger.lab.transformers.config import with_stand_ins
from ledger.lab.verification.layouts import has_several_ranks
from ledger.model import dtypes
from ledger.model.causes import OUTPUT as END
from ledger.model.fsdp_units import weights_by_unit
from ledger.model.units import compute_precision
from ledger.spec.loss_chunks import LossParts, loss_parts
from ledger.spec.plan import Model, Plan

INT64_BYTES = 8  # bytes of an int64
SCALAR = 4
FP32_BYTES = 4  # bytes of an fp32

AFTER, OPTIMIZER = "after forward", "optimizer"
OUTPUT, LOSS, HEAD = "forward/output", "forward/loss", "backward/output"
COUNTING = ("adam", "adamw", "adagrad")  # of torch.optim, those whose fused kernels read the step from the device


@dataclass(frozen=True)
class StepMoment:
    """A figure of a plan's step, and the moment at which PyTorch reaches it."""

    plan: Plan
    moment: str

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch on one device."""
        return self.plan.run.micro_batch * self.length

    @property
    def length(self) -> int:
        """Tokens of a sequence on one device."""
        return self.plan.run.seq_len // self.plan.parallelism.context

    @property
    def forward(self) -> bool:
        """Whether the forward pass runs."""
        return self.moment.startswith("forward/")

    @property
    def backward(self) -> bool:
        """Whether the backward pass runs."""
        return self.moment.startswith("backward/")


def causes(plan: Plan, moment: str) -> Iterator[KnownDifference]:
    """Each named cause with its bytes of found minus predicted at one moment."""
    instant = StepMoment(plan, moment)
    for name, amount in CAUSES.items():
        yield KnownDifference(name, amount(instant))


def counts_steps(plan: Plan) -> bool:
    """Whether the optimizer counts its steps in a tensor."""
    return plan.optimizer.name in COUNTING


def frequencies(model: Model) -> int:
    """Bytes of the two lists of frequencies that a rotary embedding keeps."""
    return sum(2 * FP32_BYTES * (width // 2) for width in _rotated_widths(model))


def _rotated_widths(model: Model) -> set[int]:
    kinds = (group.attention for group in with_stand_ins(model).groups)  # what stood in has left its rotation
    return {width for kind in kinds if (width := kind.rotary_dim or kind.rope_head_dim)}


def at_the_loss(plan: Plan, moment: str) -> Iterator[KnownDifference]:
    """The named causes that the loss of transformers has, with their bytes at one moment."""
    for name in ("labels padded and shifted", "scalars of the loss"):
        yield KnownDifference(name, CAUSES[name](StepMoment(plan, moment)))


def _step_counts(at: StepMoment) -> int:
    """The fused optimizer keeps one fp32 count for each parameter tensor on the device.

    Others keep it on the host, which the judge of a sharded step takes for the device unless anything lives there.
    """
    hosts = at.plan.parallelism.offload
    on_device = (
        "weights" not in hosts if at.plan.kernels.optimizer == "fused" else has_several_ranks(at.plan) and not hosts
    )
    if not on_device or not counts_steps(at.plan):
        return 0
    model = whole(at.plan)
    trained = (
        (count, sum(not weight.frozen for weight in weights)) for _, count, weights in weights_by_unit(model.units)
    )
    return SCALAR * int(sum(model.value(count) * tensors for count, tensors in trained))


def _positions(at: StepMoment) -> int:
    """A rotary embedding keeps two lists of frequencies; positions live as long as a checkpoint that was given them.

    Of a layer's parts only attention is given any. The judge of a sharded step hands them in from outside.
    """
    recompute = at.plan.recompute
    attention = recompute.policy != "components" or not {"core", "attention"}.isdisjoint(recompute.components)
    again = _rotated_widths(at.plan.model) and recompute.policy != "none" and attention
    before_input = at.backward and at.moment != "backward/input"  # in backward, with a layer still to come
    keeps_positions = again and (at.moment in (AFTER, OUTPUT, LOSS) or before_input)
    counted = at.plan.model.learned_positions and (at.forward or at.backward or at.moment == AFTER)
    makes_its_own = at.plan.model.encoder_groups  # makes its positions itself
    positions = (
        INT64_BYTES * at.length
        if (has_several_ranks(at.plan) or keeps_positions) and not (counted or makes_its_own)
        else 0
    )
    # transformers keeps the positions and types of the longest sequence, for batches that bring none (BERT)
    types = 2 * INT64_BYTES * at.plan.model.learned_positions if at.plan.model.token_types else 0
    return positions + frequencies(at.plan.model) + types


def _labels(at: StepMoment) -> int:
    """transformers pads the labels by one column and shifts them; of one sequence the shifted ones are a view."""
    if at.plan.model.image:  # whose classes are the loss's own
        return 0
    padded = INT64_BYTES * (at.tokens + at.plan.run.micro_batch)
    if at.plan.run.micro_batch > 1:
        return padded + INT64_BYTES * at.tokens if at.moment == LOSS else 0
    return {LOSS: padded, AFTER: INT64_BYTES}.get(at.moment, 0)


def _scalars(at: StepMoment) -> int:
    """The loss, its gradient, and while a loss in another dtype is computed the weight of its mean.

    Of a loss in parts, that of each part until they are added up.
    """
    precision, kernels = compute_precision(at.plan), at.plan.kernels
    if kernels.loss == "chunked" and at.moment == OUTPUT and not precision.autocast:
        return SCALAR * (int(_loss_parts(at.plan).count) + 1)
    cast = precision.logits != (precision.compute if precision.autocast else precision.activations)
    if at.backward:
        return 2 * SCALAR
    cast = cast and at.plan.parallelism.tensor == 1  # a split loss is fullest before
    lasting_loss = SCALAR * (not has_several_ranks(at.plan))  # the judge of a sharded step lets go of the loss
    return {AFTER: SCALAR, LOSS: 2 * SCALAR * cast, OPTIMIZER: lasting_loss}.get(at.moment, 0)


def _split_loss(at: StepMoment) -> int:
    """Over a split vocabulary: two more numbers a token that were reduced, then five indices and a mask a token.

    torch.distributed.tensor.parallel.loss, `_log_softmax` and `_nll_loss_and_log_softmax_backward`.
    """
    if at.plan.parallelism.tensor == 1:
        return 0
    view = (
        INT64_BYTES if at.plan.run.micro_batch == 1 else 0
    )  # the padded labels, of which those of one sequence are a view
    indices = (5 * INT64_BYTES + 1) * at.tokens + SCALAR + view
    return {LOSS: 2 * FP32_BYTES * at.tokens, "backward/loss": indices}.get(at.moment, 0)


def _strided_parts(at: StepMoment) -> int:
    """Of several sequences a part of each is no stretch of memory, so what reads it reads a copy.

    The loss those of its labels, and in backward the products of the head that of its hidden states.
    """
    plan, precision = at.plan, compute_precision(at.plan)
    if plan.kernels.loss != "chunked" or plan.run.micro_batch == 1 or precision.autocast:
        return 0
    part = int(_loss_parts(plan).rows)
    hidden = int(part * plan.model.d_model * dtypes.size(precision.activations))
    return {OUTPUT: INT64_BYTES * part, HEAD: hidden}.get(at.moment, 0)


def _loss_parts(plan: Plan) -> LossParts:
    """The parts in which the loss of a plan goes over its tokens."""
    return loss_parts(plan.kernels, plan.model, plan.run, plan.parallelism)


def _losses_of_tokens(at: StepMoment) -> int:
    """Liger-Kernel's head with its loss writes the loss of each token, and sums them up after the last part."""
    return FP32_BYTES * at.tokens if at.plan.kernels.loss == "fused_linear" and at.moment == OUTPUT else 0


def _unreduced_gradients(at: StepMoment) -> int:
    """Without FSDP a gradient stays as DTensor made it: of the embedding a view of all rows, of norms a part.

    The update has each of them put together beside it: the last norm's part is still there when its sum is.
    """
    plan = at.plan
    if at.moment != OPTIMIZER or not (plan.parallelism.tensor > 1 and plan.parallelism.data == 1):
        return 0
    model = whole(plan)
    norms = sum(
        model.value(count) for _, count, weights in weights_by_unit(model.units) for w in weights if len(w.dims) == 1
    )
    rows = plan.model.vocab + int(norms) + 1
    return int(rows * plan.model.d_model * dtypes.size(plan.precision.gradients))


def _hidden_unsaved(at: StepMoment) -> int:
    """A frozen head saves no input, but transformers' frame holds it until the loss is computed.

    The judge of a sharded step computes the loss when that frame is gone.
    """
    precision = compute_precision(at.plan)
    if has_several_ranks(at.plan) or precision.autocast or at.moment != LOSS:
        return 0
    ends = (weight for unit in whole(at.plan).units if unit.name == END for weight in unit.weights)
    saved = any(not weight.frozen for weight in ends if len(weight.dims) == 2)
    return 0 if saved else int(at.tokens * at.plan.model.d_model * dtypes.size(precision.activations))


def _last_hidden(at: StepMoment) -> int:
    """Under autocast the final norm's result is fp32, and transformers' frame holds it until forward returns.

    Of images the judge takes the loss when that frame is gone.
    """
    apart = at.plan.model.head_transform or at.plan.model.image
    widened = compute_precision(at.plan).autocast and not apart
    return FP32_BYTES * at.tokens * at.plan.model.d_model if widened and at.moment == LOSS else 0


def _classes(at: StepMoment) -> int:
    """The class of each image is there before the loss reads it."""
    return INT64_BYTES * at.plan.run.micro_batch if at.plan.model.image and at.moment in (OUTPUT, LOSS) else 0


def _scored_beside_hidden(at: StepMoment) -> int:
    """Under autocast the head reads a cast of the class tokens, and transformers' frame holds all hidden states.

    Copies of the head's weights and its scores are therefore made beside those.
    """
    precision, model = compute_precision(at.plan), at.plan.model
    if not (model.image and precision.autocast and at.moment == OUTPUT) or model.stem:  # whose head reads a mean
        return 0
    rows = model.d_model + model.head_bias + at.plan.run.micro_batch
    return int(model.classes * rows * dtypes.size(precision.compute))


def _first_hidden(at: StepMoment) -> int:
    """transformers' frame holds the embedded tokens until the last layer is through, though what saved them is gone."""
    if "activations" not in at.plan.parallelism.offload or at.moment in (LOSS, "forward/input") or not at.forward:
        return 0
    return int(at.tokens * at.plan.model.d_model * dtypes.size(compute_precision(at.plan).activations))


def _read_by_experts(at: StepMoment) -> int:
    """Where nothing is saved inside a layer, the norm's result could go once rows were made of it.

    Shared experts read it after the others, and where every rank has all experts the gather before is fuller.
    """
    plan, place = at.plan, at.moment.split("/")
    group = next((group for group in plan.model.groups if at.forward and group.name == place[1]), None)
    if plan.parallelism.expert == 1 or plan.recompute.policy != "full" or group is None:
        return 0
    norm_bytes = at.tokens * plan.model.d_model * dtypes.size(compute_precision(plan).activations)
    return int(norm_bytes) if group.mlp.experts and not group.mlp.shared else 0


def _tied_sum(at: StepMoment) -> int:
    """Under a dispatch mode autograd adds out of place; on real tensors it adds to what autocast has made anew.

    The gradient of the stream is gone by then.
    """
    model, precision = at.plan.model, at.plan.precision
    if not model.tied or at.moment != "backward/input":
        return 0
    whole_sum = model.vocab * model.d_model * dtypes.size(precision.gradients)
    return int(whole_sum - at.tokens * model.d_model * dtypes.size(precision.weights.embedding))


def _widened_tables(at: StepMoment) -> int:
    """The tables that each layer widens for itself go with the frame of the layers, before the loss (GLM-4)."""
    groups = [group for group in at.plan.model.groups if group.attention.rotary_form == "repeated_pairs"]
    if at.moment != LOSS or not groups:
        return 0
    precision = compute_precision(at.plan)
    dtype = precision.weights.embedding if precision.autocast else precision.activations
    return -int(2 * at.length * groups[0].attention.rotary_dim * dtypes.size(dtype))


CAUSES: Mapping[str, Callable[[StepMoment], int]] = {
    "step counts of the optimizer": _step_counts,
    "positions and rotary frequencies": _positions,
    "labels padded and shifted": _labels,
    "scalars of the loss": _scalars,
    "rows of a split loss": _split_loss,
    "parts of several sequences, which are copied": _strided_parts,
    "the loss of each token": _losses_of_tokens,
    "gradients that DTensor puts together": _unreduced_gradients,
    "the last hidden state in fp32": _last_hidden,
    "the last hidden state, which a frozen head does not save": _hidden_unsaved,
    "classes of the images": _classes,
    "scores of classes beside the last hidden state": _scored_beside_hidden,
    "the embedded tokens": _first_hidden,
    "what experts read, which their caller's frame holds": _read_by_experts,
    "the sum of a tied weight's two gradients": _tied_sum,
    "tables that each layer widens": _widened_tables,
}
