"""Sources of texts: a file, standard input, a git revision, or the text itself. Bytes -> text, or a problem."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TextIO

from ledger.spec.git import Revision, open_revision, printable
from ledger.spec.near import nearest
from ledger.spec.problems import Location, Problem, SpecError
from ledger.spec.reader import LARGEST_TEXT

STANDARD_INPUT = "<stdin>"
GIVEN_TEXT = "<text>"


@dataclass(frozen=True)
class Source:
    """A spec's text; `file` as the user typed it, `revision` where read from git, `folder` for relative names."""

    file: str
    text: str
    name: str
    folder: str = "."
    revision: Revision | None = None


def open_source(path_or_text: str | Path, stdin: TextIO | None = None) -> Source:
    """The source that a path, `-`, `REV:path` or a text of several lines names; raises SpecError."""
    if isinstance(path_or_text, str) and "\n" in path_or_text and not exists(path_or_text):
        return Source(GIVEN_TEXT, path_or_text, "plan")
    typed = str(path_or_text)
    if typed == "-":
        return Source(STANDARD_INPUT, _read_piped(stdin), "plan")
    revision, colon, path = typed.partition(":")
    if colon and revision and path and not revision.startswith("-") and not exists(typed):
        opened = open_revision(revision)
        return from_revision(opened, opened.typed(path))
    return from_file(Path(typed))


def exists(typed: str) -> bool:
    """Whether something has that path; what can be no path has none."""
    try:
        return Path(typed).exists()
    except (OSError, ValueError):
        return False


def from_file(path: Path, typed: str = "") -> Source:
    """The text of a file; raises SpecError for what is no readable text."""
    file = printable(typed or str(path))
    try:
        if path.is_dir():
            names = sorted(entry.name for entry in path.glob("*.yaml"))
            listing = f"it holds {', '.join(names[:5])}" if names else ""
            raise SpecError([Problem(Location(file), "a folder, not a file", listing)])
        content = read_bounded(path, LARGEST_TEXT)
    except FileNotFoundError:
        raise SpecError([Problem(Location(file), "no such file", _near_files(path))]) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SpecError([Problem(Location(file), f"cannot be read: {reason}")]) from error
    return Source(file, decode(content, file), printable(path.stem), str(path.parent))


def from_revision(revision: Revision, path: str) -> Source:
    """The text of a file as it was at a git revision; raises SpecError."""
    inner = revision.resolve(path)
    file = revision.file(inner)
    content = revision.content(inner)
    return Source(file, decode(content, file), PurePosixPath(inner).stem, str(PurePosixPath(inner).parent), revision)


def checkout(path: Path) -> Path | None:
    """The top of the git work tree that a path lies in; None where it lies in none."""
    here = path.resolve()
    return next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), None)


def decode(content: bytes, file: str) -> str:
    """The text that the bytes hold; raises SpecError for a binary file and for what is no UTF-8."""
    if b"\0" in content:
        raise SpecError([Problem(Location(file), "a binary file", "a spec is plain text in UTF-8")])
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if error.start >= len(content) - 4 and len(content) > LARGEST_TEXT:  # cut within a character by the size limit
            return content[: error.start].decode("utf-8-sig") + "  "
        before = content[: error.start].decode("utf-8-sig")
        where = Location(file, before.count("\n") + 1, len(before) - before.rfind("\n"))
        raise SpecError([Problem(where, "not UTF-8 text", "save the file in UTF-8")]) from None


def _read_piped(stdin: TextIO | None) -> str:
    stream = stdin or sys.stdin
    binary = getattr(stream, "buffer", None)
    return (
        decode(binary.read(LARGEST_TEXT + 1), STANDARD_INPUT) if binary is not None else stream.read(LARGEST_TEXT + 1)
    )


def _near_files(path: Path) -> str:
    def siblings() -> Iterator[str]:
        if path.parent.is_dir():
            yield from (str(sibling) for sibling in path.parent.iterdir() if sibling.suffix in YAML)

    help_text = nearest(str(path), sorted(siblings()))
    return help_text if help_text.startswith("did") else "`ledger list` names what the library holds"


# --- files as bytes: never more than asked for, and never a wait for a pipe that nobody fills ---

YAML = (".yaml", ".yml")  # how files of specs are called
PIPED = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")  # what a shell hands over: `ledger check <(make-plan)`
NO_FILE = "a device or a pipe, not a file; `-` reads what is piped in"


def read_bounded(path: str | Path, most: int) -> bytes:
    """The content of a file, or its first `most` + 1 bytes where it is longer; raises OSError.

    A pipe or a device has no end to wait for, so it is refused, unless the shell hands it over.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as stream:
        mode = os.fstat(handle).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode) and not str(path).startswith(PIPED):
            raise OSError(errno.EINVAL, NO_FILE, str(path))
        os.set_blocking(handle, True)
        return stream.read(most + 1)
