"""A file of measurements, read and held to what a measurement must say: its unit, a value above zero, its sizes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ledger.evidence.microbenchmarks.identity import identity
from ledger.evidence.microbenchmarks.samples import needed_sizes
from ledger.evidence.microbenchmarks.series import expanded
from ledger.spec.kernel_families import measured_classes
from ledger.spec.near import nearest
from ledger.spec.problems import Location, Problem, SpecError
from ledger.spec.reader import Node, read
from ledger.spec.sources import from_file
from ledger.spec.validate import findings

Record = Mapping[str, Any]
UNITS = ("TFLOP/s", "GB/s", "us", "ms", "s")
NOT_MICRO = ("step", "fit", "derivation")  # whole runs, and verdicts of PyTorch
REASON = (1e-6, 1e12)  # in a record's own unit: from a picosecond to eleven days, from a MFLOP/s on
EXTENT = 1e15  # of a size: a petabyte, far beyond any tensor
SPREAD = ("low", "value", "high")  # quartiles about a median


@dataclass(frozen=True)
class Evidence:
    """A file: what stands above its records, its microbenchmarks, and those that could not run, with their `error`.

    Whole runs and verdicts are not among them.
    """

    path: Path
    header: Record
    records: tuple[Record, ...]
    failed: tuple[Record, ...]
    node: Node

    @property
    def title(self) -> str:
        """The name that people read."""
        return str(self.header["evidence"])

    @property
    def device(self) -> str:
        """The accelerator that was measured, by its name in the library; empty where none is named."""
        return str(self.header.get("device", ""))

    @property
    def source(self) -> str:
        """The publication, or the command that measured."""
        return str(self.header["source"])

    @property
    def origin(self) -> Record:
        """With what it was measured, and how."""
        found: Record = self.header["origin"]
        return found

    @property
    def hardware(self) -> Record:
        """What the device said of itself; empty in publications."""
        found: Record = self.header.get("hardware", {})
        return found


def read_evidence(path: Path) -> Evidence:
    """The measurements of a file; raises SpecError with everything that is wrong with it, each with its place."""
    source = from_file(path, str(path))
    try:
        return _checked(path, read(source.text, source.file))
    except SpecError as error:
        raise SpecError(error.problems, {source.file: source.text, **error.sources}) from error


def _checked(path: Path, node: Node) -> Evidence:
    problems = [finding.problem for finding in findings(node, "evidence")]
    if problems:
        raise SpecError(problems)
    listed = node.fields.get("records")
    records: list[tuple[Record, Location, Mapping[str, Location]]] = [
        (_plain(item), item.where, item.keys) for item in (listed.items if listed else ())
    ]
    records += [(record, where, {}) for record, where in expanded(node)]
    micro = [entry for entry in records if entry[0].get("what") not in NOT_MICRO]
    problems = [problem for entry in micro for problem in _faults(*entry)]
    problems += _doubled(micro)
    if problems:
        raise SpecError(problems)
    plain: Any = node.plain()
    header = {key: value for key, value in plain.items() if key not in ("records", "series")}
    kept = tuple(record for record, *_ in micro)
    return Evidence(
        path,
        header,
        tuple(record for record in kept if "error" not in record),
        tuple(record for record in kept if "error" in record),
        node,
    )


def _plain(item: Node) -> Record:
    found: Any = item.plain()
    return found if isinstance(found, dict) else {}


def _faults(record: Record, where: Location, keys: Mapping[str, Location]) -> Iterator[Problem]:
    """What one record lacks, or says that cannot be."""
    what = record.get("what")
    if not isinstance(what, str):
        yield Problem(where, "a record says no kernel class", "`what: matmul.bf16`, `what: norm.forward`, ...")
    elif "error" in record:
        return
    elif what not in (known := measured_classes()):
        yield Problem(keys.get("what", where), f"no kernel class is named `{what}`", nearest(what, known))
    else:
        if record.get("unit") not in UNITS:
            message = f"{what}: the unit `{record['unit']}` is unknown" if "unit" in record else f"{what} has no unit"
            yield Problem(keys.get("unit", where), message, f"one of {', '.join(UNITS)}")
        yield from _numbers(record, ("value", *needed_sizes(what)), where, keys)
        yield from _beyond(record, where, keys)


def _numbers(
    record: Record, needed: tuple[str, ...], where: Location, keys: Mapping[str, Location]
) -> Iterator[Problem]:
    """What is no number above zero, and what is not there at all."""
    what = record["what"]
    for name in needed:
        if name not in record:
            yield Problem(where, f"{what} has no `{name}`", f"it needs {', '.join(needed)}")
    for name, value in record.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            if name in needed:
                yield Problem(keys.get(name, where), f"{what}: `{name}` is no number: {value!r}", "write 512 or 43.6")
        elif name != "others" and not (math.isfinite(value) and value > 0):
            yield Problem(keys.get(name, where), f"{what}: `{name}` is {value}", "a measurement is above zero")


def _beyond(record: Record, where: Location, keys: Mapping[str, Location]) -> Iterator[Problem]:
    """A value that no device has, or that lies outside its own quartiles."""
    found = [(name, record[name]) for name in SPREAD if isinstance(record.get(name), int | float)]
    for name, value in found:
        if math.isfinite(value) and value > 0 and not REASON[0] <= value <= REASON[1]:
            message = f"{record['what']}: `{name}` is {value:g} {record.get('unit', '')}".rstrip()
            yield Problem(keys.get(name, where), f"{message}, beyond reason", "was it written in another unit?")
    for name, value in record.items():
        if name not in SPREAD and isinstance(value, int | float) and math.isfinite(value) and value > EXTENT:
            message = f"{record['what']}: `{name}` is {value:g}, beyond reason"
            yield Problem(keys.get(name, where), message, f"no size is above {EXTENT:g}")
    if [value for _, value in found] != sorted(value for _, value in found):
        stated = ", ".join(f"{name} {value}" for name, value in found)
        message = f"{record['what']}: the median is outside its quartiles: {stated}"
        yield Problem(keys.get("low", where), message, "low is the first quartile, high the third")


def _doubled(records: list[tuple[Record, Location, Mapping[str, Location]]]) -> Iterator[Problem]:
    """A record that stands there twice would count twice in a fit; a case measured again has a value of its own."""
    seen: dict[tuple[object, ...], Location] = {}
    for record, where, _ in records:
        case = identity(record)
        key = (case, record.get("regime"), record.get("value"))
        if key in seen:
            sizes = ", ".join(f"{name} {value}" for name, value in json.loads(case).items() if name != "what")
            message = f"{record.get('what')} ({sizes}) stands here twice"
            yield Problem(where, message, f"the other one is in line {seen[key].line}; remove one of them")
        seen.setdefault(key, where)
