"""Near misses: what somebody who typed a name may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


def nearest(word: str, known: Sequence[str]) -> str:
    """A help line that offers the names written most like `word`, or all of them where none is near."""
    folded = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), list(folded), n=3, cutoff=0.55)
    if near:
        return "did you mean " + " or ".join(f"`{folded[name]}`" for name in near) + "?"
    return f"known: {', '.join(known)}" if known else ""
