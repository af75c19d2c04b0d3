"""What is asked of plans that train alone."""

from __future__ import annotations

from ledger.spec.plan import Plan
from ledger.spec.problems import Problem, SpecError


def require_training(plan: Plan, message: str, help_text: str) -> None:
    """Raises SpecError at `serve` of a plan that serves: why it is not asked this, and what to ask instead."""
    if plan.serve is not None:
        where = plan.origins["serve"].where
        texts = {where.file: plan.text} if where.file == plan.origins["spec"].where.file else {}
        raise SpecError([Problem(where, f"{message}, and this plan serves", help_text)], texts)
