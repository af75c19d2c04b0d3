"""What `solve` may look for: every input of a plan, of one of a few kinds, each a row that says what its values are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from fractions import Fraction
from typing import Any

from ledger.books.what_if import sizes
from ledger.books.what_if.sizes import divisors, proportional
from ledger.books.what_if.sought import Settings, Unknown, Value, key_fault
from ledger.spec.expand import CHANGED
from ledger.spec.inputs import LABELS, UNREAD, spec_text, value_at
from ledger.spec.kinds import LIBRARY_PARTS
from ledger.spec.library import Library, default_library
from ledger.spec.load import load_optimizer, load_precision, load_stack
from ledger.spec.near import nearest, target
from ledger.spec.options import listed_values, options_of
from ledger.spec.parallelism import MULTIPLIED
from ledger.spec.paths import key_of, parent_of, part_of, row_at, size_type, spec_path, type_of
from ledger.spec.plan import Group, Lengths, Plan
from ledger.spec.rules.table import OF_TRAINING
from ledger.spec.stages import depth
from ledger.spec.token_budget import TokensPerParameter
from ledger.spec.values import Integer, Quantity, Size

FOLLOWS = "data"  # the axis that takes the devices which the other degrees leave
LOADED: Mapping[str, Callable[[str, Library], Any]] = {  # parts that a plan may write out over a named one
    "precision": lambda name, library: load_precision(name, library=library),
    "optimizer": lambda name, library: load_optimizer(name, library=library),
    "stack": lambda name, library: load_stack(name, library=library),
}


def option(plan: Plan, path: str) -> Unknown:
    """A choice of the field table; what a plan may leave out may be left out, where no option says the same."""
    options, now = options_of(type_of(path), depth(plan.model)), value_at(plan, path)
    default = getattr(row_at(path), "default", None)
    if default is not None and all(default != meant for _, meant in options):
        options.append((None, default))
    if all(now != meant for _, meant in options):
        options.append((spec_text(now, path) if now else None, now))
    text = next(stated for stated, meant in options if meant == now)
    return _choice(path, text, [stated for stated, _ in options], lambda value: {} if value == text else {path: value})


def library_part(plan: Plan, path: str) -> Unknown:
    """A part of the library by its name; a cluster keeps the number of its devices."""
    library = plan.reading.library if plan.reading else default_library()
    names, current = library.names(path), _library_name(plan, path, library)

    def settings(value: Any) -> Settings:
        if value == current:
            return {}
        return {path: {"base": value, "devices": plan.cluster.devices}} if path == "cluster" else {path: value}

    return _choice(path, current, [*names, *({current} - {*names})], settings)


def _library_name(plan: Plan, path: str, library: Library) -> str:
    """What the plan's own part goes by: by no name of the library where it has other values than that one."""
    part = getattr(plan, path)
    name: str = part.name or "inline"
    load = LOADED.get(path)
    if load is None or name not in library.names(path):
        return name
    return name if load(name, library) == part else f"{name}{CHANGED}"


