"""What would free memory at the peak, and what it costs: a row for each change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.report.views.parts import Cell, Column, Table, amount

if TYPE_CHECKING:
    from ledger.books.results import Compiled, RoleResult
    from ledger.spec.plan import Plan


@dataclass(frozen=True)
class Lever:
    """A change that frees memory: when it applies, the most it can free, and what it costs."""

    change: str
    applies: Callable[[Plan], bool]
    frees: Callable[[Plan, Mapping[str, int]], float]
    costs: str


def frees_by_sharding(*categories: str) -> Callable[[Plan, Mapping[str, int]], float]:
    """What sharding categories over the data-parallel devices frees."""

    def freed(plan: Plan, parts: Mapping[str, int]) -> float:
        shards = plan.parallelism.data * plan.parallelism.context
        return sum(parts.get(category, 0) for category in categories) * (1 - 1 / shards)

    return freed


def frees_share(part: float, *categories: str) -> Callable[[Plan, Mapping[str, int]], float]:
    """A fixed part of what categories hold."""
    return lambda _, parts: part * sum(parts.get(category, 0) for category in categories)


LEVERS = (
    Lever(
        "parallelism.zero = 1",
        lambda plan: plan.parallelism.zero < 1,
        frees_by_sharding("optimizer", "master"),
        "a gather of the weights after each step",
    ),
    Lever(
        "parallelism.zero = 2",
        lambda plan: plan.parallelism.zero < 2,
        frees_by_sharding("gradients"),
        "a reduce-scatter per micro-batch instead of one reduction per step",
    ),
    Lever(
        "parallelism.zero = 3",
        lambda plan: plan.parallelism.zero < 3,
        frees_by_sharding("weights"),
        "gathers of the weights in forward and backward",
    ),
    Lever(
        "recompute = selective",
        lambda plan: plan.recompute.policy == "none" and plan.kernels.attention in {"math", "eager"},
        frees_share(1.0, "activations"),
        "the attention core computed twice",
    ),
    Lever(
        "recompute = full",
        lambda plan: plan.recompute.policy != "full",
        frees_share(1.0, "activations"),
        "up to one more forward pass",
    ),
    Lever(
        "run.micro_batch halved",
        lambda plan: plan.run.micro_batch > 1,
        frees_share(0.5, "activations", "logits"),
        "smaller matrix products, more launches",
    ),
    Lever(
        "parallelism.context doubled",
        lambda plan: not plan.model.bare,
        frees_share(0.5, "activations", "logits"),
        "keys and values exchanged in every layer, twice the devices or half the data parallelism",
    ),
    Lever(
        "kernels.loss = fused",
        lambda plan: plan.kernels.loss == "eager",
        frees_share(0.75, "logits"),
        "nothing, where the fused kernel runs; the loss of each token is not kept",
    ),
    Lever(
        "kernels.optimizer = fused",
        lambda plan: plan.kernels.optimizer == "foreach",
        frees_share(1.0, "workspace"),
        "nothing, where the fused kernel runs",
    ),
)


def applicable_levers(plan: Plan, parts: Mapping[str, int]) -> list[tuple[Lever, float]]:
    """The changes that free any of what is alive, with the most that each can free, the largest first."""
    pairs = [(lever, lever.frees(plan, parts)) for lever in LEVERS if lever.applies(plan)]
    return sorted(((lever, freed) for lever, freed in pairs if freed > 0), key=lambda pair: -pair[1])


def lever_table(compiled: Compiled, role: RoleResult) -> Table | None:
    """Changes that free memory at the peak, the largest first."""
    ordered = applicable_levers(compiled.plan, role.peak.parts)
    headings = (Column("change", "code"), Column("frees at most", "number"), Column("costs"))
    rows = tuple((Cell(lever.change), amount(freed, "B"), Cell(lever.costs)) for lever, freed in ordered)
    title = "What would free memory" if compiled.verdict.fits else "What would make it fit"
    return Table(title, headings, rows, sortable=False, name="levers") if rows else None
