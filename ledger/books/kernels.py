"""Every kernel and transfer of a role with its price: entries, valued one cause at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ledger.arithmetic.values import Amount, divide, real, truncate
from ledger.books import prices
from ledger.books.entries import Entry, Ledger
from ledger.books.evaluate import Value
from ledger.books.posting import matmul_dtype
from ledger.books.results import KernelTime
from ledger.model.causes import Cause, HostTransfer, Transfer
from ledger.model.collectives import Collective
from ledger.model.offloading import HostCopy
from ledger.model.operations import ZERO, Matmul, Operation
from ledger.model.sharding import Exchange
from ledger.spec.kernel_classes import KernelClass
from ledger.spec.plan import Plan


@dataclass(frozen=True)
class Job:
    """One cause of a ledger in numbers, before any price: a kernel with its `work`, or bytes that move (`payload`)."""

    cause: Cause
    when: str
    kind: KernelClass | Transfer | HostTransfer
    times: Amount
    per: str
    work: prices.Work | None = None
    multiplies: bool = False  # on the matrix units
    payload: Amount = 0.0


def priced(ledger: Ledger, plan: Plan, value: Value) -> Iterator[KernelTime]:
    """One row for each cause in the ledger that takes time."""
    for job in jobs(ledger, value):
        yield row(job, plan)


def jobs(ledger: Ledger, value: Value) -> Iterator[Job]:
    """Every cause in the ledger that takes time, whatever the prices are."""
    for entry in ledger.select("hbm", "comm", "host_link"):
        operation = entry.operation
        if isinstance(operation, Collective | Exchange | HostCopy):
            yield _transfer(entry, operation.transfer, value)
        elif operation is not None:
            yield _kernel(entry, operation, value)


def row(job: Job, plan: Plan) -> KernelTime:
    """A job at the prices of a plan."""
    price, work = _price(job, plan), job.work
    return KernelTime(
        cause=job.cause,
        when=job.when,
        kind=job.kind,
        times=job.times,
        flops=work.flops if work and job.multiplies else 0.0,
        bytes=work.bytes if work else 0.0,
        payload=job.payload,
        seconds=price.seconds,
        roofline=price.floor,
        bound=price.bound,
        error=price.error,
        calibrated=price.calibrated,
        per=job.per,
        compute=price.compute if job.multiplies else 0.0,
    )


def _price(job: Job, plan: Plan) -> prices.Price:
    device, kind = plan.accelerator, job.kind
    if isinstance(kind, Transfer):
        where = prices.mesh(kind.axis, plan.parallelism, device, plan.cluster)
        return prices.transfer(device, plan.cluster, kind.collective, where, job.payload)
    if isinstance(kind, HostTransfer):
        return prices.host_copy(device, kind.direction, job.payload)
    if job.work is None:
        raise TypeError(f"{job.cause.account} is a kernel without work")
    return prices.kernel(device, job.work, plan.stack.matmul_level)


def _kernel(entry: Entry, operation: Operation, value: Value) -> Job:
    shape = operation.shape()
    pieces, spent = truncate(value(operation.pieces)), operation.spent()
    multiplies = spent != ZERO
    flops = real(divide(value(spent if multiplies else operation.vector()), pieces))
    work = prices.Work(
        kind=operation.kernel,
        flops=flops,
        bytes=real(value(entry.amount)),
        dtype=matmul_dtype(operation) if multiplies else "",
        **(_extent(shape, pieces, value) if shape else {}),
    )
    times = truncate(value(entry.times))
    return Job(entry.cause, str(entry.when), operation.kernel, times, entry.per, work, multiplies=multiplies)


def _extent(shape: Matmul, pieces: Amount, value: Value) -> dict[str, Amount]:
    """The shape of one product in numbers; pieces share the products of a batch."""
    found = {name: real(value(getattr(shape, name))) for name in ("batch", "m", "n", "k", "group")}
    return {**found, "batch": found["batch"] / pieces}


def _transfer(entry: Entry, transfer: Transfer | HostTransfer, value: Value) -> Job:
    times, payload = truncate(value(entry.times)), real(value(entry.amount))
    return Job(entry.cause, str(entry.when), transfer, times, entry.per, payload=payload)
