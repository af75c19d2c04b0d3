"""Posting: each operation of a program becomes entries, one for each resource it spends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import sympy

from ledger.books.entries import Entry, flow
from ledger.model import dtypes
from ledger.model.dims import symbol
from ledger.model.operations import Collective, Operation
from ledger.model.program import Program, Unit
from ledger.model.sharding import Exchange

CONTRACTION = "2 FLOPs for each point of the product of all dims (2mkn)"
CAUSAL = "the points a causal mask leaves, (S+1)/2S of the square"
TRAFFIC = "each operand is read once and the result written once"
COLLECTIVE = {
    "all_gather": "held split and used whole: a gather; bytes of its output",
    "reduce_scatter": "contracted over a split dim, result held split: a reduce-scatter; bytes of its input",
    "all_reduce": "contracted over a split dim: a reduction; bytes of its input",
    "send": "the residual stream between pipeline stages",
}


def flows(program: Program) -> Iterator[Entry]:
    """Everything one device spends in a step but the update of its weights."""
    for unit in program.units:
        yield from _phase(unit, "forward", unit.forward)
        yield from _phase(unit, "recompute", unit.kept.again)
        yield from _phase(unit, "backward", unit.backward)
    for unit_name, count, phase, transfer in program.exchanges:
        yield _transfer(unit_name, count, phase, transfer)
    for send in program.sends:
        phase = "backward" if send.name.endswith("gradient") else "forward"
        yield _sent(send, phase)


def _phase(unit: Unit, phase: str, operations: Sequence[Operation]) -> Iterator[Entry]:
    for operation in operations:
        times = unit.count if operation.once else unit.count * symbol("micro_batches")
        account = f"{unit.name}/{operation.name}"
        if isinstance(operation, Collective):
            yield _communication(account, phase, operation, times)
        else:
            yield from _work(account, phase, operation, times)


def _work(account: str, phase: str, operation: Operation, times: sympy.Expr) -> Iterator[Entry]:
    """Matmul FLOPs, those a mask throws away, vector FLOPs and memory traffic of one kernel."""
    useful, redone = operation.useful(), operation.redone()
    matmul = f"matmul.{matmul_dtype(operation)}"
    basis = CAUSAL if operation.masked() != 0 or operation.kernel.startswith("attention") else CONTRACTION
    amounts = [
        (matmul, phase, useful - redone, basis),
        (matmul, "recompute", redone, "scores that the backward kernel rebuilds"),
        (matmul.replace("matmul", "masked"), phase, operation.masked(), "computed, then thrown away by the mask"),
        ("vector", phase, operation.vector(), "operations of one element times elements"),
        ("hbm", phase, operation.traffic(), TRAFFIC),
    ]
    for resource, when, amount, why in amounts:
        if amount != 0:
            yield Entry(account, flow(resource), when, amount, times, why, operation)


def matmul_dtype(operation: Operation) -> str:
    """The dtype whose matrix rate prices an operation."""
    return dtypes.rate(operation.inputs[0].dtype) if operation.inputs else ""


def _communication(account: str, phase: str, operation: Collective, times: sympy.Expr) -> Entry:
    resource = flow(f"comm.{operation.collective}.{operation.axis}")
    return Entry(account, resource, phase, operation.payload(), times, COLLECTIVE[operation.collective], operation)


def _transfer(unit: str, count: sympy.Expr, phase: str, transfer: Exchange) -> Entry:
    times = count if transfer.per_step else count * symbol("micro_batches")
    resource = flow(f"comm.{transfer.collective}.{transfer.axis}")
    account = f"{unit}/{transfer.name}"
    return Entry(account, resource, phase, transfer.payload(), times, COLLECTIVE[transfer.collective], transfer)


def _sent(send: Collective, phase: str) -> Entry:
    """A device with several chunks of layers passes every micro-batch on once for each chunk."""
    times = symbol("micro_batches") * symbol("chunks")
    return Entry(send.name, flow("comm.send.pipeline"), phase, send.payload(), times, COLLECTIVE["send"], send)
