"""What documents say of the code's places: the lines of functions, and the figure of the rooms.

    python scripts/tour.py      # writes both anew, where code has moved

A link such as [`stage_time`](../ledger/books/assembly/stages.py#L97) points to the line of a definition, and
`tests/test_docs.py` fails where one no longer does.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Mapping
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


# --- the rooms --------------------------------------------------------------------------------------

FIGURE = re.compile(r"```mermaid\n.*?```\n", re.DOTALL)


def room_of(module: str) -> str:
    """The folder of the package that a module lies in; what lies in none is what all may use."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and (ROOT / "ledger" / parts[1]).is_dir() else ""


def imported_rooms() -> Mapping[str, set[str]]:
    """The rooms that modules of each room import, whenever they do."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path in sorted((ROOT / "ledger").rglob("*.py")):
        own = room_of(".".join(path.relative_to(ROOT).with_suffix("").parts))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "ledger":
                modules = [f"{node.module}.{alias.name}" for alias in node.names] if "." not in node.module else []
                found[own] |= {room_of(module) for module in modules or [node.module]}
    return {room: rooms - {room, ""} for room, rooms in found.items() if room}


def below(rooms: Mapping[str, set[str]], room: str) -> set[str]:
    """All rooms that a room reaches through others."""
    reached: set[str] = set()
    pending = [*rooms.get(room, ())]
    while pending:
        if (name := pending.pop()) not in reached:
            reached.add(name)
            pending += rooms.get(name, ())
    return reached


def figure() -> str:
    """The rooms in Mermaid, with an arrow to each that they import, but where another arrow leads there too."""
    rooms = imported_rooms()
    lines = ["```mermaid", "flowchart TD"]
    for room in sorted(rooms, key=lambda name: (-len(below(rooms, name)), name)):
        through = {name for other in rooms[room] for name in below(rooms, other)}
        lines += [f"    {room} --> {other}" for other in sorted(rooms[room] - through)]
    return "\n".join([*lines, "```", ""])


def main() -> None:
    """Writes the line of each link of the documents, and the figure of the rooms."""
    for path in sorted((ROOT / "docs").glob("*.md")):
        text = path.read_text(encoding="utf-8")
        mended = LINK.sub(lambda link: f"[`{link[1]}`](../{link[2]}#L{line_of(link[1], link[2])})", text)
        if path.name == "architecture.md":
            mended = FIGURE.sub(lambda _: figure(), mended)
        if mended != text:
            path.write_text(mended, encoding="utf-8")


if __name__ == "__main__":
    main()
