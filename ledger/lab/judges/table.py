"""The frameworks that judge plans, by the name that a stack has for its judge."""

from __future__ import annotations

from collections.abc import Mapping

from ledger.lab.judges.deepspeed.judge import DEEPSPEED
from ledger.lab.judges.megatron.judge import MEGATRON
from ledger.lab.judges.protocol import FrameworkJudge
from ledger.lab.judges.torchtitan.judge import TORCHTITAN
from ledger.spec.plan import Plan

FRAMEWORKS: Mapping[str, FrameworkJudge] = {
    "deepspeed": DEEPSPEED,
    "megatron-core": MEGATRON,
    "torchtitan": TORCHTITAN,
}


def framework_of(plan: Plan) -> FrameworkJudge | None:
    """The framework that judges a plan; None where PyTorch does."""
    return FRAMEWORKS.get(plan.stack.judge)
