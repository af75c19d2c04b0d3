"""The library of named parts: a name -> its file, with near misses; aliases of accelerators."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path, PurePosixPath
from posixpath import normpath

from ledger.spec.faults import shortened
from ledger.spec.git import Revision
from ledger.spec.near import nearest
from ledger.spec.problems import Location, Problem, SpecError
from ledger.spec.reader import Node, read
from ledger.spec.sources import GIVEN_TEXT, STANDARD_INPUT, YAML, Source, checkout, from_file, from_revision
from ledger.spec.version import DATA, data_folder

OWN_FOLDER = "specs"  # a library of one's own, in the working directory or beside a plan
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

    `searched_before` are libraries that are searched before it, in order. `home`: the folder that names of files are
    relative to, and that no file is read outside of; None: the working directory, and files anywhere. `references`: the
    files within `home` that stand for paths, by the file that names one and the path as it is written there. Of a
    `revision`, those of its folders that the revision's repository has are as git has them there.
    """

    root: Path
    searched_before: tuple[Path, ...] = ()
    revision: Revision | None = None
    home: Path | None = None
    references: Mapping[tuple[str, str], str] = field(default_factory=dict, compare=False)

    @property
    def roots(self) -> tuple[Path, ...]:
        """Every folder that is searched, in order."""
        return (*self.searched_before, self.root)

    def folder(self, kind: str) -> Path:
        """The folder of the library itself for a kind; specs of one's own are elsewhere."""
        return self.root / FOLDERS[kind]

    def writable(self, kind: str) -> Path:
        """The folder for new specs of a kind: in a checkout its library, elsewhere `specs/` of the working folder."""
        return (Path(OWN_FOLDER) if DATA in self.root.parts else self.root) / FOLDERS[kind]

    def files(self, kind: str, pattern: str = "*.yaml") -> tuple[Path, ...]:
        """The files of a kind, sorted by name; of two with one name that which is found first."""
        every = (path for root in reversed(self.roots) for path in self._list_files(root / FOLDERS[kind], pattern))
        return tuple(path for _, path in sorted({path.name: path for path in every}.items()))

    def path(self, kind: str, name: str) -> Path:
        """The file of a name: the first that there is, else where the library itself would keep it."""
        places = [root / FOLDERS[kind] / f"{name}.yaml" for root in self.roots]
        return next((path for path in places if self._has_file(path)), places[-1])

    def names(self, kind: str) -> tuple[str, ...]:
        """The names of a kind, sorted."""
        return tuple(sorted(path.stem for path in self.files(kind)))

    def with_folder_libraries(self, folder: Path) -> Library:
        """The library as a spec in a folder finds it: first `specs/` there, then those above it in its repository.

        A folder that is itself called so is one.
        """
        top, place = checkout(folder), folder.resolve()
        parents = (parent for parent in place.parents if top and parent.is_relative_to(top))
        holders = (place.parent, folder) if place.name == OWN_FOLDER else (folder,)
        folders = (*(folder / OWN_FOLDER for folder in (*holders, *parents)), *self.searched_before)
        searched_before = _distinct((folder for folder in folders if folder.is_dir()), self.root)
        return (
            self
            if self.home or searched_before == self.searched_before
            else replace(self, searched_before=searched_before)
        )

    def entries(self, kind: str) -> tuple[LibraryEntry, ...]:
        """The specs of a kind with their titles; raises SpecError for one that cannot be read."""
        return tuple(
            LibraryEntry(kind, path.stem, str(self.read(path).plain_field(kind) or path.stem), path)
            for path in self.files(kind)
            if path.is_relative_to(self.root) or _is_spec(path)
        )

    def matching_names(self, kind: str, name: str) -> tuple[str, ...]:
        """Every name of the library that `name` may stand for: itself, or those that have it as an alias."""
        if name in self.names(kind):
            return (name,)
        folded = _fold_name(name)
        names = self.names(kind)
        exact = tuple(candidate for candidate in names if _fold_name(candidate) == folded)
        return exact or tuple(candidate for candidate in names if folded in self._aliases(kind, candidate))

    def _aliases(self, kind: str, name: str) -> frozenset[str]:
        """The other spellings of a name; a file that cannot be read has none."""
        try:
            node = self.read(self.path(kind, name)).node
        except SpecError:
            return frozenset()
        aliases = node.fields.get("aliases")
        return frozenset(_fold_name(str(item.value)) for item in aliases.items) if aliases else frozenset()

    def find(self, kind: str, name: str, where: Location, naming_file: Source) -> Source:
        """The spec that `name` stands for: in the library, else a path relative to the file that names it."""
        if name.endswith(YAML) and name not in self.names(kind):
            return self._read_relative(name, where, naming_file)
        at_revision = self.at_revision(naming_file.revision)
        shelf = at_revision if (spelt := at_revision.matching_names(kind, name)) else self
        spelt = spelt or self.matching_names(kind, name)
        if len(spelt) == 1:
            return shelf.read(shelf.path(kind, spelt[0])).source
        if spelt:
            message = f"`{name}` may be {' or '.join(f'`{candidate}`' for candidate in spelt)}"
            raise SpecError([Problem(where, message, "name one of them")])
        help_text = nearest(name, list(self.names(kind)))
        raise SpecError([Problem(where, f"no {kind} is named `{shortened(name)}`", help_text)])

    def at_revision(self, revision: Revision | None) -> Library:
        """The library at a revision; unchanged where the revision's repository does not have it."""
        if self.revision or revision is None:
            return self
        is_committed = any(_committed_root(revision, root.absolute()) for root in self.roots)
        return replace(self, revision=revision) if is_committed else self

    def read(self, path: Path) -> LibraryFile:
        """A file of the library, read once; raises SpecError."""
        inner = self._committed_path(path)
        return _read_at(self.revision, inner) if self.revision and inner else read_once(path)

    def _list_files(self, folder: Path, pattern: str = "*.yaml") -> Iterable[Path]:
        """The specs in a folder of the library."""
        subfolder, _, suffix = pattern.rpartition("/")
        inner = self._committed_path(folder / subfolder)
        if self.revision and inner:
            names = _names_at(self.revision, inner)
            return (folder / subfolder / name for name in names if PurePosixPath(name).match(suffix))
        return folder.glob(pattern)

    def _has_file(self, path: Path) -> bool:
        """Whether the library has a file there."""
        inner = self._committed_path(path.parent)
        return path.name in _names_at(self.revision, inner) if self.revision and inner else path.exists()

    def _committed_path(self, path: Path) -> str:
        """The path of a file or folder of the library as git has it; empty where it is read from the disk."""
        holders = (root for root in self.roots if path.is_relative_to(root))
        for holder in holders if self.revision else ():
            root = _committed_root(self.revision, holder.absolute())
            return (root / path.relative_to(holder)).as_posix() if root else ""
        return ""

    def _read_relative(self, name: str, where: Location, naming_file: Source) -> Source:
        """The spec at a path that is relative to the folder of the file that names it."""
        path = name if naming_file.folder == "." or name.startswith("/") else f"{naming_file.folder}/{name}"
        try:
            if self.home:
                return self.read_in_home(self.references.get((naming_file.file, name), path))
            if naming_file.revision is None:
                return from_file(Path(path))
            top = f"{naming_file.revision.top}/"
            inner = path.removeprefix(top) if path.startswith(top) else normpath(path)
            return from_revision(naming_file.revision, inner)
        except SpecError as error:
            problem = error.problems[0]
            raise SpecError([Problem(where, f"`{name}`: {problem.message}", problem.help)]) from error

    def path_of_place(self, name: str) -> Path:
        """The path of a file by the name that places have of it."""
        return Path(self.home or "", name)

    def may_read(self, path: Path) -> bool:
        """Whether a file lies where those of this library may."""
        return self.home is None or path.resolve().is_relative_to(self.home)

    def read_in_home(self, name: str) -> Source:
        """A file of a library with a home, by its path or by its name there; SpecError for any file outside."""
        path = Path(os.path.normpath(self.path_of_place(name)))
        if self.home is None or not path.is_relative_to(self.home):
            raise SpecError([Problem(Location(name), "not among the files of the seal")])
        return from_file(path, path.relative_to(self.home).as_posix())


