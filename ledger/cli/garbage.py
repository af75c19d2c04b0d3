"""How often garbage is looked for while plans are compiled."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

UNTOUCHED = 200_000  # new objects before garbage is looked for: books are made of many, and stay


@contextmanager
def rarely() -> Iterator[None]:
    """Objects that hold each other are searched for rarely meanwhile, a tenth of a report's time otherwise."""
    before = gc.get_threshold()
    gc.set_threshold(UNTOUCHED)
    try:
        yield
    finally:
        gc.set_threshold(*before)
