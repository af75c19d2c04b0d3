"""The file of all layouts: made of the parts in the order of the tasks, whole or not at all."""

from __future__ import annotations

import csv
import shutil
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING

from ledger.books.what_if.conditions import fault
from ledger.report.files import require_writable
from ledger.search.batches import FULL
from ledger.search.columns import Columns
from ledger.search.tasks import FORMS, PARQUET, RowFiles, schema
from ledger.spec.near import closest
from ledger.whole_files import UNFINISHED, UnfinishedFile, name_errors

if TYPE_CHECKING:
    from ledger.search.tasks import Task

WHOLE = f"whole{UNFINISHED}"  # the whole file in the making
COMPRESSION = "zstd"
ROW_GROUP = 4 * FULL  # rows of a row group of the whole file
FLAG = "--out "
PARQUET_NEEDS = "Parquet needs pyarrow: pip install -e '.[parquet]' in ledger's folder (.csv needs nothing)"


def form_of(path: Path) -> str:
    """The form that a file's name asks for; SpecError for one that there is not, or that cannot be written here."""
    form = path.suffix.removeprefix(".").lower()
    if form not in FORMS:
        near = closest(form, FORMS)
        extensions = " or ".join(f"`.{form_there}`" for form_there in (near or FORMS))
        raise fault(
            f"{FLAG}{path}",
            len(FLAG) + 1,
            f"`{path.name}` has no extension that says its form",
            f"end it in {extensions}",
        )
    if form == PARQUET and find_spec("pyarrow") is None:
        raise fault(f"{FLAG}{path}", len(FLAG) + 1, "pyarrow is not installed", PARQUET_NEEDS)
    return form


def require_file(flag: str, path: Path) -> None:
    """Raises SpecError where a file cannot be written at the path that a flag names; no folder is made for it."""
    text, column = f"{flag}{path}", len(flag) + 1
    if path.is_dir():
        raise fault(text, column, f"`{path}` is a folder", f"name a file in it: `{path / 'layouts'}.csv`")
    if not path.parent.is_dir():
        raise fault(text, column, f"there is no folder `{path.parent}`", f"make it first: `mkdir -p {path.parent}`")
    try:
        require_writable(path.parent)
    except OSError as error:
        message = f"no file can be written in `{path.parent}`: {error.strerror}"
        raise fault(text, column, message, "name a file in another folder") from error


class Output:
    """The whole file in the making: parts are taken as soon as all before them are there."""

    def __init__(self, path: Path, parts: RowFiles) -> None:
        self.path, self.parts = path, parts
        # Among the parts, so that nothing half-written is beside them; a second sweep of the same would take them away.
        self.unfinished = UnfinishedFile(path, Path(parts.folder) / WHOLE, patience=0)
        sink_type: type[ParquetSink | CsvSink] = ParquetSink if parts.form == PARQUET else CsvSink
        self.sink = sink_type(self.unfinished.draft, parts.columns)
        self.waiting: dict[int, Task] = {}
        self.next = 0

    def take(self, task: Task) -> None:
        """Takes the part of a task that is done; its rows are written when those of all tasks before it are."""
        self.waiting[task.number] = task
        while self.next in self.waiting:
            with name_errors(self.path):
                self.sink.append(self.parts.path(self.waiting.pop(self.next)))
            self.next += 1

    def finish(self, *, whole: bool) -> None:
        """Puts the file in its place where it is to be one, and takes the parts away."""
        with name_errors(self.path):
            self.sink.close()
        if whole:
            self.unfinished.put_in_place()
        self.unfinished.abandon()
        shutil.rmtree(self.parts.folder, ignore_errors=True)

    def abandon(self) -> None:
        """Leaves the parts, where there are any, and nothing else."""
        with suppress(Exception):
            self.sink.close()
        self.unfinished.abandon()
        with suppress(OSError):  # it holds parts
            Path(self.parts.folder).rmdir()


class CsvSink:
    """A header, then the lines of the parts."""

    def __init__(self, path: Path, columns: Columns) -> None:
        with path.open("w", encoding="utf-8", newline="") as head:
            csv.writer(head, lineterminator="\n").writerow((*columns.keys, *columns.totals))
        self.file: IO[bytes] = path.open("ab")

    def append(self, part: Path) -> None:
        """Takes the lines of a part."""
        with part.open("rb") as lines:
            shutil.copyfileobj(lines, self.file, 1 << 20)

    def close(self) -> None:
        """Ends the file."""
        self.file.close()


class ParquetSink:
    """Row groups of one size, however many rows a part has."""

    def __init__(self, path: Path, columns: Columns) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.schema = schema(columns)
        self.file = pq.ParquetWriter(path, self.schema, compression=COMPRESSION, use_dictionary=list(columns.keys))
        self.waiting: list[pa.Table] = []

    def append(self, part: Path) -> None:
        """Takes the rows of a part."""
        import pyarrow.parquet as pq

        with pq.ParquetFile(part) as file:
            for number in range(file.num_row_groups):
                self.waiting.append(file.read_row_group(number))
                self._write(ROW_GROUP)

    def _write(self, least: int) -> None:
        """Writes row groups as long as there are `least` rows for one."""
        import pyarrow as pa

        while self.waiting and sum(table.num_rows for table in self.waiting) >= least:
            rows = pa.concat_tables(self.waiting)
            self.file.write_table(rows.slice(0, ROW_GROUP).combine_chunks(), row_group_size=ROW_GROUP)
            rows_left = rows.slice(ROW_GROUP)
            self.waiting = [rows_left] if rows_left.num_rows else []

    def close(self) -> None:
        """Ends the file."""
        self._write(1)
        self.file.close()