@dataclass(frozen=True)
class LibraryFile:
    """A file of the library, read."""

    source: Source
    node: Node

    def plain_field(self, key: str) -> object:
        """The value of a top-level field, or None."""
        node = self.node.fields.get(key)
        return node.plain() if node else None


_IN_USE: ContextVar[Library | None] = ContextVar("library in use", default=None)


@contextmanager
def using(library: Library) -> Iterator[None]:
    """Within it, the default library is this one: a sealed report is made from the files that it carries."""
    previous = _IN_USE.set(library)
    try:
        yield
    finally:
        _IN_USE.reset(previous)


def default_library() -> Library:
    """The library in use: that which comes with the package, and `specs/` of the working directory before it."""
    in_use = _IN_USE.get()
    return in_use or Library(installed_specs()).with_folder_libraries(Path.cwd())


def installed_specs() -> Path:
    """The library that comes with the package."""
    return data_folder(OWN_FOLDER)


def library_of(source: Source, library: Library) -> Library:
    """The library as the spec of a source finds it; texts and specs of another revision lie in no folder."""
    in_folder = source.file not in {STANDARD_INPUT, GIVEN_TEXT} and not source.revision
    return library.with_folder_libraries(Path(source.folder)) if in_folder else library


def display_path(path: Path) -> str:
    """A path as a user in this folder would type it; one of a library in use, relative to its home."""
    in_use = _IN_USE.get()
    resolved, here = path.resolve(), (in_use and in_use.home) or Path.cwd().resolve()
    return str(resolved.relative_to(here)) if resolved.is_relative_to(here) else str(path)


