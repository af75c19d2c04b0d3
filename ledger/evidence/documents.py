"""Evidence files, each read once: what stands above its records, and the records by kind.

A file holds microbenchmarks (`what:` a kernel class), whole runs (`what: step`), plans that ran or ran out of memory
(`what: fit`) and PyTorch's verdicts on a plan (`what: derivation`). All of them are read here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ledger.evidence.microbenchmarks.records import PlacedRecord, Record, series_records
from ledger.evidence.microbenchmarks.samples import benchmark_problems, published_fit_problems
from ledger.evidence.run_records import FIT, STEP, MeasuredRun, measured_run, plan_of_runs, run_problems
from ledger.evidence.verdicts import DERIVATION, ComparedFigure, verdict, verdict_problems
from ledger.spec.faults import Faults, StatedValue
from ledger.spec.kinds import TYPES
from ledger.spec.library import FOLDERS, default_library, display_path
from ledger.spec.problems import Problem, SpecError
from ledger.spec.reader import Node, read
from ledger.spec.sources import from_file

LIBRARY_FOLDER = "specs/evidence/"  # how a file of the library is cited, wherever the library lies
RECORDS, SERIES, PLAN = "records", "series", "plan"  # keys of a file
RECORD_KINDS = (STEP, FIT, DERIVATION)  # of records that are no microbenchmarks


@dataclass(frozen=True)
class Document:
    """The text of a file, and the mapping that it holds, each value with its place; held to no schema."""

    path: Path
    text: str
    node: Node

    def header(self) -> dict[str, Any]:
        """The fields above the records: plain values by key."""
        return {key: node.plain() for key, node in self.node.fields.items() if key not in (RECORDS, SERIES)}

    def records(self) -> list[dict[str, Any]]:
        """The mappings under `records:`, as plain values."""
        listed = self.node.fields.get(RECORDS)
        return [plain for item in (listed.items if listed else ()) if isinstance(plain := item.plain(), dict)]

    def problem(self, error: SpecError) -> SpecError:
        """The problems of an error, with the text that they point into."""
        return SpecError(error.problems, {str(self.path): self.text, **error.sources})


@dataclass(frozen=True)
class Evidence:
    """A file that is held to what it must say, with its records by kind.

    `header`: what stands above the records. `microbenchmarks`: timings of kernels and transfers, rows of tables among
    them; `failed`: those that could not run, with their `error`. `runs`: whole steps that were measured; `fits`: plans
    that were seen to fit, or to run out of memory; `verdicts`: what PyTorch found of a plan.
    """

    path: Path
    header: Mapping[str, Any]
    microbenchmarks: tuple[Record, ...]
    failed: tuple[Record, ...]
    runs: tuple[MeasuredRun, ...]
    fits: tuple[MeasuredRun, ...]
    verdicts: tuple[ComparedFigure, ...]
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
        return dict(self.header["origin"])

    @property
    def hardware(self) -> Record:
        """The properties that the device reported; empty in publications."""
        return dict(self.header.get("hardware", {}))

    @property
    def citation(self) -> str:
        """The publication, or the command that measured, and the file."""
        return f"{self.source} ({citation(self.path)})"


def citation(path: Path) -> str:
    """A file as prices and reports cite it: one of the library by its place in the repository."""
    carried = path.resolve().parent in {(root / FOLDERS["evidence"]).resolve() for root in default_library().roots}
    return f"{LIBRARY_FOLDER}{path.name}" if carried else display_path(path)


def read_document(path: Path) -> Document:
    """The mapping that a file holds, read once per state of the file; raises SpecError for any other text."""
    return _document(path, *_stamp(path))


def read_evidence(path: Path) -> Evidence:
    """The records of a file, read once per state of it; raises SpecError with everything that is wrong with it."""
    return _evidence(path, *_stamp(path))


def _stamp(path: Path) -> tuple[int, int]:
    """The modification time and size of a file, which key its cache; zeros where there is none: reading then raises."""
    try:
        state = path.stat()
    except (OSError, ValueError):
        return 0, 0
    return state.st_mtime_ns, state.st_size


@cache
def _document(path: Path, *_: int) -> Document:
    source = from_file(path, str(path))
    try:
        return Document(path, source.text, read(source.text, source.file))
    except SpecError as error:
        raise SpecError(error.problems, {source.file: source.text}) from error


@cache
def _evidence(path: Path, *_: int) -> Evidence:
    document = read_document(path)
    try:
        return _checked(document)
    except SpecError as error:
        raise document.problem(error) from error


def _checked(document: Document) -> Evidence:
    """The typed records; raises SpecError for what the schema does not allow, else for every faulty record."""
    node = document.node
    problems = [fault.problem for fault in faults(node, "evidence")]
    if problems:
        raise SpecError(problems)
    listed = node.fields[RECORDS].items if RECORDS in node.fields else ()
    kinds = {kind: [record for record in listed if _kind(record) == kind] for kind in RECORD_KINDS}
    tables, problems = series_records(node)
    benchmark_nodes = (record for record in listed if _kind(record) not in RECORD_KINDS)
    benchmarks = [PlacedRecord(_plain(record), record.where, record.keys) for record in benchmark_nodes]
    benchmarks += tables
    ran_by_kind = {kind: [record for record in kinds[kind] if "error" not in record.fields] for kind in (STEP, FIT)}
    problems += [*benchmark_problems(benchmarks), *verdict_problems(kinds[DERIVATION])]
    problems += [problem for kind, records in ran_by_kind.items() for problem in run_problems(records, kind)]
    first_run = next((records[0] for records in ran_by_kind.values() if records), None)
    if first_run is not None and PLAN not in node.fields:
        help_text = "write `plan:` above the records, which share it"
        problems.append(Problem(first_run.where, "a whole run needs a `plan`", help_text))
    problems += published_fit_problems(node)
    if problems:
        raise SpecError(problems)
    plan = plan_of_runs(node.fields.get(PLAN), document.path.parent)
    timings = tuple(record.fields for record in benchmarks)
    return Evidence(
        document.path,
        document.header(),
        microbenchmarks=tuple(record for record in timings if "error" not in record),
        failed=tuple(record for record in timings if "error" in record),
        runs=tuple(measured_run(record, plan) for record in ran_by_kind[STEP]),
        fits=tuple(measured_run(record, plan) for record in ran_by_kind[FIT]),
        verdicts=tuple(map(verdict, kinds[DERIVATION])),
        node=node,
    )


def _kind(record: Node) -> object:
    kind = record.fields.get("what")
    return kind.value if kind is not None else None


def _plain(record: Node) -> Record:
    plain: Any = record.plain()
    return plain if isinstance(plain, dict) else {}


def faults(node: Node, kind: str) -> Faults:
    """The faults of a document: all that its kind does not allow."""
    problems: Faults = []
    TYPES[kind].read(StatedValue(node), problems)
    return problems
