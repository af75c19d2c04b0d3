"""A plan's document -> its parts, as many as are sound; then the Plan with origins and digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any, TypeVar

from ledger.spec.architecture import Model
from ledger.spec.expectations import expectations
from ledger.spec.faults import Written
from ledger.spec.kinds import LIBRARY_PARTS
from ledger.spec.parallelism import MULTIPLIED
from ledger.spec.parts import spec_type
from ledger.spec.paths import Places
from ledger.spec.plan import Cluster, Kernels, Optimizer, Origin, Parallelism, Plan, Reading, Run, Stack
from ledger.spec.problems import Location, Problem
from ledger.spec.reader import Node
from ledger.spec.serve import CHUNK, Serve
from ledger.spec.structures import Values

UNJUDGED = (
    "plan",
    "decision",
    "expect",
    "assumptions",
    "operations",
)  # parts of which a step of the plan is independent
# Of devices, what decides which kernels run and what they hold: a file may have further rates, and verdicts stay.
JUDGED = {
    "accelerator": ("architecture", "memory", "matmul_workspace"),
    "cluster": ("devices", "devices_per_node"),
}
Parts = Mapping[str, Any]
PLAIN_PARTS = (
    "recompute",
    "train",
    "assumptions",
    "operations",
    "serve",
    "decision",
)  # which are what is stated, or left out
Built = TypeVar("Built")


def parts(stated: Values, names: Mapping[str, str]) -> Parts:
    """Every part of the plan whose own needs are met, by name; what was not sound is not among what is stated."""
    built = {kind: named(stated[kind], names.get(kind, "")) for kind in LIBRARY_PARTS if kind in stated}
    built |= {name: stated[name] for name in PLAIN_PARTS if name in stated}
    for name, (derive, needs) in DERIVED.items():
        if name in stated and all(need in built for need in needs):
            built[name] = derive(stated[name], *(built[need] for need in needs))
    if "run" in built and "model" in built:
        built["run"] = _of_images(built["run"], built["model"], stated["run"])
        built["run"] = _of_sound(built["run"], built["model"], stated["run"])
    served = built.get("serve")
    return built | ({"run": _one_pass(served, built["parallelism"])} if served and "parallelism" in built else {})


def part_of(cls: type[Built], node: Node, name: str) -> Built:
    """A part of the library from a mapping that is sound."""
    known: type = cls
    built: Built = named(spec_type(known).read(Written(node), []), name)
    return built


def named(part: Any, name: str) -> Any:
    """A part of the library under its name, which is its title where it has none."""
    titled = {"title": part.title or name} if hasattr(part, "title") else {}
    return replace(part, name=name, **titled)


def plan(built: Parts, node: Node, reading: Reading, places: Places, warnings: Iterable[Problem]) -> Plan:
    """The plan of its parts; every part must have been built."""
    return Plan(
        name=reading.source.name,
        title=str(node.fields["plan"].value),
        **built,
        expect=expectations(node),
        origins=places.origins,
        digest=digest(node),
        judged_digest=digest(judged(node)),
        text=reading.source.text,
        warnings=tuple(warnings),
        reading=reading,
    )


def digest(node: Node) -> str:
    """The sha256 of the content, the same for every order of keys and every layout of the file."""
    entries = (f"{_canonical(key)}:{_part_content(inner)}" for key, inner in sorted(node.fields.items()))
    return "sha256:" + hashlib.sha256(f"{{{','.join(entries)}}}".encode()).hexdigest()


def judged(node: Node) -> Node:
    """The plan as far as a framework that runs a step of it can tell: no rates of devices, no length of the run."""
    fields = {key: inner for key, inner in node.fields.items() if key not in UNJUDGED}
    if "run" in fields:
        fields["run"] = fields["run"].without("tokens").without("images")
    for part, keys in JUDGED.items():
        if part in fields:
            fields[part] = Node(
                {key: fields[part].fields[key] for key in keys if key in fields[part].fields}, node.where
            )
    return Node(fields, node.where)


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


@lru_cache(maxsize=256)
def _part_content(node: Node) -> str:
    return _canonical(node.plain())


def origins(node: Node, named: Mapping[str, Location]) -> Mapping[str, Origin]:
    """Where each dotted path was written, and its source; layer groups go by their names, parts are where `named`."""
    found = {path: origin for key, inner in node.fields.items() for path, origin in _part_origins(inner, key)}
    return {**found, **{part: replace(found[part], where=place) for part, place in named.items()}}


@lru_cache(maxsize=256)
def _part_origins(node: Node, path: str) -> tuple[tuple[str, Origin], ...]:
    return tuple(_origins(node, path, {}))


def _origins(node: Node, path: str, sources: Mapping[str, str]) -> Iterator[tuple[str, Origin]]:
    """A source holds for what stands below it in the same file; an override has its own or none."""
    stated = node.fields.get("source")
    if stated is not None and isinstance(stated.value, str):
        sources = {**sources, stated.where.file: stated.value}
    where = node.fields["value"].where if "value" in node.fields else node.where
    yield path, Origin(where, sources.get(where.file, ""))
    for key, inner in node.fields.items():
        if key != "source":
            yield from _origins(inner, f"{path}.{key}", sources)
    for index, item in enumerate(node.items):
        group = item.fields.get("group")
        named = group is not None and isinstance(group.value, str)
        yield from _origins(item, f"{path}.{group.value if group and named else index}", sources)


def _parallelism(given: Values, cluster: Cluster) -> Parallelism:
    """The mesh; a data degree that is not given is what the other degrees leave of the devices."""
    others = prod(given.get(axis, 1) for axis in MULTIPLIED if axis != "data")
    data = given.get("data", max(1, cluster.devices // others))
    replicas = data * given.get("context", 1)
    copies = max(1, replicas // given.get("shard", replicas))
    return Parallelism.from_spec({"data": data, "replicate": copies} | given)


def _kernels(given: Values, stack: Stack, optimizer: Optimizer) -> Kernels:
    """The stack's kernels under the plan's; an update that the optimizer lacks gives way to one that it has."""
    chosen, there = replace(stack.kernels, **given), optimizer.implementations()
    return chosen if "optimizer" in given or chosen.optimizer in there else replace(chosen, optimizer=there[0])


def _run(given: Values, mesh: Parallelism) -> Run:
    """The run; a bare model has no sequences, so what it leaves out is one token, one sequence per replica."""
    micro_batch = given.get("micro_batch", 1)
    left_out = {"seq_len": 1, "micro_batch": 1, "global_batch": mesh.data * micro_batch}
    return Run(**(left_out | given))


def _of_images(run: Run, model: Model, given: Values) -> Run:
    """The run of a model of images in tokens: what is not stated follows from the tokens of an image."""
    if model.image is None:
        return run
    length = given.get("seq_len", model.image.tokens)
    return replace(run, seq_len=length, tokens=run.images * length if run.images else run.tokens)


def _of_sound(run: Run, model: Model, given: Values) -> Run:
    """The run of a model that hears: the tokens of a source follow from its frames."""
    return replace(run, source_len=given.get("source_len", model.sound.tokens)) if model.sound else run


def _serve(stated: Serve | None, stack: Stack) -> Serve | None:
    """What is served, in steps as large as the stack's engine takes where the plan does not say."""
    if stated is None or stated.chunk:
        return stated
    return replace(stated, chunk=stack.engine.tokens or CHUNK)


def _one_pass(serve: Serve, mesh: Parallelism) -> Run:
    """The sizes that a layout asks for, of a plan that trains nothing: one sequence at once on every stage."""
    longest = serve.prompt.longest + serve.output.longest
    return Run(seq_len=longest, micro_batch=1, global_batch=mesh.data * mesh.pipeline)


# Parts that are made of what is stated and of other parts.
DERIVED: Mapping[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "kernels": (_kernels, ("stack", "optimizer")),
    "parallelism": (_parallelism, ("cluster",)),
    "run": (_run, ("parallelism",)),
    "serve": (_serve, ("stack",)),
}
