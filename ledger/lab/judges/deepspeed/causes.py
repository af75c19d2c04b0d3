"""Named causes for which DeepSpeed holds other bytes than the ledger says, each worked out from the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from ledger.evidence.verdicts import KnownDifference
from ledger.lab.judges.deepspeed.flat_weights import FlatWeights, filled, flat_weights
from ledger.lab.verification.causes import AFTER, INDEX, LOSS, OPTIMIZER, SCALAR, Instant, at_the_loss, frequencies
from ledger.model import dtypes
from ledger.model.schedule import Role
from ledger.model.units import compute_precision
from ledger.spec.plan import Plan

STATIC, HEAD, END = "static", "backward/loss", "backward/input"
DOUBLE = 8  # bytes of an fp64
LABELS = "labels padded and shifted"
NORMED = 4  # bytes of the fp32 in which an update reads a gradient


@dataclass(frozen=True)
class FlatInstant(Instant):
    """A moment of the step of a rank that has a stretch of all weights."""

    @property
    def zero(self) -> int:
        """The stage of ZeRO."""
        return self.plan.parallelism.zero

    @cached_property
    def flat(self) -> FlatWeights:
        """All weights."""
        return flat_weights(self.plan)

    @property
    def size(self) -> int:
        """Bytes of a gradient's element."""
        return int(dtypes.size(self.plan.precision.gradients))

    @property
    def held(self) -> int:
        """Elements of this device's shares as the ledger cuts them, weight by weight."""
        return sum(-(-size // self.flat.ranks) for size in self.flat.sizes)


def causes(plan: Plan, _: Role, moment: str) -> Iterator[KnownDifference]:
    """What explains part of found minus predicted at one moment."""
    at = FlatInstant(plan, moment)
    for name, amount in CAUSES.items():
        yield KnownDifference(name, amount(at))


def _token_ids(at: FlatInstant) -> int:
    """The ledger has them all the time; each micro-batch brings its own."""
    return -INDEX * at.tokens if at.moment in (STATIC, OPTIMIZER) else 0


def _frequencies(at: FlatInstant) -> int:
    return frequencies(at.plan.model)


def _labels(at: FlatInstant) -> int:
    return sum(cause.amount for cause in at_the_loss(at.plan, at.moment) if cause.name == LABELS)


def _numbers(at: FlatInstant) -> int:
    """Of what a layer saves, FlashAttention's unused offset; and the weight of the mean of the loss."""
    if at.moment not in (AFTER, LOSS, HEAD):
        return 0
    kept = at.plan.recompute.policy == "none" and at.plan.kernels.attention == "flash"
    layers = sum(group.repeat for group in at.plan.model.groups) * kept
    return -INDEX * layers - SCALAR * (at.moment == AFTER)


def _embedded(at: FlatInstant) -> int:
    """An eager norm saves its input in fp32, so nothing else has the embedded tokens once the first layer is through.

    transformers' LlamaModel.forward has them in a variable of its own until the last layer returns.
    """
    saved = at.plan.kernels.norm == "fused" or at.plan.recompute.policy != "none" or at.plan.model.norm.kind != "rms"
    if saved or not at.forward or at.moment in (LOSS, "forward/input") or at.moment.endswith("/start"):
        return 0
    return int(at.tokens * at.plan.model.d_model * dtypes.size(compute_precision(at.plan).activations))


def _whole_gradients(at: FlatInstant) -> int:
    """A rank keeps the gradients of every weight that its stretch has a part of (copy_grads_in_partition)."""
    if at.moment != OPTIMIZER or at.zero not in (1, 2):
        return 0
    return at.size * (sum(at.flat.touched) - at.held)


def _norm(at: FlatInstant) -> int:
    """The first stretch may be of few weights, or of one (get_grad_norm_direct)."""
    if at.moment != OPTIMIZER or at.zero not in (1, 2):
        return 0
    largest = DOUBLE * -(-max(at.flat.sizes) // at.flat.ranks)
    return DOUBLE * at.flat.largest_part - max(largest, NORMED * at.held)


def _share_comes_last(at: FlatInstant) -> int:
    """The first stretch begins with the embedding, which backward reaches last; the ledger has shares layer by layer."""
    return 0


def _last_bucket(at: FlatInstant) -> int:
    """Replicas reduce what is more than a buffer, or what is left (DeepSpeedEngine.allreduce_no_retain)."""
    if at.moment != END or at.zero:
        return 0
    embedding, most = at.flat.sizes[0], at.plan.stack.reduction_buffer
    return at.size * (max(filled(at.flat.sizes, most)) - max(embedding, most))


CAUSES: Mapping[str, Callable[[FlatInstant], int]] = {
    "token ids, which come with a micro-batch": _token_ids,
    "positions and rotary frequencies": _frequencies,
    LABELS: _labels,
    "single numbers, which are not counted": _numbers,
    "the embedded tokens, which their caller's frame holds": _embedded,
    "whole gradients of weights of which a rank has a part": _whole_gradients,
    "the norm of the largest part of a weight": _norm,
    "its share of gradients, which backward reaches last": _share_comes_last,
    "what a bucket of replicas holds": _last_bucket,
}
