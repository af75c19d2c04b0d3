"""The hardware of a plan: an accelerator as a price list, and the cluster that joins many of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, ClassVar

from ledger.spec.kernel_classes import NUMBER_FORMATS, KernelClass, kernel_class, price_classes
from ledger.spec.operations import stood_in
from ledger.spec.parts import At, Nested, PartHeader
from ledger.spec.price_lists import NameOf, PriceOf, PriceParameters, priced_forms
from ledger.spec.structures import (
    NEEDED,
    OPTIONAL,
    SOURCED,
    AnyStated,
    DerivedType,
    KeyStated,
    ListOf,
    Needed,
    Sourced,
    members,
    quantity,
)
from ledger.spec.values import Choice, Constants, Integer, Label, String, degree


@dataclass(frozen=True)
class Nvme:
    """The drives of a node together: bytes that they hold, and bytes a second that they give and take."""

    spec: ClassVar[PartHeader] = PartHeader(meaning="The NVMe drives of a node, all of them together.", sourced=True)

    capacity: Annotated[int, quantity("B"), "What they hold: `30.7 TB`."]
    read: Annotated[float, quantity("B/s"), "Sequential reads of all of them at once: `50 GB/s`."]
    write: Annotated[float, quantity("B/s"), "Sequential writes of all of them at once: `25 GB/s`."]


@dataclass(frozen=True)
class Host:
    """The memory that the devices of one node share: bytes, and bytes a second of all its channels together.

    `devices` says of how many devices the node is, where a device's own file describes the node that it is sold in.
    """

    spec: ClassVar[PartHeader] = PartHeader(
        meaning="The host of a node, which its devices share: memory, its bandwidth, NVMe drives.", sourced=True
    )

    memory: Annotated[int, quantity("B"), "Of a node: `2 TB`."]
    bandwidth: Annotated[float, quantity("B/s"), "Of all memory channels of a node together: `614.4 GB/s`."]
    efficiency: Annotated[
        float,
        quantity("1", least=1e-3, greatest=1),
        "Share of that bandwidth which updates on the host reach, measured: `45 %`; all of it where not given, which "
        "is the least that they take.",
    ] = 1.0
    devices: Annotated[
        int, degree(), "Devices of the node, of a host in an accelerator's file; a cluster has `devices_per_node`."
    ] = 0
    nvme: Annotated[Nvme | None, OPTIONAL] = None


# Generations of each kind of device. What runs on which of them is known of GPUs alone (RUNS_ON of the rules).
ARCHITECTURES: Mapping[str, tuple[str, ...]] = {
    "gpu": ("volta", "turing", "ampere", "ada", "hopper", "blackwell", "cdna2", "cdna3", "cdna4"),
    "cpu": ("zen4", "zen5", "ice_lake", "sapphire_rapids", "granite_rapids", "neoverse"),
    "soc": ("apple", "snapdragon", "dimensity", "exynos"),
    "tpu": ("tpu_v4", "tpu_v5e", "tpu_v5p", "tpu_v6e", "tpu_v7"),
}
# What only a GPU has to state: others have none of it, or their makers do not say it.
OF_GPUS = Needed(unless=AnyStated(tuple(KeyStated("kind", kind) for kind in ARCHITECTURES if kind != "gpu")))
PEAK_RATES = members(
    quantity("FLOP/s"), {name: f"Dense {name}: `989.5 TFLOP/s`." for name in NUMBER_FORMATS}, sourced=True
)
SOURCED_COUNT = Sourced(Integer(1, 1_000_000))
SPELLINGS_OF_NAME = ListOf(String())
DEVICE = String(1, 200)  # an accelerator by its name, an alias, or what a file of one's own is called


@dataclass(frozen=True)
class Curve:
    """A fitted price: `form` names the formula, `parameters` its constants in SI base units."""

    spec: ClassVar[PartHeader] = PartHeader(meaning="A fitted price of one kernel class.")

    what: Annotated[
        KernelClass,
        DerivedType(NameOf(noun="kernel class", names=price_classes), kernel_class),
        "The kernel class: `matmul.bf16`, `attention.flash.forward`, `norm`, `all_reduce`.",
    ]
    form: Annotated[str, NameOf(noun="price form", names=priced_forms), "The formula that the parameters belong to."]
    parameters: Annotated[
        Mapping[str, float], PriceParameters(Constants()), "The formula's constants; times and bandwidths with units."
    ]
    error: Annotated[float, quantity("1", zero=True, greatest=10), "Mean absolute relative error of the fit: `5.4 %`."]
    regime: Annotated[
        str, Choice("burst", "sustained"), "`sustained`: at the power limit, as in a run; `burst`: a few cold launches."
    ]
    source: Annotated[str, SOURCED.type, SOURCED.meaning]
    bias: Annotated[float, quantity("1", signed=True, greatest=10), "Mean relative error of the fit: `-1.6 %`."] = 0.0
    held_out: Annotated[str, Label(), "On which data the fit was tested, and the error there."] = ""
    region: Annotated[str, "Where the fit holds: `m, n, k >= 512`."] = ""
    ranks: Annotated[int, Integer(0, 1_000_000), "Nested size of a collective's fit; 0: any."] = 0
    head_dim: Annotated[int, Integer(0, 65_536), "Head size of an attention fit; 0: any."] = 0


@dataclass(frozen=True)
class Accelerator:
    """A price list: dense peaks in FLOP/s per matmul dtype, bandwidths in B/s, sizes in B, power in W."""

    spec: ClassVar[PartHeader] = PartHeader(
        title="An accelerator: a price list",
        meaning="What one device computes, moves, holds and sends per second, from its data sheet, and its measured "
        "ceilings.",
        kind="accelerator",
        inline=False,
        groups={
            "memory": Nested("Device memory, as the driver reports it and as the label says.", NEEDED),
            "scaleup": Nested(
                "The links inside one domain (NVLink, Infinity Fabric, ICI); none where it is left out.",
                OF_GPUS,
                sourced=True,
            ),
        },
    )

    name: str
    title: str
    peak: Annotated[
        Mapping[str, float],
        PEAK_RATES,
        "Dense matmul peak per number format. `fp32` is without matrix units, `tf32` with.",
    ]
    vector: Annotated[float, quantity("FLOP/s"), "fp32 arithmetic outside the matrix units: `66.9 TFLOP/s`."]
    bandwidth: Annotated[float, quantity("B/s"), "Of device memory: `3.35 TB/s`."]
    memory: Annotated[int, At("memory.driver"), quantity("B"), "What the driver reports: `81559 MiB`."]
    memory_labelled: Annotated[int, At("memory.labelled"), quantity("B"), "What the label says: `80 GB`."]
    l2: Annotated[int, quantity("B"), "The last cache before device memory: `50 MiB`.", OF_GPUS] = 0
    multiprocessors: Annotated[
        int,
        SOURCED_COUNT,
        "Streaming multiprocessors, or compute units, which tiles of a product fill in waves; a CPU or a TPU has none.",
        OF_GPUS,
    ] = 0
    scaleup_bandwidth: Annotated[
        float,
        At("scaleup.bandwidth"),
        quantity("B/s", zero=True),
        "One way, per device; `0 GB/s` where devices share only PCIe.",
        NEEDED,
    ] = 0.0
    scaleup_domain: Annotated[int, At("scaleup.domain"), SOURCED_COUNT, "Devices that these links join.", NEEDED] = 1
    host_bandwidth: Annotated[
        float,
        At("host_link"),
        quantity("B/s"),
        "To the host, one way: `63 GB/s`; none where the device has one memory with its host (a CPU, a phone).",
        OF_GPUS,
    ] = 0.0
    sparse_peak: Annotated[
        Mapping[str, float],
        PEAK_RATES,
        "The 2:4 sparse figures of the data sheet: products of weights of which two of every four neighbours are zero "
        "(`precision.pruned`), zeros counted. No peak of other products.",
    ] = field(default_factory=dict)
    l2_bandwidth: Annotated[
        float,
        quantity("B/s"),
        "What that cache reads and writes per second: `3.9 TB/s`; twice the memory's where it is not known.",
    ] = 0.0
    fp16_sums: Annotated[
        float,
        quantity("FLOP/s"),
        "Dense fp16 products whose sums are fp16 too, where that is faster than `peak.fp16`: `330.3 TFLOP/s`.",
    ] = 0.0
    across_nodes: Annotated[
        bool,
        At("scaleup.across_nodes"),
        "Whether these links join devices of several nodes (NVL72), or those of one alone.",
    ] = False
    scaleup_measured: Annotated[
        float,
        At("scaleup.measured"),
        quantity("B/s"),
        "The speed of the links whose transfers were measured, where it is another: their bandwidth is scaled.",
    ] = 0.0
    host_measured: Annotated[float, At("host_link_measured"), quantity("B/s"), "The same of the link to the host."] = (
        0.0
    )
    power: Annotated[
        float,
        quantity("W"),
        "The power limit of one device: `700 W`.",
        OF_GPUS,
    ] = 0.0
    matmul_workspace: Annotated[
        int,
        quantity("B"),
        "What PyTorch gives each handle of cuBLAS or hipBLAS to work in: `32 MiB`; none where it is absent.",
    ] = 0
    architecture: Annotated[
        str,
        Choice(*(name for names in ARCHITECTURES.values() for name in names)),
        "The generation of the device, which says of a GPU what kernels and number formats run on it. Without it, none "
        "is refused for that reason.",
    ] = ""
    kind: Annotated[
        str,
        Choice(*ARCHITECTURES),
        "`cpu`: the processor that also runs the program, so nothing is launched ahead; `soc`: a chip with processor, "
        "graphics and neural units, as of a phone; `tpu`; `gpu` where nothing is said.",
    ] = "gpu"
    host: Annotated[
        Host | None, "The host of the node that it is sold in, for clusters of such nodes that state none.", OPTIONAL
    ] = None
    aliases: Annotated[tuple[str, ...], SPELLINGS_OF_NAME, "Other spellings of this name."] = ()
    calibration: Annotated[
        tuple[Curve, ...], ListOf(PriceOf(Curve)), "Measured ceilings, each a few fitted numbers with their origin."
    ] = ()

    @property
    def has_own_memory(self) -> bool:
        """Whether its memory is another one than its host's, so that a link joins the two."""
        return self.host_bandwidth > 0

    def with_links(self, scaleup: float, host: float) -> Accelerator:
        """The device with links of these speeds, B/s; its transfers were measured over the links that it had."""
        bandwidth_before = self.scaleup_bandwidth or (self.host_bandwidth if scaleup else 0.0)
        return replace(
            self,
            scaleup_bandwidth=scaleup,
            scaleup_measured=self.scaleup_measured or bandwidth_before,
            host_bandwidth=host,
            host_measured=self.host_measured or self.host_bandwidth,
        )

    def over_links(self, bandwidth: float) -> float:
        """A measured bandwidth between devices, B/s, over what joins them: their links, or the host's without any."""
        if not self.scaleup_bandwidth:
            return self.over_host_link(bandwidth)
        return bandwidth * (self.scaleup_bandwidth / self.scaleup_measured) if self.scaleup_measured else bandwidth

    def over_host_link(self, bandwidth: float) -> float:
        """A measured bandwidth to the host or from it, B/s, over the link that the device has."""
        return bandwidth * (self.host_bandwidth / self.host_measured) if self.host_measured else bandwidth

    @cached_property
    def curves(self) -> Mapping[KernelClass, tuple[Curve, ...]]:
        """The fitted prices of each class."""
        curves_by_class: dict[KernelClass, list[Curve]] = {}
        for curve in self.calibration:
            curves_by_class.setdefault(curve.what, []).append(curve)
        return {kernel: tuple(curves) for kernel, curves in curves_by_class.items()}


