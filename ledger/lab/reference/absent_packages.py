"""Packages that are taken for not installed while others are imported."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def absent(*names: str) -> Iterator[None]:
    """Nothing within finds these packages, whether they are installed or not; afterwards all is as it was."""
    before = {name: sys.modules[name] for name in names if name in sys.modules}
    sys.modules.update(dict.fromkeys(names))  # type: ignore[arg-type]  # None: importlib then finds no such module
    try:
        yield
    finally:
        for name in names:
            del sys.modules[name]
        sys.modules.update(before)
