"""Rewrites the table of verified plans in a document: `python -m ledger.lab.verification docs/accuracy.md`."""

from __future__ import annotations

import sys
from pathlib import Path

from ledger.evidence.verification import every, folder
from ledger.lab.verification.accuracy import rewrite_section
from ledger.whole_files import replace_file


def main() -> None:
    """Writes the document only where its table has changed."""
    path = Path(sys.argv[1])
    replace_file(path, rewrite_section(path.read_text(encoding="utf-8"), tuple(every(folder()))).encode())


if __name__ == "__main__":
    main()
