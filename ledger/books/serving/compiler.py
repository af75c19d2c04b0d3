"""From a plan that serves to its compiled form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ledger.books.bindings import described
from ledger.books.compiled import Compiled
from ledger.books.entries import account_of
from ledger.books.notation import text
from ledger.books.resources import stock
from ledger.books.results import Account, KernelTime, RoleResult, Symbol, WaterfallPart
from ledger.books.serving.memory import Held, devices_memory
from ledger.books.serving.passes import DECODE, Shape, mean_prompt_shape, served_roles
from ledger.books.serving.steady import Service, steady_shape
from ledger.books.serving.totals import totals
from ledger.books.serving.verdict import request_time, verdict
from ledger.model.dims import BY_NAME, symbol
from ledger.spec.plan import Plan

HELD_WEIGHTS = "weights in their formats, each storage once, with their scales"
HELD_CACHE = "keys and values, or latents, of all sequences of a replica at the end of their outputs"
# What limits the kernels of a pass, and what a part of its seconds is called.
LIMITS = {
    "memory": "decoding: kernels that memory limits",
    "compute": "decoding: kernels that compute limits",
    "network": "decoding: transfers between devices",
}


def compile_serving(plan: Plan) -> Compiled:
    """Passes, sequences in flight, memory, totals, verdict."""
    service = Service(plan, served_roles(plan))
    amounts = totals(service)
    devices = devices_memory(service.roles, service.stated.concurrency)
    shape = steady_shape(service)
    results = tuple(_role_result(device, service, shape) for device in devices)
    slowest = max(results, key=lambda result: _decode_seconds(result.kernels))
    spent = request_time(service, service.roles[results.index(slowest)])
    return Compiled(
        plan=plan,
        totals=amounts,
        accounts=tuple(account for device in devices for account in _accounts(device, service, shape)),
        roles=results,
        waterfall=tuple(_waterfall(slowest.kernels)),
        verdict=verdict(plan, amounts, devices, slowest.kernels, spent),
        symbols=_symbols(service, shape),
        service=service,
    )


def compile_serving_totals(plan: Plan) -> dict[str, object]:
    """The totals of `compile_serving` alone."""
    return dict(totals(Service(plan, served_roles(plan))))


def phase_rows(compiled: Compiled, name: str) -> tuple[KernelTime, ...]:
    """The kernels and transfers of one kind of pass, on the kind of device whose decoding takes longest."""
    slowest = max((role.kernels for role in compiled.roles), key=_decode_seconds)
    return tuple(row for row in slowest if row.when == name)


def _decode_seconds(rows: Sequence[KernelTime]) -> float:
    return sum(float(row.seconds) * row.times for row in rows if row.when == DECODE)


def _role_result(device: Held, service: Service, shape: Shape) -> RoleResult:
    role, served = device.served.role, device.served
    prompt = mean_prompt_shape(service.serve)
    rows = (*served.rows(served.decode, shape), *served.rows(served.prefill, prompt))
    return RoleResult(
        role.name, role.stages, role.devices, device.moments, device.peak, device.reserved, rows, device.outside
    )


def _waterfall(rows: Sequence[KernelTime]) -> Iterator[WaterfallPart]:
    for limit, title in LIMITS.items():
        seconds = sum(float(row.seconds) * row.times for row in rows if row.bound == limit and row.when == "decode")
        if seconds:
            yield WaterfallPart(limit, title, seconds, transfer=limit == "network")


def _accounts(device: Held, service: Service, shape: Shape) -> Iterator[Account]:
    """Every entry of both passes with its value, and what the device holds."""
    served = device.served
    for phase, sizes in ((served.prefill, mean_prompt_shape(service.serve)), (served.decode, shape)):
        values = ((phase.joint, served.value(sizes)), (phase.separate, served.value(sizes)))
        for ledger, value in (*values, (phase.head, served.value(served.scored(sizes)))):
            for entry in ledger.entries:
                yield account_of(entry, served.role.name, str(entry.when), value)
    held_stocks = ("weights", device.weights, HELD_WEIGHTS), ("cache", device.full_cache, HELD_CACHE)
    for category, stocks, basis in held_stocks:
        for cause, held_stock in stocks.items():
            amount, formula, role = held_stock.bytes, held_stock.formula, served.role.name
            yield Account(cause, role, stock(category), "serving", amount, 1, text(formula), basis, formula)


# Sizes of a pass, which a plan does not state as it is: what they are of one that decodes, and where they are from.
OF_A_PASS = {
    "batch": ("sequences of one device in a pass that decodes; 1 in prefill", "serve.concurrency"),
    "seq": ("new tokens of a sequence in a pass: 1 in decoding, those of a chunk in prefill", "serve.chunk"),
    "micro_batches": ("passes", "serve"),
    "attended": (BY_NAME["attended"].meaning, "serve.prompt"),
    "read": (BY_NAME["read"].meaning, "serve.prompt"),
    "hit": (BY_NAME["hit"].meaning, "serve.concurrency"),
}


def _symbols(service: Service, shape: Shape) -> Mapping[str, Symbol]:
    """Every symbol of the formulas as a pass that decodes has it; the first role's."""
    served = service.roles[0]
    sizes = served.sizes(shape)
    symbols = dict(described(served.plan, served.role))
    groups = service.plan.model.groups
    for suffix in {group.name for group in groups} if len(groups) > 1 else {""}:
        for name, (meaning, path) in OF_A_PASS.items():
            sign = symbol(name, suffix)
            if sign in sizes:
                size = sizes[sign]
                number = int(size) if size == int(size) else float(size)
                symbols[sign.name] = Symbol(sign.name, meaning, number, path)
    return symbols
