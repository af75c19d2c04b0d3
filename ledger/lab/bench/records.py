"""The file that measurements are kept in: a head, then a line for each record, on disk before the next one is made.

A process that is killed leaves whole lines and at most one torn one, which the next run cuts off.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ledger.evidence.documents import Document
from ledger.evidence.microbenchmarks.records import RESULTS, identity
from ledger.evidence.verification import RECORDS, head_text, record_line
from ledger.lab.bench.cases import BenchResult
from ledger.spec.problems import Location, Problem, SpecError
from ledger.spec.reader import LARGEST_TEXT, read
from ledger.spec.sources import decode, read_bounded
from ledger.whole_files import LOG, name_errors, replace_file

LEAD, END = "  - {", "}\n"
# What must be equal for records to stand in one file.
SAME = ("device", "hardware", "plan")
SAME_ORIGIN = ("torch", "cuda", "driver", "threads")


@dataclass(frozen=True)
class EvidenceFile:
    """A file of evidence that is being written: what its head says, and the records that it has."""

    path: Path
    head: Mapping[str, Any]
    records: tuple[Mapping[str, Any], ...] = ()

    @property
    def identities(self) -> frozenset[str]:
        """The cases that the file has, whether with results or with the reason why they could not run."""
        return frozenset(identity(record) for record in self.records)


def open_evidence(path: Path, head: Mapping[str, Any], *, retry: bool = False) -> EvidenceFile:
    """The file at a path, begun where there is none or an empty one, else mended and gone on with.

    `retry` leaves out the cases that could not run. Raises SpecError for a file that is of something else.
    """
    if not path.exists() or (path.is_file() and not path.stat().st_size):
        replace_file(path, head_text(head).encode())
        return EvidenceFile(path, head)
    try:
        content = read_bounded(path, LARGEST_TEXT)
    except OSError as error:
        raise SpecError([_foreign_file(path, f"cannot be read: {error.strerror or error}")]) from error
    complete = _complete_length(content)
    file = _read(path, content[:complete])
    _check_same_device(file, head)
    if complete < len(content):
        with name_errors(path), path.open("r+b") as stream:
            stream.truncate(complete)
            os.fsync(stream.fileno())
        LOG.warning("note: an earlier run was cut off in the middle of a record of %s; it is measured again", path)
    if retry and any("error" in record for record in file.records):
        successes = tuple(record for record in file.records if "error" not in record)
        replace_file(path, (head_text(file.head) + "".join(map(record_line, successes))).encode())
        return EvidenceFile(path, file.head, successes)
    return file


def append_record(file: EvidenceFile, measured: BenchResult) -> None:
    """Appends a record; it is on disk when this returns."""
    results = {key: measured.result[key] for key in RESULTS if key in measured.result}
    written = record_line({**measured.case.record, **results}).encode()
    with name_errors(file.path), file.path.open("ab") as stream:
        stream.write(written)
        stream.flush()
        os.fsync(stream.fileno())


def _complete_length(content: bytes) -> int:
    """How many bytes were written to their end: without a last line that has no line end, or that is no record."""
    begun = content.find(b"\n" + RECORDS.encode())
    if begun < 0:
        return len(content)
    end = content.rfind(b"\n") + 1
    last = content.rfind(b"\n", 0, end - 1) + 1
    line = content[last:end].decode(errors="replace")
    is_record = line.startswith(LEAD) and line.endswith(END)
    return last if last > begun + len(RECORDS) and not is_record else end


def _read(path: Path, content: bytes) -> EvidenceFile:
    """The head and the records of a file of that content; raises SpecError where it is none of ours."""
    file = str(path)
    try:
        text = decode(content, file)
        document = Document(path, text, read(text, file))
    except SpecError as error:
        raise SpecError([_foreign_file(path, "is no YAML")]) from error
    if "evidence" not in document.node.fields or RECORDS not in document.text:
        raise SpecError([_foreign_file(path, "is no file of `ledger bench`")])
    records = document.records()
    counts = Counter(map(identity, records))
    if doubled := [key for key, count in counts.items() if count > 1]:
        raise SpecError([_foreign_file(path, f"has records twice: {doubled[0]}")])
    return EvidenceFile(path, document.header(), tuple(records))


def _check_same_device(file: EvidenceFile, head: Mapping[str, Any]) -> None:
    """Raises SpecError where what is added was measured on another device, or with other software."""
    differences = [*_differences(file.head, head, SAME)]
    differences += _differences(file.head.get("origin", {}), head["origin"], SAME_ORIGIN)
    if differences:
        names = "; ".join(f"{name} was {was}, is {now}" for name, was, now in differences)
        help_text = "give another file with --out, or remove this one"
        raise SpecError([Problem(Location(str(file.path)), f"was measured on something else: {names}", help_text)])


def _differences(
    old: Mapping[str, Any], new: Mapping[str, Any], names: Sequence[str]
) -> Iterator[tuple[str, str, str]]:
    for name in names:
        was, now = old.get(name), new.get(name)
        if isinstance(was, dict) and isinstance(now, dict):
            changing = ("frequency", "memory")  # what a machine reports of these differs from boot to boot
            yield from _differences(was, now, [key for key in {**was, **now} if key not in changing])
        elif was != now:
            yield name, str(was), str(now)


def _foreign_file(path: Path, reason: str) -> Problem:
    return Problem(Location(str(path)), reason, "give another file with --out")