def read_once(path: Path) -> LibraryFile:
    """A library file, read once per state of the file; raises SpecError."""
    try:
        stamp = path.stat()
    except OSError:  # a link that leads nowhere
        return LibraryFile(from_file(path, display_path(path)), Node(None, Location(display_path(path))))
    return _read(path, display_path(path), stamp.st_mtime_ns, stamp.st_size)


@cache
def _read(path: Path, file: str, _modified: int, _size: int) -> LibraryFile:
    source = from_file(path, file)
    return LibraryFile(source, read(source.text, source.file))


@cache
def _committed_root(revision: Revision, root: Path) -> PurePosixPath | None:
    """The path of a folder from the top of a revision's repository; None where git has no file of it there."""
    folder, top = root.resolve(), revision.top.resolve()
    inner = folder.relative_to(top).as_posix() if folder.is_relative_to(top) else ""
    return PurePosixPath(inner) if inner and revision.holds(inner) else None


@cache
def _names_at(revision: Revision, folder: str) -> tuple[str, ...]:
    paths = (PurePosixPath(path) for path in revision.paths if path.startswith(f"{folder}/"))
    return tuple(path.name for path in paths if str(path.parent) == folder and path.suffix == ".yaml")


@cache
def _read_at(revision: Revision, path: str) -> LibraryFile:
    source = from_revision(revision, path)
    return LibraryFile(source, read(source.text, source.file))


def _is_spec(path: Path) -> bool:
    """Whether a file says that it is a spec: `specs/` of a working directory may hold what is none."""
    try:
        return "spec" in read_once(path).node.fields
    except SpecError:
        return False


def _fold_name(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())


def _distinct(folders: Iterator[Path], root: Path) -> tuple[Path, ...]:
    """Folders in their order, each once, and none that is the root."""
    by_place: dict[Path, Path] = {}
    for folder in folders:
        by_place.setdefault(folder.resolve(), folder)
    return tuple(folder for place, folder in by_place.items() if place != root.resolve())
