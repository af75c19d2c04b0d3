"""Named causes for which Megatron-Core holds other bytes than the ledger says, each worked out from the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ledger.evidence.verdicts import KnownDifference
from ledger.lab.judges.role_instant import RoleInstant
from ledger.lab.verification.causes import INDEX, WIDE
from ledger.model.schedule import Role
from ledger.spec.plan import Plan


def causes(plan: Plan, role: Role, moment: str) -> Iterator[KnownDifference]:
    """What explains part of found minus predicted at one moment."""
    at = RoleInstant(plan, moment, role)
    for name, amount in CAUSES.items():
        yield KnownDifference(name, amount(at))


def _token_ids(at: RoleInstant) -> int:
    """The ledger has them all the time; each micro-batch brings its own."""
    return -INDEX * at.tokens if at.first and at.moment in BETWEEN else 0


def _inputs(at: RoleInstant) -> int:
    """Positions, labels, and the ids that a part of the vocabulary has are there while forward runs."""
    if not at.forward:
        return 0
    if not at.first:
        return INDEX * at.tokens if at.role.last else 0
    return INDEX * at.length + (INDEX * at.tokens if at.plan.parallelism.tensor > 1 else 0)


def _mask(at: RoleInstant) -> int:
    """An embedding that is split over the vocabulary saves which tokens are not its own, a byte each."""
    if not at.first or at.plan.parallelism.tensor == 1 or at.moment in BETWEEN:
        return 0
    flying = int(at.role.in_flight) - (at.moment == "backward/input")
    return at.tokens * flying


def _tables(at: RoleInstant) -> int:
    """The table of rotations is made once and kept; the ledger has it while layers run."""
    kept = at.moment in BETWEEN or at.moment in ("forward/input", "backward/input")
    return WIDE * at.length * at.rotated if kept else 0


def _lists(at: RoleInstant) -> int:
    """A rotary embedding keeps a list of frequencies, attention where each sequence begins, if there are several.

    Context parallelism keeps which two parts of the sequence each rank has.
    """
    sequences, ranks = at.plan.run.micro_batch, at.plan.parallelism.context
    begins = WIDE * (sequences + 1) if sequences > 1 else 0
    return WIDE * (at.rotated // 2) + begins + (2 * INDEX * ranks if ranks > 1 else 0)


def _loss(at: RoleInstant) -> int:
    """Beside what is gathered the loss has its own three statistics of a token, and the token's loss.

    transformer_engine/pytorch/triton/cross_entropy.py. Labels of several sequences are copied, sequence first.
    """
    if at.moment != "forward/loss" or not at.role.last or at.plan.kernels.loss != "fused":
        return 0
    copied = INDEX * at.tokens if at.plan.run.micro_batch > 1 else 0
    return 4 * WIDE * at.tokens + copied


def _head(at: RoleInstant) -> int:
    """Where the gradient of the head's input is scattered, its share is there before, and the head's input still is.

    megatron/core/tensor_parallel/layers.py, LinearWithGradAccumulationAndAsyncCommunication.backward.
    """
    layout = at.plan.parallelism
    if at.moment != "backward/loss" or not at.role.last or layout.tensor == 1 or layout.sequence == "off":
        return 0
    return 2 * 2 * at.tokens // layout.tensor * at.plan.model.d_model


BETWEEN = ("static", "optimizer")
CAUSES: Mapping[str, Callable[[RoleInstant], int]] = {
    "token ids, which come with a micro-batch": _token_ids,
    "positions, labels and ids of a part of the vocabulary": _inputs,
    "which tokens another part of the vocabulary has": _mask,
    "the table of rotations, which is kept": _tables,
    "frequencies of rotations, lengths and parts of sequences": _lists,
    "statistics of each token's loss": _loss,
    "the share of the head's gradient before it is scattered, and the head's input": _head,
}
