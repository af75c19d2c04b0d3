"""From a plan that was read to its seal: every file that decides its report, under names that no machine decides."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ledger.books.traced import DEVICE
from ledger.evidence.files import files_of_evidence
from ledger.report.live_choices import others
from ledger.report.seals.revisions import revision_of
from ledger.report.seals.seal import Revision, Seal, SealedFile, installed_compiler
from ledger.spec.bounded_files import YAML
from ledger.spec.library import OWN_FOLDER, Library, using
from ledger.spec.load import plan_of
from ledger.spec.plan import Plan
from ledger.spec.problems import Location
from ledger.spec.sources import GIVEN_TEXT, STANDARD_INPUT, Source, checkout, decode

ELSEWHERE = "elsewhere"  # the folder of files that lie neither in the library nor in the plan's repository
TYPED = "plan.yaml"  # what a plan is called that no file holds


@dataclass(frozen=True, eq=False)
class NotingLibrary(Library):
    """A library that notes each spec that it finds, and the file and the words that named it; equal to itself alone."""

    noted: list[tuple[Source, str, Source]] = field(default_factory=list, compare=False)

    def find(self, kind: str, name: str, where: Location, beside: Source) -> Source:
        """As of any library."""
        found = super().find(kind, name, where, beside)
        self.noted.append((beside, name, found))
        return found


@dataclass(frozen=True)
class Folders:
    """Where names of files begin: at the library, as `specs/`, and at the repository or else the plan's folder."""

    library: Library
    base: Path

    def name(self, path: Path) -> str:
        """A file as its report calls it: the same on every machine."""
        place = path.resolve()
        for folder, prefix in ((self.library.root, OWN_FOLDER), (self.base, ""), *self._own()):
            if place.is_relative_to(folder.resolve()):
                return _safe(os.path.join(prefix, place.relative_to(folder.resolve()).as_posix()))  # noqa: PTH118
        return _safe(f"{ELSEWHERE}/{place.name}")

    def libraries(self) -> tuple[str, ...]:
        """The library's folders by such names, in the order in which they are searched."""
        return tuple(dict.fromkeys((*(self._folder(root) for root in self.library.own), OWN_FOLDER)))

    def _own(self) -> Iterator[tuple[Path, str]]:
        return ((root, OWN_FOLDER) for root in self.library.own)

    def _folder(self, root: Path) -> str:
        place, base = root.resolve(), self.base.resolve()
        inside = place.is_relative_to(base) and place != base
        return _safe(place.relative_to(base).as_posix()) if inside else OWN_FOLDER


@dataclass(frozen=True)
class Names:
    """Names of texts, and which are of the library: files of one name and different texts get numbers."""

    folders: Folders
    texts: dict[str, str] = field(default_factory=dict)
    of_library: set[str] = field(default_factory=set)

    def of_source(self, source: Source) -> str:
        """The name of a text that was read, under which it is kept."""
        if source.file in {STANDARD_INPUT, GIVEN_TEXT}:
            return self._kept(TYPED, source.text)
        if source.revision:
            return self._kept(_safe(os.path.normpath(source.file.partition(":")[2])), source.text)
        return self._file(Path(source.file), source.text)

    def of_path(self, path: Path) -> str:
        """The same of a file."""
        return self._file(path, decode(path.read_bytes(), str(path)))

    def _file(self, path: Path, text: str) -> str:
        name = self._kept(self.folders.name(path), text)
        if path.resolve().is_relative_to(self.folders.library.root.resolve()):
            self.of_library.add(name)
        return name

    def _kept(self, name: str, text: str) -> str:
        stem, dot, suffix = name.rpartition(".")
        number = 1
        while self.texts.setdefault(name, text) != text:
            number += 1
            name = f"{stem}-{number}{dot}{suffix}"
        return name


def seal_of(plan: Plan) -> Seal:
    """The seal of a plan that was read from a spec, with nothing found of it yet; ValueError for any other plan."""
    if plan.reading is None:
        raise ValueError("a plan that was not read from a spec has no files to seal")
    source, library = plan.reading.source, plan.reading.library
    folders = Folders(library, base_of(source))
    names = Names(folders)
    name = names.of_source(source)
    noting = NotingLibrary(library.root, library.own)
    with using(noting):
        again = plan_of(source, plan.reading.overrides, noting)
        if not again.model.bare:
            others(again, DEVICE, again.accelerator.name)  # which a reader of the page may choose
        paths = dict(_paths(names, noting))
        for path in files_of_evidence(again):
            names.of_path(path)
    for _, _, found in noting.noted:  # of plans that ran, too
        names.of_source(found)
    typed = {path: name for (file, path), name in paths.items() if not file}
    overrides = tuple(_portable(text, typed) for text in plan.reading.overrides)
    files = tuple(SealedFile(file, text, file in names.of_library) for file, text in sorted(names.texts.items()))
    return Seal(
        name=plan.name,
        plan=name,
        overrides=overrides,
        effective=source.text,
        files=files,
        references={key: name for key, name in paths.items() if key[0]},
        libraries=folders.libraries(),
        compiler=installed_compiler(),
        revision=_revision(folders, source, name, files),
    )


def base_of(source: Source) -> Path:
    """The folder that names of a plan's own files are relative to: its repository, else the folder that it lies in."""
    if source.revision:
        return source.revision.top
    typed = source.file in {STANDARD_INPUT, GIVEN_TEXT}
    folder = Path.cwd() if typed else Path(source.file).resolve().parent
    return checkout(folder) or folder


def _paths(names: Names, library: NotingLibrary) -> Iterator[tuple[tuple[str, str], str]]:
    """Each path that names a file, with the file that it is written in (none: typed with the command), and its name."""
    for beside, word, found in library.noted:
        name = names.of_source(found)
        if word.endswith(YAML):
            yield (names.of_source(beside) if beside.file else "", word), name


def _portable(override: str, typed: Mapping[str, str]) -> str:
    """A `key=value` in which each path is the name of its file in the seal."""
    if not typed:
        return override
    paths = "|".join(map(re.escape, sorted(typed, key=len, reverse=True)))
    return re.sub(rf"(?<![\w./-])({paths})(?![\w./-])", lambda match: typed[match[1]], override)


def _revision(folders: Folders, source: Source, plan: str, files: tuple[SealedFile, ...]) -> Revision | None:
    """The revision of the plan's repository, where the plan is in one."""
    top = checkout(folders.base)
    if top is None or source.file in {STANDARD_INPUT, GIVEN_TEXT}:
        return None
    own = [one.name for one in files if (top / one.name).is_file()]
    within = plan if source.revision else _within(Path(source.file), top)
    return revision_of(top, within, own or [plan], source.revision.name if source.revision else "")


def _within(path: Path, top: Path) -> str:
    """A file by its place in a work tree; the name that git knows it by."""
    return path.resolve().relative_to(top.resolve()).as_posix()


def _safe(name: str) -> str:
    """A name that a seal may have."""
    printable = "".join(letter if letter.isprintable() and letter != "\\" else "_" for letter in name)
    return "/".join(part for part in printable.split("/") if part not in {"", ".", ".."})
