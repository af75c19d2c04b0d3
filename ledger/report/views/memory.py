"""Does it fit: memory per kind of device, over a step, and what would free some."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger import numbers
from ledger.books.breakdown import hosted_parts
from ledger.books.prices import devices_of_a_host
from ledger.model.causes import Purpose
from ledger.model.offloading import PAGED
from ledger.report.charts import memory as charts
from ledger.report.svg import MEMORY_ORDER
from ledger.report.views.advice import lever_table
from ledger.report.views.parts import (
    DASH,
    Cell,
    Chart,
    Column,
    Report,
    Table,
    Total,
    amount,
    columns,
    draw_chart,
    fullest_role,
    share,
    text_cells,
    total,
    total_cell,
)
from ledger.spec.optimizer import DEFAULT

if TYPE_CHECKING:
    from ledger.books.compiled import Compiled
    from ledger.books.results import Account, Moment, RoleResult
    from ledger.spec.optimizer import Optimizer
    from ledger.spec.plan import Plan
    from ledger.spec.precision import Recipe


CATEGORIES: Mapping[str, tuple[str, str]] = {
    "weights": ("weights", "the parameters as the forward pass reads them, and quantised copies that stay"),
    "master": ("master weights", "the copy that the optimizer updates"),
    "optimizer": ("optimizer states", "moments of the gradients"),
    "gradients": ("gradients", "alive from the first backward to the end of the step"),
    "cache": ("cache", "keys and values, or latents, of all sequences in flight"),
    "unsharded": (
        "gathered weights",
        "layers gathered for use, the next one ahead of its use, and buckets of transfers",
    ),
    "activations": ("activations", "what backward reads again; of a service, what a pass reads and writes"),
    "logits": ("logits", "scores of the vocabulary, their copies and gradients"),
    "workspace": ("workspace", "what kernels and the optimizer hold while they run"),
}
PERSISTING = ("weights", "master", "optimizer", "gradients")
ENDS = ("memory.reserved.low", "memory.reserved.high")
OVERHEAD = (
    "overhead",
    "outside the tensors",
    "workspaces of kernels, the allocator's pool, device context, communication buffers",
)


@dataclass(frozen=True)
class MemoryView:
    """The section's figures and tables; `spare` is what stays free or is missing, `role` empty where all are alike."""

    fits: bool
    state_only: bool
    role: str
    peak_moment: str
    peak: Total
    reserved: Total
    ends: tuple[Total, ...]  # between which 80 of 100 runs with this estimate lie
    may_not_fit: bool  # the upper one is above the capacity
    capacity: Total
    spare: str
    roles: Chart
    timeline: Chart
    table: Table
    outside: Table | None
    states: Table | None
    host: Table | None
    largest: Table | None
    levers: Table | None


def memory(report: Report) -> MemoryView | None:
    """Memory against capacity, of the state alone where only a parameter count is known; None without any role."""
    compiled = report.compiled
    if not compiled.roles:
        return None
    role, capacity = fullest_role(compiled), compiled.totals["memory.capacity"]
    several = len(compiled.roles) > 1
    spare = capacity - role.reserved
    return MemoryView(
        compiled.verdict.fits,
        compiled.plan.model.bare,
        role.name if several else "",
        role.peak.title,
        total_or_own(compiled, "memory.peak", role.peak.total),
        total_or_own(compiled, "memory.reserved", role.reserved),
        tuple(total(compiled, end) for end in ENDS if end in compiled.totals),
        float(compiled.totals.get(ENDS[1], 0)) > float(capacity),
        total(compiled, "memory.capacity"),
        numbers.size(max(spare, -spare)),
        role_figure(compiled),
        timeline_figure(role, float(capacity), "as answers grow" if compiled.plan.serve else "over a step"),
        category_table(compiled, role),
        outside_table(role),
        None if compiled.plan.serve else state_table(report),
        host_table(compiled),
        largest_table(role.peak),
        None if compiled.plan.serve else lever_table(compiled, role),
    )


def total_or_own(compiled: Compiled, key: str, value: int) -> Total:
    """A total; the role's own value, under no key, where the plan is too bare to have it."""
    return total(compiled, key) if key in compiled.totals else Total("", numbers.size(value), numbers.machine(value))


def stack_parts(moment: Moment) -> tuple[charts.StackPart, ...]:
    """What is alive, in the order of the palette, so that a category keeps its colour and its place everywhere."""
    return tuple(
        charts.StackPart(key, CATEGORIES[key][0], moment.parts[key]) for key in MEMORY_ORDER if moment.parts.get(key)
    )


