"""The verdict: does it fit, what limits it, what stands behind it, and the checklist before a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil, inf

from ledger.books import calendar
from ledger.books.counts import CHECKPOINT, peak
from ledger.books.price_changes import LIMITS
from ledger.books.results import ENDS, OPERATIONS, Check, KernelTime, Number, RoleResult, Verdict
from ledger.books.updates import lost_updates
from ledger.model import dtypes
from ledger.model.batch import data_seconds
from ledger.model.formats import trained_dtype
from ledger.numbers import THIN, integer, offer, plain, size, trimmed, with_unit
from ledger.spec.data import DECODED, DECODED_SOURCE
from ledger.spec.headroom import headroom_bytes, headroom_words
from ledger.spec.kernel_classes import GROUPED, MATMUL, KernelClass
from ledger.spec.plan import Plan
from ledger.units import unit_of

# Share of the step that data sheets may price before a verdict stops being called calibrated.
MOSTLY, BARELY = 0.10, 0.90
NEAR = 0.9  # of the assumed utilisation, below which a person should look
MFU = "Expected MFU against the assumed one"
NO_NAPKIN = "a weight of a block meets each image at many places, and 6ND counts it once a token"
STATE = tuple(f"memory.static.{part}" for part in ("weights", "master", "gradients", "optimizer"))
ASTRAY = 1.5  # times the napkin's length of the run, or as small a part of it, from where a person should look


def verdict(
    plan: Plan, totals: Mapping[str, Number], roles: Sequence[RoleResult], rows: Sequence[KernelTime]
) -> Verdict:
    """The plan judged against its device, its own expectations, and the evidence behind its prices."""
    fits = totals["memory.reserved"] <= totals["memory.capacity"] and host_holds(totals)
    limit = bottleneck(totals)
    sheets = by_data_sheet(rows)
    evidence = measured_share(sheets)
    checks = (
        *_memory_checks(plan, totals, roles),
        *_work_checks(plan, totals, rows),
        *_host_checks(plan, totals),
        *_paging_checks(plan, totals),
        *_drive_checks(totals),
        *_data_checks(plan, totals),
        *operated(plan, totals),
        *policy(plan),
        *expectations(plan, totals),
    )
    judged = Verdict(fits, limit, evidence, "", checks, sheets)
    headline = _headline(plan, totals, judged) + ("" if evidence == "calibrated" else f"; {evidence}")
    return replace(judged, headline=headline)


def by_data_sheet(rows: Sequence[KernelTime]) -> float:
    """The share of what kernels and open transfers take of a step that no measured curve prices.

    What a step waits for beyond them (launches, other stages) has no price of its own and is left out.
    """
    priced = sum(row.open for row in rows)
    return sum(row.open for row in rows if not row.calibrated) / priced if priced else 1.0


def measured_share(sheets: float) -> str:
    """How much of the step measured curves price, where data sheets price this share."""
    if sheets <= MOSTLY:
        return "calibrated"
    return "partly calibrated" if sheets < BARELY else "uncalibrated"


def bottleneck(totals: Mapping[str, Number]) -> str:
    """What the step waits for most: the resource that shortens it most by being one per cent better."""
    return LIMITS[max(LIMITS, key=lambda pace: totals[pace])]


def cost(plan: Plan, totals: Mapping[str, Number]) -> str:
    """What the run costs and at which price, after a comma; empty where no price is known."""
    price = plan.assumptions.price
    if price is None or "cost.run" not in totals:
        return ""
    at = offer(price.per_device_hour, plan.accelerator.name, price.date)
    return f", {with_ends(totals, 'cost.run', 'USD')} at {at}"


def with_ends(totals: Mapping[str, Number], key: str, unit: str) -> str:
    """A total, and where its interval is known the ends between which 80 of 100 runs lie."""
    ends = [totals.get(f"{key}.{end}") for end in ENDS]
    texts = [with_unit(end, unit) for end in ends if end is not None]
    return f"{with_unit(totals[key], unit)} ({' to '.join(texts)})" if texts else with_unit(totals[key], unit)


def _headline(plan: Plan, totals: Mapping[str, Number], judged: Verdict) -> str:
    needed, room = (with_unit(totals[f"memory.{part}"], "B") for part in ("reserved", "capacity"))
    if needed == room and not judged.fits:  # by less than is written
        needed, room = (f"{integer(totals[f'memory.{part}'])} B" for part in ("reserved", "capacity"))
    sizes = f"{needed} of {room}"
    if totals["memory.reserved"] <= totals["memory.capacity"] and not host_holds(totals):
        full = float(totals["memory.host"]) > float(totals.get("memory.host.capacity", inf))
        place, words = ("host", "host memory") if full else ("nvme", "NVMe")
        used, most = totals[f"memory.{place}"], totals[f"memory.{place}.capacity"]
        sizes = f"{with_unit(used, 'B')} of {with_unit(most, 'B')} of {words}"
    memory = f"{'fits' if judged.fits else 'does not fit'}: {sizes}"
    run = ""
    if judged.fits and not judged.runs:
        run = "; never ends"
    elif judged.runs and "time.calendar" in totals:  # what cannot run takes no days and costs nothing
        run = f"; {with_ends(totals, 'time.calendar', 's')}{cost(plan, totals)}; ends hold 80 of 100 runs"
    return f"{memory}{run}; limited by {judged.bottleneck}"


def shortfall(plan: Plan, totals: Mapping[str, Number]) -> str:
    """What lacks of the headroom that a plan's policy asks for, of one that fits; empty where nothing lacks."""
    if "memory.reserved" not in totals:
        return ""
    free = float(totals["memory.capacity"]) - float(totals["memory.reserved"])
    asked = headroom(plan)
    if not 0 <= free < asked:
        return ""
    words = headroom_words(plan.assumptions.headroom)
    return f"{size(free)} free, {size(asked - free)} short of the {size(asked)} of {words} headroom"


