"""Prices: what one kernel or transfer costs in seconds, by measured curves where there are any, else by data sheets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from ledger import price_forms
from ledger.arithmetic.values import Amount, ceil_divide, largest, maximum, minimum, pick, where
from ledger.model.schedule import schedule
from ledger.price_forms import DataSheet
from ledger.spec.kernel_classes import (
    ATTENTION,
    CACHED,
    DECODE,
    FORMAT_OF_ROW,
    GROUPED,
    HOST_LINK,
    NUMBER_FORMATS,
    SCAN,
    STORED_FORMATS,
    STREAMS,
    KernelClass,
    kernel_class,
    matmul,
)
from ledger.spec.parallelism import INNERMOST_FIRST, MULTIPLIED
from ledger.spec.plan import Accelerator, Cluster, Curve, Parallelism, Plan

# Relative error assumed where only a data sheet stands behind a price: plans without kernel data miss by 15 to 25 %.
UNCALIBRATED_ERROR = 0.25
# Where nothing was measured, what measured devices reach of their data sheets: the medians over specs/accelerators of
# sustained matmuls (0.54 to 0.85), flash attention (0.16 to 0.62), copies (0.73 to 0.93) and collectives in a domain.
TYPICAL_MATMUL, TYPICAL_ATTENTION, TYPICAL_BANDWIDTH, TYPICAL_BUS = 0.65, 0.32, 0.87, 0.77
# The same of kernels that decode: medians over A100, H100, H200, L40S and B200 (specs/accelerators, 2026-11).
_FEW_ROWS = ("matmul", {"e": 0.6, "t0": 3.7e-6, "b": 0.76, "k0": 90.0, "c": 0.03})
TYPICAL_DECODING: Mapping[str, tuple[str, Mapping[str, float]]] = {
    "matmul": _FEW_ROWS,
    "grouped": _FEW_ROWS,
    "attention": ("cached", {"t0": 8.1e-6, "b": 0.92}),
    "norm": ("bandwidth", {"t0": 3.1e-6, "b": 0.44}),
}
# A product that adds to an fp32 sum takes longer than one that writes its result: by so much of what its further bytes
# need (median of 54 shapes on an A100 PCIe 0.62, of 129 on a B200 0.45; specs/evidence).
ADDING = 0.5
# An error of a fit is a mean absolute one; of a normal distribution, that is sqrt(2/pi) of its standard deviation.
DEVIATION = 1.2533

# Where a class has no curve of its own, the next one that has the same limits prices it.
_FALLBACK = {
    "norm.forward": "norm",
    "norm.backward": "norm",
    "rotary": "elementwise",
    **dict.fromkeys(("activation.gelu", "activation.gelu_tanh", "activation.silu"), "elementwise"),
    "norm": "elementwise",
    "softmax": "elementwise",
    "cross_entropy": "softmax",
    "dropout": "elementwise",
    "reduction": "elementwise",
    "cast": "elementwise",
    "quantise": "cast",
    "copy": "elementwise",
    "loss": "elementwise",
    "embedding": "elementwise",
    "optimizer": "elementwise",
    "host_link.down": "host_link",
    "host_link.up": "host_link",
    "matmul.bf16": "matmul.fp16",
    "matmul.fp16": "matmul.bf16",
    "grouped.bf16": "matmul.bf16",
    "grouped.fp16": "matmul.fp16",
    "grouped.fp8": "matmul.fp8",
    "attention.cudnn.forward": "attention.flash.forward",
    "attention.cudnn.backward": "attention.flash.backward",
    "attention.efficient.forward": "attention.flash.forward",
    "attention.efficient.backward": "attention.flash.backward",
    **{f"matmul.{name}.decode": f"matmul.{name}" for name in NUMBER_FORMATS},
    **{f"grouped.{name}.decode": f"matmul.{name}.decode" for name in NUMBER_FORMATS},
    **{f"{family}.decode": "elementwise.decode" for family in STREAMS if family != "elementwise"},
    **{f"activation.{name}.decode": "elementwise.decode" for name in ("gelu", "gelu_tanh", "silu")},
    "norm.decode": "elementwise.decode",
    "matmul.bf16.decode": "matmul.fp16.decode",
    **{f"matmul.{row}.decode": f"matmul.{name}.decode" for row, name in FORMAT_OF_ROW.items()},
    **{f"matmul.{name}.decode": "matmul.fp16.decode" for name in STORED_FORMATS},
    **{f"attention.{name}_fp8.decode": f"attention.{name}.decode" for name in CACHED},
    **{f"attention.{name}.decode": "attention.flash.decode" for name in CACHED[1:]},
    "attention.flash.decode": "attention.flash3.decode",
}
FALLBACK: Mapping[KernelClass, KernelClass] = {
    kernel_class(name): kernel_class(fallback) for name, fallback in _FALLBACK.items()
}
UNLIKE = (GROUPED,)  # families that a fallback prices for want of anything better
MULTIPLYING = ("matmul", "grouped")  # forms of prices that a stack's levels count for
AS_THEY_ARE = ("bf16", "fp16", "tf32", "fp32")  # dtypes of operands that nobody quantised


@dataclass(frozen=True)
class KernelWork:
    """What one kernel does, in numbers: FLOPs it runs, bytes it moves, the shape of its matmul, its matmul dtype."""

    kind: KernelClass
    flops: Amount
    bytes: Amount
    dtype: str = ""
    batch: Amount = 1
    m: Amount = 1
    n: Amount = 1
    k: Amount = 1
    group: Amount = 1  # rows of one group
    further_bytes: Amount = 0.0  # bytes that it moves because it adds to a sum
    run_share: float = 1.0  # share of its products that are run: the others are with weights that are zero

    @property
    def sizes(self) -> Mapping[str, Amount]:
        """What forms of prices read of a kernel that writes its result."""
        rows = {"m": self.batch * self.m, "n": self.n, "k": self.k, "seq": self.m, "group": self.group}
        return {**rows, "flops": self.flops, "bytes": self.bytes - self.further_bytes, "kernels": 1}


@dataclass(frozen=True)
class KernelPrice:
    """Seconds of one occurrence; `floor` and `compute` are by data sheet.

    `bound` is compute, memory, network, host memory or NVMe.
    """

    seconds: Amount
    floor: Amount
    bound: Amount
    error: Amount  # relative
    calibrated: Amount
    compute: Amount = 0.0


def curve(device: Accelerator, kind: KernelClass, *, ranks: int = 0, head_dim: float = 0) -> Curve | None:
    """The measured curve of a kernel class: the sustained one before the burst one, the nearest group or head size."""
    for candidate in _with_fallbacks(kind):
        if rows := device.curves.get(candidate):
            return min(
                rows, key=lambda row: (_gap(row.ranks, ranks), _gap(row.head_dim, head_dim), row.regime != "sustained")
            )
    return None


@cache
def _with_fallbacks(kind: KernelClass) -> tuple[KernelClass, ...]:
    """The class itself, and those that price it where it has no curve, the nearest first."""
    classes = [kind]
    while (following := FALLBACK.get(classes[-1])) and following not in classes:
        classes.append(following)
    return tuple(classes)


def typical(kind: KernelClass, device_kind: str = "gpu") -> Curve:
    """What stands in for a curve that nobody measured: the data sheet, times the share that others reach of theirs.

    Of kernels that decode, medians of the devices that were measured, and how long they take whatever their size: of
    GPUs, since what a kernel of a GPU takes to start says nothing of another `device_kind`.
    """
    if kind.pass_ == DECODE:
        form, parameters = TYPICAL_DECODING.get(kind.family, ("bandwidth", {"t0": 1.2e-6, "b": TYPICAL_BANDWIDTH}))
        parameters = parameters if device_kind == "gpu" else {**parameters, "t0": 0.0}
        return Curve(kind, form, parameters, UNCALIBRATED_ERROR, "sustained", "medians of what was measured")
    share = TYPICAL_ATTENTION if kind.family in (ATTENTION, SCAN.family) else TYPICAL_MATMUL  # products of small tiles
    return Curve(kind, "typical", {"e": share, "b": TYPICAL_BANDWIDTH}, UNCALIBRATED_ERROR, "sustained", "data sheet")


def _gap(have: float, want: float) -> float:
    return abs(have - want) / want if want and have else 0.0


def kernel(device: Accelerator, work: KernelWork, level: float = 1.0, quantised: float = 1.0) -> KernelPrice:
    """The price of one kernel. `level` is the software's matmul rate over that of the calibrated library.

    `quantised` is that of products of quantised operands, which go through cublasLt by other calls than the others.

    Raises KeyError where the accelerator has no rate for the dtype: `kernels.require_peak` refuses such plans.
    """
    rate = device.peak[work.dtype] if work.dtype else device.vector
    if work.run_share < 1:  # a data sheet counts the products that sparse tensor cores leave out
        rate = device.sparse_peak[work.dtype] * work.run_share
    compute, moving = work.flops / rate, work.bytes / device.bandwidth
    floor = maximum(compute, moving)
    measured = curve(device, work.kind, head_dim=work.k if work.kind.family == ATTENTION else 0)
    fit = measured or typical(work.kind, device.kind)
    is_own = (fit.what == work.kind or work.kind.family not in UNLIKE) and work.run_share == 1
    sheet = DataSheet(rate, device.bandwidth, device.multiprocessors)
    seconds = price_forms.seconds(fit.form, fit.parameters, work.sizes, sheet)
    if fit.regime == "burst" and price_forms.PRICE_FORMS[fit.form].computes:
        seconds /= sustained_share(device)
    if fit.form in MULTIPLYING:
        seconds /= level if FORMAT_OF_ROW.get(work.kind.variant, work.kind.variant) in AS_THEY_ARE else quantised
    seconds += ADDING * work.further_bytes / device.bandwidth
    error = fit.error if is_own else max(fit.error, UNCALIBRATED_ERROR)
    bound = where(compute >= moving, "compute", "memory")
    calibrated = measured is not None and is_own
    return KernelPrice(maximum(seconds, floor), floor, bound, error, calibrated=calibrated, compute=compute)


def sustained_share(device: Accelerator) -> float:
    """What a device at its power limit keeps of the rate of short bursts: of its matmuls, where both were measured.

    In a run the clock is that of the whole step, whatever kernel runs.
    """
    for dtype in AS_THEY_ARE:
        rates = {fit.regime: fit.parameters["e"] for fit in device.curves.get(matmul(dtype), ())}
        if rates.keys() >= {"burst", "sustained"}:
            return min(1.0, rates["sustained"] / rates["burst"])
    return 1.0


# --- transfers ---


@dataclass(frozen=True)
class Mesh:
    """Where the ranks of an axis sit: `size` of them, `local` within one node or domain, over `domains` of them.

    `span` is how many neighbouring devices the local ones stretch over.
    """

    size: Amount
    local: Amount
    span: Amount

    @property
    def domains(self) -> Amount:
        """Scale-up domains that the axis spans."""
        return ceil_divide(self.size, self.local)


ORDER = tuple(axis for axis in INNERMOST_FIRST if axis in MULTIPLIED)
# Axes within data x context (`shards` devices, twice as many where a pipeline holds every stage twice): stride and
# size. Copies are outermost, different experts innermost.
WITHIN: Mapping[str, Callable[[Parallelism, Amount], tuple[Amount, Amount]]] = {
    "data": lambda p, shards: (p.tensor, shards // p.replicate),
    "replicate": lambda p, shards: (p.tensor * shards // p.replicate, p.replicate),
    "expert": lambda p, _: (p.tensor, p.expert),
    "expert_data": lambda p, shards: (p.tensor * p.expert, shards // (p.replicate * p.expert)),
}


def mesh(axis: str, degrees: Parallelism, device: Accelerator, cluster: Cluster) -> Mesh:
    """How an axis lies on the nodes when axes are dealt out in ORDER; weights are shared over data and context.

    Within data and context, devices that hold different experts are neighbours.
    """
    shards = degrees.data * degrees.context * schedule(degrees).pipeline_ends
    if axis in WITHIN:
        stride, size = WITHIN[axis](degrees, shards)
    else:
        stride, size = 1, getattr(degrees, axis)
        for inner in ORDER[: ORDER.index(axis)]:
            stride *= getattr(degrees, inner)
    domain = max(device.scaleup_domain if device.across_nodes else 1, cluster.devices_per_node)
    local = maximum(1, minimum(size, domain // stride))
    return Mesh(size, local, local * stride)


# Bytes over a link, as a share of the payload, for n ranks (nccl-tests, doc/PERFORMANCE.md).
FACTOR: Mapping[str, Callable[[Amount], Amount]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "send": lambda _: 1.0,
}


def host_copy(device: Accelerator, direction: str, payload: Amount) -> KernelPrice:
    """The price of one copy between a device and its host, `down` or `up`: a + bytes/B, or by the link's data sheet."""
    if not device.has_own_memory:
        return KernelPrice(0.0, 0.0, "network", 0.0, calibrated=True)  # one memory: nothing is copied
    floor = payload / device.host_bandwidth
    measured = curve(device, KernelClass(HOST_LINK, direction))
    if measured is None:
        return KernelPrice(floor, floor, "network", UNCALIBRATED_ERROR, calibrated=False)
    parameters = {**measured.parameters, "B": device.over_host_link(measured.parameters["B"])}
    seconds = price_forms.seconds("send", parameters, {"bytes": payload}, DataSheet())
    return KernelPrice(maximum(seconds, floor), floor, "network", measured.error, calibrated=True)