def reserved_parts(role: RoleResult) -> tuple[charts.StackPart, ...]:
    """What a device holds at its peak, and what lies outside the tensors; they sum to what it reserves."""
    outside = max(role.reserved - role.peak.total, 0)
    return (*stack_parts(role.peak), charts.StackPart(OVERHEAD[0], OVERHEAD[1], outside))


def role_figure(compiled: Compiled) -> Chart:
    """One bar per kind of device at its peak, with what lies outside the tensors."""
    stacks = [
        charts.StackedBar(
            f"{role.name if len(compiled.roles) > 1 else 'every device'} ({numbers.integer(role.devices)})",
            reserved_parts(role),
        )
        for role in compiled.roles
    ]
    capacity, most = float(compiled.totals["memory.capacity"]), fullest_role(compiled)
    alt = (
        f"Memory of each kind of device at its peak. The fullest needs {numbers.size(most.reserved)} "
        f"of {numbers.size(capacity)}."
    )
    return draw_chart(
        "Memory per device, at the fullest moment",
        "Blue persists from step to step, orange comes and goes within a step, grey lies outside the tensors.",
        lambda width: charts.bars(stacks, capacity, alt, width),
    )


def timeline_figure(role: RoleResult, capacity: float, over: str) -> Chart:
    """The moments of a step, or of a service that fills, in their order."""
    stacks = []
    for moment in role.moments:
        name = moment.name.split("/")[0]  # of the pass that the moment is part of, if it is
        label = moment.title.removeprefix(f"{name}, ")
        group = name if label != moment.title else ""
        stacks.append(charts.StackedBar(label, stack_parts(moment), moment.name == role.peak.name, group))
    alt = f"Memory {over} on the fullest device. The peak, {numbers.size(role.peak.total)}, is {role.peak.title}."
    return draw_chart(
        f"Memory {over}",
        "Tensors on the fullest device at each moment that may be its peak, in order; the peak is bold.",
        lambda width: charts.timeline(stacks, capacity, alt, width),
    )


def category_table(compiled: Compiled, role: RoleResult) -> Table:
    """What persists, and what is alive at the peak, by category; the parts sum to what the driver shows."""
    parts = [(key, *CATEGORIES[key], role.peak.parts.get(key, 0)) for key in MEMORY_ORDER if key in role.peak.parts]
    rows = tuple(
        (
            Cell(name, colour=key, note=meaning),
            amount(compiled.totals.get(f"memory.static.{key}", 0), "B") if key in PERSISTING else DASH,
            amount(held_bytes, "B"),
            Cell(numbers.percent(share(held_bytes, role.reserved))),
        )
        for key, name, meaning, held_bytes in (*parts, (*OVERHEAD, max(role.reserved - role.peak.total, 0)))
    )
    headings = (Column("category"), *columns("number", "persists", "at the peak", "share"))
    return Table("Memory by category", headings, rows, sortable=False)


def outside_table(role: RoleResult) -> Table | None:
    """What lies outside the tensors, part by part, each with its source."""
    headings = (Column("part"), Column("takes", "number"), Column("source", "source"))
    rows = tuple((Cell(part.name), amount(part.bytes, "B"), Cell(part.basis)) for part in role.outside)
    return Table("What lies outside the tensors", headings, rows, sortable=False) if rows else None


def largest_table(peak: Moment) -> Table | None:
    """The largest single stocks at the peak."""
    if not peak.details:
        return None
    headings = (Column("account", "code"), *columns("number", "holds", "share of the peak"))
    rows = tuple(
        (Cell(name), amount(held_bytes, "B"), Cell(numbers.percent(share(held_bytes, peak.total))))
        for name, held_bytes in peak.details
    )
    return Table("Largest tensors at the peak", headings, rows, 12)


# --- optimizer states and quantised copies on the fullest device ---

SHAPES = {
    "whole": "as large as the weight",
    "rows": "one a row",
    "columns": "one a column",
    "factored": "one a row and one a column",
    "heads": "one a head",
    "one": "one",
}
KINDS = {"ends": "embedding and head", "matrices": "matrices of layers", "vectors": "norms and biases"}


