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
from ledger.spec.faults import StatedValue
from ledger.spec.kinds import LIBRARY_PARTS
from ledger.spec.parallelism import MULTIPLIED
from ledger.spec.parts import spec_type
from ledger.spec.paths import Places
from ledger.spec.plan import Cluster, Kernels, Optimizer, Origin, Parallelism, Plan, Reading, Run, Stack
from ledger.spec.problems import Location, Problem
from ledger.spec.reader import Node
from ledger.spec.serve import CHUNK, Serve
from ledger.spec.structures import Values

# Parts of which a step of the plan is independent.
UNJUDGED = ("plan", "decision", "expect", "assumptions", "operations", "data")
# Of devices, what decides which kernels run and what they hold: a file may have further rates, and verdicts stay.
JUDGED = {"accelerator": ("architecture", "memory", "matmul_workspace"), "cluster": ("devices", "devices_per_node")}
Parts = Mapping[str, Any]
# Which are what is stated, or left out.
PLAIN_PARTS = ("recompute", "train", "assumptions", "operations", "data", "serve", "decision")
Built = TypeVar("Built")


def parts(stated: Values, names: Mapping[str, str]) -> Parts:
    """Every part of the plan whose own needs are met, by name; what was not sound is not among what is stated."""
    built = {kind: with_name(stated[kind], names.get(kind, "")) for kind in LIBRARY_PARTS if kind in stated}
    built |= {name: stated[name] for name in PLAIN_PARTS if name in stated}
    for name, (derive, needs) in DERIVED.items():
        if name in stated and all(need in built for need in needs):
            built[name] = derive(stated[name], *(built[need] for need in needs))
    if "run" in built and "model" in built:
        built["run"] = _complete_run(built["run"], built["model"], stated["run"])
    serve = built.get("serve")
    if serve and "parallelism" in built:  # a layout asks for sizes also where nothing is trained: one sequence a stage
        longest, mesh = serve.prompt.longest + serve.output.longest, built["parallelism"]
        built["run"] = Run(seq_len=longest, micro_batch=1, global_batch=mesh.data * mesh.pipeline)
    return built


def part_of(cls: type[Built], node: Node, name: str) -> Built:
    """A part of the library from a mapping that is sound."""
    any_class: type = cls
    built: Built = with_name(spec_type(any_class).read(StatedValue(node), []), name)
    return built


def with_name(part: Any, name: str) -> Any:
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
        judged_digest=digest(judged_node(node)),
        text=reading.source.text,
        warnings=tuple(warnings),
        reading=reading,
    )


def digest(node: Node) -> str:
    """The sha256 of the content, equal for every order of keys and every layout of the file."""
    entries = (f"{_canonical(key)}:{_part_content(inner)}" for key, inner in sorted(node.fields.items()))
    return "sha256:" + hashlib.sha256(f"{{{','.join(entries)}}}".encode()).hexdigest()


def judged_node(node: Node) -> Node:
    """The plan as far as a framework that runs a step of it can tell: no rates of devices, no length of the run."""
    fields = {key: inner for key, inner in node.fields.items() if key not in UNJUDGED}
    if "run" in fields:
        fields["run"] = fields["run"].without_key("tokens").without_key("images")
    for part, keys in JUDGED.items():
        if part in fields:
            fields[part] = Node(
                {key: fields[part].fields[key] for key in keys if key in fields[part].fields}, node.where
            )
    if "optimizer" in fields:
        fields["optimizer"] = _without_rounding(fields["optimizer"])
    return Node(fields, node.where)


@lru_cache(maxsize=256)
def _without_rounding(node: Node) -> Node:
    """An optimizer without what says which of its updates a number format loses: none is more or fewer bytes."""
    kept = {key: _without_rounding(inner) for key, inner in node.fields.items() if key not in ("decay", "rounding")}
    return Node(kept, node.where) if node.fields else node


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


@lru_cache(maxsize=256)
def _part_content(node: Node) -> str:
    return _canonical(node.plain())


def origins(node: Node, named: Mapping[str, Location]) -> Mapping[str, Origin]:
    """The place and the source of each dotted path; layer groups go by their names, parts are where `named` says."""
    by_path = {path: origin for key, inner in node.fields.items() for path, origin in _part_origins(inner, key)}
    return {**by_path, **{part: replace(by_path[part], where=place) for part, place in named.items()}}


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


def _parallelism(stated: Values, cluster: Cluster) -> Parallelism:
    """The mesh; a data degree that is not given is what the other degrees leave of the devices."""
    other_degrees = prod(stated.get(axis, 1) for axis in MULTIPLIED if axis != "data")
    data = stated.get("data", max(1, cluster.devices // other_degrees))
    replicas = data * stated.get("context", 1)
    copies = max(1, replicas // stated.get("shard", replicas))
    return Parallelism.from_spec({"data": data, "replicate": copies} | stated)


def _kernels(stated: Values, stack: Stack, optimizer: Optimizer) -> Kernels:
    """The stack's kernels under the plan's; an update that the optimizer lacks gives way to one that it has."""
    chosen, implementations = replace(stack.kernels, **stated), optimizer.implementations()
    if "optimizer" in stated or chosen.optimizer in implementations:
        return chosen
    return replace(chosen, optimizer=implementations[0])


def _run(stated: Values, mesh: Parallelism) -> Run:
    """The run; a bare model has no sequences, so what it leaves out is one token, one sequence per replica."""
    micro_batch = stated.get("micro_batch", 1)
    left_out = {"seq_len": 1, "micro_batch": 1, "global_batch": mesh.data * micro_batch}
    return Run(**(left_out | stated))


def _complete_run(run: Run, model: Model, stated: Values) -> Run:
    """The run with lengths that are not stated: from the tokens of an image, and from the frames of a sound."""
    if model.image is not None:
        length = stated.get("seq_len", model.image.tokens)
        run = replace(run, seq_len=length, tokens=run.images * length if run.images else run.tokens)
    return replace(run, source_len=stated.get("source_len", model.sound.tokens)) if model.sound else run


def _serve(stated: Serve | None, stack: Stack) -> Serve | None:
    """The service, in chunks as large as the stack's engine takes where the plan does not say."""
    if stated is None or stated.chunk:
        return stated
    return replace(stated, chunk=stack.engine.tokens or CHUNK)


# Parts that are made of stated values and of other parts.
DERIVED: Mapping[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "kernels": (_kernels, ("stack", "optimizer")),
    "parallelism": (_parallelism, ("cluster",)),
    "run": (_run, ("parallelism",)),
    "serve": (_serve, ("stack",)),
}
