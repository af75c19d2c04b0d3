"""The seal of a report: everything that decides what it says, as frozen data and as JSON.

A seal is no signature: its digests find what was damaged or changed by chance, and who changes a file can compute them
anew. What a report says is trusted because it is compiled again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import PurePosixPath
from typing import Any, TypeVar

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

MOST_FILES = 4_000
MOST_LISTED = 20_000  # totals, and layouts that a page draws
LARGEST_FILE = 4_000_000  # characters; a spec is at most 1 MB, a table of published runs some 100 kB
LARGEST_SEAL = 64_000_000  # characters of all files
LONGEST_NAME = 400
SHOWN = 80  # letters of what is refused
GREATEST = 1e60  # of totals
HELP = "make the report again with `ledger report`"
Value = TypeVar("Value")


class BrokenSealError(ValueError):
    """Why a record is no seal."""


def read_seal(record: object, file: str) -> Seal:
    """The seal of a record with the texts of its files; SpecError, in `file`, where it is damaged or was changed."""
    try:
        return _checked_seal(record)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        reason = f"lacks `{error.args[0]}`" if isinstance(error, KeyError) else str(error)
        raise SpecError([Problem(Location(file), f"the seal is damaged: {reason}", HELP)]) from error


def _checked_seal(record: Any) -> Seal:
    if not isinstance(record, Mapping) or record.get("schema") != SEAL_SCHEMA:
        raise BrokenSealError(f"it is no `{SEAL_SCHEMA}`")
    files = tuple(_read_files(record["files"]))
    for name, count in (("totals", len(record["totals"])), ("points", len((record["search"] or {}).get("points", ())))):
        if count > MOST_LISTED:
            raise BrokenSealError(f"it has {count} {name}")
    revision = record["revision"]
    seal = Seal(
        name=_read_name(record["name"]),
        plan=_read_name(record["plan"]),
        overrides=tuple(_read_list(record["overrides"], _read_text)),
        effective=_read_text(record["effective"]),
        files=files,
        references={
            (_read_text(reference["file"]), _read_text(reference["path"])): _read_name(reference["stands_for"])
            for reference in _read_list(record["references"], dict)
        },
        libraries=tuple(_read_list(record["libraries"], _read_name)),
        compiler=Compiler(**{part.name: _read_text(record["compiler"][part.name]) for part in fields(Compiler)}),
        revision=_read_revision(revision) if revision is not None else None,
        search=None if record["search"] is None else dict(record["search"]),
        totals={_read_text(key): _read_number(value) for key, value in dict(record["totals"]).items()},
        books=_read_text(record["books"]),
    )
    if seal.plan not in {file.name for file in files}:
        raise BrokenSealError(f"it has no file {_quoted(seal.plan)}, which is its plan")
    if record_digest(seal_record(seal, texts=False)) != record["digest"]:
        raise BrokenSealError("its digest is not that of what it holds")
    return seal


def _read_files(listed: Any) -> Iterator[SealedFile]:
    """The files, each with a name of its own that leads nowhere else and the digest that is stated of it."""
    seen: set[str] = set()
    size = 0
    if not isinstance(listed, list) or len(listed) > MOST_FILES:
        raise BrokenSealError(f"its files are no list of at most {MOST_FILES}")
    for entry in listed:
        file = SealedFile(_read_name(entry["name"]), _read_text(entry["text"]), entry["of_library"] is True)
        size += len(file.text)
        if len(file.text) > LARGEST_FILE or size > LARGEST_SEAL:
            raise BrokenSealError(f"{_quoted(file.name)} is larger than a seal may be")
        if file.name in seen:
            raise BrokenSealError(f"it has two files {_quoted(file.name)}")
        if file.digest != entry["sha256"]:
            raise BrokenSealError(f"{_quoted(file.name)} is not the file that was sealed")
        seen.add(file.name)
        yield file


def _read_name(value: Any) -> str:
    """A name of a file: relative, and within the folder that it is relative to."""
    name = _read_text(value)
    parts = PurePosixPath(name).parts
    if not parts or name != "/".join(parts) or len(name) > LONGEST_NAME:
        raise BrokenSealError(f"{_quoted(name)} is no name of a file")
    if {".", "..", "/"} & {*parts} or not name.isprintable() or "\\" in name:
        raise BrokenSealError(f"{_quoted(name)} leads out of the seal")
    return name


def _read_revision(record: Mapping[str, Any]) -> Revision:
    return Revision(
        _read_text(record["commit"]),
        _read_text(record["date"]),
        record["changed"] is True,
        tuple(_read_list(record["authors"], _read_text)),
    )


def _read_list(values: Any, read: Callable[[Any], Value]) -> list[Value]:
    if not isinstance(values, list) or len(values) > MOST_FILES:
        raise BrokenSealError("a list is missing or too long")
    return [read(value) for value in values]


def _quoted(value: Any) -> str:
    """The beginning of a value, in letters that every terminal has."""
    return f"`{ascii(value)[:SHOWN]}`"


def _read_text(value: Any) -> str:
    if not isinstance(value, str):
        raise BrokenSealError(f"{_quoted(value)} is no text")
    value.encode()  # ValueError for half of a surrogate pair
    return value


def _read_number(value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BrokenSealError(f"{_quoted(value)} is no number")
    if not abs(value) < GREATEST:
        raise BrokenSealError(f"{_quoted(value)} is too large a number")
    return value
