"""Records whose values name parts of the library: read as names with their places, and loaded once a file is sound."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ledger.spec import load
from ledger.spec.faults import Fault, Faults, StatedValue
from ledger.spec.parts import PartOf, ValuesOf
from ledger.spec.plan import Plan
from ledger.spec.problems import FLAG, Location, Problem, SpecError
from ledger.spec.sources import YAML
from ledger.spec.structures import Values
from ledger.spec.values import String

LOADERS: Mapping[str, Callable[[str], Any]] = {
    "accelerator": load.load_accelerator,
    "optimizer": load.load_optimizer,
    "precision": load.load_precision,
}


@dataclass(frozen=True)
class PartReference:
    """A part of the library, or a plan, by its name, and where it is named."""

    kind: str
    name: str
    where: Location


@dataclass(frozen=True)
class LibraryName(String):
    """The name of a part of the library, or of a plan; a path is relative to the file that has it."""

    least: int | None = 1
    kind: str = ""

    def value(self, written: StatedValue, faults: Faults) -> Any:
        """The name with its place."""
        return PartReference(self.kind, super().value(written, faults), written.node.where)


@dataclass(frozen=True)
class StatedRecord:
    """A record as written: its class, and the values that a question gives it."""

    cls: type
    values: Values


@dataclass(frozen=True)
class AskOf(PartOf):
    """A record whose values name parts of the library, which are loaded once the whole file is sound.

    `check` finds what is wrong between values that are sound by themselves.
    """

    check: Callable[[StatedValue, Values], Iterable[Fault]] = lambda written, values: ()  # noqa: ARG005

    def value(self, written: StatedValue, faults: Faults) -> StatedRecord:
        """The class and its values."""
        fault_count = len(faults)
        values = ValuesOf(self.cls).value(written, faults)
        if len(faults) == fault_count:
            faults.extend(self.check(written, values))
        return StatedRecord(self.cls, values)


@dataclass(frozen=True)
class PartLoader:
    """Loads what a question names; `folder` is that of its file."""

    folder: Path
    plans: dict[tuple[str, ...], Plan] = field(default_factory=dict)

    def loaded(self, value: Any) -> Any:
        """The part that a name stands for, the record of what is written; any other value as it is."""
        if isinstance(value, tuple):
            return tuple(self.loaded(entry) for entry in value)
        if isinstance(value, StatedRecord):
            field_names = {entry.name for entry in fields(value.cls)}
            arguments = {key: self.loaded(entry) for key, entry in value.values.items() if key in field_names}
            if isinstance(plan := value.values.get("plan"), PartReference):
                arguments["plan"] = self.plan(plan, value.values.get("set", ()))
            return value.cls(**arguments)
        return (
            load_in_place(LOADERS[value.kind], value)
            if isinstance(value, PartReference) and value.kind in LOADERS
            else value
        )

    def plan(self, named: PartReference, changes: tuple[str, ...]) -> Plan:
        """The plan of a name with overrides; each is read once."""
        key = (named.name, *changes)
        if key not in self.plans:
            is_path = named.name.endswith(YAML)
            path = str(self.folder / named.name) if is_path else named.name
            self.plans[key] = load_in_place(lambda name: load.load_plan(name, changes), replace(named, name=path))
        return self.plans[key]


def load_in_place(read: Callable[[str], Any], named: PartReference) -> Any:
    """The part that `read` finds; an unknown name is a problem in the place that names it."""
    try:
        return read(named.name)
    except SpecError as error:
        problems = list(error.problems)
        for index, problem in enumerate(problems):
            if problem.where.file == named.name or problem.where.file.startswith(FLAG):
                problems[index] = Problem(named.where, problem.message, problem.help)
        raise SpecError(problems, error.sources) from error
