"""A seal as a report carries it, read and held to its digests and bounds; nothing in it is believed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from pathlib import PurePosixPath
from typing import Any, TypeVar

from ledger.report.seals.seal import SCHEMA, Compiler, Revision, Seal, SealedFile, record_digest, seal_record
from ledger.spec.problems import Location, Problem, SpecError

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
        seal = _seal(record)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        reason = f"lacks `{error.args[0]}`" if isinstance(error, KeyError) else str(error)
        raise SpecError([Problem(Location(file), f"the seal is damaged: {reason}", HELP)]) from error
    return seal


def _seal(record: Any) -> Seal:
    if not isinstance(record, Mapping) or record.get("schema") != SCHEMA:
        raise BrokenSealError(f"it is no `{SCHEMA}`")
    files = tuple(_files(record["files"]))
    for name, count in (("totals", len(record["totals"])), ("points", len((record["search"] or {}).get("points", ())))):
        if count > MOST_LISTED:
            raise BrokenSealError(f"it has {count} {name}")
    names = {one.name for one in files}
    revision = record["revision"]
    seal = Seal(
        name=_name(record["name"]),
        plan=_name(record["plan"]),
        overrides=tuple(_each(record["overrides"], _text)),
        effective=_text(record["effective"]),
        files=files,
        references={
            (_text(one["file"]), _text(one["path"])): _name(one["stands_for"])
            for one in _each(record["references"], dict)
        },
        libraries=tuple(_each(record["libraries"], _name)),
        compiler=Compiler(**{one.name: _text(record["compiler"][one.name]) for one in fields(Compiler)}),
        revision=_revision(revision) if revision is not None else None,
        search=None if record["search"] is None else dict(record["search"]),
        totals={_text(key): _number(value) for key, value in dict(record["totals"]).items()},
        books=_text(record["books"]),
    )
    if seal.plan not in names:
        raise BrokenSealError(f"it has no file {_shown(seal.plan)}, which is its plan")
    if record_digest(seal_record(seal, texts=False)) != record["digest"]:
        raise BrokenSealError("its digest is not that of what it holds")
    return seal


def _files(listed: Any) -> Iterator[SealedFile]:
    """The files, each with a name of its own that leads nowhere else and the digest that is stated of it."""
    seen: set[str] = set()
    size = 0
    if not isinstance(listed, list) or len(listed) > MOST_FILES:
        raise BrokenSealError(f"its files are no list of at most {MOST_FILES}")
    for one in listed:
        made = SealedFile(_name(one["name"]), _text(one["text"]), one["of_library"] is True)
        size += len(made.text)
        if len(made.text) > LARGEST_FILE or size > LARGEST_SEAL:
            raise BrokenSealError(f"{_shown(made.name)} is larger than a seal may be")
        if made.name in seen:
            raise BrokenSealError(f"it has two files {_shown(made.name)}")
        if made.digest != one["sha256"]:
            raise BrokenSealError(f"{_shown(made.name)} is not the file that was sealed")
        seen.add(made.name)
        yield made


def _name(given: Any) -> str:
    """A name of a file: relative, and within the folder that it is relative to."""
    name = _text(given)
    parts = PurePosixPath(name).parts
    if not parts or name != "/".join(parts) or len(name) > LONGEST_NAME:
        raise BrokenSealError(f"{_shown(name)} is no name of a file")
    if {".", "..", "/"} & {*parts} or not name.isprintable() or "\\" in name:
        raise BrokenSealError(f"{_shown(name)} leads out of the seal")
    return name


def _revision(given: Mapping[str, Any]) -> Revision:
    return Revision(
        _text(given["commit"]), _text(given["date"]), given["changed"] is True, tuple(_each(given["authors"], _text))
    )


def _each(given: Any, read: Callable[[Any], Value]) -> list[Value]:
    if not isinstance(given, list) or len(given) > MOST_FILES:
        raise BrokenSealError("a list is missing or too long")
    return [read(one) for one in given]


def _shown(given: Any) -> str:
    """The beginning of a value, in letters that every terminal has."""
    return f"`{ascii(given)[:SHOWN]}`"


def _text(given: Any) -> str:
    if not isinstance(given, str):
        raise BrokenSealError(f"{_shown(given)} is no text")
    given.encode()  # ValueError for half of a surrogate pair
    return given


def _number(given: Any) -> int | float:
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise BrokenSealError(f"{_shown(given)} is no number")
    if not abs(given) < GREATEST:
        raise BrokenSealError(f"{_shown(given)} is too large a number")
    return given
