"""The plan as a program of its own: data and closed forms in JavaScript, for a reader who moves its sizes offline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ledger.books import overlap, prices, repricing
from ledger.books.bindings import bindings
from ledger.books.memory.holdings import CATEGORIES
from ledger.books.memory.outside import HANDLES
from ledger.books.passes import PASSES, weights_hide
from ledger.books.time import UNSEEN_STACK
from ledger.model.dims import symbol
from ledger.model.gradients import copied_to_buckets
from ledger.model.schedule import order, roles
from ledger.model.wrapping import ROOT
from ledger.report import assets
from ledger.report.emission import Emission, degrees, ledger, splits, structures, told_apart
from ledger.report.javascript import literal
from ledger.spec.kernel_classes import KernelClass
from ledger.spec.plan import Plan, Stages

AXES = ("data", "tensor", "pipeline", "context")
RUN = ("micro_batch", "seq_len", "global_batch")
SIGNS = {"micro_batch": "batch", "seq_len": "seq", **{axis: axis for axis in AXES}}  # what a reader moves: its symbol
LOOPS = ("gpipe", "1f1b", "interleaved")  # schedules that templates/live.js knows
# What templates/live.js has no rules for, a row each: of which plans that holds, and why they have no panel.
UNPORTED: tuple[tuple[Callable[[Plan], bool], str], ...] = (
    (
        lambda plan: plan.parallelism.scheduled not in LOOPS,
        "its pipeline runs gradients of weights apart, or from both ends",
    ),
    (
        lambda plan: copied_to_buckets(plan) and plan.parallelism.tensor * plan.parallelism.pipeline > 1,
        "how many buckets its gradients fill depends on the size of every weight",
    ),
    (
        lambda plan: plan.parallelism.zero == 3 and plan.parallelism.wrap != 1 and plan.parallelism.pipeline > 1,
        "its sets of weights hold several layers of a stage",
    ),
    (lambda plan: plan.parallelism.replicate > 1, "what is held split has copies in groups of their own"),
    (lambda plan: any(group.mlp.experts for group in plan.model.groups), "its layers have experts"),
    (
        lambda plan: any(group.mlp.custom for group in plan.model.groups),
        "which sizes of its own component tensor parallelism may cut is the author's word",
    ),
    (
        lambda plan: len(plan.model.groups) > 1 and plan.parallelism.interleave > 1,
        "its groups of layers hold different numbers of micro-batches",
    ),
    (lambda plan: bool(plan.model.predictions), "its last stage predicts further tokens"),
    (lambda plan: plan.kernels.loss in ("chunked", "fused_linear"), "its loss runs over parts of the sequence"),
    (lambda plan: plan.parallelism.updates_on_host, "its optimizer runs on the host"),
    (lambda plan: bool(plan.parallelism.offload), "its activations wait in host memory"),
    (
        lambda plan: plan.stack.check + plan.stack.call > 0,
        "its hosts do more than launch the kernels of its operations",
    ),
    (lambda plan: plan.accelerator.kind == "cpu", "a CPU launches nothing ahead of what it computes"),
    (lambda plan: plan.train.kind != "all", "its first layer has a backward pass of its own"),
    (
        lambda plan: plan.recompute.policy in ("layers", "segment"),
        "how many of its layers are rebuilt depends on how many a device has",
    ),
    (lambda plan: plan.parallelism.stages != Stages(), "its pipeline has stages of unequal size"),
    (
        lambda plan: plan.parallelism.context_exchange != "all_gather",
        "its sequences are exchanged in another way than by gathering keys and values",
    ),
    (
        lambda plan: (
            plan.stack.overlap.tensor == "matmul" and bool(plan.precision.matmul and plan.precision.matmul.by_rows)
        ),
        "its rows are quantised between gathers and the matmuls that hide them",
    ),
    (lambda plan: plan.optimizer.newton_schulz is not None, "which side of a matrix its update takes depends on sizes"),
    (
        lambda plan: any(state.scales for state in plan.optimizer.states.values()),
        "which weights are small enough for whole states depends on sizes",
    ),
    (
        lambda plan: plan.stack.gathers == "copied" and plan.parallelism.zero in (1, 2),
        "whether the update or the gather after it holds more depends on sizes",
    ),
)
PACE = "pace."  # how the totals begin that say what a step waits for
WIDER = 8  # how far beyond the plan's own value a control goes
SHORTEST, LONGEST = 256, 131072  # tokens of a sequence that a control offers


def unported(plan: Plan) -> str:
    """Why the page of a plan has no panel; empty where it has one."""
    return next((reason for holds, reason in UNPORTED if holds(plan)), "")


def script(plan: Plan) -> str:
    """The whole script of the page, whose names stay inside it; empty where there is no panel."""
    if plan.model.bare or unported(plan):
        return ""
    return f"{{\n{calculator(plan)}\n{assets.text('format.js')}\n{assets.text('panel.js')}}}\n"


def calculator(plan: Plan) -> str:
    """The script without its panel: `evaluate(chosen)` gives the totals of the plan under other sizes."""
    emission = Emission()
    ledgers = {key: ledger(plan, role, emission) for key, role in structures(plan).items()}
    data = {**facts(plan), "prices": emission.prices, "curves": curves(plan), "ledgers": ledgers}
    return f"const PLAN = {literal(data)};\n{emission.formulas.function('formulas')}\n{assets.text('live.js')}"


# --- what the script knows of the plan beside its ledgers ----------------------------------------


def facts(plan: Plan) -> dict[str, Any]:
    """The plan's own sizes, what its rules read, its device, its stack, and the constants of the estimate."""
    price = plan.assumptions.price
    return {
        "own": own(plan),
        "stops": stops(plan),
        "signs": {name: symbol(sign).name for name, sign in SIGNS.items()},
        **shapes(plan),
        "interleave": plan.parallelism.interleave,
        "told_apart": told_apart(plan),
        "schedule": plan.parallelism.scheduled,
        "sequence_parallel": plan.parallelism.sequence != "off" and plan.parallelism.tensor > 1,
        "tokens": plan.run.tokens or 0,
        "price": price.per_device_hour if price else 0,
        "categories": CATEGORIES,
        "device": device(plan),
        "cluster": {
            "devices_per_node": plan.cluster.devices_per_node,
            "scaleout_bandwidth": plan.cluster.scaleout_bandwidth,
            "scaleout_latency": plan.cluster.scaleout_latency,
            "scaleout_efficiency": plan.cluster.scaleout_efficiency,
        },
        "stack": stack(plan),
        "root": ROOT,
        "uncalibrated": prices.UNCALIBRATED_ERROR,
        "typical_bus": prices.TYPICAL_BUS,
        "deviation": prices.DEVIATION,
        "unseen": UNSEEN_STACK,
        "limits": {
            price.pace.removeprefix(PACE): {"limit": price.limit, "better": price.better} for price in repricing.PRICES
        },
        "fixed": repricing.LIMITS[repricing.FIXED],
        "faster": repricing.FASTER,
    }


