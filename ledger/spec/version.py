"""Digests of the program and of its library: results may differ where these do."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

VERSION = "0.1.0"  # of the package and of its distribution
SHORT = 12  # digits of a digest that people compare


@cache
def program_digest() -> str:
    """The sha256 of every Python file of the package, of which one states the version, and of every template."""
    code = (path for path in PACKAGE.rglob("*.py") if DATA not in path.relative_to(PACKAGE).parts)
    templates = data_folder("templates")
    printed = (path for path in templates.rglob("*") if path.is_file() and path.suffix not in {".py", ".pyc"})
    return hashlib.sha256(f"{files_digest(PACKAGE, code)}{files_digest(templates, printed)}".encode()).hexdigest()


@cache
def library_digest() -> str:
    """The sha256 of every file of the library that comes with the package."""
    return files_digest(data_folder("specs"), library_files())


def files_digest(folder: Path, files: Iterable[Path]) -> str:
    """The sha256 of files with their names within a folder."""
    content = hashlib.sha256()
    for name, path in sorted((path.relative_to(folder).as_posix(), path) for path in files):
        content.update(name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return content.hexdigest()


def short_digest(digest: str) -> str:
    """The digits of a digest that people compare."""
    return digest.rpartition(":")[2][:SHORT]


# --- files that come with the package ---

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
