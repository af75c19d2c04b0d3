"""The seal of a plan: every file that decides its report, under names that no machine decides, and its revision."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ledger.books.traced import DEVICE
from ledger.evidence.citations import cited_file, device_of, evidence_files, find_cited
from ledger.evidence.documents import read_evidence
from ledger.evidence.published_runs import own_steps, predictions_path, published_runs
from ledger.evidence.verification import nearest_file
from ledger.report.live import legal_variants
from ledger.report.seals.seal import Revision, Seal, SealedFile, installed_compiler
from ledger.spec.git import GIT, LARGEST_BLOB, LINK, environment
from ledger.spec.library import OWN_FOLDER, Library, default_library, using
from ledger.spec.load import plan_of
from ledger.spec.plan import Plan
from ledger.spec.problems import Location, SpecError
from ledger.spec.sources import GIVEN_TEXT, STANDARD_INPUT, YAML, Source, checkout, decode, read_bounded

ELSEWHERE = "elsewhere"  # the folder of files that lie neither in the library nor in the plan's repository
TYPED = "plan.yaml"  # what a plan is called that no file holds


@dataclass(frozen=True, eq=False)
class NotingLibrary(Library):
    """A library that notes each spec that it finds, and the file and the words that named it; equal to itself alone."""

    noted: list[tuple[Source, str, Source]] = field(default_factory=list, compare=False)

    def find(self, kind: str, name: str, where: Location, beside: Source) -> Source:
        """The source of a spec, as any library finds it, after which it is noted."""
        source = super().find(kind, name, where, beside)
        self.noted.append((beside, name, source))
        return source


@dataclass(frozen=True)
class Folders:
    """Where names of files begin: at the library, as `specs/`, and at the repository or else the plan's folder."""

    library: Library
    base: Path

    def name(self, path: Path) -> str:
        """The name of a file in a report, equal on every machine."""
        place = path.resolve()
        own = ((root, OWN_FOLDER) for root in self.library.searched_before)
        for folder, prefix in ((self.library.root, OWN_FOLDER), (self.base, ""), *own):
            if place.is_relative_to(folder.resolve()):
                return _safe_name(os.path.join(prefix, place.relative_to(folder.resolve()).as_posix()))  # noqa: PTH118
        return _safe_name(f"{ELSEWHERE}/{place.name}")

    def libraries(self) -> tuple[str, ...]:
        """The library's folders by such names, in the order in which they are searched."""
        return tuple(dict.fromkeys((*(self._folder_name(root) for root in self.library.searched_before), OWN_FOLDER)))

    def _folder_name(self, root: Path) -> str:
        place, base = root.resolve(), self.base.resolve()
        inside = place.is_relative_to(base) and place != base
        return _safe_name(place.relative_to(base).as_posix()) if inside else OWN_FOLDER


@dataclass(frozen=True)
class Names:
    """Names of texts, and which are of the library: files of one name and different texts get numbers."""

    folders: Folders
    texts: dict[str, str] = field(default_factory=dict)
    of_library: set[str] = field(default_factory=set)

    def of_source(self, source: Source) -> str:
        """The name of a text that was read, under which it is kept."""
        if source.file in {STANDARD_INPUT, GIVEN_TEXT}:
            return self._unique_name(TYPED, source.text)
        if source.revision:
            return self._unique_name(_safe_name(os.path.normpath(source.file.partition(":")[2])), source.text)
        return self._file_name(Path(source.file), source.text)

    def of_path(self, path: Path) -> str:
        """The name of a file, under which its text is kept."""
        return self._file_name(path, decode(path.read_bytes(), str(path)))

    def _file_name(self, path: Path, text: str) -> str:
        name = self._unique_name(self.folders.name(path), text)
        if path.resolve().is_relative_to(self.folders.library.root.resolve()):
            self.of_library.add(name)
        return name

    def _unique_name(self, name: str, text: str) -> str:
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
    noting = NotingLibrary(library.root, library.searched_before)
    with using(noting):
        again = plan_of(source, plan.reading.overrides, noting)
        if not again.model.bare:
            legal_variants(again, DEVICE, again.accelerator.name)  # which a reader of the page may choose
        paths = dict(_named_paths(names, noting))
        for path in files_of_evidence(again):
            names.of_path(path)
    for _, _, noted_source in noting.noted:  # of plans that ran, too
        names.of_source(noted_source)
    typed = {path: name for (file, path), name in paths.items() if not file}
    overrides = tuple(_portable_override(text, typed) for text in plan.reading.overrides)
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


def _named_paths(names: Names, library: NotingLibrary) -> Iterator[tuple[tuple[str, str], str]]:
    """Each path that names a file, with the file that it is written in (none: typed with the command), and its name."""
    for naming_file, word, source in library.noted:
        name = names.of_source(source)
        if word.endswith(YAML):
            yield (names.of_source(naming_file) if naming_file.file else "", word), name


