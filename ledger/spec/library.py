"""The library of named parts: a name -> its file, with near misses; aliases of accelerators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ledger.spec.near import nearest
from ledger.spec.problems import Location, Problem, SpecError
from ledger.spec.reader import Node, read
from ledger.spec.sources import Source, from_file, from_revision

FOLDERS: Mapping[str, str] = {
    "plan": ".",
    "accelerator": "accelerators",
    "cluster": "clusters",
    "price": "prices",
    "model": "models",
    "precision": "precisions",
    "optimizer": "optimizers",
    "stack": "stacks",
    "evidence": "evidence",
    "publication": "publications",
    "spelling": "spellings",
    "lecture": "lecture",
    "suite": "verify",
}


@dataclass(frozen=True)
class LibraryEntry:
    """One spec of the library."""

    kind: str
    name: str
    title: str
    path: Path


@dataclass(frozen=True)
class Library:
    """Specs by kind and name: `root/accelerators/h100-sxm.yaml`, plans at the root itself."""

    root: Path

    def folder(self, kind: str) -> Path:
        """Where the specs of a kind are kept."""
        return self.root / FOLDERS[kind]

    def names(self, kind: str) -> tuple[str, ...]:
        """The names of a kind, sorted."""
        return tuple(sorted(path.stem for path in self.folder(kind).glob("*.yaml")))

    def entries(self, kind: str) -> tuple[LibraryEntry, ...]:
        """The specs of a kind with their titles; raises SpecError for one that cannot be read."""
        paths = (self.folder(kind) / f"{name}.yaml" for name in self.names(kind))
        return tuple(
            LibraryEntry(kind, path.stem, str(read_once(path).plain_field(kind) or path.stem), path) for path in paths
        )

    def spelt(self, kind: str, name: str) -> tuple[str, ...]:
        """Every name of the library that `name` may stand for: itself, or those that have it as an alias."""
        if name in self.names(kind):
            return (name,)
        wanted = _folded(name)
        exact = tuple(known for known in self.names(kind) if _folded(known) == wanted)
        return exact or tuple(known for known in self.names(kind) if wanted in self._aliases(kind, known))

    def _aliases(self, kind: str, name: str) -> frozenset[str]:
        """The other spellings of a name; a file that cannot be read has none."""
        try:
            node = read_once(self.folder(kind) / f"{name}.yaml").node
        except SpecError:
            return frozenset()
        aliases = node.fields.get("aliases")
        return frozenset(_folded(str(item.value)) for item in aliases.items) if aliases else frozenset()

    def find(self, kind: str, name: str, where: Location, beside: Source) -> Source:
        """The spec that `name` stands for: in the library, else a path relative to the file that names it."""
        spelt = self.spelt(kind, name)
        if len(spelt) == 1:
            return self._at_revision(self.folder(kind) / f"{spelt[0]}.yaml", beside.revision)
        if spelt:
            message = f"`{name}` may be {' or '.join(f'`{one}`' for one in spelt)}"
            raise SpecError([Problem(where, message, "name one of them")])
        if name.endswith((".yaml", ".yml")):
            return _relative(name, where, beside)
        help_text = nearest(name, list(self.names(kind)))
        raise SpecError([Problem(where, f"no {kind} is named `{name}`", help_text)])

    def _at_revision(self, path: Path, revision: str) -> Source:
        """A library file as it was at a revision; as it is now where that revision has no such file."""
        if revision and (top := _checkout(self.root)):
            try:
                return from_revision(revision, path.resolve().relative_to(top).as_posix())
            except SpecError:
                return read_once(path).source
        return read_once(path).source


@dataclass(frozen=True)
class Read:
    """A file of the library, read."""

    source: Source
    node: Node

    def plain_field(self, key: str) -> object:
        """The value of a top-level field, or None."""
        found = self.node.fields.get(key)
        return found.plain() if found else None


def default_library() -> Library:
    """`specs/` beside the package in a checkout, the packaged data in an installation."""
    package = Path(__file__).resolve().parent.parent
    packaged = package / "_data" / "specs"
    return Library(packaged if packaged.is_dir() else package.parent / "specs")


def display_path(path: Path) -> str:
    """A path as a user in this folder would type it."""
    resolved, here = path.resolve(), Path.cwd().resolve()
    return str(resolved.relative_to(here)) if resolved.is_relative_to(here) else str(path)


def read_once(path: Path) -> Read:
    """A library file, read once per state of the file; raises SpecError."""
    try:
        stamp = path.stat()
    except OSError:  # a link that leads nowhere
        return Read(from_file(path, display_path(path)), Node(None, Location(display_path(path))))
    return _read(path, display_path(path), stamp.st_mtime_ns, stamp.st_size)


@cache
def _read(path: Path, file: str, _modified: int, _size: int) -> Read:
    source = from_file(path, file)
    return Read(source, read(source.text, source.file))


def _folded(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())


def _relative(name: str, where: Location, beside: Source) -> Source:
    path = f"{beside.folder}/{name}" if beside.folder != "." and not name.startswith("/") else name
    try:
        return from_revision(beside.revision, path) if beside.revision else from_file(Path(path))
    except SpecError as error:
        found = error.problems[0]
        raise SpecError([Problem(where, f"`{name}`: {found.message}", found.help)]) from error


def _checkout(folder: Path) -> Path | None:
    here = folder.resolve()
    return next((one for one in (here, *here.parents) if (one / ".git").exists()), None)
