"""A suite: plans that are verified together, each a plan of the library with overrides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ledger.spec.library import Library, default_library, read_once
from ledger.spec.overrides import settings
from ledger.spec.problems import Location, Problem, SpecError
from ledger.spec.reader import Node, read
from ledger.spec.sources import Source, exists, open_source
from ledger.spec.validate import findings
from ledger.spec.view import View


@dataclass(frozen=True)
class Case:
    """One plan of a suite: the spec it starts from, and what overrides make of it. `quick`: run at every change."""

    name: str
    plan: str
    overrides: tuple[str, ...]
    quick: bool


@dataclass(frozen=True)
class Group:
    """Cases that have something in common."""

    title: str
    cases: tuple[Case, ...]


@dataclass(frozen=True)
class Suite:
    """Groups of cases, in order."""

    name: str
    title: str
    groups: tuple[Group, ...]

    @property
    def cases(self) -> Iterator[Case]:
        """Every case."""
        return (case for group in self.groups for case in group.cases)


def is_suite(path: str) -> bool:
    """Whether a spec is a suite; what cannot be read is none, nor is standard input, which is read only once."""
    if path == "-":
        return False
    try:
        return "suite" in read(_opened(path, default_library()).text, path).fields
    except SpecError:
        return False


def load_suite(path: str) -> Suite:
    """The suite of a file or of a name of the library; raises SpecError."""
    library = default_library()
    source = _opened(path, library)
    try:
        view = View(_sound(read(source.text, source.file)))
        groups = tuple(_group(entry, source, library) for entry in view.each("groups"))
    except SpecError as error:
        raise SpecError(error.problems, {source.file: source.text}) from error
    return Suite(source.name, view.text("suite"), groups)


def _opened(path: str, library: Library) -> Source:
    if path in library.names("suite") and not exists(path):
        return read_once(library.folder("suite") / f"{path}.yaml").source
    return open_source(path)


def _sound(node: Node) -> Node:
    """A document that its schema allows and whose cases have names of their own."""
    problems = [finding.problem for finding in findings(node, "suite")] or list(_repeated(node))
    if problems:
        raise SpecError(problems)
    return node


def _group(view: View, source: Source, library: Library) -> Group:
    node = view.node.fields["plan"]
    plan = _path(str(node.value), node.where, source, library)
    shared = settings(view.inner("set").node)
    cases = tuple(
        Case(case.text("case"), plan, (*shared, *settings(case.inner("set").node)), case.flag("quick"))
        for case in view.each("cases")
    )
    return Group(view.text("group"), cases)


def _path(name: str, where: Location, source: Source, library: Library) -> str:
    """The plan as `ledger` takes it: a name of the library, or a path from here."""
    if name in library.names("plan"):
        return name
    path = Path(source.folder) / name
    if not path.exists():
        raise SpecError([Problem(where, f"no plan is named `{name}`", "give one of `ledger list plan`, or a path")])
    return str(path)


def _repeated(node: Node) -> Iterator[Problem]:
    """Two cases of one name would share a record."""
    names = [case.node.fields["case"] for group in View(node).each("groups") for case in group.each("cases")]
    times = Counter(str(name.value) for name in names)
    for name in names:
        if times[str(name.value)] > 1:
            yield Problem(name.where, f"{times[str(name.value)]} cases are named `{name.value}`", "name each once")
