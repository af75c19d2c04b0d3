"""Words of published tables as the library's spellings have them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from ledger.spec.library import Library
from ledger.spec.load import load_spelling
from ledger.spec.near import nearest
from ledger.spec.publication import Spelling

WORD = re.compile(r"[a-z0-9][a-z0-9_.-]*")
BEHIND = re.compile(r"^(?P<word>[^()]*[^() ]) *\((?P<inside>.*)\)$")


class UnknownWordError(ValueError):
    """A word of a column that no spelling of the library explains; the message says the nearest."""


@dataclass(frozen=True)
class Meaning:
    """What a cell says: `value`, what words in brackets add to it, and those of them that nobody knows."""

    value: Any
    added: Mapping[str, Any] = field(default_factory=dict)
    unread: tuple[str, ...] = ()


def meaning(column: str, text: str, library: Library) -> Meaning:
    """What a text means in a column; raises UnknownWordError with the nearest spelling."""
    known = _spelling(column, library)
    found = _stated(known, text)
    if found is not None:
        return Meaning(found)
    behind = BEHIND.match(text)
    if behind and (found := _stated(known, behind["word"])) is not None:
        said = [part.strip() for part in re.split(r"[,;]", behind["inside"])]
        qualifiers = {folded(name): value for name, value in known.qualifiers.items()}
        added = [qualifiers[folded(part)] for part in said if folded(part) in qualifiers]
        unread = tuple(part for part in said if folded(part) not in qualifiers)
        return Meaning(found, {path: value for one in added for path, value in one.items()}, unread)
    words = set(WORD.findall(text.lower()))
    marked = [name for name, marks in known.marks.items() if words & set(marks)]
    if len(marked) == 1:
        return Meaning(marked[0])
    raise UnknownWordError(f"`{column}` = `{text}` is not known; {nearest(text, list(known.spellings))}")


def _stated(known: Spelling, text: str) -> Any:
    """What a spelling means, None where there is none; one that means another spelling means what that does."""
    table = _folded(known)
    found = table.get(folded(text))
    return table.get(folded(found), found) if isinstance(found, str) else found


def folded(text: str) -> str:
    """A text without case and with single blanks."""
    return " ".join(text.lower().split())


def _folded(known: Spelling) -> Mapping[str, Any]:
    return {folded(spelling): value for spelling, value in known.spellings.items()}


@cache
def _spelling(column: str, library: Library) -> Spelling:
    return load_spelling(column, library=library)


# --- conditions of publications -----------------------------------------------------------------

BOUNDS: Mapping[str, Callable[[float, float], bool]] = {
    ">=": lambda value, bound: value >= bound,
    "<=": lambda value, bound: value <= bound,
    ">": lambda value, bound: value > bound,
    "<": lambda value, bound: value < bound,
}


def meets(text: str, wanted: Any) -> bool:
    """Whether a cell is what a condition of a publication asks for: a text with `*`, a truth, a bound, one of several.

    An empty cell meets nothing but an empty text.
    """
    if isinstance(wanted, list | tuple):
        return any(meets(text, one) for one in wanted)
    if isinstance(wanted, bool):
        return text.lower() in (("true", "yes", "1") if wanted else ("false", "no", "0"))
    sign, _, bound = str(wanted).partition(" ")
    if sign in BOUNDS:
        return text.isdecimal() and BOUNDS[sign](float(text), float(bound))
    parts = (re.escape(part) for part in folded(str(wanted)).split("*"))
    return re.fullmatch(".*".join(parts), folded(text), re.DOTALL) is not None
