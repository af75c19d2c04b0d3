"""Every kernel and transfer of a role with its price: entries, valued one cause at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import sympy

from ledger.books import prices
from ledger.books.entries import Entry, Ledger
from ledger.books.evaluate import Exact
from ledger.books.posting import matmul_dtype
from ledger.books.results import KernelTime
from ledger.model.collectives import Collective
from ledger.model.operations import Matmul, Operation
from ledger.model.sharding import Exchange
from ledger.spec.plan import Plan

Value = Callable[[sympy.Expr], Exact]


def priced(ledger: Ledger, plan: Plan, value: Value) -> Iterator[KernelTime]:
    """One row for each cause in the ledger that takes time."""
    for entry in ledger.select():
        if entry.resource.name == "hbm" and entry.cause is not None:
            yield _kernel(entry, entry.cause, plan, value)
        elif entry.resource.name.startswith("comm."):
            yield _transfer(entry, plan, value)
        elif entry.resource.name.startswith("host_link."):
            yield _host_copy(entry, plan, value)


def _kernel(entry: Entry, operation: Operation, plan: Plan, value: Value) -> KernelTime:
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
    price = prices.kernel(plan.accelerator, work, plan.stack.matmul_level)
    return KernelTime(
        account=entry.account,
        when=str(entry.when),
        kind=operation.kernel,
        times=int(value(entry.times)),
        flops=work.flops if flops else 0.0,
        compute=price.compute if flops else 0.0,
        bytes=work.bytes,
        payload=0.0,
        seconds=price.seconds,
        roofline=price.floor,
        bound=price.bound,
        error=price.error,
        calibrated=price.calibrated,
        per=entry.per,
    )


def _extent(shape: Matmul, pieces: int, value: Value) -> dict[str, float]:
    """The shape of one product in numbers; pieces share the products of a batch."""
    found = {name: float(value(getattr(shape, name))) for name in ("batch", "m", "n", "k", "group")}
    return {**found, "batch": found["batch"] / pieces}


def _transfer(entry: Entry, plan: Plan, value: Value) -> KernelTime:
    operation = entry.cause
    if not isinstance(operation, Collective | Exchange):
        raise TypeError(f"{entry.account} is no transfer")
    where = prices.mesh(operation.axis, plan.parallelism, plan.accelerator, plan.cluster)
    payload = float(value(entry.amount))
    price = prices.transfer(plan.accelerator, plan.cluster, operation.collective, where, payload)
    return _moved(entry, f"{operation.collective}.{operation.axis}", payload, price, value)


def _host_copy(entry: Entry, plan: Plan, value: Value) -> KernelTime:
    payload = float(value(entry.amount))
    price = prices.host_copy(plan.accelerator, entry.resource.name.partition(".")[2], payload)
    return _moved(entry, entry.resource.name, payload, price, value)


def _moved(entry: Entry, kind: str, payload: float, price: prices.Price, value: Value) -> KernelTime:
    return KernelTime(
        account=entry.account,
        when=str(entry.when),
        kind=kind,
        times=int(value(entry.times)),
        flops=0.0,
        bytes=0.0,
        payload=payload,
        seconds=price.seconds,
        roofline=price.floor,
        bound=price.bound,
        error=price.error,
        calibrated=price.calibrated,
        per=entry.per,
    )