def devices_of_a_host(cluster: Cluster) -> Amount:
    """How many devices of a plan share one host."""
    return minimum(cluster.devices, cluster.devices_per_node)


def host_work(plan: Plan, payload: Amount) -> KernelPrice:
    """The price of bytes that a host reads and writes in its own memory for a device: its share of the bandwidth.

    Nothing where the plan's host is not stated, which the verdict says.
    """
    if plan.host is None:
        return KernelPrice(0.0, 0.0, "host memory", UNCALIBRATED_ERROR, calibrated=False)
    floor = payload * devices_of_a_host(plan.cluster) / plan.host.bandwidth
    return KernelPrice(floor / plan.host.efficiency, floor, "host memory", UNCALIBRATED_ERROR, calibrated=False)


def drive_work(plan: Plan, direction: str, payload: Amount) -> KernelPrice:
    """The price of bytes that a host reads from its drives or writes to them for a device: its share of their rate.

    Raises TypeError without drives, which a rule on the spec refuses.
    """
    if plan.host is None or plan.host.nvme is None:
        raise TypeError("an optimizer on drives, and a host without any")
    rate = plan.host.nvme.read if direction == "read" else plan.host.nvme.write
    seconds = payload * devices_of_a_host(plan.cluster) / rate
    return KernelPrice(seconds, seconds, "NVMe", UNCALIBRATED_ERROR, calibrated=False)


