"""Rewrites the table of fits in a document: `python -m ledger.lab.calibration docs/accuracy.md`."""

from __future__ import annotations

import sys
from pathlib import Path

from ledger.lab.calibration.calibrate import fit_all, library_evidence
from ledger.lab.calibration.table import rows, with_table


def main() -> None:
    """Writes the document only where its table has changed, and prints nothing."""
    path = Path(sys.argv[1])
    before = path.read_text(encoding="utf-8")
    after = with_table(before, rows(fit_all(library_evidence())))
    if after != before:
        path.write_text(after, encoding="utf-8")


if __name__ == "__main__":
    main()
