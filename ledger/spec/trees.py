"""Trees of files that hold plans: a git revision or a folder. Which of their files are plans, and their texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from posixpath import join, normpath
from typing import Protocol

from ledger.spec.git import Revision, folder_moves, merge_base, open_revision, printable
from ledger.spec.library import Library
from ledger.spec.problems import SpecError
from ledger.spec.reader import LARGEST_TEXT, read_again
from ledger.spec.sources import YAML, Source, from_file, from_revision, read_bounded

NAMES_A_PLAN = re.compile(rb"^[\"']?plan[\"']?\s*:", re.MULTILINE)
NAMES_THE_LANGUAGE = re.compile(rb"^[\"']?spec[\"']?\s*:\s*[\"']?ledger/", re.MULTILINE)
OTHER_KINDS = ("evidence", "lecture", "suite")  # specs that may say `plan:` too
PathFilter = Callable[[str], bool]


class Tree(Protocol):
    """Files by their path below a top."""

    @property
    def title(self) -> str:
        """The name of the tree as it was typed."""

    def files(self, chosen: PathFilter) -> Iterator[tuple[str, bytes]]:
        """The YAML files whose path `chosen` takes, with what they hold."""

    def source(self, path: str) -> Source:
        """The text of a file; raises SpecError."""

    def library(self, today: Library) -> Library:
        """The library that its plans name parts of."""

    def file(self, path: str) -> str:
        """The name of a file for users."""

    def path_filter(self, typed: Iterable[str]) -> PathFilter:
        """Whether a path is, or lies below, or matches one of those that a user typed in the current folder."""


@dataclass(frozen=True)
class RevisionTree:
    """The files of a git revision."""

    revision: Revision

    @property
    def title(self) -> str:
        """The revision as it was typed."""
        return self.revision.name

    def files(self, chosen: PathFilter) -> Iterator[tuple[str, bytes]]:
        """The YAML files whose path is `chosen`."""
        paths = [path for path in self.revision.paths if path.endswith(YAML) and chosen(path)]
        return self.revision.contents(paths)

    def source(self, path: str) -> Source:
        """The text of a file at the revision."""
        return from_revision(self.revision, path)

    def library(self, today: Library) -> Library:
        """The library as it was at the revision, if it lies in the repository."""
        return today.at_revision(self.revision)

    def file(self, path: str) -> str:
        """The file as `REV:path`."""
        return self.revision.file(path)

    def path_filter(self, typed: Iterable[str]) -> PathFilter:
        """The filter of typed paths, which are taken from the repository's top."""
        return _path_filter([self._path_from_top(path) for path in typed])

    def _path_from_top(self, typed: str) -> str:
        """A path that was typed in the current folder, from the repository's top."""
        path, top = Path(typed), self.revision.top.resolve()
        if path.is_absolute() and path.resolve().is_relative_to(top):
            inner = path.resolve().relative_to(top).as_posix()
        else:
            inner = normpath(join(self.revision.prefix, typed))
        return printable(inner)


@dataclass(frozen=True)
class FolderTree:
    """The files below a folder, as they are now."""

    folder: Path

    @property
    def title(self) -> str:
        """The folder as it was typed."""
        return str(self.folder)

    def files(self, chosen: PathFilter) -> Iterator[tuple[str, bytes]]:
        """The YAML files whose path is `chosen`; hidden folders are passed over."""
        for path in sorted(self.folder.rglob("*")):
            inner = path.relative_to(self.folder)
            hidden = any(part.startswith(".") for part in inner.parts)
            if path.suffix in YAML and path.is_file() and not hidden and chosen(inner.as_posix()):
                yield inner.as_posix(), read_bounded(path, LARGEST_TEXT)

    def source(self, path: str) -> Source:
        """The text of the file."""
        return from_file(self.folder / path)

    def library(self, today: Library) -> Library:
        """The library as it is."""
        return today

    def file(self, path: str) -> str:
        """The path as users would type it."""
        return str(self.folder / path)

    def path_filter(self, typed: Iterable[str]) -> PathFilter:
        """The filter of typed paths, which are taken from the folder."""
        return _path_filter([normpath(path) for path in typed])


def range_trees(typed: str) -> tuple[RevisionTree, RevisionTree]:
    """The trees of `OLD..NEW`, or of where NEW left OLD and NEW for `OLD...NEW`; HEAD where a side is left out."""
    old, dots, new = re.fullmatch(r"(.*?)(\.{2,3})(.*)", typed, re.DOTALL).groups()  # type: ignore[union-attr]
    old, new = old or "HEAD", new or "HEAD"
    base = merge_base(old, new) if dots == "..." else old
    return RevisionTree(open_revision(base)), RevisionTree(open_revision(new))


def plan_paths(tree: Tree, chosen: PathFilter) -> tuple[str, ...]:
    """The files of a tree that are plans, of those that are chosen; sorted."""
    return tuple(sorted(path for path, content in tree.files(chosen) if is_plan(content, path)))


def is_plan(content: bytes, file: str = "") -> bool:
    """Whether a text is a plan by its top level, be it sound or not: it says `spec: ledger/1` and `plan:`."""
    if content.lstrip().startswith((b"{", b"---")):
        try:
            fields = read_again(content.decode("utf-8-sig"), file).fields
        except (SpecError, UnicodeDecodeError):
            return False
        return {"spec", "plan"} <= fields.keys() and not fields.keys() & {*OTHER_KINDS}
    if not (NAMES_A_PLAN.search(content) and NAMES_THE_LANGUAGE.search(content)):
        return False
    return not any(re.search(rf"^{kind}\s*:".encode(), content, re.MULTILINE) for kind in OTHER_KINDS)


def moved_files(old: Tree, new: Tree) -> Mapping[str, str]:
    """New path -> old path of files that were renamed from one tree to the other."""
    if isinstance(old, RevisionTree) and isinstance(new, RevisionTree):
        return old.revision.renamed_paths(new.revision)
    if isinstance(old, FolderTree) and isinstance(new, FolderTree):
        return folder_moves(old.folder, new.folder)
    return {}


def _path_filter(patterns: list[str]) -> PathFilter:
    """Whether a path is one of the patterns, lies below one, or matches one; every path where there is none."""
    if not patterns or "." in patterns:
        return lambda _: True
    return lambda path: any(
        path == pattern or path.startswith(f"{pattern}/") or fnmatch(path, pattern) for pattern in patterns
    )
