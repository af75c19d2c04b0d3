"""A plan's document -> its parts, as many as are sound; then the Plan with origins and digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ledger.spec import build_hardware, build_precision
from ledger.spec.build_model import model
from ledger.spec.build_optimizer import optimizer
from ledger.spec.expectations import expectations
from ledger.spec.places import Places
from ledger.spec.plan import (
    Assumptions,
    Expectation,
    Kernels,
    Lora,
    Offload,
    Origin,
    Parallelism,
    Plan,
    Price,
    Recompute,
    Run,
    Stack,
    Stages,
    Train,
)
from ledger.spec.problems import Location, Problem
from ledger.spec.reader import Node
from ledger.spec.sources import Source
from ledger.spec.view import View

Parts = Mapping[str, Any]


def parts(node: Node, names: Mapping[str, str], broken: frozenset[str]) -> Parts:
    """Every part of the plan that is not broken and whose own needs are met, by name."""
    built: dict[str, Any] = {}
    whole = View(node)
    for name, (build, needs) in BUILDERS.items():
        if name not in broken and all(need in built for need in needs):
            built[name] = build(whole, names.get(name, ""), built)
    return built


def plan(built: Parts, node: Node, source: Source, places: Places, warnings: Iterable[Problem]) -> Plan:
    """The plan of its parts; every part must have been built."""
    return Plan(
        name=source.name,
        title=View(node).text("plan"),
        **built,
        origins=places.origins,
        digest=digest(node),
        text=source.text,
        warnings=tuple(warnings),
    )


def digest(node: Node) -> str:
    """The sha256 of the content, the same for every order of keys and every layout of the file."""
    canonical = json.dumps(node.plain(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()


def origins(node: Node, named: Mapping[str, Location]) -> Mapping[str, Origin]:
    """Where each dotted path was written, and its source; layer groups go by their names, parts are where `named`."""
    found = dict(_origins(node, "", {}))
    return {**found, **{part: replace(found[part], where=place) for part, place in named.items()}}


def _origins(node: Node, path: str, sources: Mapping[str, str]) -> Iterator[tuple[str, Origin]]:
    """A source holds for what stands below it in the same file; an override has its own or none."""
    stated = node.fields.get("source")
    if stated is not None and isinstance(stated.value, str):
        sources = {**sources, stated.where.file: stated.value}
    if path:
        where = node.fields["value"].where if "value" in node.fields else node.where
        yield path, Origin(where, sources.get(where.file, ""))
    entries: list[tuple[str, Node]] = [(key, inner) for key, inner in node.fields.items() if key != "source"]
    for index, item in enumerate(node.items):
        group = item.fields.get("group")
        entries.append((str(group.value) if group is not None else str(index), item))
    for key, inner in entries:
        yield from _origins(inner, f"{path}.{key}" if path else key, sources)


def _parallelism(whole: View, _: str, built: Parts) -> Parallelism:
    """The mesh; a data degree that is not given is what the other degrees leave of the devices."""
    view = whole.inner("parallelism")
    tensor, pipeline, context = view.size("tensor", 1), view.size("pipeline", 1), view.size("context", 1)
    rest = max(1, built["cluster"].devices // (tensor * pipeline * context))
    return Parallelism(
        data=view.size("data", rest),
        tensor=tensor,
        pipeline=pipeline,
        context=context,
        expert=view.size("expert", 1),
        zero=view.size("zero"),
        sequence=view.text("sequence", "off"),
        **_sharding(view, view.size("data", rest) * context),
        offload=_offload(view),
        interleave=view.size("interleave", 1),
        schedule=view.text("schedule"),
        stages=_stages(view),
        context_exchange=view.text("context_exchange", Parallelism().context_exchange),
        context_balance=view.text("context_balance", Parallelism().context_balance),
    )


RESHARD = {"true": "all", "false": "none"}


def _sharding(view: View, replicas: int) -> dict[str, Any]:
    """How weights and gradients move between `replicas` devices that share them."""
    default = Parallelism()
    shard = view.size("shard", replicas)
    kept = view.text("reshard", "true").lower()
    return {
        "replicate": view.size("replicate", max(1, replicas // shard)),
        "shard": view.size("shard"),
        "reshard": RESHARD.get(kept, kept),
        "wrap": view.inner("wrap").size("every", 0 if view.text("wrap") == "model" else default.wrap),
        "reduce": view.text("reduce"),
        "bucket": view.whole("bucket", "B") if view.has("bucket") else default.bucket,
    }


def _offload(view: View) -> Offload:
    """What lives in host memory: a list of it, or a mapping that may say of how many layers."""
    stated = view.inner("offload")
    layers = 0 if stated.flag("activations") else stated.size("activations")
    return Offload(view.words_or_keys("offload"), layers)


def _stages(view: View) -> Stages:
    """Layers of the chunks of a pipeline: a list, or those of its ends."""
    inner = view.inner("stages")
    each = tuple(int(str(item.value)) for item in inner.node.items)
    return Stages(each, inner.maybe_size("first"), inner.maybe_size("last"), view.text("ends", Stages().ends))


def _recompute(whole: View, _: str, __: Parts) -> Recompute:
    view = whole.inner("recompute")
    if view.has("every"):
        return Recompute("every", every=view.size("every"))
    if view.has("layers"):
        return Recompute("layers", layers=view.size("layers"))
    if view.has("segment"):
        return Recompute("segment", segment=view.size("segment"))
    if view.has("components"):
        return Recompute("components", components=view.words("components"))
    if view.has("keep"):
        return Recompute("keep", keep=view.words("keep"), matmuls=view.text("matmuls", "all"))
    policy = whole.text("recompute", "none")
    return Recompute("segment") if policy == "square_root" else Recompute(policy)


def _train(whole: View, _: str, __: Parts) -> Train:
    view = whole.inner("train")
    if view.has("lora"):
        lora = view.inner("lora")
        return Train("lora", lora=Lora(lora.size("rank"), lora.words("targets")))
    for kind in ("only", "frozen"):
        if view.has(kind):
            return Train(kind, view.words(kind))
    return Train()


def _kernels(whole: View, _: str, built: Parts) -> Kernels:
    """The stack's kernels under the plan's; an update that the optimizer lacks gives way to one that it has."""
    stack: Stack = built["stack"]
    chosen = build_hardware.kernels(whole.inner("kernels"), stack.kernels)
    there = built["optimizer"].implementations()
    if whole.inner("kernels").has("optimizer") or chosen.optimizer in there:
        return chosen
    return replace(chosen, optimizer=there[0])


def _run(whole: View, _: str, built: Parts) -> Run:
    """The run; a bare model has no sequences, so what it leaves out is one token, one sequence per replica."""
    view = whole.inner("run")
    data = built["parallelism"].data
    micro_batch = view.size("micro_batch", 1)
    return Run(
        seq_len=view.size("seq_len", 1),
        micro_batch=micro_batch,
        global_batch=view.size("global_batch", data * micro_batch),
        tokens=view.whole("tokens", "tokens") if view.has("tokens") else None,
    )


def _assumptions(whole: View, _: str, __: Parts) -> Assumptions:
    view, default = whole.inner("assumptions"), Assumptions()
    price = view.inner("price")
    return Assumptions(
        mfu=view.amount("mfu", "1", default.mfu),
        price=Price(price.amount("per_device_hour", "USD"), price.text("date")) if view.has("price") else None,
        headroom=view.text("headroom", default.headroom),
        checkpoint_interval=view.maybe_amount("checkpoint_interval", "s"),
        checkpoint_cost=view.maybe_amount("checkpoint_cost", "s"),
        restart_time=view.maybe_amount("restart_time", "s"),
        power_usage_effectiveness=view.amount("power_usage_effectiveness", "1", default.power_usage_effectiveness),
        expert_imbalance=view.exact("expert_imbalance", "1") or default.expert_imbalance,
    )


def _expect(whole: View, _: str, __: Parts) -> tuple[Expectation, ...]:
    return expectations(whole.node)


# Each part of a plan, and the parts it cannot be read without.
BUILDERS: Mapping[str, tuple[Callable[[View, str, Parts], Any], tuple[str, ...]]] = {
    "accelerator": (lambda whole, name, _: build_hardware.accelerator(whole.inner("accelerator"), name), ()),
    "cluster": (lambda whole, name, _: build_hardware.cluster(whole.inner("cluster"), name), ()),
    "model": (lambda whole, name, _: model(whole.inner("model"), name), ()),
    "precision": (lambda whole, name, _: build_precision.precision(whole.inner("precision"), name), ()),
    "optimizer": (lambda whole, name, _: optimizer(whole.inner("optimizer"), name), ()),
    "stack": (lambda whole, name, _: build_hardware.stack(whole.inner("stack"), name), ()),
    "kernels": (_kernels, ("stack", "optimizer")),
    "parallelism": (_parallelism, ("cluster",)),
    "recompute": (_recompute, ()),
    "train": (_train, ()),
    "run": (_run, ("parallelism",)),
    "assumptions": (_assumptions, ()),
    "expect": (_expect, ("model",)),
}