def state_table(report: Report) -> Table | None:
    """States by name: of which weights, in which shape and format, and their bytes; None where nothing persists."""
    compiled = report.compiled
    role = fullest_role(compiled).name
    accounts = [row for row in compiled.accounts if row.role == role]
    rows = (*_optimizer_rows(compiled.plan, accounts), *_quantised_rows(compiled.plan.precision.matmul, accounts))
    headings = (*columns("text", "state", "of", "shape", "format"), Column("takes", "number"))
    return Table("States and copies that persist, on the fullest device", headings, rows, 16) if rows else None


def _optimizer_rows(plan: Plan, accounts: list[Account]) -> Iterator[tuple[Cell, ...]]:
    """What each rule of the optimizer keeps of the weights that no rule before it updates."""
    place, where = ("host", ", in host memory") if plan.parallelism.updates_on_host else ("memory", "")
    stored_in = {(place, "optimizer"), ("host", PAGED)}
    state_accounts = [row for row in accounts if (row.resource.kind, row.resource.category) in stored_in]
    rule: Optimizer | None = plan.optimizer
    remaining = set(KINDS)
    while rule is not None:
        for name, state in rule.states.items():
            title = f"{name.replace('_', ' ')} ({rule.title}{where})"
            kinds = [kind for kind in KINDS if kind in remaining & {*rule.weights} and kind in state.shapes]
            weights = "every weight" if len(kinds) == len(KINDS) else ", ".join(KINDS[kind] for kind in kinds)
            shapes = "; ".join(dict.fromkeys(SHAPES[shape] for shape in state.shapes.values()))
            dtype = plan.precision.states if state.dtype == DEFAULT else state.dtype
            scales = f", a {state.scales.dtype} scale for {state.scales.block}" if state.scales else ""
            state_bytes = _bytes_cell(row for row in state_accounts if row.cause.state in (name, f"{name}.scales"))
            yield *text_cells(title, weights, shapes, f"{dtype}{scales}"), state_bytes
        remaining -= {*rule.weights}
        rule = rule.otherwise


def _quantised_rows(recipe: Recipe | None, accounts: list[Account]) -> Iterator[tuple[Cell, ...]]:
    """Copies of weights that matmuls multiply, and the magnitudes that delayed scaling remembers."""
    weight_accounts = [row for row in accounts if row.resource.kind == "memory" and row.resource.category == "weights"]
    copies = [row for row in weight_accounts if row.cause.purpose is Purpose.QUANTISED_WEIGHT]
    if recipe and copies:
        scales = f"{recipe.format}, scales in {recipe.scale}"
        yield *text_cells("quantised copies", "matrices of layers", SHAPES["whole"], scales), _bytes_cell(copies)
    if recipe and recipe.history:
        magnitudes = _bytes_cell(row for row in weight_accounts if row.cause.state == "amax")
        yield (
            *text_cells("largest magnitudes", "quantised tensors", f"{recipe.history} of a tensor", "fp32"),
            magnitudes,
        )


def _bytes_cell(accounts: Iterable[Account]) -> Cell:
    """The bytes that all of these accounts hold."""
    return amount(sum(int(row.amount) * row.times for row in accounts), "B")


# --- host memory ---

WHAT = {
    "weights": ("weights", "shares that come to the device before each gather"),
    "master": ("master weights", "the copy that the update writes"),
    "gradients": ("gradients", "where the update reads them, in the dtype of what it updates"),
    "optimizer": ("optimizer states", "moments of the gradients"),
    "paged": ("optimizer states in unified memory", "on the device as far as it has room"),
    "activations": ("activations", "what layers save for backward, of every micro-batch in flight"),
    "batches": ("batches", "what workers have ready for the steps to come"),
    "checkpoint": ("checkpoint", "an even share of it, until storage has it"),
}


def host_table(compiled: Compiled) -> Table | None:
    """Host memory by category for one device of the role with most, and for a node; None where nothing is there."""
    most = dict(hosted_parts(compiled).parts)
    if not most:
        return None
    devices = devices_of_a_host(compiled.plan.cluster)
    rows = [
        (Cell(name, note=note), amount(most[key], "B"), amount(devices * most[key], "B"))
        for key, (name, note) in WHAT.items()
        if key in most
    ]
    rows.append((Cell("all"), amount(sum(most.values()), "B"), total_cell(compiled, "memory.host")))
    quantities = columns("number", "for a device", f"for {numbers.integer(devices)} of a node")
    return Table("What host memory holds", (Column("in host memory"), *quantities), tuple(rows), sortable=False)
