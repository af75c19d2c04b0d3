"""Near misses: what somebody who typed a name may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

MOST = 40  # names that a help line lists


def nearest(word: str, known: Sequence[str]) -> str:
    """A help line that offers the names written most like `word`, or what is known where none is near."""
    folded = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), list(folded), n=3, cutoff=0.55)
    if near:
        return "did you mean " + " or ".join(f"`{folded[name]}`" for name in near) + "?"
    more = f" and {len(known) - MOST} more" if len(known) > MOST else ""
    return f"known: {', '.join(known[:MOST])}{more}" if known else ""
