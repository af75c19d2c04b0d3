"""What to change first: the smallest edit that fits, the cheapest and the fastest layout, with the lines to write."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger import numbers
from ledger.books.verdict import shortfall
from ledger.report.views.parts import Cell, Column, Report, Table, amount, fullest_role
from ledger.spec.load import read_with_overrides
from ledger.spec.overrides import assignments

if TYPE_CHECKING:
    from ledger.books.compiled import Compiled
    from ledger.books.results import Number, RoleResult
    from ledger.report.recommendations import Recommendation, Recommendations
    from ledger.spec.plan import Plan


WORTH = 0.005  # of a step: what another layout must save to be worth a word
SAID = 2  # changes that free memory
UNSEARCHED = "Other layouts were not searched."


@dataclass(frozen=True)
class AdvisedLayout:
    """A layout that is recommended: why, the length of the run, what it costs and holds, and the lines to write."""

    title: str
    length: str
    note: str
    yaml: tuple[str, ...]


@dataclass(frozen=True)
class Advice:
    """Layouts to choose from, and how many were looked at."""

    layouts: tuple[AdvisedLayout, ...]
    scope: str


def advice(report: Report) -> Advice | None:
    """The layouts that are recommended; None where none were searched, or where no change is better."""
    search = report.recommendations
    if not search:
        return None
    here = report.compiled.totals
    rows = tuple(advised_layout(name, layout, here) for name, layout in search.by_reason().items() if layout.changes)
    return Advice(rows, f"{search.scope}.") if rows else None


def advised_layout(name: str, layout: Recommendation, here: Mapping[str, Number]) -> AdvisedLayout:
    """A layout against the plan, whose own time counts where it fits the device."""
    totals = layout.totals
    length = f"{numbers.duration(totals['time.step'])} a step"
    figures = []
    if "time.calendar" in totals:
        length = numbers.duration(totals["time.calendar"])
    if "cost.run" in totals:
        figures.append(numbers.money(totals["cost.run"]))
    figures.append(f"{numbers.size(totals['memory.reserved'])} a device")
    if here["memory.reserved"] <= here["memory.capacity"]:
        key = "time.calendar" if {"time.calendar"} <= totals.keys() & here.keys() else "time.step"
        figures.append(f"{numbers.change(totals[key] / float(here[key]) - 1)} time")
    return AdvisedLayout(name.capitalize(), length, ", ".join(figures), layout.yaml)


def advice_sentence(report: Report) -> str:
    """The change that helps most; empty where nothing was found."""
    compiled, search = report.compiled, report.recommendations
    if not compiled.roles or "time.step" not in compiled.totals:
        return ""
    if search:
        why = shortfall(compiled.plan, compiled.totals) if search.smallest and search.smallest.changes else ""
        return f"{why[:1].upper()}{why[1:]}{'. ' if why else ''}{_searched_sentence(search, compiled.totals)}"
    return UNSEARCHED if compiled.verdict.fits else f"{memory_advice(report)} {UNSEARCHED}".strip()


def memory_advice(report: Report) -> str:
    """The changes that free most memory, each by itself."""
    levers = applicable_levers(report.compiled.plan, fullest_role(report.compiled).peak.parts)[:SAID]
    sentences = [f"{lever.change} frees up to {numbers.size(freed)}" for lever, freed in levers]
    return f"{', '.join(sentences)}." if sentences else ""


def _searched_sentence(search: Recommendations, here: Mapping[str, Number]) -> str:
    free = f" with {numbers.size(search.headroom)} free" if search.headroom else ""
    if not search.smallest or not search.fastest or not search.legal:
        return unfound_sentence(search, f"fits{free}")
    if search.smallest.changes:
        return f"Fits{free}: {search.smallest.label}."
    if search.fastest.totals["time.step"] > (1 - WORTH) * float(here["time.step"]):
        and_free = f" and leaves{free[5:]}" if free else ""
        return f"None of {numbers.integer(search.legal)} legal layouts is faster{and_free}."
    return f"{_saving_text(search.fastest, here)}: {search.fastest.label}."


def unfound_sentence(search: Recommendations, lacks: str) -> str:
    """That none of the layouts that were looked at has what all of them lack, or why there were none."""
    note = f"{search.note[:1].upper()}{search.note[1:]}; `ledger sweep` takes its time." if search.note else ""
    if not search.legal and note:
        return note
    where = "near the plan" if search.near else "on these devices"
    return f"None of {numbers.integer(search.legal)} legal layouts {where} {lacks}. {note}".rstrip()


def _saving_text(layout: Recommendation, here: Mapping[str, Number]) -> str:
    saved = {
        key: float(here[key]) - layout.totals[key] for key in ("cost.run", "time.calendar") if key in layout.totals
    }
    said = {"cost.run": numbers.money, "time.calendar": numbers.duration}
    if not saved:
        return f"A step takes {numbers.percent(1 - layout.totals['time.step'] / float(here['time.step']))} less"
    return f"Saves {' and '.join(said[key](by) for key, by in saved.items())}"


# --- changes that free memory at the peak ---


@dataclass(frozen=True)
class Lever:
    """A change that frees memory: when it applies, the most it can free, what it costs, and the keys that it writes.

    `written`: the ways to write it, each all its keys; of a change that names its value, that alone.
    """

    change: str
    applies: Callable[[Plan], bool]
    frees: Callable[[Plan, Mapping[str, int]], float]
    costs: str
    written: Callable[[Plan], Sequence[Mapping[str, object]]] | None = None

    def ways(self, plan: Plan) -> Sequence[Mapping[str, object]]:
        """The ways to write the change into a plan."""
        return self.written(plan) if self.written else (dict([self.change.split(" = ")]),)

    def is_legal(self, plan: Plan) -> bool:
        """Whether the rules allow the change, written in any way, of a plan that was read from a spec."""
        return plan.reading is None or any(
            not read_with_overrides(plan, assignments(way)).problems for way in self.ways(plan)
        )


def halved_micro_batch(plan: Plan) -> Sequence[Mapping[str, object]]:
    """Half the micro-batch; no way where it is odd."""
    return () if plan.run.micro_batch % 2 else ({"run.micro_batch": plan.run.micro_batch // 2},)


def doubled_context(plan: Plan) -> Sequence[Mapping[str, object]]:
    """Twice the context parallelism, on twice the devices or with half the data parallelism."""
    context, data = {"parallelism.context": 2 * plan.parallelism.context}, plan.parallelism.data
    halved = () if data % 2 else (context | {"parallelism.data": data // 2},)
    return (*halved, context | {"parallelism.data": data, "cluster.devices": 2 * plan.cluster.devices})


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
        halved_micro_batch,
    ),
    Lever(
        "parallelism.context doubled",
        lambda plan: not plan.model.bare,
        frees_share(0.5, "activations", "logits"),
        "keys and values exchanged in every layer, twice the devices or half the data parallelism",
        doubled_context,
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
    """The legal changes that free any of what is alive, with the most that each can free, the largest first."""
    pairs = [(lever, lever.frees(plan, parts)) for lever in LEVERS if lever.applies(plan)]
    legal = ((lever, freed) for lever, freed in pairs if freed > 0 and lever.is_legal(plan))
    return sorted(legal, key=lambda pair: -pair[1])


def lever_table(compiled: Compiled, role: RoleResult) -> Table | None:
    """Changes that free memory at the peak, the largest first."""
    ordered = applicable_levers(compiled.plan, role.peak.parts)
    headings = (Column("change", "code"), Column("frees at most", "number"), Column("costs"))
    rows = tuple((Cell(lever.change), amount(freed, "B"), Cell(lever.costs)) for lever, freed in ordered)
    title = "What would free memory" if compiled.verdict.fits else "What would make it fit"
    return Table(title, headings, rows, sortable=False, name="levers") if rows else None
