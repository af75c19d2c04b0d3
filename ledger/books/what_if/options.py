"""Inputs whose values are a choice: words and lists of the field table, parts of the library, degrees of the mesh."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ledger.books.what_if.sizes import divisors
from ledger.books.what_if.sought import Settings, Unknown, Value, key_fault
from ledger.spec.axes import MULTIPLIED
from ledger.spec.inputs import spec_text, value_at
from ledger.spec.library import Library, default_library
from ledger.spec.load import load_optimizer, load_precision, load_stack
from ledger.spec.options import options_of
from ledger.spec.paths import key_of, row, type_of
from ledger.spec.plan import Plan
from ledger.spec.stages import depth
from ledger.spec.variants import CHANGED

FOLLOWS = "data"  # the axis that takes the devices which the other degrees leave
LOADED: Mapping[str, Callable[[str, Library], Any]] = {  # parts that a plan may write out over a named one
    "precision": lambda name, library: load_precision(name, library=library),
    "optimizer": lambda name, library: load_optimizer(name, library=library),
    "stack": lambda name, library: load_stack(name, library=library),
}


def option(plan: Plan, path: str) -> Unknown:
    """A choice of the field table; what a plan may leave out may be left out, where no option says the same."""
    found, now = options_of(type_of(path), depth(plan.model)), value_at(plan, path)
    default = getattr(row(path), "default", None)
    if default is not None and all(default != meant for _, meant in found):
        found.append((None, default))
    if all(now != meant for _, meant in found):
        found.append((spec_text(now, path) if now else None, now))
    given = next(stated for stated, meant in found if meant == now)
    return _choice(path, given, [stated for stated, _ in found], lambda value: {} if value == given else {path: value})


def library_part(plan: Plan, path: str) -> Unknown:
    """A part of the library by its name; a cluster keeps the number of its devices."""
    library = plan.reading.library if plan.reading else default_library()
    names, given = library.names(path), _own_name(plan, path, library)

    def settings(value: Any) -> Settings:
        if value == given:
            return {}
        return {path: {"base": value, "devices": plan.cluster.devices}} if path == "cluster" else {path: value}

    return _choice(path, given, [*names, *({given} - {*names})], settings)


def _own_name(plan: Plan, path: str, library: Library) -> str:
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
    rest = mesh.replica // getattr(mesh, name) if name in MULTIPLIED else 0

    def settings(value: Any) -> Settings:
        follows = {f"parallelism.{FOLLOWS}": max(1, plan.cluster.devices // (rest * value))} if rest else {}
        return {} if value == getattr(mesh, name) else {path: value, **follows}

    some = divisors(plan.cluster.devices)
    if name == "interleave":
        some = tuple(range(1, max(1, depth(plan.model) // mesh.pipeline) + 1))
    why = f"data = {plan.cluster.devices} devices / the other degrees" if rest else ""
    return _choice(path, getattr(mesh, name), [*some, *({getattr(mesh, name)} - {*some})], settings, why)


def _choice(path: str, given: Value, values: list[Value], settings: Any, why: str = "") -> Unknown:
    return Unknown(path, given, settings, why, tuple(values), choice=True)
