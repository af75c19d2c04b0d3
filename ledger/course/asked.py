"""What a question asks for, as it is written, and as it is read: the parts of the library that it names are loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from ledger.spec import load
from ledger.spec.faults import Faults, Written
from ledger.spec.parts import PartOf, ValuesOf
from ledger.spec.plan import Plan
from ledger.spec.problems import Location, Problem, SpecError
from ledger.spec.structures import ListOf, Made, MappingOf, Row, Values
from ledger.spec.values import Number, String

LOADERS: Mapping[str, Callable[[str], Any]] = {
    "accelerator": load.load_accelerator,
    "optimizer": load.load_optimizer,
    "precision": load.load_precision,
}


@dataclass(frozen=True)
class Named:
    """A part of the library, or a plan, by its name, and where it is named."""

    kind: str
    name: str
    where: Location


@dataclass(frozen=True)
class LibraryName(String):
    """The name of a part of the library, or of a plan; a path is relative to the file that has it."""

    least: int | None = 1
    kind: str = ""

    def value(self, written: Written, faults: Faults) -> Any:
        """The name with its place."""
        return Named(self.kind, super().value(written, faults), written.node.where)


@dataclass(frozen=True)
class Count(Number):
    """A number above zero, also as it is written with an exponent."""

    above: float | None = 0

    def value(self, written: Written, faults: Faults) -> int:
        """The number, without what stands behind its point."""
        super().value(written, faults)
        return int(Fraction(str(written.node.value)))


@dataclass(frozen=True)
class Changes:
    """Lists of overrides by name, each of which makes another plan."""

    lists: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Stated:
    """A record as written: its class, and the values that a question gives it."""

    cls: type
    values: Values


@dataclass(frozen=True)
class AskOf(PartOf):
    """A record whose values name parts of the library, which are loaded once the whole file is sound."""

    def value(self, written: Written, faults: Faults) -> Stated:
        """The class and its values."""
        return Stated(self.cls, ValuesOf(self.cls).value(written, faults))


WORDS = Made(String(), lambda text: tuple(text.split()))
COUNT = Count()
ACCELERATOR, OPTIMIZER, PRECISION = (LibraryName(kind=kind) for kind in ("accelerator", "optimizer", "precision"))
TEXTS = ListOf(String())
LISTS = MappingOf(TEXTS)
CHANGES = Made(MappingOf(TEXTS, 1), Changes)
PLAN = LibraryName(kind="plan")
A_PLAN = "A plan of the library, or a path relative to this file."
SET = Row("set", TEXTS, "`key=value`, as `--set` takes them.", "set")
FIGURES = MappingOf(String())


@dataclass(frozen=True)
class Reader:
    """Loads what a question names; `folder` is that of its file."""

    folder: Path
    plans: dict[tuple[str, ...], Plan] = field(default_factory=dict)

    def ask(self, stated: Stated) -> Any:
        """The record, with everything that the question names in it."""
        given, shared = dict(stated.values), stated.values.get("set", ())
        named: Any = given.get("plan")
        for key, value in given.items():
            if isinstance(value, Changes):
                given[key] = {name: self.plan(named, (*shared, *more)) for name, more in value.lists.items()}
            elif key != "plan":
                given[key] = self.loaded(value)
        if "plan" in (names := {one.name for one in fields(stated.cls)}):
            given["plan"] = self.plan(named, shared)
        return stated.cls(**{name: value for name, value in given.items() if name in names})

    def loaded(self, value: Any) -> Any:
        """The part that a name stands for, the record of what is written; any other value as it is."""
        if isinstance(value, tuple):
            return tuple(self.loaded(one) for one in value)
        if isinstance(value, Stated):
            return self.ask(value)
        return located(LOADERS[value.kind], value) if isinstance(value, Named) else value

    def plan(self, named: Named, changes: tuple[str, ...]) -> Plan:
        """The plan of a name with overrides; each is read once."""
        key = (named.name, *changes)
        if key not in self.plans:
            is_path = named.name.endswith((".yaml", ".yml"))
            path = str(self.folder / named.name) if is_path else named.name
            self.plans[key] = located(lambda name: load.load_plan(name, changes), replace(named, name=path))
        return self.plans[key]


def located(read: Callable[[str], Any], named: Named) -> Any:
    """What `read` gives; a name that it does not know is a problem in the place that names it."""
    try:
        return read(named.name)
    except SpecError as error:
        moved = (
            Problem(named.where, problem.message, problem.help) if problem.where.file == named.name else problem
            for problem in error.problems
        )
        raise SpecError(moved, error.sources) from error
