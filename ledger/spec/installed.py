"""Where the files that come with the package lie: inside it where it is installed, at the top of a checkout."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
SPECS = {".yaml", ".csv"}  # what the library is made of
DATA = "_data"  # the folder of the package that an installation has them in


def data_folder(name: str) -> Path:
    """The folder `specs` or `templates`."""
    installed = PACKAGE / DATA / name
    return installed if installed.is_dir() else PACKAGE.parent / name


def library_files() -> Iterator[Path]:
    """Every file of the library that comes with the package."""
    return (path for path in data_folder("specs").rglob("*") if path.suffix in SPECS)
