"""The lines of functions that documents point to.

    python scripts/tour.py      # writes them anew, where code has moved

A link such as [`stage_time`](../ledger/books/assembly/stages.py#L97) points to the line of a definition, and
`tests/test_docs.py` fails where one no longer does.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\[`(\w+)`\]\(\.\./([\w/]+\.py)#L(\d+)\)")


def line_of(name: str, path: str) -> int:
    """The line of a file on which a top-level function, class or constant is defined; 0 where none is."""
    defined = re.compile(rf"(def|class) {name}\b|{name}(:| =)")
    lines = (ROOT / path).read_text(encoding="utf-8").splitlines() if (ROOT / path).is_file() else []
    return next((number for number, line in enumerate(lines, 1) if defined.match(line)), 0)


def wrong(text: str) -> list[str]:
    """The links of a document that do not point to a definition of their name."""
    return [link[0] for link in LINK.finditer(text) if int(link[3]) != line_of(link[1], link[2]) or link[3] == "0"]


def main() -> None:
    """Writes the line of each link of the documents."""
    for path in sorted((ROOT / "docs").glob("*.md")):
        text = path.read_text(encoding="utf-8")
        mended = LINK.sub(lambda link: f"[`{link[1]}`](../{link[2]}#L{line_of(link[1], link[2])})", text)
        if mended != text:
            path.write_text(mended, encoding="utf-8")


if __name__ == "__main__":
    main()
