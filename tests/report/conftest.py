"""Compiled plans made by hand: Llama 3 70B on 1024 H100 (Dubey et al. 2024, table 3), and a bare 70e9 parameters."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import pytest
import sympy

from ledger.books.compiled import Compiled
from ledger.books.resources import TRAFFIC, Resource, bytes_sent, flops, stock
from ledger.books.results import Account, Check, KernelTime, Moment, RoleResult, Symbol, Verdict, WaterfallPart
from ledger.model.causes import Cause, Transfer
from ledger.spec.kernel_classes import kernel_class
from ledger.spec.plan import (
    MLP,
    Accelerator,
    Assumptions,
    Attention,
    Cluster,
    Curve,
    Group,
    Kernels,
    Model,
    Optimizer,
    Origin,
    Overlap,
    Parallelism,
    Plan,
    Precision,
    Price,
    Recompute,
    Run,
    Stack,
)
from ledger.spec.precision import WeightFormats
from ledger.spec.problems import Location

PEAK, BANDWIDTH = 989.5e12, 3.35e12
SIZES = {
    "B": 1,
    "S": 8192,
    "D": 8192,
    "H": 64,
    "K": 8,
    "E": 128,
    "F": 28672,
    "V": 128256,
    "L": 80,
    "tp": 8,
    "dp": 128,
    "M": 8,
}
MEANINGS = {
    "B": ("sequences in a micro-batch on one device", "run.micro_batch"),
    "S": ("tokens in a sequence", "run.seq_len"),
    "D": ("width of the residual stream", "model.d_model"),
    "H": ("query heads of a layer", "model.layers.0.attention.heads"),
    "K": ("key and value heads of a layer", "model.layers.0.attention.kv_heads"),
    "E": ("width of one head", "model.layers.0.attention.head_dim"),
    "F": ("width of the feed-forward layer", "model.layers.0.mlp.d_ff"),
    "V": ("rows of the vocabulary", "model.vocab"),
    "L": ("layers on one device", "model.layers.0.repeat"),
    "tp": ("tensor-parallel degree", "parallelism.tensor"),
    "dp": ("data-parallel degree", "parallelism.data"),
    "M": ("micro-batches of a step on one device", "run.global_batch"),
}
MATMULS = {  # operation: (k, n) per device under tensor parallelism of 8, formula
    "attention/q": ("2*B*S*D*H*E/tp", "decoder"),
    "attention/k": ("2*B*S*D*K*E/tp", "decoder"),
    "attention/v": ("2*B*S*D*K*E/tp", "decoder"),
    "attention/out": ("2*B*S*H*E*D/tp", "decoder"),
    "mlp/gate": ("2*B*S*D*F/tp", "decoder"),
    "mlp/up": ("2*B*S*D*F/tp", "decoder"),
    "mlp/down": ("2*B*S*F*D/tp", "decoder"),
    "projection": ("2*B*S*D*V/tp", "head"),
}
MATMULS_IN_BF16 = flops("matmul", "bf16")
CURVES = (
    Curve(
        kernel_class("matmul.bf16"),
        "matmul",
        {"e": 0.72, "t0": 2.9e-6, "b": 0.72, "k0": 127, "c": 0.0317},
        0.054,
        "sustained",
        "cuBLAS sweep, 864 shapes",
        bias=-0.016,
        held_out="different (n, k) pairs",
        region="m, n, k >= 512",
    ),
    Curve(
        kernel_class("attention.flash.forward"),
        "attention",
        {"e": 0.62, "s0": 240, "t0": 4e-6},
        0.071,
        "sustained",
        "FlashAttention benchmark",
        head_dim=128,
    ),
    Curve(kernel_class("elementwise"), "bandwidth", {"b": 0.87, "t0": 2e-6}, 0.042, "burst", "copy and scale sweep"),
    Curve(kernel_class("all_reduce"), "collective", {"a": 15.5e-6, "B": 475e9}, 0.066, "burst", "nccl-tests", ranks=8),
)


def size(formula: str) -> int | Fraction:
    """A formula's value, by Python's own arithmetic on exact numbers."""
    names = {name: Fraction(value) for name, value in SIZES.items()} | {"ceil": math.ceil}
    value = Fraction(eval(formula, {"__builtins__": {}}, names))  # noqa: S307 - a test's own text
    return int(value) if value.denominator == 1 else value


def cause(name: str) -> Cause:
    """The cause that is printed so."""
    unit, _, rest = name.partition("/")
    return Cause(unit, rest)


def account(name: str, resource: Resource, when: str, formula: str, times: int, basis: str) -> Account:
    """One account of the only role."""
    return Account(cause(name), "inner", resource, when, size(formula), times, formula, basis, sympy.Symbol("x"))


def matmul_accounts() -> Iterator[Account]:
    """FLOPs and traffic of every matrix product."""
    for name, (formula, group) in MATMULS.items():
        times = 640 if group == "decoder" else 8
        path = f"{group}/{name}"
        basis = "contraction: 2 x the product of all dimensions"
        yield account(path, MATMULS_IN_BF16, "forward", formula, times, basis)
        yield account(path, MATMULS_IN_BF16, "backward", f"2*({formula})", times, f"{basis}, both gradients")
        traffic = "2*B*S*D + 2*B*S*F/tp + 2*D*F/tp" if "mlp" in name else "2*B*S*D + 2*B*S*H*E/tp + 2*D*H*E/tp"
        yield account(path, TRAFFIC, "forward", traffic, times, "each operand is read once, the result written once")
        if group == "decoder" and name != "mlp/down":
            yield account(path, MATMULS_IN_BF16, "recompute", formula, times, "full checkpointing (Chen et al. 2016)")


def other_accounts() -> Iterator[Account]:
    """Attention, norms, stocks and transfers."""
    causal = "4*B*H*E*S**2*(S + 1)/(2*S)/tp"
    yield account("decoder/attention/core", MATMULS_IN_BF16, "forward", causal, 640, "Dao 2023, exact causal density")
    yield account("decoder/attention/core", MATMULS_IN_BF16, "backward", f"5/2*({causal})", 640, "Dao 2023: 5 products")
    for name in ("attention/norm", "mlp/norm"):
        yield account(f"decoder/{name}", TRAFFIC, "forward", "4*B*S*D", 640, "read once, written once")
    yield account(
        "decoder/activations",
        stock("activations"),
        "forward..backward",
        "2*B*S*D/tp",
        80,
        "input of a checkpointed layer",
    )
    yield account("head/logits", stock("logits"), "loss", "4*B*S*V/tp", 1, "fp32 copy of the logits")
    yield account(
        "optimizer/states",
        stock("optimizer"),
        "step..step",
        "8*ceil(V*D/(dp*tp)) + 8*D*F*3*L/(dp*tp)",
        1,
        "Kingma 2015",
    )
    yield account(
        "decoder/gather",
        bytes_sent("all_gather", "tensor"),
        "forward",
        "2*B*S*D",
        1280,
        "Korthikanti et al. 2022, section 4.2.2",
    )
    yield account(
        "decoder/unit",
        bytes_sent("all_gather", "data"),
        "forward",
        "2*(2*D*H*E + 2*D*K*E + 3*D*F)/tp",
        640,
        "Zhao et al. 2023",
    )


def kernel(
    name: str, when: str, kind: str, work: tuple[int, float, float], seconds: float, error: float = 0.054
) -> KernelTime:
    """One kernel, its roofline and bound by the data sheet."""
    times, flops, traffic = work
    roofline = max(flops / PEAK, traffic / BANDWIDTH)
    bound = "compute" if flops / PEAK > traffic / BANDWIDTH else "memory"
    return KernelTime(
        cause(name),
        when,
        kernel_class(kind),
        times,
        flops,
        traffic,
        0.0,
        seconds,
        roofline,
        bound,
        error,
        calibrated=True,
    )


def matmul_kernels() -> Iterator[KernelTime]:
    """Every matrix product, priced by the fitted form."""
    for name, (formula, group) in MATMULS.items():
        times, flops = (640 if group == "decoder" else 8), float(size(formula))
        n = flops / (2 * 8192 * 8192)
        traffic = 2 * (8192 * 8192 + 8192 * n + 8192 * n)
        seconds = 2.9e-6 + flops / (0.72 * PEAK) * (1 + 127 / 8192) * (1 + 0.0317 * 132 * 128 * 256 / (8192 * n))
        for when, factor in (("forward", 1), ("backward", 2), ("recompute", 1)):
            if when == "recompute" and (name == "mlp/down" or group != "decoder"):
                continue
            work = (times, factor * flops, factor * traffic)
            yield kernel(f"{group}/{name}", when, "matmul.bf16", work, factor * seconds)


def other_kernels() -> Iterator[KernelTime]:
    """Attention, memory-bound kernels and collectives."""
    core = float(size("4*B*H*E*S**2*(S + 1)/(2*S)/tp"))
    for when, factor, efficiency in (("forward", 1.0, 0.60), ("backward", 2.5, 0.50), ("recompute", 1.0, 0.60)):
        work = (640, factor * core, factor * 8.0 * 8192 * 1024)
        kind = f"attention.flash.{'backward' if when == 'backward' else 'forward'}"
        yield kernel("decoder/attention/core", when, kind, work, factor * core / (efficiency * PEAK), 0.071)
    for name, bytes_moved in (
        ("attention/norm", 33.6e6),
        ("mlp/norm", 33.6e6),
        ("mlp/product", 176e6),
        ("attention/rotary", 38e6),
    ):
        for when, factor in (("forward", 1), ("backward", 2), ("recompute", 1)):
            work = (640, bytes_moved / 4, factor * bytes_moved)
            yield kernel(f"decoder/{name}", when, "norm", work, 2e-6 + factor * bytes_moved / (0.87 * BANDWIDTH), 0.042)
    yield kernel("optimizer/adamw", "optimizer", "optimizer", (1, 12 * 68.9e6, 28 * 68.9e6), 0.9e-3, 0.042)
    for collective, axis, when, times, payload, seconds, exposed in (
        ("all_gather", "tensor", "forward", 1288, 134.2e6, 320e-6, 320e-6),
        ("all_gather", "tensor", "backward", 2568, 134.2e6, 320e-6, 320e-6),
        ("reduce_scatter", "tensor", "forward", 1288, 134.2e6, 322e-6, 322e-6),
        ("reduce_scatter", "tensor", "backward", 1928, 134.2e6, 322e-6, 322e-6),
        ("all_gather", "data", "forward", 648, 217.8e6, 4.9e-3, 0.9e-3),
        ("all_gather", "data", "backward", 648, 217.8e6, 4.9e-3, 0.2e-3),
        ("reduce_scatter", "data", "backward", 648, 435.6e6, 9.8e-3, 0.7e-3),
    ):
        path = f"decoder/{'unit' if axis == 'data' else 'sequence'}"
        calibrated = axis == "tensor"
        yield KernelTime(
            cause(path),
            when,
            Transfer(collective, axis, content=axis),
            times,
            0.0,
            0.0,
            payload,
            seconds,
            seconds * 0.8,
            "network",
            0.066 if calibrated else 0.15,
            calibrated,
            exposed=exposed,
        )


def moments() -> tuple[Moment, ...]:
    """What is alive over a step."""
    static = {"weights": 275_589_000, "master": 0, "gradients": 0, "optimizer": 551_178_000}
    layer = {"unsharded": 1_525_000_000}
    full = {**static, "gradients": 275_589_000}
    return (
        Moment("batch", "before the first forward", {**static}),
        Moment("forward.decoder", "end of the forward pass", {**static, **layer, "activations": 1_342_177_280}),
        Moment(
            "loss",
            "loss, forward",
            {**static, **layer, "activations": 1_342_177_280, "logits": 788_004_864, "workspace": 262_668_288},
        ),
        Moment(
            "loss.backward",
            "backward of the loss, both fp32 gradients of the logits",
            {**full, **layer, "activations": 1_342_177_280, "logits": 1_313_341_440, "workspace": 525_336_576},
            (
                ("head/logits", 1_313_341_440),
                ("decoder/unit", 1_525_000_000),
                ("decoder/input", 1_342_177_280),
                ("optimizer/states", 551_178_000),
                ("head/softmax", 525_336_576),
                ("decoder/weights", 275_589_000),
            ),
        ),
        Moment("backward.decoder.last", "backward of the last layer", {**full, **layer, "activations": 3_100_000_000}),
        Moment(
            "backward.decoder.first", "backward of the first layer", {**full, **layer, "activations": 1_790_000_000}
        ),
        Moment("optimizer", "optimizer step", {**full, "workspace": 275_589_000}),
    )


def totals(roles: tuple[RoleResult, ...], waterfall: tuple[WaterfallPart, ...]) -> dict[str, int | float | Fraction]:
    """The keys of the contract, from shapes and from the kernels."""
    matrices = 80 * (2 * 8192 * 8192 + 2 * 8192 * 1024 + 3 * 8192 * 28672)
    parameters = matrices + 2 * 8192 * 128256 + 161 * 8192
    tokens, step_tokens = 15 * 10**12, 1024 * 8192
    attention = 80 * 4 * 8192 * 8192 * (8192 + 1) // 2 * 1024
    forward = 2 * (matrices + 8192 * 128256) * step_tokens + attention
    backward, recompute = 2 * forward, forward * 3 // 4
    step = sum(span.seconds for span in waterfall)
    steps = Fraction(tokens, step_tokens)
    run = float(steps) * step
    peak = roles[0].peak
    napkin = 6 * parameters * tokens
    values: dict[str, int | float | Fraction] = {
        "parameters": parameters,
        "parameters.active": parameters,
        "parameters.per_device": Fraction(parameters, 1024),
        "flops.forward": forward,
        "flops.backward": backward,
        "flops.recompute": recompute,
        "flops.step": forward + backward + recompute,
        "flops.model": forward + backward,
        "flops.run": (forward + backward + recompute) * steps,
        "mfu": (3 * forward + 3 * attention) / (step * 1024 * PEAK),
        "mfu.causal": 3 * forward / (step * 1024 * PEAK),
        "hfu": (forward + backward + recompute) / (step * 1024 * PEAK),
        "napkin.flops.run": napkin,
        "napkin.time.run": napkin / (1024 * PEAK * 0.5),
        "napkin.days": napkin / (1024 * PEAK * 0.5) / 86400,
        "napkin.max_parameters": 1024 * 80 * 10**9 // 16,
        "memory.peak": peak.total,
        "memory.reserved": roles[0].reserved,
        "memory.capacity": 81559 * 2**20,
        "traffic.step": int(sum(k.bytes * k.times for k in roles[0].kernels)),
        "time.floor": 3.9 * step / 8.2,
        "time.roofline": 4.8 * step / 8.2,
        "time.step": step,
        "time.step.low": step * 0.93,
        "time.step.high": step * 1.08,
        "time.serial": step * 1.62,
        "time.compute": waterfall[0].seconds,
        "time.comm": 20.2,
        "time.exposed": waterfall[3].seconds + waterfall[4].seconds,
        "time.bubble": 0.0,
        "time.optimizer": waterfall[-1].seconds,
        "time.run": run,
        "time.calendar": run / 0.934,
        "time.calendar.low": 0.91 * run / 0.934,
        "time.calendar.high": 1.33 * run / 0.934,
        "tokens_per_second": step_tokens / step,
        "tokens_per_second_per_device": step_tokens / step / 1024,
        "goodput": 0.934,
        "cost.run": run / 3600 * 1024 * 2.5,
        "energy.run": run * 1024 * 700.0,
    }
    for category in ("weights", "master", "gradients", "optimizer", "activations", "logits", "workspace", "unsharded"):
        values[f"memory.{category}"] = peak.parts.get(category, 0)
    for category in ("weights", "master", "gradients", "optimizer"):
        values[f"memory.static.{category}"] = roles[0].moments[0].parts.get(category, 0)
    for entry in roles[0].kernels:
        if entry.payload:
            collective, axis = str(entry.kind).split(".")
            for what, amount in (("bytes", int(entry.payload) * entry.times), ("count", entry.times)):
                key = f"comm.{collective}.{axis}.{what}"
                values[key] = values.get(key, 0) + amount
    return values


def llama_plan() -> Plan:
    """The plan as the reader would type it."""
    accelerator = Accelerator(
        "h100-sxm",
        "NVIDIA H100 SXM5 80 GB",
        {"bf16": PEAK, "fp16": PEAK, "fp8": 1979e12, "tf32": 494.7e12, "fp32": 66.9e12},
        66.9e12,
        BANDWIDTH,
        81559 * 2**20,
        80 * 10**9,
        50 * 2**20,
        132,
        450e9,
        8,
        63e9,
        power=700.0,
        calibration=CURVES,
    )
    group = Group("decoder", 80, Attention(64, 8, 128, rotary=Fraction(1)), MLP(28672))
    datasheet = "NVIDIA H100 Tensor Core GPU datasheet, 2023"
    card = Origin(Location("meta-llama/Meta-Llama-3-70B", 1, 1), "Dubey et al. 2024, table 3")
    plan = "specs/llama-3-70b-1024-h100.yaml"
    return Plan(
        name="llama-3-70b-1024-h100",
        title="Llama 3 70B on 1024 H100",
        accelerator=accelerator,
        cluster=Cluster(1024, 8, 50e9, 5e-6, 0.9),
        model=Model("llama-3-70b", "Llama 3 70B", d_model=8192, vocab=128256, groups=(group,), max_seq_len=8192),
        precision=Precision("bf16-mixed", WeightFormats.alike("bf16"), "bf16", "fp32", "fp32", "bf16", "bf16", "fp32"),
        optimizer=Optimizer("adamw"),
        parallelism=Parallelism(data=128, tensor=8, zero=3, sequence="save_gathered"),
        recompute=Recompute("full"),
        stack=Stack("pytorch-fsdp2-2025", "PyTorch FSDP2, 2025", "2025-06", Kernels(), Overlap(), fragmentation=1.2),
        kernels=Kernels(optimizer="fused"),
        run=Run(8192, 1, 1024, 15 * 10**12),
        assumptions=Assumptions(mfu=0.5, price=Price(2.5, "2026-05-18")),
        origins={
            "accelerator.peak.bf16": Origin(Location("specs/accelerators/h100-sxm.yaml", 6, 9), datasheet),
            "accelerator.bandwidth": Origin(Location("specs/accelerators/h100-sxm.yaml", 11, 12), datasheet),
            "accelerator.memory": Origin(Location("specs/accelerators/h100-sxm.yaml", 12, 9), datasheet),
            "cluster.devices": Origin(Location(plan, 5, 20)),
            "cluster.scaleout_bandwidth": Origin(
                Location("specs/clusters/h100-ib.yaml", 6, 14), "NVIDIA ConnectX-7 datasheet"
            ),
            "model.d_model": card,
            "model.vocab": card,
            "parallelism.data": Origin(Location(plan, 9, 21)),
            "parallelism.tensor": Origin(Location(plan, 9, 34)),
            "parallelism.zero": Origin(Location(plan, 9, 60)),
            "recompute.policy": Origin(Location(plan, 11, 12)),
            "run.tokens": Origin(Location(plan, 14, 15)),
            "run.seq_len": Origin(Location(plan, 14, 36)),
            "run.micro_batch": Origin(Location(plan, 14, 55)),
            "run.global_batch": Origin(Location(plan, 14, 72)),
            "assumptions.mfu": Origin(Location(plan, 15, 20)),
            "assumptions.price.per_device_hour": Origin(Location(plan, 15, 32), "list price, on demand"),
        },
        digest="sha256:" + "9f2c" * 16,
        text="spec: ledger/1\nplan: Llama 3 70B on 1024 H100\naccelerator: h100-sxm\n",
    )


def llama() -> Compiled:
    """The plan of the design review: it fits, and takes months."""
    kernels = (*matmul_kernels(), *other_kernels())
    steps = moments()
    peak = max(steps, key=lambda moment: moment.total)
    roles = (RoleResult("all", (0,), 1024, steps, peak, int(peak.total * 1.2) + 1_000_000_000, kernels),)

    def seconds(*names: str) -> float:
        return sum(k.seconds * k.times for k in kernels if str(k.kind).startswith(names) and not k.payload)

    exposed = {
        axis: sum(k.exposed * k.times for k in kernels if str(k.kind).endswith(axis)) for axis in ("tensor", "data")
    }
    waterfall = (
        WaterfallPart("matmul", "matrix products", seconds("matmul")),
        WaterfallPart("attention", "attention", seconds("attention")),
        WaterfallPart("elementwise", "norms and elementwise", seconds("norm")),
        WaterfallPart("comm.tensor", "tensor-parallel communication", exposed["tensor"], transfer=True),
        WaterfallPart("comm.data", "data-parallel communication", exposed["data"], transfer=True),
        WaterfallPart("launch", "kernel launches", 0.21),
        WaterfallPart("bubble", "pipeline bubble", 0.0),
        WaterfallPart("optimizer", "optimizer", seconds("optimizer")),
    )
    values = totals(roles, waterfall)
    checks = (
        Check("parameters", "parameter count", "pass", "70.6 billion", "equals the published 70 553 706 496"),
        Check("run", "training FLOPs and days", "pass", "see section How long", "within the napkin's factor of two"),
        Check("static", "weights, gradients and optimizer per device", "pass", "1.10 GB", "sharded over 1024 devices"),
        Check("activations", "activation memory per device", "pass", "1.34 GB"),
        Check(
            "intensity",
            "arithmetic intensity of the main operations",
            "warn",
            "k and v are short",
            "n = 128 per device",
        ),
        Check("mfu", "expected MFU against measured", "warn", "no measured run of this stack at this scale"),
    )
    headline = "Fits with room to spare; tensor-parallel communication is what it waits for."
    verdict = Verdict(
        fits=True,
        bottleneck="tensor-parallel communication",
        evidence="partly calibrated",
        headline=headline,
        checks=checks,
    )
    symbols = {name: Symbol(name, *MEANINGS[name][:1], value, MEANINGS[name][1]) for name, value in SIZES.items()}
    return Compiled(llama_plan(), values, (*matmul_accounts(), *other_accounts()), roles, waterfall, verdict, symbols)


def too_large(compiled: Compiled) -> Compiled:
    """The same plan without checkpointing or sharding: some categories grow, and it fits no more."""
    role = compiled.roles[0]
    grown = tuple(
        replace(
            m, parts={k: v * (30 if k == "activations" else 12 if k == "optimizer" else 1) for k, v in m.parts.items()}
        )
        for m in role.moments
    )
    peak = max(grown, key=lambda moment: moment.total)
    inner = replace(role, name="first stage", moments=grown, peak=peak, reserved=int(peak.total * 1.2) + 1_000_000_000)
    changed = {f"memory.{k}": v for k, v in peak.parts.items()}
    changed |= {"memory.peak": peak.total, "memory.reserved": inner.reserved}
    verdict = replace(compiled.verdict, fits=False, headline="Does not fit: the activations alone exceed the device.")
    plan = replace(compiled.plan, recompute=Recompute("none"))
    return replace(
        compiled,
        plan=plan,
        totals={**compiled.totals, **changed},
        verdict=verdict,
        roles=(inner, replace(role, name="last stage")),
    )


def bare(compiled: Compiled) -> Compiled:
    """A parameter count and nothing else: only what follows from it is known."""
    kept = (
        "parameters",
        "parameters.active",
        "napkin.flops.run",
        "napkin.time.run",
        "napkin.days",
        "napkin.max_parameters",
        "memory.capacity",
    )
    plan = replace(compiled.plan, model=Model("inline", "70 billion parameters", parameters=70 * 10**9))
    verdict = replace(
        compiled.verdict,
        headline="Only a parameter count is given: a napkin estimate.",
        checks=(),
        evidence="uncalibrated",
        bottleneck="compute",
    )
    return Compiled(plan, {key: compiled.totals[key] for key in kept}, (), (), (), verdict, {})


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Formulas are drawn by these tests, not found in the user's cache; workers find what another drew."""
    folder = tmp_path_factory.getbasetemp()
    shared = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(shared / "cache-of-reports"))
        yield


@pytest.fixture(scope="session")
def compiled() -> Compiled:
    """The plan of the design review."""
    return llama()


@pytest.fixture(scope="session")
def variants(compiled: Compiled) -> dict[str, Compiled]:
    """A plan that fits, one that does not, and a bare count."""
    return {"fits": compiled, "too large": too_large(compiled), "bare": bare(compiled)}
