"""A compiled plan under other prices: which prices there are, the step they give, and which of them sets its pace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log

from ledger.arithmetic.values import Amount, logarithm
from ledger.books import kernels, time
from ledger.books.assembly.stages import StageTime, stage_time
from ledger.books.assembly.work import stage_work
from ledger.books.compiled_roles import CompiledRole
from ledger.books.kernels import KernelCall
from ledger.books.results import KernelTime
from ledger.model.schedule import Role
from ledger.spec.plan import Plan

FASTER = 0.01  # a resource is made better by so much
FIXED = "pace.fixed"


Rows = tuple[tuple[KernelTime, ...], ...]


@dataclass(frozen=True)
class StepCalls:
    """What the devices of a plan do in a step, in numbers. Prices make it a step.

    `calls` are those of each ledger; `roles` play one of them each, by its place.
    """

    calls: tuple[tuple[KernelCall, ...], ...]
    roles: tuple[tuple[Role, int], ...]

    def rows(self, plan: Plan) -> Rows:
        """Every call at the prices of a plan."""
        return tuple(tuple(kernels.price_call(call, plan) for call in calls) for calls in self.calls)

    def repriced(self, plan: Plan, rows: Rows, reads: Callable[[KernelCall], bool]) -> Rows:
        """The rows with new prices for the calls that read what has moved."""
        return tuple(
            tuple(
                kernels.price_call(call, plan) if reads(call) else row for call, row in zip(calls, before, strict=True)
            )
            for calls, before in zip(self.calls, rows, strict=True)
        )

    def times(self, plan: Plan, rows: Rows) -> list[StageTime]:
        """The passes of every role; roles that run and send the same take the same time."""
        work = [stage_work(role_rows, plan) for role_rows in rows]
        times_by_key: dict[object, StageTime] = {}
        for role, place in self.roles:
            if (key := (place, role.sends, role.returns)) not in times_by_key:
                times_by_key[key] = stage_time(role, work[place], plan)
        return [replace(times_by_key[place, role.sends, role.returns], role=role) for role, place in self.roles]


def step_calls(books: Sequence[CompiledRole]) -> StepCalls:
    """The calls of compiled roles; a ledger that several roles share is bound once, to the sizes of the first."""
    places = {key: place for place, key in enumerate(dict.fromkeys(id(book.ledger) for book in books))}
    firsts = {id(book.ledger): book for book in reversed(books)}
    calls = tuple(tuple(kernels.kernel_calls(firsts[key].ledger, firsts[key].value)) for key in places)
    return StepCalls(calls, tuple((book.role, places[id(book.ledger)]) for book in books))


def step_time(plan: Plan, books: Sequence[CompiledRole]) -> Amount:
    """The estimate under other prices: the books stay as they are."""
    table = step_calls(books)
    return time.estimated(table.times(plan, table.rows(plan)), plan).estimate


def _scale_peak(plan: Plan, by: Amount) -> Plan:
    def scaled(rates: Mapping[str, float]) -> Mapping[str, float]:
        return {dtype: rate * by for dtype, rate in rates.items()}

    device = plan.accelerator
    peaks = replace(device, peak=scaled(device.peak), sparse_peak=scaled(device.sparse_peak))
    return replace(plan, accelerator=peaks)


def _scale_bandwidth(plan: Plan, by: Amount) -> Plan:
    return replace(plan, accelerator=replace(plan.accelerator, bandwidth=plan.accelerator.bandwidth * by))


def _scale_scaleup(plan: Plan, by: Amount) -> Plan:
    device = plan.accelerator
    return replace(plan, accelerator=device.with_links(device.scaleup_bandwidth * by, device.host_bandwidth))


def _scale_host_link(plan: Plan, by: Amount) -> Plan:
    device = plan.accelerator
    return replace(plan, accelerator=device.with_links(device.scaleup_bandwidth, device.host_bandwidth * by))


def _scale_host_memory(plan: Plan, by: Amount) -> Plan:
    if plan.host is None or not plan.parallelism.updates_on_host:
        return plan
    return replace(plan, cluster=replace(plan.cluster, host=replace(plan.host, bandwidth=plan.host.bandwidth * by)))


def _scale_nvme(plan: Plan, by: Amount) -> Plan:
    if plan.host is None or plan.host.nvme is None or not plan.parallelism.offload.nvme:
        return plan
    faster = replace(plan.host.nvme, read=plan.host.nvme.read * by, write=plan.host.nvme.write * by)
    return replace(plan, cluster=replace(plan.cluster, host=replace(plan.host, nvme=faster)))


def _scale_scaleout(plan: Plan, by: Amount) -> Plan:
    return replace(plan, cluster=replace(plan.cluster, scaleout_bandwidth=plan.cluster.scaleout_bandwidth * by))


def _scale_launch(plan: Plan, by: Amount) -> Plan:
    stack = plan.stack
    launch, call, check = (seconds * by for seconds in (stack.launch, stack.call, stack.check))
    return replace(plan, stack=replace(stack, launch=launch, call=call, check=check))


def _scale_data(plan: Plan, by: Amount) -> Plan:
    data, rate = plan.data, plan.data.worker_rate(plan.model)
    if not data.waits(plan.model):
        return plan
    faster = replace(data, bandwidth=data.bandwidth * by) if data.bandwidth else data
    return replace(plan, data=replace(faster, rate=replace(rate, amount=rate.amount * by)) if rate else faster)


@dataclass(frozen=True)
class PriceInput:
    """A price that can move: its `path` and `title`, the plan with it `moved`, which calls it `prices`.

    `pace` is the total that says how much it counts, `limit` what the resource is called where it counts most.
    """

    path: str
    title: str
    moved: Callable[[Plan, Amount], Plan]
    prices: Callable[[KernelCall], bool]
    pace: str
    limit: str
    better: int = 1  # -1 where less is better

    @property
    def better_by(self) -> float:
        """The factor that makes a price one FASTER better."""
        return (1 + FASTER) ** self.better


def _is_kernel(call: KernelCall) -> bool:
    return call.work is not None


def _is_transfer(call: KernelCall) -> bool:
    return call.work is None


PRICES = (
    PriceInput("accelerator.peak", "matmul peak", _scale_peak, _is_kernel, "pace.matmul", "matrix units"),
    PriceInput("accelerator.bandwidth", "memory bandwidth", _scale_bandwidth, _is_kernel,
          "pace.memory", "memory bandwidth"),
    PriceInput("accelerator.scaleup.bandwidth", "bandwidth within a node", _scale_scaleup, _is_transfer,
          "pace.scaleup", "network within a node"),
    PriceInput("cluster.scaleout.bandwidth", "bandwidth between nodes", _scale_scaleout, _is_transfer,
          "pace.scaleout", "network between nodes"),
    PriceInput("accelerator.host_link", "bandwidth of the link to the host", _scale_host_link, _is_transfer,
          "pace.host", "link to the host"),
    PriceInput("cluster.host.bandwidth", "bandwidth of host memory", _scale_host_memory, _is_transfer,
          "pace.host_memory", "host memory"),
    PriceInput("cluster.host.nvme", "bandwidth of NVMe drives", _scale_nvme, _is_transfer, "pace.nvme", "NVMe drives"),
    PriceInput("data.rate", "rates of data", _scale_data, lambda _: False, "pace.data", "data"),
    PriceInput("stack.launch.per_operation", "time of a launch", _scale_launch, lambda _: False,
          "pace.launch", "kernel launches", better=-1),
)  # fmt: skip
LIMITS = {**{price.pace: price.limit for price in PRICES}, FIXED: "start times and latencies"}


def resource_shares(plan: Plan, table: StepCalls, rows: Rows, step: Amount) -> dict[str, Amount]:
    """By how many per cent a step gets shorter for each resource that is one per cent better; together they are one."""
    faster = []
    for price in PRICES:
        better = price.moved(plan, price.better_by)
        times = table.times(better, table.repriced(better, rows, price.prices))
        faster.append(time.estimated(times, better).estimate)
    return shares(step, faster)


def shares(step: Amount, faster: Sequence[Amount]) -> dict[str, Amount]:
    """What each resource counts for, from the seconds of a step and those with each price of PRICES made better.

    What no resource buys is fixed: starts of kernels and transfers, latencies.
    """
    pairs = zip(PRICES, faster, strict=True)
    gained = {price.pace: logarithm(step / seconds) / log(1 + FASTER) for price, seconds in pairs}
    return {**gained, FIXED: 1 - sum(gained.values())}