PAIR = 2  # ranks of the smallest group


def transfer(  # noqa: PLR0913 - what a transfer is of
    device: Accelerator, cluster: Cluster, collective: str, at: Mesh, payload: Amount, *, direct: bool = False
) -> KernelPrice:
    """The price of one collective over an axis, or of one send.

    Within a domain: a + x + sqrt(a x), x the bytes over the bus bandwidth. Across domains, the bus is as fast as the
    slower of its fabric and of the network cards of the ranks inside, and each step of the ring adds latency. In an
    all-to-all every rank has bytes of its own for every other, so each has its own card for those that leave the node.
    `direct`: devices without links reach each other over PCIe, so that a ring of any size is as fast as one of two.
    """
    if at.size == 1:
        return KernelPrice(0.0, 0.0, "network", 0.0, calibrated=True)
    crosses, several = at.domains > 1, at.local > 1
    own_cards = collective in ("send", "all_to_all")  # no two devices of a node send the same
    sent = payload * FACTOR[collective](at.size)
    if collective == "all_to_all":  # what stays in the node goes beside it
        sent = where(crosses, payload * (at.size - at.local) / at.size, sent)
    linked = at.span <= device.scaleup_domain if device.scaleup_bandwidth else False
    inside = where(linked, device.scaleup_bandwidth, device.host_bandwidth)
    cards = cluster.scaleout_bandwidth * (1 if own_cards else at.local)
    floor = sent / where(crosses, where(several, minimum(inside, cards), cards), inside)
    group = nearest_group(device, collective, where(several, at.local, at.size))
    bus = group["B"] if group else TYPICAL_BUS * inside
    pair = nearest_group(device, collective, PAIR) if direct and not device.scaleup_bandwidth else None
    bus = maximum(bus, pair["B"]) if pair else bus
    reach = cards * cluster.scaleout_efficiency / _pod_slowdown(cluster, collective, at)
    bus = where(crosses, where(several, minimum(bus, reach), reach), bus)
    hops = cluster.scaleout_latency * (1 if own_cards else at.size - 1)
    start = (group["a"] if group else 0.0) + where(crosses, hops, 0.0)
    form = "send" if collective == "send" else "collective"
    seconds = price_forms.seconds(form, {"a": start, "B": bus}, {"bytes": sent, "bus_bytes": sent}, DataSheet())
    error = where(crosses, UNCALIBRATED_ERROR, group["error"]) if group else UNCALIBRATED_ERROR
    charged = where(payload > 0, maximum(seconds, floor), 0.0)
    return KernelPrice(charged, floor, "network", error, calibrated=where(crosses, False, True) if group else False)