def own(plan: Plan) -> dict[str, int]:
    """The sizes that a reader moves, as the plan has them."""
    run = {name: getattr(plan.run, name) for name in RUN}
    return run | {axis: getattr(plan.parallelism, axis) for axis in AXES}


def shapes(plan: Plan) -> dict[str, Any]:
    """Sizes of the model by symbol, its groups, and the group of each layer."""
    several = len(plan.model.groups) > 1
    moved = {symbol(name) for name in (*SIGNS.values(), "micro_batches", "in_flight", "waiting", "sends", "returns")}
    groups, own_symbols = [], set()
    for group in plan.model.groups:
        suffix = group.name if several else ""
        names = ("layers", "window", "chunk", "in_flight")
        layers, window, chunk, flying = (symbol(name, suffix) for name in names)
        own_symbols |= {layers, window, chunk, flying}
        seen = ((window, group.attention.window), (chunk, group.attention.chunk))
        limit = next(([sign.name, size] for sign, size in seen if size), None)
        groups.append(
            {"name": group.name, "layers": layers.name, "flying": flying.name, "window": limit, "splits": splits(group)}
        )
    bound = bindings(plan, roles(plan)[0])
    sizes = {sign.name: int(value) for sign, value in bound.items() if sign not in moved | own_symbols}
    return {
        "sizes": sizes,
        "groups": groups,
        "order": order(plan.model),
        "vocab": plan.model.vocab,
        "positions": plan.model.learned_positions,
    }


def device(plan: Plan) -> dict[str, float]:
    """What prices and fit read of the accelerator."""
    names = ("bandwidth", "scaleup_bandwidth", "host_bandwidth", "scaleup_domain", "multiprocessors", "memory")
    return {name: getattr(plan.accelerator, name) for name in names}


def stack(plan: Plan) -> dict[str, Any]:
    """What hides behind what, the allocator and the launches of the software."""
    chosen = plan.stack
    return {
        "matmul_level": chosen.matmul_level,
        "launch": 0.0 if chosen.graphs else chosen.launch,
        "overlap_tax": overlap.tax(plan),
        "hides": {name: weights_hide(name, plan) for name in PASSES},
        "sends_wait": chosen.overlap.pipeline != "compute",
        "gradients_hide": overlap.gradients_hide(plan),
        "weights_hide": chosen.overlap.gather == "layer",
        "fragmentation": chosen.fragmentation,
        "context": chosen.context,
        "library": HANDLES * plan.accelerator.matmul_workspace,
    }


def curves(plan: Plan) -> dict[str, list[dict[str, float]]]:
    """The fits of each collective; which one prices a transfer depends on the size of its group."""
    found = {name: prices.curve(plan.accelerator, KernelClass(name)) for name in prices.FACTOR}
    return {
        name: [
            {
                "ranks": row.ranks,
                "burst": int(row.regime != "sustained"),
                "a": 0.0,
                **row.parameters,
                "error": row.error,
            }
            for row in plan.accelerator.calibration
            if curve and row.what == curve.what
        ]
        for name, curve in found.items()
    }


# --- controls -----------------------------------------------------------------------------------


def stops(plan: Plan) -> dict[str, list[int]]:
    """The values that each control offers, each legal by itself; those of the global batch follow from two others."""
    mesh, run = plan.parallelism, plan.run
    longest = plan.model.learned_positions or max(LONGEST, WIDER * run.seq_len)
    offered = {
        "micro_batch": round_numbers(1, WIDER * run.micro_batch),
        "seq_len": [n for n in round_numbers(SHORTEST, longest) if n % mesh.context == 0],
        "data": round_numbers(2, WIDER * mesh.data) if mesh.data > 1 else [],
        "context": [n for n in round_numbers(2, WIDER * mesh.context) if mesh.context > 1 and run.seq_len % n == 0],
        **degrees(plan),
    }
    return {name: sorted({*values, own(plan)[name]}) for name, values in offered.items()}


def round_numbers(least: int, most: int) -> list[int]:
    """Powers of two, and those times three."""
    powers = [2**power for power in range(most.bit_length())]
    return sorted(n for n in {*powers, *(3 * power for power in powers)} if least <= n <= most)
