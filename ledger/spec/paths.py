"""Paths of a plan's values, as specs write them and as the typed plan has them, and the row of the table at each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import inf

from ledger.spec.parts import PartOf, field_rows, header_of, spec_type
from ledger.spec.plan import Accelerator, Origin, Plan
from ledger.spec.problems import FLAG, Location
from ledger.spec.structures import AnyOf, DerivedType, Fields, ListOf, MappingOf, Row, Sourced
from ledger.spec.values import Integer, Quantity, Size, ValueType

PLAN = PartOf(Plan)
NO_UNIT = "1"  # the unit of counts, ratios and words


@cache
def spec_path(path: str) -> str:
    """A field of the plan (`accelerator.memory`) as specs write its path (`accelerator.memory.driver`)."""
    return _translate(path, lambda row: row.attribute, lambda row: row.key)


@cache
def plan_path(path: str) -> str:
    """A path as specs write it (`model.layers.decoder.repeat`), as the plan has it (`model.groups.decoder.repeat`)."""
    return _translate(path, lambda row: row.key, lambda row: row.attribute or row.key)


def part_of(path: str) -> str:
    """The part of a plan that a path begins with: `parallelism` of `parallelism.offload.activations`."""
    return path.partition(".")[0]


def parent_of(path: str) -> str:
    """The path of the mapping that a value stands in: `parallelism.offload` of `parallelism.offload.activations`."""
    return path.rpartition(".")[0]


def key_of(path: str) -> str:
    """The key of a value in its mapping: `activations` of `parallelism.offload.activations`."""
    return path.rpartition(".")[2]


def row_at(path: str) -> Row | None:
    """The row of the table at a path as specs write it; None where there is none."""
    return _look_up(path)[1]


def type_of(path: str) -> ValueType | None:
    """The type of the value at a path as specs write it; None where there is none."""
    return _look_up(path)[0]


def size_type(path: str) -> ValueType | None:
    """The type of a value that is a number: of several forms that one which is a size, as of `rank: 16`."""
    kind = type_of(path)
    sizes = [inner for inner in kind.inners if isinstance(inner, Size)] if isinstance(kind, AnyOf) else []
    return sizes[0] if sizes else kind


def is_known(path: str) -> bool:
    """Whether a spec may say something at a path."""
    return _look_up(path)[0] is not None


def unit(path: str) -> str:
    """The base unit of the value at a path as specs write it; `1` for counts, ratios and words."""
    units = {kind.unit for kind in _quantities(_look_up(path)[0])}
    return units.pop() if len(units) == 1 else NO_UNIT


def greatest(path: str) -> float:
    """The greatest value that a spec may state at a path; infinite where there is none."""
    return bounds(path)[1]


def bounds(path: str) -> tuple[float, float]:
    """The least and the greatest value that a spec may state at a path; from 0 to infinity where there are none."""
    kind = size_type(path)
    return kind.interval if isinstance(kind, Integer | Quantity) else (0, inf)


def _quantities(kind: ValueType | None) -> Iterator[Quantity]:
    """The quantities that a value may be, of several forms each."""
    if isinstance(kind, Quantity):
        yield kind
    elif isinstance(kind, AnyOf | Sourced):
        for inner in kind.inners:
            yield from _quantities(inner)


def _look_up(path: str) -> tuple[ValueType | None, Row | None]:
    """The type of the value at a path, without its source, and the row if it is one of a mapping."""
    kind: ValueType | None = PLAN
    field_row: Row | None = None
    for step in path.split("."):
        kind, field_row = _inner_type(kind, step) if kind is not None else (None, None)
    return (kind.inner, field_row) if isinstance(kind, Sourced) else (kind, field_row)


def _inner_type(kind: ValueType, step: str) -> tuple[ValueType | None, Row | None]:
    """The type, and the row if it is one of a mapping, of what stands one step below a value."""
    if isinstance(kind, PartOf):
        return _inner_type(spec_type(kind.cls), step)
    if isinstance(kind, Fields):
        field_row = kind.by_key.get(step)
        return (field_row.type, field_row) if field_row else (None, None)
    if isinstance(kind, ListOf | MappingOf):
        return kind.item, None
    entries = [_inner_type(inner, step) for inner in kind.inners if isinstance(kind, AnyOf | DerivedType)]
    return max(entries, key=lambda entry: (entry[1] is not None, entry[0] is not None), default=(None, None))


def _translate(path: str, read: Callable[[Row], str], write: Callable[[Row], str]) -> str:
    """A path whose steps are named by one column of the tables, in the words of another."""
    steps, written = path.split("."), list[str]()
    kind: ValueType | None = PLAN
    while steps and kind is not None:
        if isinstance(kind, PartOf):
            listed = [entry for entry in (*field_rows(kind.cls), *header_of(kind.cls).extra) if read(entry)]
            named = [entry for entry in listed if read(entry).split(".") == steps[: read(entry).count(".") + 1]]
            if not named:
                break
            longest = max(named, key=lambda entry: read(entry).count("."))
            written += [write(longest)] if write(longest) else []
            kind, steps = longest.type, steps[read(longest).count(".") + 1 :]
        else:
            kind, _ = _inner_type(kind, steps[0])
            written.append(steps.pop(0))
    return ".".join([*written, *steps])


# --- what rules report with: places, and help lines ---


@dataclass(frozen=True)
class Places:
    """The place where each value of the plan was written, by dotted path; and devices of known dense peaks."""

    origins: Mapping[str, Origin]
    devices_of_known_peaks: tuple[Accelerator, ...] = ()

    def __call__(self, path: str) -> Location:
        """The place of a path, or of the nearest path above it; kernels that the plan leaves open are its stack's."""
        if path.startswith("kernels.") and path not in self.origins and "stack" in self.origins:
            return self._stack_place(path)
        while path not in self.origins and "." in path:
            path = path.rpartition(".")[0]
        return self.origins[path].where if path in self.origins else next(iter(self.origins.values())).where

    def _stack_place(self, path: str) -> Location:
        """The plan's own value for its stack, else the line that names the stack, else the stack's own line."""
        named = self.origins["stack"].where
        written = self.origins.get(f"stack.{path}", self.origins["stack"]).where
        if self._is_in_plan(written):
            return written
        if self._is_in_plan(named):
            return replace(named, because=f"`{path}` is that of the stack, {written}")
        return replace(written, because=f"`{path}` is that of the stack of plans that name none")

    def _is_in_plan(self, place: Location) -> bool:
        """Whether a place is in the plan itself, or in an override."""
        return place.file.startswith(FLAG) or place.file == self.origins.get("spec", self.origins["stack"]).where.file

    def is_stated_by_plan(self, path: str) -> bool:
        """Whether the plan itself, not a part that it names, says something at this path."""
        return path in self.origins and self._is_in_plan(self.origins[path].where)


def divisors(number: int) -> str:
    """A help line that lists what divides a number."""
    numbers = [str(divisor) for divisor in range(1, min(number, 4096) + 1) if number % divisor == 0]
    return f"divisors of {number}: {', '.join(numbers[:12])}"


def multiples(number: int, step: int) -> str:
    """A help line that names the multiples on both sides of a number."""
    below = number // step * step
    near = [str(multiple) for multiple in (below, below + step) if multiple > 0]
    return f"nearest multiples of {step}: {' and '.join(near)}"
