"""Rewrites the table of verified plans in a document: `python -m ledger.lab.verification docs/accuracy.md`."""

from __future__ import annotations

import sys
from pathlib import Path

from ledger.evidence.verification_records import every, folder
from ledger.lab.verification.accuracy import rewritten


def main() -> None:
    """Writes the document only where its table has changed."""
    path = Path(sys.argv[1])
    before = path.read_text(encoding="utf-8")
    after = rewritten(before, tuple(every(folder())))
    if after != before:
        path.write_text(after, encoding="utf-8")


if __name__ == "__main__":
    main()
