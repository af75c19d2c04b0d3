"""Every kernel and transfer of a role with its price: entries, valued one cause at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ledger import price_forms
from ledger.arithmetic.values import Amount, divide, maximum, real, truncate
from ledger.books import prices
from ledger.books.entries import Entry, Ledger
from ledger.books.evaluate import Value
from ledger.books.posting import matmul_dtype
from ledger.books.prices import FACTOR, KernelPrice, Mesh
from ledger.books.resources import HOST_TRAFFIC
from ledger.books.results import KernelTime
from ledger.model.causes import Cause, HostTransfer, HostWork, Transfer
from ledger.model.collectives import Collective
from ledger.model.offloading import HostCopy
from ledger.model.operations import ZERO, Matmul, Operation
from ledger.model.sharding import ParameterCollective
from ledger.price_forms import DataSheet
from ledger.spec.kernel_classes import ONE_SHOT, KernelClass
from ledger.spec.paths import Places
from ledger.spec.plan import Accelerator, Plan
from ledger.spec.problems import FLAG, Location, Problem, SpecError

# What to type for products in a dtype that a device has no peak for, by their operation: what runs without fp32.
OTHER_PRODUCTS: Mapping[str, str] = {
    "attention/scores": "`kernels: {attention: flash}`",
    "attention/context": "`kernels: {attention: flash}`",
    "mlp/router": "`dtype: compute` of the model's `router`",
}


@dataclass(frozen=True)
class KernelCall:
    """One cause of a ledger in numbers, before any price: a kernel with its `work`, or bytes (`payload`).

    Such bytes move, or a host reads and writes them.
    """

    cause: Cause
    when: str
    kind: KernelClass | Transfer | HostTransfer | HostWork
    times: Amount
    per: str
    work: prices.KernelWork | None = None
    multiplies: bool = False  # on the matrix units
    payload: Amount = 0.0
    shares: bool = False  # spent on sharing weights, as its entry says


def price_calls(ledger: Ledger, plan: Plan, value: Value) -> Iterator[KernelTime]:
    """One row for each cause in the ledger that takes time."""
    for call in kernel_calls(ledger, value):
        yield price_call(call, plan)


def kernel_calls(ledger: Ledger, value: Value) -> Iterator[KernelCall]:
    """Every cause in the ledger that takes time, whatever the prices are."""
    for entry in ledger.select("hbm", "comm", "host_link", "host_traffic", "nvme_traffic"):
        operation = entry.operation
        if entry.resource == HOST_TRAFFIC:
            yield _transfer_call(entry, HostWork("update" if entry.when == "optimizer" else "sum"), value)
        elif entry.resource.kind == "nvme_traffic":
            yield _transfer_call(entry, HostWork(entry.resource.direction), value)
        elif isinstance(operation, Collective | ParameterCollective | HostCopy):
            yield _transfer_call(entry, operation.transfer, value)
        elif operation is not None:
            yield _kernel_call(entry, operation, value)


def price_call(call: KernelCall, plan: Plan) -> KernelTime:
    """A call at the prices of a plan."""
    price, work = _call_price(call, plan), call.work
    return KernelTime(
        cause=call.cause,
        when=call.when,
        kind=call.kind,
        times=call.times,
        flops=work.flops if work and call.multiplies else 0.0,
        bytes=work.bytes if work else 0.0,
        payload=call.payload,
        seconds=price.seconds,
        roofline=price.floor,
        bound=price.bound,
        error=price.error,
        calibrated=price.calibrated,
        per=call.per,
        compute=price.compute if call.multiplies else 0.0,
        shares=call.shares,
    )


def _call_price(call: KernelCall, plan: Plan) -> prices.KernelPrice:
    device, kind = plan.accelerator, call.kind
    if isinstance(kind, Transfer):
        where = prices.mesh(kind.axis, plan.parallelism, device, plan.cluster)
        limit = plan.stack.engine.one_shot
        if limit and is_one_shot(device, kind.collective, where, call.payload, limit):
            return one_shot(device, where, call.payload)
        direct = plan.stack.engine.peers == "direct"
        return prices.transfer(device, plan.cluster, kind.collective, where, call.payload, direct=direct)
    if isinstance(kind, HostTransfer):
        return prices.host_copy(device, kind.direction, call.payload)
    if isinstance(kind, HostWork):
        return prices.drive_work(plan, kind.of, call.payload) if kind.drives else prices.host_work(plan, call.payload)
    if call.work is None:
        raise TypeError(f"{call.cause.account} is a kernel without work")
    if call.work.dtype:
        instead = OTHER_PRODUCTS.get(call.cause.name, "")
        require_peak(plan, call.work.dtype, f"{call.cause.account} multiplies", instead)
    return prices.kernel(device, call.work, plan.stack.matmul_level, plan.stack.quantised_level)


def require_peak(plan: Plan, dtype: str, clause: str, instead: str) -> None:
    """Raises SpecError, at the accelerator of the plan, where that has no peak for a dtype of products.

    `clause` says what multiplies in it; `instead`, what else to type than such a peak, is empty where nothing helps.
    """
    device = plan.accelerator
    if dtype in device.peak:
        return
    message = f"{device.title} has no {dtype} peak, and {clause} in it"
    help_text = (
        f"it has {', '.join(device.peak)}; {instead}{', or ' if instead else ''}state `accelerator.peak.{dtype}`"
    )
    where = Places(plan.origins)("accelerator") if plan.origins else Location(plan.name)
    texts = {}
    if plan.reading is not None:
        typed = [FLAG + setting for setting in plan.reading.overrides]
        texts = {plan.reading.source.file: plan.reading.source.text, **dict(zip(typed, typed, strict=True))}
    raise SpecError([Problem(where, message, help_text)], texts)


def _kernel_call(entry: Entry, operation: Operation, value: Value) -> KernelCall:
    shape = operation.shape()
    pieces, spent = truncate(value(operation.pieces)), operation.spent()
    multiplies = spent != ZERO
    flops = real(divide(value(spent if multiplies else operation.vector()), pieces))
    work = prices.KernelWork(
        kind=operation.kernel,
        flops=flops,
        bytes=real(value(entry.amount)),
        dtype=matmul_dtype(operation) if multiplies else "",
        run_share=float(operation.run_share()),
        further_bytes=real(value(operation.accumulation_bytes() / operation.pieces)) if operation.adds_to else 0.0,
        **(_product_sizes(shape, pieces, value) if shape else {}),
    )
    when, times = str(entry.when), truncate(value(entry.times))
    return KernelCall(
        entry.cause, when, operation.kernel, times, entry.per, work, multiplies=multiplies, shares=entry.shares
    )


def _product_sizes(shape: Matmul, pieces: Amount, value: Value) -> dict[str, Amount]:
    """The shape of one product in numbers; pieces share the products of a batch."""
    sizes = {name: real(value(getattr(shape, name))) for name in ("batch", "m", "n", "k", "group")}
    return {**sizes, "batch": sizes["batch"] / pieces}


def _transfer_call(entry: Entry, transfer: Transfer | HostTransfer | HostWork, value: Value) -> KernelCall:
    times, payload = truncate(value(entry.times)), real(value(entry.amount))
    return KernelCall(entry.cause, str(entry.when), transfer, times, entry.per, payload=payload, shares=entry.shares)


# --- All-reduces by one kernel ---

ALL_REDUCE = "all_reduce"
MEASURED = KernelClass(ALL_REDUCE, ONE_SHOT)


def is_one_shot(device: Accelerator, collective: str, at: Mesh, payload: Amount, limit: int) -> bool:
    """Whether one kernel does a collective: an all-reduce inside one domain of no more bytes than its engine allows."""
    inside = bool(at.size > 1 and at.domains == 1 and MEASURED in device.curves)
    return collective == ALL_REDUCE and inside and 0 < payload <= limit


def one_shot(device: Accelerator, at: Mesh, payload: Amount) -> KernelPrice:
    """The price of an all-reduce by one kernel, by the curve of the nearest number of ranks."""
    curve = min(device.curves[MEASURED], key=lambda row: abs(row.ranks - at.size))
    sent = payload * FACTOR[ALL_REDUCE](at.size)
    floor = sent / device.scaleup_bandwidth
    parameters = {**curve.parameters, "B": device.over_links(curve.parameters["B"])}
    seconds = price_forms.seconds("collective", parameters, {"bytes": sent, "bus_bytes": sent}, DataSheet())
    return KernelPrice(maximum(seconds, floor), floor, "network", curve.error, calibrated=True)
