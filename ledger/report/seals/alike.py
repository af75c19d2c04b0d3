"""Whether two printings of a report say the same, but for the last digits of numbers, which are the machine's."""

from __future__ import annotations

import re
from io import BytesIO
from itertools import zip_longest
from math import isclose

TOLERANCE = 1e-9  # relative, of numbers
NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)")


def same_page(kind: str, old: bytes, new: bytes) -> bool:
    """Whether two files of a format say the same: all of the text, of a PDF that of its pages, not how they look."""
    if old == new:
        return True
    if kind == "pdf":
        return all(same_text(one, other) for one, other in zip_longest(_pages(old), _pages(new), fillvalue=""))
    return same_text(old.decode(errors="replace"), new.decode(errors="replace"))


def same_text(old: str, new: str) -> bool:
    """Whether texts differ in the last digits of numbers at most."""
    if old == new:
        return True
    pairs = zip_longest(NUMBER.split(old), NUMBER.split(new))
    return all(one == other or (place % 2 and _near(one, other)) for place, (one, other) in enumerate(pairs))


def _near(old: str | None, new: str | None) -> bool:
    return old is not None and new is not None and isclose(float(old), float(new), rel_tol=TOLERANCE)


def _pages(content: bytes) -> list[str]:
    """The text of each page."""
    from pypdf import PdfReader

    return [page.extract_text() for page in PdfReader(BytesIO(content)).pages]
