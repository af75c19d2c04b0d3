"""A suite: plans that are verified together, each a plan of the library with overrides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar

from ledger.spec.faults import Faults, StatedValue
from ledger.spec.library import Library, default_library, read_once
from ledger.spec.overrides import assignments
from ledger.spec.parts import NAME, SPEC, TITLED, At, PartHeader, spec_type
from ledger.spec.problems import Problem, SpecError
from ledger.spec.reader import Node, read
from ledger.spec.sources import Source, exists, open_source
from ledger.spec.structures import NEEDED, DerivedType, MappingOf, Row, Values
from ledger.spec.values import Anything, String

CASE_OVERRIDES = DerivedType(MappingOf(Anything()), assignments)
OVERRIDES = "Overrides of the plan by dotted key, as `--set` takes them."


@dataclass(frozen=True)
class SuiteCase:
    """One plan of a suite: the spec it starts from, and what overrides make of it. `quick`: run at every change."""

    name: Annotated[
        str,
        At("case"),
        String(pattern="^[a-z0-9.-]+$"),
        "The name of the case, unique in the suite; its record has this name.",
    ]
    plan: str = ""
    overrides: Annotated[tuple[str, ...], At("set"), CASE_OVERRIDES, OVERRIDES] = ()
    quick: Annotated[bool, "Whether the case is part of what runs at every change."] = False


@dataclass(frozen=True)
class CaseGroup:
    """Cases that have something in common."""

    spec: ClassVar[PartHeader] = PartHeader(
        extra=(
            Row("plan", NAME, "A plan of the library, or a path relative to this file.", "plan", NEEDED),
            Row("set", CASE_OVERRIDES, OVERRIDES, "overrides"),
        )
    )

    title: Annotated[str, At("group"), String(least=3), "What the cases have in common."]
    cases: Annotated[tuple[SuiteCase, ...], "The plans of the group."]

    @classmethod
    def from_spec(cls, values: Values) -> CaseGroup:
        """Every case is of the group's plan, with the group's overrides before its own."""
        plan, shared = values["plan"], values.get("overrides", ())
        cases = (replace(case, plan=plan, overrides=(*shared, *case.overrides)) for case in values["cases"])
        return cls(values["title"], tuple(cases))


@dataclass(frozen=True)
class Suite:
    """Groups of cases, in order."""

    spec: ClassVar[PartHeader] = PartHeader(
        title="A suite: plans that are verified together",
        meaning="Groups of cases. Each case is a plan of the library with overrides: those of its group, then its own.",
        extra=(replace(SPEC, needed=NEEDED),),
    )

    title: Annotated[str, At("suite"), TITLED, "The title of the suite."]
    groups: Annotated[tuple[CaseGroup, ...], "Cases that share a plan, in order."]
    name: str = ""

    @property
    def cases(self) -> Iterator[SuiteCase]:
        """The cases of all groups."""
        return (case for group in self.groups for case in group.cases)


def is_suite(path: str) -> bool:
    """Whether a spec is a suite; what cannot be read is none, nor is standard input, which is read only once."""
    if path == "-":
        return False
    try:
        return "suite" in read(_open_suite(path, default_library()).text, path).fields
    except SpecError:
        return False


def load_suite(path: str) -> Suite:
    """The suite of a file or of a name of the library; raises SpecError."""
    library = default_library()
    source = _open_suite(path, library)
    try:
        node = read(source.text, source.file)
        suite = _read_sound(node)
        entries = zip(suite.groups, node.fields["groups"].items, strict=True)
        groups = tuple(_resolve_plan(group, entry.fields["plan"], source, library) for group, entry in entries)
    except SpecError as error:
        raise SpecError(error.problems, {source.file: source.text}) from error
    return replace(suite, name=source.name, groups=groups)


def _open_suite(path: str, library: Library) -> Source:
    if path in library.names("suite") and not exists(path):
        return read_once(library.path("suite", path)).source
    return open_source(path)


def _read_sound(node: Node) -> Suite:
    """The suite of a document that is allowed and whose cases have names of their own."""
    faults: Faults = []
    suite: Suite = spec_type(Suite).read(StatedValue(node), faults)
    problems = [fault.problem for fault in faults] or list(_repeated_names(node))
    if problems:
        raise SpecError(problems)
    return suite


def _resolve_plan(group: CaseGroup, named: Node, source: Source, library: Library) -> CaseGroup:
    """The group with its plan as `ledger` takes it: a name of the library, or a path from here."""
    name = str(named.value)
    path = Path(source.folder) / name
    if name in library.names("plan"):
        return group
    if not path.exists():
        message = f"no plan is named `{name}`"
        raise SpecError([Problem(named.where, message, "give one of `ledger list plan`, or a path")])
    return replace(group, cases=tuple(replace(case, plan=str(path)) for case in group.cases))


def _repeated_names(node: Node) -> Iterator[Problem]:
    """Problems of cases that have one name, and so would share a record."""
    groups = node.fields["groups"].items
    names = [case.fields["case"] for group in groups for case in group.fields["cases"].items]
    times = Counter(str(name.value) for name in names)
    for name in names:
        if times[str(name.value)] > 1:
            yield Problem(name.where, f"{times[str(name.value)]} cases are named `{name.value}`", "name each once")
