"""The seal of a report: everything that decides what it says, as frozen data and as JSON.

A seal is no signature: its digests find what was damaged or changed by chance, and who changes a file can compute them
anew. What a report says is trusted because it is compiled again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ledger.spec.version import VERSION, library_digest, program_digest

SCHEMA = "ledger-seal/1"
NOT_VERSIONED = "not in version control"


@dataclass(frozen=True)
class SealedFile:
    """A file by its place in the repository, or beside the plan; `of_library`: it came with the package."""

    name: str
    text: str
    of_library: bool = False

    @property
    def digest(self) -> str:
        """The sha256 of the text in UTF-8."""
        return hashlib.sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True)
class Revision:
    """The commit that the plan's repository was at, with its own date; `changed`: sealed files were not as it has them.

    `authors` are those of the plan's file, the first one first.
    """

    commit: str
    date: str
    changed: bool
    authors: tuple[str, ...]


@dataclass(frozen=True)
class Compiler:
    """A program and the library that comes with it: the version, and the sha256 of the files of each."""

    version: str
    program: str
    library: str


@dataclass(frozen=True)
class Seal:
    """What a report is made from, and what it found.

    `plan`: the name of the plan's file, `name` what its reports are called, `overrides` the `key=value` texts over it,
    `effective` the text of the plan with them. `references`: the files that stand for paths, by the file that names one
    and the path as written. `libraries`: folders of specs, the first searched first. `revision` is None outside version
    control. `search`: what a search of other layouts recommended, as a record; None where none was made. `totals` and
    `books`: what was compiled, and the sha256 of all of it.
    """

    name: str
    plan: str
    overrides: tuple[str, ...]
    effective: str
    files: tuple[SealedFile, ...]
    references: Mapping[tuple[str, str], str]
    libraries: tuple[str, ...]
    compiler: Compiler
    revision: Revision | None = None
    search: Mapping[str, Any] | None = None
    totals: Mapping[str, int | float] = field(default_factory=dict)
    books: str = ""

    @property
    def digest(self) -> str:
        """The sha256 of the seal, its files included."""
        return record_digest(seal_record(self, texts=False))


def installed_compiler() -> Compiler:
    """This program with its library."""
    return Compiler(VERSION, program_digest(), library_digest())


def seal_record(seal: Seal, *, texts: bool = True) -> dict[str, Any]:
    """The seal as JSON has it, without its own digest; the text of a file is left out where only digests are wanted."""
    return {
        "schema": SCHEMA,
        "name": seal.name,
        "plan": seal.plan,
        "overrides": list(seal.overrides),
        "effective": seal.effective,
        "compiler": asdict(seal.compiler),
        "revision": asdict(seal.revision) | {"authors": list(seal.revision.authors)} if seal.revision else None,
        "libraries": list(seal.libraries),
        "references": [
            {"file": file, "path": path, "stands_for": name} for (file, path), name in sorted(seal.references.items())
        ],
        "search": seal.search,
        "totals": dict(seal.totals),
        "books": seal.books,
        "files": [
            {"name": one.name, "of_library": one.of_library, "sha256": one.digest}
            | ({"text": one.text} if texts else {})
            for one in seal.files
        ],
    }


def published_seal(seal: Seal, *, texts: bool = True) -> dict[str, Any]:
    """The record with its digest, as reports carry it."""
    return {**seal_record(seal, texts=texts), "digest": seal.digest}


def record_digest(record: Mapping[str, Any]) -> str:
    """The sha256 of a JSON object, whatever the order of its keys and its white space."""
    text = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