def _pod_slowdown(cluster: Cluster, collective: str, at: Mesh) -> Amount:
    """How much longer what leaves a pod takes than what stays in it.

    Every ring, and every stage that sends, crosses the edge of a pod at one place, so as many cards send there as
    devices lie between two neighbours of the group; in an all-to-all all do, with the share that is for others.
    Llama 3's network (arXiv 2407.21783, section 3.3.1): pods of 3,072 devices, 1:7 between them.
    """
    if not cluster.pod:
        return 1.0
    extent = at.span * at.domains
    sending = maximum(0.0, 1 - cluster.pod / extent) if collective == "all_to_all" else at.span / cluster.pod
    return where(extent > cluster.pod, maximum(1.0, sending * cluster.oversubscription), 1.0)


def nearest_group(device: Accelerator, collective: str, ranks: Amount) -> Mapping[str, Amount] | None:
    """Parameters and error of a collective's curve: that of the nearest group, sustained before burst.

    Over faster or slower links than were measured, the bandwidth is scaled; without links nothing was measured.
    """
    measured = curve(device, KernelClass(collective))
    if measured is None or (device.scaleup_measured and not device.scaleup_bandwidth):
        return None
    curves = sorted(device.curves[measured.what], key=lambda row: row.regime != "sustained")
    nearest = largest(curves, lambda row: -(abs(row.ranks - ranks) / ranks) if row.ranks else 0)
    return {
        "a": pick(nearest, [row.parameters.get("a", 0.0) for row in curves]),
        "B": pick(nearest, [device.over_links(row.parameters["B"]) for row in curves]),
        "error": pick(nearest, [row.error for row in curves]),
    }
