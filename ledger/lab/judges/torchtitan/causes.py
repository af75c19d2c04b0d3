"""Named causes for which torchtitan holds other bytes than the ledger says, each worked out from the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ledger.evidence.verdicts import KnownDifference
from ledger.lab.judges.role_instant import RoleInstant
from ledger.lab.verification.causes import INDEX, SCALAR, WIDE
from ledger.model.schedule import Role
from ledger.spec.plan import Plan

BETWEEN = ("static", "optimizer")


def causes(plan: Plan, role: Role, moment: str) -> Iterator[KnownDifference]:
    """What explains part of found minus predicted at one moment."""
    at = RoleInstant(plan, moment, role)
    for name, amount in CAUSES.items():
        yield KnownDifference(name, amount(at))


def _token_ids(at: RoleInstant) -> int:
    """The ledger has them all the time; each micro-batch brings its own."""
    return -INDEX * at.tokens if at.first and at.moment in BETWEEN else 0


def _positions(at: RoleInstant) -> int:
    """Every micro-batch brings the place of each token in its document (torchtitan/trainer.py)."""
    return 0 if at.moment in BETWEEN else INDEX * at.tokens


def _labels(at: RoleInstant) -> int:
    """They are there through both passes; the ledger has them from the loss on until backward has read them."""
    kept = at.moment in (*BETWEEN, "after forward")
    return 0 if kept or not at.role.last else INDEX * at.tokens


def _weight_of_the_mean(at: RoleInstant) -> int:
    """A single number, which the judge leaves out."""
    return -SCALAR if at.moment == "after forward" and at.plan.kernels.loss == "eager" else 0


def _norms(at: RoleInstant) -> int:
    """One of each gradient in fp32, in four copies while the ranks put them together (torch.nn.utils.clip_grad)."""
    if at.moment != "optimizer":
        return 0
    layers = len(at.plan.model.layers)
    apart = 9 if at.plan.stack.projections == "apart" else 7
    return 4 * WIDE * (apart * layers + 3)


CAUSES: Mapping[str, Callable[[RoleInstant], int]] = {
    "token ids, which come with a micro-batch": _token_ids,
    "positions of tokens": _positions,
    "labels, which come with a micro-batch": _labels,
    "the weight of the loss's mean": _weight_of_the_mean,
    "norms of gradients": _norms,
}