def degree(plan: Plan, path: str) -> Unknown:
    """A degree of the mesh: the number of devices stays, and replicas are what the degrees leave of it."""
    name, mesh = key_of(path), plan.parallelism
    if name == FOLLOWS:
        help_text = "solve for `cluster.devices`, or for another degree, which leaves `data` fewer devices"
        raise key_fault(path, f"`{path}` follows from the number of devices and the other degrees", help_text)
    fixed = mesh.replica // getattr(mesh, name) if name in MULTIPLIED else 0

    def settings(value: Any) -> Settings:
        follows = {f"parallelism.{FOLLOWS}": max(1, plan.cluster.devices // (fixed * value))} if fixed else {}
        return {} if value == getattr(mesh, name) else {path: value, **follows}

    degrees = divisors(plan.cluster.devices)
    if name == "interleave":
        degrees = tuple(range(1, max(1, depth(plan.model) // mesh.pipeline) + 1))
    why = f"data = {plan.cluster.devices} devices / the other degrees" if fixed else ""
    return _choice(path, getattr(mesh, name), [*degrees, *({getattr(mesh, name)} - {*degrees})], settings, why)


def _choice(path: str, current: Value, values: list[Value], settings: Any, why: str = "") -> Unknown:
    return Unknown(path, current, settings, why, tuple(values), choice=True)


LAYERS = ("recompute", "parallelism.offload")  # parts whose numbers count layers
FITTED = "calibration"
FOLLOWING = "nvme"  # what an offload says in the value of another key: `{optimizer: nvme}`


@dataclass(frozen=True)
class InputKind:
    """Inputs of one kind: which they are, from path and value in a plan, and what one of them may be."""

    holds: Callable[[str, Any], bool]
    unknown: Callable[[Plan, str, Any], Unknown]


KINDS = (  # the first that holds
    InputKind(lambda _, value: isinstance(value, Lengths), sizes.length),
    InputKind(lambda path, _: path in sizes.UNKNOWN_BY_PATH, lambda plan, path, _: sizes.UNKNOWN_BY_PATH[path](plan)),
    InputKind(lambda path, _: path in LIBRARY_PARTS, lambda plan, path, _: library_part(plan, path)),
    InputKind(
        lambda path, _: parent_of(path) == "parallelism" and isinstance(type_of(path), Size),
        lambda plan, path, _: degree(plan, path),
    ),
    InputKind(lambda path, value: parent_of(path) in LAYERS and _is_whole(value), sizes.layer_count),
    InputKind(lambda path, value: isinstance(size_type(path), Size) and _is_whole(value), sizes.size),
    InputKind(lambda path, _: len(listed_values(type_of(path), 1)) > 1, lambda plan, path, _: option(plan, path)),
    InputKind(lambda path, value: isinstance(type_of(path), Integer | Quantity) and _is_whole(value), sizes.size),
    InputKind(
        lambda _, value: isinstance(value, float | Fraction) and value > 0,
        lambda _, path, value: sizes.real(path, value),
    ),
)


def unknown(plan: Plan, path: str, keep: str = "") -> Unknown:
    """The input of that path, with others in proportion if they are to be kept so.

    Raises SpecError with near misses for what cannot be looked for.
    """
    if keep:
        return proportional(plan, path, keep)
    values = inputs(plan)
    if path in values:
        for kind in KINDS:
            if kind.holds(path, values[path]):
                return kind.unknown(plan, path, values[path])
        if len(listed_values(type_of(path), 1)) == 1:
            raise key_fault(path, f"`{path}` has no other value", "an input that may be another")
        help_text = f"state one to begin from, as in `--set {path}=...`, or solve for a part of it"
        raise key_fault(path, f"`{path}` has no value in this plan to begin from", help_text)
    solvable = [key for key, value in values.items() if any(kind.holds(key, value) for kind in KINDS)]
    message = "is nothing to solve for" if type_of(path) is None else "is nothing that this plan states"
    named, _ = target(key_of(path))
    help_text = f"did you mean `{named}`?" if named in solvable else nearest(path, solvable)
    raise key_fault(path, f"`{path}` {message}", help_text)


def in_order(plan: Plan, paths: Sequence[str]) -> list[str]:
    """Several inputs, each after those that its values depend on: devices after degrees, batches after both."""
    places = {path: place for place, path in enumerate(inputs(plan))}
    return sorted(paths, key=lambda path: (part_of(path) == "run", path == "cluster.devices", places.get(path, 0)))


def inputs(plan: Plan) -> Mapping[str, Any]:
    """Every input of a plan by its path as specs write it, with its value; layer groups go by their names."""
    left_out = {*UNREAD, *(OF_TRAINING if plan.serve else ())}
    parts = (field.name for field in fields(plan) if field.name not in left_out)
    values: dict[str, Any] = {}
    for path, value in (pair for part in parts for pair in _inputs_below(part, getattr(plan, part))):
        values.setdefault(path, value)
    return values


def _inputs_below(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    yield spec_path(path), value
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _inputs_below(f"{path}.{key}", item)
    elif isinstance(value, tuple) and all(isinstance(item, Group) for item in value):
        for group in value:
            yield from _inputs_below(f"{path}.{group.name}", group)
    elif is_dataclass(value) and not isinstance(value, TokensPerParameter | Lengths):
        for field in fields(value):
            item = getattr(value, field.name)
            follows = field.name == FOLLOWING and isinstance(item, bool)
            if field.name not in {*LABELS, FITTED} and not follows:
                yield from _inputs_below(f"{path}.{field.name}", item)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
