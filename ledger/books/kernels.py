"""Every kernel and transfer of a role with its price: entries, valued one cause at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ledger.books import prices
from ledger.books.entries import Entry, Ledger
from ledger.books.evaluate import Value
from ledger.books.posting import matmul_dtype
from ledger.books.results import KernelTime
from ledger.model.collectives import Collective
from ledger.model.operations import Matmul, Operation
from ledger.model.sharding import Exchange
from ledger.spec.plan import Plan


@dataclass(frozen=True)
class Job:
    """One cause of a ledger in numbers, before any price: a kernel with its `work`, or bytes that move.

    `collective` and `axis` say what moves between devices, `direction` what moves over the link to the host.
    """

    account: str
    when: str
    kind: str
    times: int
    per: str
    work: prices.Work | None = None
    multiplies: bool = False  # on the matrix units
    payload: float = 0.0
    collective: str = ""
    axis: str = ""
    direction: str = ""


def priced(ledger: Ledger, plan: Plan, value: Value) -> Iterator[KernelTime]:
    """One row for each cause in the ledger that takes time."""
    for job in jobs(ledger, value):
        yield row(job, plan)


def jobs(ledger: Ledger, value: Value) -> Iterator[Job]:
    """Every cause in the ledger that takes time, whatever the prices are."""
    for entry in ledger.select():
        if entry.resource.name == "hbm" and entry.cause is not None:
            yield _kernel(entry, entry.cause, value)
        elif entry.resource.name.startswith("comm."):
            yield _transfer(entry, value)
        elif entry.resource.name.startswith("host_link."):
            yield _host_copy(entry, value)


def row(job: Job, plan: Plan) -> KernelTime:
    """A job at the prices of a plan."""
    price, work = _price(job, plan), job.work
    return KernelTime(
        account=job.account,
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
    device = plan.accelerator
    if job.work:
        return prices.kernel(device, job.work, plan.stack.matmul_level)
    if job.direction:
        return prices.host_copy(device, job.direction, job.payload)
    where = prices.mesh(job.axis, plan.parallelism, device, plan.cluster)
    return prices.transfer(device, plan.cluster, job.collective, where, job.payload)


def _kernel(entry: Entry, operation: Operation, value: Value) -> Job:
    shape = operation.shape()
    pieces = int(value(operation.pieces))
    flops = float(value(operation.spent()) / pieces)
    work = prices.Work(
        kind=operation.kernel,
        flops=flops or float(value(operation.vector()) / pieces),
        bytes=float(value(entry.amount)),
        dtype=matmul_dtype(operation) if flops else "",
        **(_extent(shape, pieces, value) if shape else {}),
    )
    head = (entry.account, str(entry.when), operation.kernel, int(value(entry.times)), entry.per)
    return Job(*head, work=work, multiplies=bool(flops))


def _extent(shape: Matmul, pieces: int, value: Value) -> dict[str, float]:
    """The shape of one product in numbers; pieces share the products of a batch."""
    found = {name: float(value(getattr(shape, name))) for name in ("batch", "m", "n", "k", "group")}
    return {**found, "batch": found["batch"] / pieces}


def _transfer(entry: Entry, value: Value) -> Job:
    operation = entry.cause
    if not isinstance(operation, Collective | Exchange):
        raise TypeError(f"{entry.account} is no transfer")
    collective, axis = operation.collective, operation.axis
    head = (entry.account, str(entry.when), f"{collective}.{axis}", int(value(entry.times)), entry.per)
    return Job(*head, payload=float(value(entry.amount)), collective=collective, axis=axis)


def _host_copy(entry: Entry, value: Value) -> Job:
    direction = entry.resource.name.partition(".")[2]
    head = (entry.account, str(entry.when), entry.resource.name, int(value(entry.times)), entry.per)
    return Job(*head, payload=float(value(entry.amount)), direction=direction)