def headroom(plan: Plan) -> float:
    """Bytes of each device that the plan wants free."""
    return headroom_bytes(plan.assumptions.headroom, plan.accelerator.memory)


def _memory_checks(plan: Plan, totals: Mapping[str, Number], roles: Sequence[RoleResult]) -> Iterator[Check]:
    yield reserved_check(plan, totals, max(roles, key=lambda role: role.peak.total).peak.title)
    state, capacity = sum(float(totals[name]) for name in STATE), float(totals["memory.capacity"])
    yield Check("state", "Weights, gradients and optimizer per device", _status(state, capacity), with_unit(state, "B"))
    activations = float(totals["memory.activations"]) + float(totals["memory.logits"])
    title = "Activations and logits per device at the peak"
    yield Check("activations", title, _status(activations, capacity), with_unit(activations, "B"))


def reserved_check(plan: Plan, totals: Mapping[str, Number], peak_title: str) -> Check:
    """Whether what the driver reserves fits the device, with the headroom that the plan wants free."""
    reserved, capacity = float(totals["memory.reserved"]), float(totals["memory.capacity"])
    free, asked = capacity - reserved, headroom(plan)
    status = "fail" if free < 0 else "warn" if free < asked else "pass"
    words = f"{headroom_words(plan.assumptions.headroom)} headroom is {with_unit(asked, 'B')}"
    room = f"{with_unit(free, 'B')} free" if free >= 0 else f"{with_unit(-free, 'B')} missing"
    figure, detail = (
        f"{with_unit(reserved, 'B')} of {with_unit(capacity, 'B')}",
        f"peak at {peak_title}; {room}, {words}",
    )
    return Check("fits", "Memory reserved per device", status, figure, detail)


def _status(amount: float, limit: float) -> str:
    return "pass" if amount <= limit else "fail"


