"""What a total consists of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ledger.books.calendar import STAGED
from ledger.books.compiled import Compiled
from ledger.books.overlap import rules_in_words
from ledger.books.prices import devices_of_a_host, mesh
from ledger.books.resources import BATCH_COPIED, BATCH_READ, HOST_TRAFFIC, TRAFFIC, Resource, copied
from ledger.books.results import Number, RoleResult
from ledger.model.offloading import DOWN, UP
from ledger.model.schedule import schedule
from ledger.spec.plan import Plan

Parts = tuple[tuple[str, Number], ...]
# Totals of a resource with names of their own, and of the link to the host, over which nothing may move.
OF_A_DEVICE = {
    "traffic.step": TRAFFIC,
    "traffic.host": HOST_TRAFFIC,
    "traffic.batch": BATCH_COPIED,
    "traffic.storage": BATCH_READ,
    **{f"{copied(direction).name}.bytes": copied(direction) for direction in (DOWN, UP)},
}
# Totals of services that are found by a search, and the condition that it asks.
FOUND_BY_SEARCH = {
    "serve.concurrency.max": "by bisection: the most sequences n of a replica at which, on every kind of device,"
    " memory.reserved(n) <= memory.capacity and cache(n) + others(n) <= stack.engine.memory x memory.capacity"
    " (of what is left: cache(n) <= stack.engine.memory x (memory.capacity - others(n))); others(n): all but the cache,"
    " with buffers for the largest step of the engine; no more than stack.engine.sequences",
    "serve.concurrency": "as stated; or by bisection the n at which n / residence(n) = serve.arrival_rate",
}
PHASES = {"flops.forward": "forward", "flops.backward": "backward", "flops.recompute": "recompute"}


@dataclass(frozen=True)
class Breakdown:
    """A total's `parts`, which sum to it, and the `largest` accounts in it; `note` says what both are of."""

    note: str = ""
    parts: Parts = ()
    largest: Parts = ()


def breakdown(compiled: Compiled, key: str) -> Breakdown:
    """What the total `key` consists of; empty where it is a formula of other totals."""
    if key == "memory.peak":
        role = worst(compiled)
        note = f"role {role.name}, at its peak: {role.peak.title}"
        return Breakdown(note, descending(role.peak.parts.items()), descending(role.peak.details))
    if key == "memory.reserved":
        role = worst(compiled)
        parts = [("tensors at the peak", role.peak.total), *((part.name, part.bytes) for part in role.outside)]
        sources = [f"{part.name}: {part.basis}" for part in role.outside]
        return Breakdown("\n".join([f"role {role.name}, at its peak: {role.peak.title}", *sources]), tuple(parts))
    if key == "time.step":
        return Breakdown("on the critical path", tuple((span.title, span.seconds) for span in compiled.waterfall))
    if key == "time.exposed":
        return Breakdown(overlaps(compiled.plan), exposed(compiled))
    if key == "time.bubble":
        return Breakdown(schedule_rows(compiled.plan))
    if key in PHASES:
        return Breakdown("of the whole job", flop_parts(compiled, PHASES[key]))
    moved = {**OF_A_DEVICE, **{f"{resource.name}.bytes": resource for resource in transfers_in_order(compiled)}}
    if key in moved:
        return flow_parts(compiled, moved[key])
    if key == "memory.host":
        return hosted_parts(compiled)
    if key == "flops.step":
        return Breakdown("of the whole job", tuple((part, compiled.totals[part]) for part in PHASES))
    return Breakdown(FOUND_BY_SEARCH.get(key, ""))


def exposed(compiled: Compiled) -> Parts:
    """What the step waits for, by what moves."""
    return tuple((span.title, span.seconds) for span in compiled.waterfall if span.transfer)


def overlaps(plan: Plan) -> str:
    """What may hide behind what, a line for each kind of transfer."""
    lines = (
        f"{row.kind} ({row.choice}): {row.transfers}, behind {row.behind}" + (f" [{row.source}]" if row.source else "")
        for row in rules_in_words(plan.stack.overlap)
    )
    return "\n".join(lines)


def schedule_rows(plan: Plan) -> str:
    """The schedule, what its devices wait for, and its source; where nobody waits, why."""
    if plan.parallelism.pipeline == 1:
        return "nobody waits: with pipeline = 1 there is one stage, and each device runs all layers"
    row = schedule(plan.parallelism)
    return f"{plan.parallelism.scheduled}: {row.title}; waits {row.waits} [{row.source}]"


