"""The library of named parts: a name -> its file, with near misses; aliases of accelerators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path, PurePosixPath
from posixpath import normpath

from ledger.spec.git import Revision
from ledger.spec.near import nearest
from ledger.spec.problems import Location, Problem, SpecError
from ledger.spec.reader import Node, read
from ledger.spec.sources import Source, from_file, from_revision

SUFFIXES = (".yaml", ".yml")  # of names that are paths
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
    """Specs by kind and name: `root/accelerators/h100-sxm.yaml`, plans at the root itself.

    Of a `revision`, those folders that its repository has are as git has them there.
    """

    root: Path
    revision: Revision | None = None

    def folder(self, kind: str) -> Path:
        """Where the specs of a kind are kept."""
        return self.root / FOLDERS[kind]

    def names(self, kind: str) -> tuple[str, ...]:
        """The names of a kind, sorted."""
        return tuple(sorted(path.stem for path in self._listed(self.folder(kind))))

    def entries(self, kind: str) -> tuple[LibraryEntry, ...]:
        """The specs of a kind with their titles; raises SpecError for one that cannot be read."""
        paths = (self.folder(kind) / f"{name}.yaml" for name in self.names(kind))
        return tuple(
            LibraryEntry(kind, path.stem, str(self.read(path).plain_field(kind) or path.stem), path) for path in paths
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
            node = self.read(self.folder(kind) / f"{name}.yaml").node
        except SpecError:
            return frozenset()
        aliases = node.fields.get("aliases")
        return frozenset(_folded(str(item.value)) for item in aliases.items) if aliases else frozenset()

    def find(self, kind: str, name: str, where: Location, beside: Source) -> Source:
        """The spec that `name` stands for: in the library, else a path relative to the file that names it."""
        if name.endswith(SUFFIXES) and name not in self.names(kind):
            return _relative(name, where, beside)
        there = self.at(beside.revision)
        shelf = there if (spelt := there.spelt(kind, name)) else self
        spelt = spelt or self.spelt(kind, name)
        if len(spelt) == 1:
            return shelf.read(self.folder(kind) / f"{spelt[0]}.yaml").source
        if spelt:
            message = f"`{name}` may be {' or '.join(f'`{one}`' for one in spelt)}"
            raise SpecError([Problem(where, message, "name one of them")])
        help_text = nearest(name, list(self.names(kind)))
        raise SpecError([Problem(where, f"no {kind} is named `{name}`", help_text)])

    def at(self, revision: Revision | None) -> Library:
        """The library as it was at a revision; as it is where the revision's repository does not have it."""
        if self.revision or revision is None or not _committed(revision, self.root.absolute()):
            return self
        return replace(self, revision=revision)

    def read(self, path: Path) -> Read:
        """A file of the library, read once; raises SpecError."""
        inner = self._committed_path(path)
        return _read_at(self.revision, inner) if self.revision and inner else read_once(path)

    def _listed(self, folder: Path) -> Iterable[Path]:
        """The specs in a folder of the library."""
        inner = self._committed_path(folder)
        if self.revision and inner:
            return (folder / name for name in _names_at(self.revision, inner))
        return folder.glob("*.yaml")

    def _committed_path(self, path: Path) -> str:
        """The path of a file or folder of the library as git has it; empty where it is read from the disk."""
        if self.revision is None or not path.is_relative_to(self.root):
            return ""
        root = _committed(self.revision, self.root.absolute())
        return (root / path.relative_to(self.root)).as_posix() if root else ""


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


@cache
def _committed(revision: Revision, root: Path) -> PurePosixPath | None:
    """The path of a folder from the top of a revision's repository; None where git has no file of it there."""
    folder, top = root.resolve(), revision.top.resolve()
    inner = folder.relative_to(top).as_posix() if folder.is_relative_to(top) else ""
    return PurePosixPath(inner) if inner and revision.holds(inner) else None


@cache
def _names_at(revision: Revision, folder: str) -> tuple[str, ...]:
    paths = (PurePosixPath(path) for path in revision.paths if path.startswith(f"{folder}/"))
    return tuple(path.name for path in paths if str(path.parent) == folder and path.suffix == ".yaml")


@cache
def _read_at(revision: Revision, path: str) -> Read:
    source = from_revision(revision, path)
    return Read(source, read(source.text, source.file))


def _folded(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())


def _relative(name: str, where: Location, beside: Source) -> Source:
    path = f"{beside.folder}/{name}" if beside.folder != "." and not name.startswith("/") else name
    try:
        if beside.revision is None:
            return from_file(Path(path))
        top = f"{beside.revision.top}/"
        return from_revision(beside.revision, path.removeprefix(top) if path.startswith(top) else normpath(path))
    except SpecError as error:
        found = error.problems[0]
        raise SpecError([Problem(where, f"`{name}`: {found.message}", found.help)]) from error
