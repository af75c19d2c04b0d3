"""The seal of a report: everything that decides what it says, as frozen data and as JSON.

A seal is no signature: its digests find what was damaged or changed by chance, and who changes a file can compute them
anew. What a report says is trusted because it is compiled again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from ledger.spec.json_schemas import PublishedSchema, printable, schema_file
from ledger.spec.problems import Location, Problem, SpecError
from ledger.spec.version import VERSION, library_digest, program_digest

SEAL_SCHEMA = "ledger-seal/1"
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
        "schema": SEAL_SCHEMA,
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
            {"name": file.name, "of_library": file.of_library, "sha256": file.digest}
            | ({"text": file.text} if texts else {})
            for file in seal.files
        ],
    }


def published_seal(seal: Seal, *, texts: bool = True) -> dict[str, Any]:
    """The record with its digest, as reports carry it."""
    return {**seal_record(seal, texts=texts), "digest": seal.digest}


def record_digest(record: Mapping[str, Any]) -> str:
    """The sha256 of a JSON object, whatever the order of its keys and its white space."""
    text = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


# --- seals read and checked ---

SCHEMA_FILE = Path(__file__).with_name("seal.schema.json")
LARGEST_SEAL = 64_000_000  # characters of all files
HELP = "make the report again with `ledger report`"


class BrokenSealError(ValueError):
    """Why a record of the published form is no seal."""


@cache
def seal_schema() -> PublishedSchema:
    """The schema of the seals that reports carry."""
    return schema_file(SCHEMA_FILE)


@cache
def search_schema() -> PublishedSchema:
    """The schema of the recommendations in a seal, which caches have by themselves."""
    parts = seal_schema().content["$defs"]
    return PublishedSchema({"type": "object", "$ref": "#/$defs/recommendations", "$defs": parts})


def read_seal(record: Any, file: str, attached: Mapping[str, str] | None = None) -> Seal:
    """The seal of a record; SpecError, in `file`, where it is not of the published form, is damaged or was changed.

    `attached`: the texts of its files by name, where they do not stand in the record.
    """
    problems = list(seal_schema().problems(record, Location(file), "seal"))
    try:
        if not problems:
            return _checked_seal(record, attached)
    except ValueError as error:  # half of a surrogate pair is one too
        problems = [Problem(Location(file), printable(str(error)))]
    raise SpecError(
        replace(problem, message=f"the seal is damaged: {problem.message}", help=problem.help or HELP)
        for problem in problems
    )


def _checked_seal(record: Mapping[str, Any], attached: Mapping[str, str] | None) -> Seal:
    files = tuple(_read_files(record["files"], attached))
    revision = record["revision"]
    seal = Seal(
        name=record["name"],
        plan=record["plan"],
        overrides=tuple(record["overrides"]),
        effective=record["effective"],
        files=files,
        references={(stated["file"], stated["path"]): stated["stands_for"] for stated in record["references"]},
        libraries=tuple(record["libraries"]),
        compiler=Compiler(**record["compiler"]),
        revision=Revision(**revision | {"authors": tuple(revision["authors"])}) if revision else None,
        search=record["search"],
        totals=record["totals"],
        books=record["books"],
    )
    if seal.plan not in {file.name for file in files}:
        raise BrokenSealError(f"it has no file `{seal.plan}`, which is its plan")
    if record_digest(seal_record(seal, texts=False)) != record["digest"]:
        raise BrokenSealError("its digest is not that of what it holds")
    return seal


def _read_files(listed: Sequence[Mapping[str, Any]], attached: Mapping[str, str] | None) -> Iterator[SealedFile]:
    """The files, each with a name of its own, its text, and the digest that is stated of it."""
    seen: set[str] = set()
    size = 0
    for entry in listed:
        name = entry["name"]
        text = entry.get("text") if attached is None else attached.get(name)
        if text is None:
            raise BrokenSealError(f"it lacks the text of `{name}`")
        file = SealedFile(name, text, entry["of_library"])
        size += len(text)
        if size > LARGEST_SEAL:
            raise BrokenSealError(f"`{name}` is larger than a seal may be")
        if name in seen:
            raise BrokenSealError(f"it has two files `{name}`")
        if file.digest != entry["sha256"]:
            raise BrokenSealError(f"`{name}` is not the file that was sealed")
        seen.add(name)
        yield file
