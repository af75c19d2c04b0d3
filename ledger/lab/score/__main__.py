"""`python -m ledger.lab.score predicted | constants | worth | coverage | serving [FILE ...]`: what the library says.

Of the runs that it carries; `constants` and `coverage` of tables, where any is named.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from ledger.evidence.published_runs import predictions_path
from ledger.evidence.tables import TableRow, read_table
from ledger.lab.score.ablations import ablation_lines, coverage_lines, level_lines, memory_missed, steps_missed, trials
from ledger.lab.score.facts import NEEDED_COLUMNS
from ledger.lab.score.library_runs import library_rows, predictions, scored_runs, table_text
from ledger.lab.score.predictions import predict_rows
from ledger.lab.score.serving_page import SERVED, serving_lines
from ledger.spec.library import default_library
from ledger.spec.problems import SpecError
from ledger.whole_files import replace_file


def _tables(files: Sequence[str]) -> list[Sequence[TableRow]]:
    """The tables of files; exits with 2 where one cannot be read."""
    try:
        return [read_table(Path(file), NEEDED_COLUMNS) for file in files]
    except (SpecError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(2) from None


def coverage(files: Sequence[str]) -> None:
    """Prints how often measured steps, and measured memory, lie within their intervals."""
    tables = _tables(files) or [library_rows()]
    rows = [row for table in tables for row in predict_rows(table, default_library())]
    for figure, runs in (("step", steps_missed(rows)), ("memory", memory_missed(rows))):
        sys.stdout.writelines(f"{line}\n" for line in coverage_lines(runs, figure))


def serving(files: Sequence[str]) -> None:
    """Prints how near published serving results are predicted, or puts that into documents."""
    lines = list(serving_lines())
    for path in map(Path, files):
        replace_file(path, SERVED.put_into(path.read_text(encoding="utf-8"), lines).encode())
    if not files:
        sys.stdout.writelines(f"{line}\n" for line in lines)


def main() -> None:
    """Writes the table of predictions, or prints the fit of the stacks' constant, or what mechanisms are worth."""
    if sys.argv[1:] == ["worth"]:
        sys.stdout.writelines(f"{line}\n" for line in ablation_lines())
    elif sys.argv[1:2] == ["coverage"]:
        coverage(sys.argv[2:])
    elif sys.argv[1:2] == ["serving"]:
        serving(sys.argv[2:])
    elif sys.argv[1:2] == ["constants"]:
        runs = scored_runs(*_tables(sys.argv[2:]))
        sys.stdout.writelines(f"{line}\n" for line in level_lines(trials(runs)))
    else:
        replace_file(predictions_path(), table_text(predictions()).encode())


if __name__ == "__main__":
    main()
