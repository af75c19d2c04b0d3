"""Near misses: what somebody who typed a name may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

LISTED = "known: "  # begins a help line that offers no near miss
MOST_NAMES = 40  # names that a help line lists
MOST_OFFERED = 3  # near misses
LONGEST_WORD = 100  # characters of a word that a name may be near to
MOST_COMPARED = 2000  # names that a word is compared with
LEAST_BEGINNING = 3  # letters of a word that tell what it begins


def nearest(word: str, known: Sequence[str]) -> str:
    """A help line that offers the names written most like `word`, or what is known where none is near."""
    if near := closest(word, known):
        return "did you mean " + " or ".join(f"`{name}`" for name in near) + "?"
    more = f" and {len(known) - MOST_NAMES} more" if len(known) > MOST_NAMES else ""
    return f"{LISTED}{', '.join(known[:MOST_NAMES])}{more}" if known else ""


def closest(word: str, known: Sequence[str]) -> list[str]:
    """The names that begin with `word`, short ones first, then those written most like it; at most three, or none."""
    if len(word) > LONGEST_WORD:
        return []
    folded = {name.lower(): name for name in known[:MOST_COMPARED]}
    begun = sorted((name for name in folded if name.startswith(word.lower())), key=len)
    begun = begun if len(word) >= LEAST_BEGINNING else []
    alike = difflib.get_close_matches(word.lower(), list(folded), n=MOST_OFFERED, cutoff=0.55)
    return [folded[name] for name in dict.fromkeys([*begun, *alike])][:MOST_OFFERED]