def _work_checks(plan: Plan, totals: Mapping[str, Number], rows: Sequence[KernelTime]) -> Iterator[Check]:
    yield Check("parameters", "Parameters", "pass", with_unit(totals["parameters"], "1"), _adapter_text(totals))
    if "flops.run" in totals and plan.model.of_blocks:
        figure = f"{with_unit(totals['flops.run'], 'FLOP')}, {with_unit(totals['time.run'], 's')}"
        yield Check("run", "FLOPs and days of the run", "pass", figure, f"no napkin: {NO_NAPKIN}")
    elif "flops.run" in totals:
        napkin = with_unit(totals["napkin.time.run"], "s")
        detail = f"the napkin ({napkin_words(plan)} at {with_unit(plan.assumptions.mfu, '%')} MFU) says {napkin}"
        figure = f"{with_unit(totals['flops.run'], 'FLOP')}, {with_unit(totals['time.run'], 's')}"
        ratio = float(totals["time.run"]) / float(totals["napkin.time.run"])
        near = 1 / ASTRAY <= ratio <= ASTRAY
        detail += (
            "" if near else f"; {with_unit(ratio, '1')} times that, more than {ASTRAY} apart: {_causes(plan, totals)}"
        )
        yield Check("run", "FLOPs and days of the run", "pass" if near else "warn", figure, detail)
    families = (MATMUL, GROUPED)
    matmuls = [r for r in rows if r.flops and isinstance(r.kind, KernelClass) and r.kind.family in families]
    if matmuls:
        intensity = sum(r.flops * r.times for r in matmuls) / sum(r.bytes * r.times for r in matmuls)
        ridge = plan.accelerator.peak[dtypes.rate(plan.precision.multiplies)] / plan.accelerator.bandwidth
        status = "pass" if intensity >= ridge else "warn"
        title, detail = "Arithmetic intensity of the matmuls", f"the device needs {with_unit(ridge, 'FLOP/B')}"
        yield Check("intensity", title, status, with_unit(intensity, "FLOP/B"), detail)
    yield _utilisation_check(plan, totals)
    sheets = by_data_sheet(rows)
    evidence = (
        f"measurements and published figures price {with_unit(1 - sheets, '%')} of what kernels and transfers add"
    )
    status = "pass" if sheets <= MOSTLY else "warn"
    yield Check("evidence", "Evidence behind the estimate", status, measured_share(sheets), f"{evidence} to a step")


def _adapter_text(totals: Mapping[str, Number]) -> str:
    """How many of the parameters are the model's and how many its adapters'; nothing where there are none."""
    if "parameters.adapters" not in totals:
        return ""
    base, adapters = (with_unit(totals[f"parameters.{part}"], "1") for part in ("base", "adapters"))
    return f"{base} of the model, {adapters} of adapters"


def napkin_words(plan: Plan) -> str:
    """What the napkin counts: 6ND where every weight is trained."""
    return "6ND" if plan.train.kind == "all" else "6 a trained weight, 4 or 2 a frozen one, a token"


def _causes(plan: Plan, totals: Mapping[str, Number]) -> str:
    """What sets the run apart from its napkin: its work beside 6ND, and its rate beside the one that is assumed."""
    work = float(totals["flops.run"]) / float(totals["napkin.flops.run"])
    rate = with_unit(float(totals["hfu"]), "%")
    assumed = with_unit(plan.assumptions.mfu, "%")
    return f"{with_unit(work, '1')} times its FLOPs, at {rate} of the peak instead of {assumed}"


def _utilisation_check(plan: Plan, totals: Mapping[str, Number]) -> Check:
    """The napkin's utilisation, 6 FLOPs a parameter and token over the peak, beside the one that it assumes."""
    assumed, devices = plan.assumptions.mfu, plan.cluster.devices * peak(plan)
    if plan.model.of_blocks:
        status = "pass" if float(totals["mfu"]) >= assumed * NEAR else "warn"
        detail = f"of both passes; the plan assumes {with_unit(assumed, '%')}"
        return Check("mfu", MFU, status, with_unit(totals["mfu"], "%"), detail)
    tokens = plan.run.global_batch * plan.run.seq_len
    reached = int(totals["napkin.flops.token"]) * tokens / (float(totals["time.step"]) * devices)
    status = "pass" if reached >= assumed * NEAR else "warn"
    detail = f"{napkin_words(plan)} over the peak, as the napkin counts, which assumes {with_unit(assumed, '%')}; "
    detail += f"with attention {with_unit(totals['mfu'], '%')}"
    return Check("mfu", MFU, status, with_unit(reached, "%"), detail)