def _portable_override(override: str, typed: Mapping[str, str]) -> str:
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
    repository_files = [file.name for file in files if (top / file.name).is_file()]
    # The name that git knows the plan by.
    within = plan if source.revision else Path(source.file).resolve().relative_to(top.resolve()).as_posix()
    return revision_of(top, within, repository_files or [plan], source.revision.name if source.revision else "")


def _safe_name(name: str) -> str:
    """A name that a seal may have."""
    printable = "".join(letter if letter.isprintable() and letter != "\\" else "_" for letter in name)
    return "/".join(part for part in printable.split("/") if part not in {"", ".", ".."})


# --- the revision of a plan and its authors, from git ---

SECONDS = 30.0  # for git to answer
PLAIN = {"LC_ALL": "C"}  # the same answer whatever the user's language
HEAD = "HEAD"
SHA1 = 40  # digits of an object's name


def revision_of(top: Path, plan: str, files: Iterable[str], revision: str = "") -> Revision | None:
    """The commit of a work tree, or that which `revision` names; None where git does not have the plan's file in it.

    `plan` and `files` are paths within the work tree.
    """
    commit = _git_output(top, "rev-parse", "--verify", "--end-of-options", f"{revision or HEAD}^{{commit}}")
    if not commit or not _git_output(top, "ls-tree", "--name-only", commit, "--", plan):
        return None
    date = _git_output(top, "log", "-1", "--no-show-signature", "--format=%cI", commit)
    authors = _git_output(top, "log", "--no-show-signature", "--reverse", "--format=%aN", commit, "--", plan)
    changed = not revision and _is_changed(top, commit, sorted({*files}))
    return Revision(commit, date, changed, tuple(dict.fromkeys(authors.splitlines())))


def _is_changed(top: Path, commit: str, files: Sequence[str]) -> bool:
    """Whether a file is not as the commit has it, but for line ends: hashed here, since `git status` runs filters."""
    rows = _git_output(top, "ls-tree", "-z", commit, "--", *files).split("\0")
    entries = {name: entry.split() for entry, _, name in (row.partition("\t") for row in rows if row)}
    return any(name not in entries or not _is_as_committed(top / name, *entries[name]) for name in files)


def _is_as_committed(path: Path, mode: str, _: str, blob: str) -> bool:
    try:
        content = os.fsencode(path.readlink()) if mode == LINK else read_bounded(path, LARGEST_BLOB)
    except OSError:
        return False
    kind = hashlib.sha1 if len(blob) == SHA1 else hashlib.sha256
    written = (content, content.replace(b"\r\n", b"\n"))
    return any(kind(b"blob %d\0" % len(variant) + variant).hexdigest() == blob for variant in written)


def _git_output(top: Path, *arguments: str) -> str:
    """What git prints; nothing where it fails or is not installed."""
    command = [*GIT, "--literal-pathspecs", "-C", str(top), *arguments]
    try:
        done = subprocess.run(  # noqa: S603 - git, not a shell
            command, capture_output=True, check=False, timeout=SECONDS, env={**environment(), **PLAIN}
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else ""


# --- files of evidence ---


def files_of_evidence(plan: Plan) -> Iterator[Path]:
    """Measurements behind its prices, price lists of what they measured, runs with their plans, the nearest verdicts.

    The parts of plans that ran are found by name in the library in use, which can note them.
    """
    measured = dict.fromkeys((*evidence_files(plan), *_cited_files(plan)))
    yield from measured
    devices = dict.fromkeys(filter(None, map(device_of, measured)))
    yield from (path for path in (default_library().path("accelerator", name) for name in devices) if path.is_file())
    yield from _plans_that_ran(plan, tuple(measured))
    yield from (path for path in (predictions_path(), nearest_file(plan)) if path is not None and path.is_file())


def _cited_files(plan: Plan) -> Iterator[Path]:
    """Files that prices cite and that are there, also those that name no device."""
    for name in dict.fromkeys(cited_file(curve) for curve in plan.accelerator.calibration):
        path = find_cited(name, plan)
        if path is not None and path.is_file():
            yield path.resolve()


def _plans_that_ran(plan: Plan, measured: tuple[Path, ...]) -> Iterator[Path]:
    """The files of plans whose steps were measured on the plan's device."""
    if plan.model.bare:
        return
    for _ in own_steps(plan, {run.id for run in published_runs()}):
        pass  # read so that the library notes their parts
    for path in measured:
        try:
            runs = read_evidence(path).runs
        except SpecError:
            continue
        yield from (Path(name) for name in {run.plan for run in runs} if "\n" not in name and Path(name).is_file())
