"""Makes tables of documents anew, of fits and of price forms: `python -m ledger.lab.calibration docs/accuracy.md`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from ledger.lab.calibration.calibrate import fit_all, library_evidence
from ledger.lab.calibration.page import FITS, FORMS, form_lines, section, set_fits
from ledger.report.escape import MadeSection
from ledger.whole_files import replace_file

SECTIONS: Mapping[MadeSection, Callable[[], Iterable[str]]] = {
    FITS: lambda: section(set_fits(fit_all(library_evidence()))),
    FORMS: form_lines,
}


def main() -> None:
    """Writes the documents only where a table of theirs has changed, and prints nothing."""
    for path in map(Path, sys.argv[1:]):
        text = path.read_text(encoding="utf-8")
        for place, lines in SECTIONS.items():
            if place.stands_in(text):
                text = place.put_into(text, lines())
        replace_file(path, text.encode())


if __name__ == "__main__":
    main()