# Roles whose range makes a policy risky, with the dtypes that do.
NARROW = ("fp16", "fp8_e4m3", "fp8_e5m2", "mxfp8", "mxfp4", "nvfp4")
RISKY: Mapping[str, tuple[str, ...]] = {
    "gradients": NARROW,
    "states": NARROW,
    "weights": NARROW,
}


def host_holds(totals: Mapping[str, Number]) -> bool:
    """Whether the host has room for what a plan keeps there; what is not stated refuses nothing."""
    places = ("host", "nvme")
    return all(totals.get(f"memory.{place}", 0) <= totals.get(f"memory.{place}.capacity", inf) for place in places)


def _host_checks(plan: Plan, totals: Mapping[str, Number]) -> Iterator[Check]:
    """What lives on the host needs room there, and its update the host's bandwidth."""
    if "memory.host" not in totals:
        return
    title, needed = "Host memory a node needs", totals["memory.host"]
    if plan.host is None:
        detail = "not stated: the host's memory"
        if moved := totals.get("traffic.host"):
            detail += (
                f" and its bandwidth, so that {with_unit(moved, 'B')} of traffic of each device's update are not timed"
            )
        yield Check("host", title, "warn", with_unit(needed, "B"), detail)
        return
    free = float(totals["memory.host.capacity"]) - float(needed)
    detail = f"{with_unit(abs(free), 'B')} {'free' if free >= 0 else 'missing'}"
    if totals.get("traffic.host"):
        reached = (
            "the line rate of its memory"
            if plan.host.efficiency == 1
            else with_unit(plan.host.efficiency, "%") + " of it"
        )
        detail += f"; updates take {with_unit(totals['time.host'], 's')} of a step, at {reached}"
    figure = f"{with_unit(needed, 'B')} of {with_unit(totals['memory.host.capacity'], 'B')}"
    yield Check("host", title, "pass" if free >= 0 else "fail", figure, detail)


def _paging_checks(plan: Plan, totals: Mapping[str, Number]) -> Iterator[Check]:
    """States in unified memory are on the device as far as there is room, and pass over the link beyond that."""
    if not totals.get("memory.paged"):
        return
    paged = float(totals["memory.paged"])
    free = max(0.0, float(totals["memory.capacity"]) - float(totals["memory.reserved"]))
    away = paged - free
    detail = f"unified memory, beside what the device reserves; {with_unit(free, 'B')} of it are free"
    if away > 0 and plan.accelerator.has_own_memory:
        seconds = 2 * away / plan.accelerator.host_bandwidth
        detail += f", so that {with_unit(away, 'B')} come and go over the link in each update: "
        detail += f"{with_unit(seconds, 's')} not timed"
    yield Check("paged", "Optimizer states that page", "warn" if away > 0 else "pass", with_unit(paged, "B"), detail)


def _drive_checks(totals: Mapping[str, Number]) -> Iterator[Check]:
    """What lives on drives needs room there."""
    if "memory.nvme" in totals:
        needed, room = totals["memory.nvme"], totals["memory.nvme.capacity"]
        status = "pass" if needed <= room else "fail"
        detail = "the buffers in host memory through which it comes and goes are not counted"
        yield Check(
            "nvme",
            "NVMe a node needs",
            status,
            f"{with_unit(needed, 'B')} of {with_unit(room, 'B')}",
            detail,
        )


def _data_checks(plan: Plan, totals: Mapping[str, Number]) -> Iterator[Check]:
    """Whether batches are there in time; of images without rates, how many workers have them in time."""
    if "time.data" in totals:
        seconds = data_seconds(plan)
        slowest = max(seconds, key=lambda part: seconds[part])
        late, needed = float(totals["time.data.wait"]), float(totals["time.data"])
        order = f"the slowest is {slowest}" if plan.data.prefetch else "one after the other, since nothing is ahead"
        listed = [f"{name} {with_unit(part, 's')}" for name, part in seconds.items()]
        detail = f"{', '.join(listed)}: {order}"
        detail += f"; the step waits {with_unit(late, 's')}" if late else "; hidden behind the step before"
        yield Check("data", "Data of a step", "warn" if late else "pass", with_unit(needed, "s"), detail)
    elif plan.model.image and "images_per_second" in totals:
        rate = float(totals["images_per_second"]) / plan.parallelism.data
        workers = ceil(rate / DECODED)
        detail = f"decoding {with_unit(rate, 'images/s')} at {DECODED:.0f} images/s each ({DECODED_SOURCE})"
        yield Check(
            "data", "Workers that a device's images need", "pass", f"{workers}", f"{detail}; `data` states yours"
        )


