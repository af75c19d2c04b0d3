"""The plan at a glance: its model, layout, batch, formats and software, a line each."""

from __future__ import annotations

from dataclasses import fields
from itertools import groupby
from typing import TYPE_CHECKING

from ledger import numbers
from ledger.report.views.asked import batch_line, devices_line, length_of
from ledger.spec.axes import AXES
from ledger.spec.precision import PARTS

if TYPE_CHECKING:
    from ledger.spec.plan import Lora, Plan, Serve
    from ledger.spec.precision import WeightFormats


def glance(chosen: Plan) -> tuple[tuple[str, str], ...]:
    """The plan in ten lines, fewer where only a parameter count is known, or where it serves."""
    if chosen.serve:
        return glance_of_service(chosen, chosen.serve)
    rows = (
        ("model", model_line(chosen)),
        ("devices", devices_line(chosen)),
        ("layout", layout_line(chosen)),
        ("batch", "" if chosen.model.bare else batch_line(chosen)),
        ("training", length_of(chosen) if chosen.run.token_count else ""),
        ("precision", precision_line(chosen)),
        ("recompute", "" if chosen.model.bare else recompute_line(chosen)),
        ("trained", train_line(chosen)),
        ("optimizer", chosen.optimizer.name),
        ("software", chosen.stack.title),
        ("kernels", "" if chosen.model.bare else kernel_line(chosen)),
    )
    return tuple((name, text) for name, text in rows if text)


def glance_of_service(chosen: Plan, serve: Serve) -> tuple[tuple[str, str], ...]:
    """A plan that serves in a few lines."""
    formats = [(dtype, whose) for dtype, whose in _weight_formats(chosen.precision.weights)]
    formats += [(chosen.precision.compute, "compute"), (chosen.precision.cache or "as matmuls write", "cache")]
    load = f"{serve.arrival_rate:g} requests a second" if serve.arrival_rate else f"{serve.concurrency} sequences"
    chunk = f"at most {numbers.integer(serve.chunk)} tokens of prompts in a step"
    return (
        ("model", model_line(chosen)),
        ("devices", devices_line(chosen)),
        ("layout", layout_line(chosen)),
        ("lengths", f"prompts of {serve.prompt}, outputs of {serve.output}"),
        ("load", f"{load}, {chunk}"),
        ("formats", "; ".join(f"{dtype}: {whose}" for dtype, whose in formats)),
        ("software", chosen.stack.title),
    )


def model_line(chosen: Plan) -> str:
    """The model in a line."""
    model = chosen.model
    if model.bare:
        return f"{model.title or model.name}: a count and nothing else"
    layers = sum(group.repeat for group in model.groups)
    return f"{model.title}: {layers} layers of width {numbers.integer(model.d_model)}"


def kernel_line(chosen: Plan) -> str:
    """Which implementation serves each part that the model has."""
    groups = chosen.model.groups
    absent = set() if any(group.mlp.experts for group in groups) else {"experts", "weighing", "router"}
    absent |= set() if any(group.attention.rotary or group.attention.rope_head_dim for group in groups) else {"rotary"}
    absent |= set() if any(group.attention.recurrent for group in groups) else {"scan"}
    absent |= set() if chosen.model.attends else {"attention"}
    named = {
        part.name: getattr(chosen.kernels, part.name) for part in fields(chosen.kernels) if part.name not in absent
    }
    return ", ".join(f"{name.replace('_', ' ')} {choice}" for name, choice in named.items() if choice)


def layout_line(chosen: Plan) -> str:
    """The degrees above one, and what ZeRO shards."""
    degrees = [f"{name} {getattr(chosen.parallelism, name)}" for name in AXES if getattr(chosen.parallelism, name) > 1]
    zero = [f"ZeRO-{chosen.parallelism.zero}"] if chosen.parallelism.zero else []
    zero += [f"in {chosen.parallelism.replicate} replicas"] if chosen.parallelism.replicate > 1 else []
    sequence = ["sequence parallel"] if chosen.parallelism.sequence != "off" else []
    how = [chosen.parallelism.context_exchange.replace("_", "-")]
    how += ["zigzag"] if chosen.parallelism.context_balance == "zigzag" else []
    exchange = [f"context by {', '.join(how)}"] if chosen.parallelism.context > 1 else []
    offload = [f"{', '.join(chosen.parallelism.offload.kinds)} on the host"] if chosen.parallelism.offload else []
    return "; ".join([", ".join([*degrees, *zero, *sequence]), *exchange, *offload]) or "one device"


def precision_line(chosen: Plan) -> str:
    """The dtypes by role, equal ones together."""
    precision = chosen.precision
    roles = ("gradients", "master", "states", "compute", "reduction")
    named = [(str(getattr(precision, role) or "none"), role) for role in roles]
    pairs = sorted([*_weight_formats(precision.weights), *named], key=lambda pair: pair[0])
    together = groupby(pairs, key=lambda pair: pair[0])
    return "; ".join(f"{dtype}: {', '.join(role for _, role in group)}" for dtype, group in together)


def _weight_formats(formats: WeightFormats) -> list[tuple[str, str]]:
    """Each format of weights with whose it is."""
    if formats.every:
        return [(formats.every, "weights")]
    parts = {"base": "matrices of layers"} | {name: name for name in ("experts", *PARTS)}
    return [(str(getattr(formats, name)), shown) for name, shown in parts.items() if getattr(formats, name)]


def train_line(chosen: Plan) -> str:
    """Which weights are trained; empty where all are."""
    train = chosen.train
    if train.lora:
        return _adapters(train.lora)
    return {"only": "only ", "frozen": "all but "}.get(train.kind, "") + ", ".join(train.names)


def recompute_line(chosen: Plan) -> str:
    """Which activations are rebuilt, in the words of the plan."""
    policy = chosen.recompute
    odd = ", of matmuls every second" if policy.matmuls == "every_second" else ""
    lines = {
        "every": f"every {policy.every} layers",
        "layers": f"the first {policy.layers} layers of a stage",
        "segment": f"segments of {policy.segment} layers" if policy.segment else "segments of sqrt(L) layers",
        "components": ", ".join(policy.components),
        "keep": f"all but {', '.join(policy.keep)}{odd}",
    }
    return lines.get(policy.policy, policy.policy)


def _adapters(lora: Lora) -> str:
    """Which matrices have adapters, and of which rank."""
    if isinstance(lora.rank, int):
        return f"low-rank adapters of rank {lora.rank} on {', '.join(lora.targets)}"
    return f"low-rank adapters of rank {', '.join(f'{rank} on {name}' for name, rank in lora.rank.items())}"
