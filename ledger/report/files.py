"""Files appear whole or not at all, and are touched only when they change."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def writable(folder: Path) -> None:
    """Raises OSError where a folder, or the nearest above it that exists, takes no new file; leaves nothing behind."""
    there = next(one for one in (folder, *folder.absolute().parents) if one.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(folder)) from error


def replace_file(path: Path, content: bytes) -> bool:
    """The file holds `content` afterwards; whether it had to be written. OSError where it cannot be."""
    if path.is_file() and path.read_bytes() == content:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return True