def operated(plan: Plan, totals: Mapping[str, Number]) -> Iterator[Check]:
    """How much of the calendar trains, where a plan says what does not; a run that gets nowhere fails."""
    if "goodput" not in totals:
        return
    trained = totals.get("time.run", totals.get("napkin.time.run"))
    ends = calendar.share(plan, lambda: totals[CHECKPOINT], trained) > calendar.LEAST
    detail = "the rest goes to failures, checkpoints, evaluation, starting and waiting"
    if not ends:
        detail = "failures, checkpoints and evaluation take more time than there is, so the run gets nowhere"
    figure = with_unit(totals["goodput"], "%")
    yield Check(OPERATIONS, "Share of the calendar that trains", "pass" if ends else "fail", figure, detail)
    if "checkpoint.writing" in totals:
        every, writing = float(totals["checkpoint.interval"]), float(totals["checkpoint.writing"])
        figure = f"{with_unit(writing, 's')} of {with_unit(every, 's')}"
        detail = f"beside training; hosts hold {with_unit(totals[calendar.STAGED], 'B')} each meanwhile"
        detail += "" if writing <= every else ", and the next begins before one is written"
        yield Check("saving", "Writing a checkpoint", "pass" if writing <= every else "fail", figure, detail)


def policy(plan: Plan) -> Iterator[Check]:
    """Roles of the dtype policy whose values can leave the range of their dtype, or whose updates it loses."""
    for role, risky in RISKY.items():
        name = trained_dtype(plan) if role == "weights" else getattr(plan.precision, role)
        if name in risky and not (role == "weights" and plan.precision.master):
            dtype = dtypes.DTYPES[name]
            detail = f"{name} holds {dtype.smallest_subnormal:.2g} to {dtype.largest:.5g}; smaller values become zero"
            if name in dtypes.BLOCKS:
                least = round(2 * dtype.largest / dtype.smallest_subnormal)
                detail = f"below 1/{least} of the largest in a block of {dtypes.BLOCKS[name][0]}, values become zero"
            yield Check(f"precision.{role}", f"Range of {role} in {name}", "warn", name, detail)
    yield from lost_updates(plan)


# Totals of a model without its adapters, which is what a model's file knows of.
BASE: Mapping[str, str] = {"parameters": "parameters.base", "parameters.active": "parameters.base.active"}


def expectations(plan: Plan, totals: Mapping[str, Number]) -> Iterator[Check]:
    """Checks of what the plan and its model assert."""
    read = [(BASE[row.key] if row.of_model and BASE.get(row.key) in totals else row.key, row) for row in plan.expect]
    for key, expected in {(key, row.value, row.tolerance): (key, row) for key, row in read}.values():
        reported = totals.get(key)
        holds = reported is not None and (
            abs(reported - expected.value) <= expected.tolerance * abs(expected.value)
            if expected.tolerance
            else reported == expected.value
        )
        unit = unit_of(key)
        figure = "not reported for this plan" if reported is None else _full_digits(reported, unit)
        detail = f"expected {_full_digits(expected.value, unit)}" + (
            f" within {expected.tolerance:.2%}" if expected.tolerance else ""
        )
        yield Check(f"expect.{key}", f"Expected {key}", "pass" if holds else "fail", figure, detail)


def _full_digits(value: Number, unit: str) -> str:
    """Every digit of a whole number, in groups; of others six, so that figures a tolerance apart differ."""
    figure = integer(value).replace(THIN, " ") if float(value).is_integer() else trimmed(plain(value, 6))
    return figure if unit == "1" else f"{figure} {unit}"
