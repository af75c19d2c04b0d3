"""Rewrites the table of fits in a document: `python -m ledger.evidence.calibration docs/accuracy.md`."""

from __future__ import annotations

import sys
from pathlib import Path

from ledger.evidence.calibration.calibrate import fit_all, read_all
from ledger.evidence.calibration.table import rewritten, rows
from ledger.spec.library import default_library


def main() -> None:
    """Writes the document only where its table has changed, and prints nothing."""
    path = Path(sys.argv[1])
    before = path.read_text(encoding="utf-8")
    files = read_all(sorted(default_library().folder("evidence").glob("*.yaml")))
    after = rewritten(before, rows(fit_all(files)))
    if after != before:
        path.write_text(after, encoding="utf-8")


if __name__ == "__main__":
    main()