@dataclass(frozen=True)
class Cluster:
    """The devices of a job and the network that joins them. Bandwidth is one way, per device, in B/s."""

    spec: ClassVar[PartHeader] = PartHeader(
        title="A cluster: devices and what joins them",
        kind="cluster",
        groups={
            "scaleout": Nested(
                "The network between nodes, one way, per device: `400 Gb/s`, or with latency and efficiency.",
                sourced=True,
                instead="scaleout_bandwidth",
            )
        },
        extra=stood_in("cluster"),
    )

    devices: Annotated[int, degree(), "Accelerators in the job."]
    devices_per_node: Annotated[int, degree(), "Accelerators that share one host."]
    accelerator: Annotated[
        str,
        DEVICE,
        "The device whose nodes it describes: `h100-sxm`; a plan on another one is warned. Any where it is left out.",
    ] = ""
    scaleout_bandwidth: Annotated[
        float, At("scaleout.bandwidth"), quantity("B/s"), "Line rate, one way, per device: `400 Gb/s`.", NEEDED
    ] = 0.0
    scaleout_latency: Annotated[
        float, At("scaleout.latency"), quantity("s", zero=True), "Per rank of a ring that crosses nodes: `5 us`."
    ] = 0.0
    scaleout_efficiency: Annotated[
        float, At("scaleout.efficiency"), quantity("1", least=1e-3, greatest=1), "Reached share of the line rate."
    ] = 1.0
    pod: Annotated[
        int,
        At("scaleout.pod"),
        Integer(0),
        "Devices between which the network carries all that their cards send; 0: all of them.",
    ] = 0
    oversubscription: Annotated[
        float,
        At("scaleout.oversubscription"),
        quantity("1", least=1, greatest=1000),
        "What the cards of a pod send over what leaves it at most: 7 for 1:7.",
    ] = 1.0
    host: Annotated[
        Host | None, "The host of each node; that of the accelerator's own nodes where not given.", OPTIONAL
    ] = None
    name: str = ""
