"""What a device copies beside the transfers of ZeRO 3: shares cast before a gather, weights and gradients in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import sympy

from ledger.model.exchanges import gathers_again, sent
from ledger.model.fsdp_units import FsdpUnit
from ledger.model.operations import ZERO
from ledger.model.sharding import EXPERT_DATA, Sharding
from ledger.model.update import Streaming
from ledger.spec.kernel_classes import COPY
from ledger.spec.plan import Plan

Copied = tuple[str, sympy.Expr, str, bool, Streaming]  # set of weights, how many of them, phase, once a step, what


def copies(plan: Plan, sets: Sequence[FsdpUnit], sharding: Sharding) -> Iterator[Copied]:
    """Copies around each gather and each reduction of a set of weights that is held split."""
    if not sharding.splits("weights"):
        return
    once = plan.parallelism.reduces_once
    for whole in sets:
        for axis, part in whole.over(sharding):
            of = "experts" if axis == EXPERT_DATA else "weights"
            out, into = _around_gather(plan, part, sharding), _around_reduction(plan, part.gradients(), sharding)
            phases = ("forward", "backward") if gathers_again(plan, part.name) and part.used_again else ("forward",)
            for phase in phases if out != ZERO else ():
                yield part.name, part.count, phase, False, _copy(f"{of}/copy_out", out)
            if into != ZERO:
                yield part.name, part.count, "backward", once, _copy(f"{of}/copy_in", into)


def _copy(name: str, amount: sympy.Expr) -> Streaming:
    return Streaming(name, COPY, (), (), amount=amount)


def _around_gather(plan: Plan, part: FsdpUnit, sharding: Sharding) -> sympy.Expr:
    """The share cast to what is sent; FSDP2 copies what arrived into the weights (`split_with_sizes_copy`)."""
    moved = part.stored_otherwise(plan.precision, sent(plan))
    cast = moved.stored_share(sharding, plan.precision) + moved.share(sharding, sent(plan))
    return cast + (2 * part.whole(sharding, sent(plan)) if plan.stack.unshard == "copied" else ZERO)


def _around_reduction(plan: Plan, part: FsdpUnit, sharding: Sharding) -> sympy.Expr:
    """Gradients copied into the input of their reduction, cast on the way (FSDP2, `chunk_cat`).

    FSDP1 joins them into a flat gradient, which is cast by a kernel of its own.
    """
    if not part.parts:
        return ZERO
    fresh, sums = part.unpadded(plan.precision.compute), part.whole(sharding, plan.precision.reduction)
    if plan.stack.unshard == "copied":
        return fresh + sums
    return 2 * fresh + (fresh + sums if plan.precision.reduction != plan.precision.compute else ZERO)