def worst(compiled: Compiled) -> RoleResult:
    """The role that needs most memory."""
    return max(compiled.roles, key=lambda role: role.peak.total)


def flop_parts(compiled: Compiled, phase: str) -> Parts:
    """The matrix FLOPs of every account in one phase that its result needs, over all devices of all roles."""
    devices = {role.name: role.devices for role in compiled.roles}
    flops: dict[str, Number] = {}
    for leaf in compiled.accounts:
        if leaf.when == phase and leaf.resource.kind == "matmul":
            flops[leaf.account] = flops.get(leaf.account, 0) + leaf.amount * leaf.times * devices[leaf.role]
    return descending(flops.items())


def flow_parts(compiled: Compiled, resource: Resource) -> Breakdown:
    """The bytes that every account moves through a resource in a step, on the role that moves most."""
    moved = _sums_by_role(
        (leaf.role, leaf.account, leaf.amount * leaf.times) for leaf in compiled.accounts if leaf.resource == resource
    )
    if not moved:
        return Breakdown("nothing is moved")
    busiest = max(moved, key=lambda role: sum(moved[role].values()))
    return Breakdown(f"per device of role {busiest}, in a step", descending(moved[busiest].items()))


def _sums_by_role(rows: Iterable[tuple[str, str, Number]]) -> dict[str, dict[str, Number]]:
    """Amounts added up by role, and within it by name."""
    sums: dict[str, dict[str, Number]] = {}
    for role, name, amount in rows:
        of_role = sums.setdefault(role, {})
        of_role[name] = of_role.get(name, 0) + amount
    return sums


def hosted_parts(compiled: Compiled) -> Breakdown:
    """The bytes of host memory for one device of the role that needs most, by what they are."""
    on_host = (leaf for leaf in compiled.accounts if leaf.resource.kind == "host")
    hosted = _sums_by_role((leaf.role, leaf.resource.category, leaf.amount * leaf.times) for leaf in on_host)
    if not hosted and STAGED not in compiled.totals:
        return Breakdown("nothing is held")
    most = max(hosted, key=lambda role: sum(hosted[role].values())) if hosted else compiled.roles[0].name
    count = devices_of_a_host(compiled.plan.cluster)
    staged = {"checkpoint": compiled.totals[STAGED] / count} if STAGED in compiled.totals else {}
    parts = {**hosted.get(most, {}), **staged}
    return Breakdown(f"of one device of role {most}; a node has {count}", descending(parts.items()))


def descending(parts: Iterable[tuple[str, Number]]) -> Parts:
    """The parts that are not zero, largest first."""
    return tuple(sorted(((name, value) for name, value in parts if value), key=lambda part: -part[1]))


# --- The links that a plan's transfers go over, by the names of their rates ---

SCALEUP, SCALEOUT, HOST = "accelerator.scaleup.bandwidth", "cluster.scaleout.bandwidth", "accelerator.host_link"
SENT = ("comm", "host_link")  # kinds of resources that links carry
LINKS = frozenset((SCALEUP, SCALEOUT, HOST))


def transfers_in_order(compiled: Compiled) -> tuple[Resource, ...]:
    """What is sent between devices, and between a device and its host, in the order of the ledger."""
    return tuple(dict.fromkeys(leaf.resource for leaf in compiled.accounts if leaf.resource.kind in SENT))


def links(compiled: Compiled) -> frozenset[str]:
    """The links with bytes on them in a step, by the names of their rates."""
    return frozenset(link for resource in transfers_in_order(compiled) for link in _links_carrying(compiled, resource))


def _links_carrying(compiled: Compiled, resource: Resource) -> Iterator[str]:
    """Inside a node its own links, or the host's where the devices have none that reaches; between nodes the cards."""
    if resource.kind == "host_link":
        yield HOST
        return
    plan, device = compiled.plan, compiled.plan.accelerator
    where = mesh(resource.axis, plan.parallelism, device, plan.cluster)
    if where.local > 1:
        linked = device.scaleup_bandwidth and where.span <= device.scaleup_domain
        yield SCALEUP if linked else HOST
    if where.domains > 1:
        yield SCALEOUT
