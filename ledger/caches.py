"""The user's cache: results of earlier runs, each trusted only with a mark that no one else can make.

An entry begins with an HMAC-SHA256 of its name and content, under a key that lies outside the cache where this user
alone can read it (XDG_STATE_HOME). An entry that was planted, emptied, cut or copied from another name is made anew. So
a cache that others may write, or that came out of an archive, changes no result.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ledger.whole_files import create_file, replace_file

KEY_BYTES = 32
MARK_BYTES = hashlib.sha256().digest_size
LARGEST = 64_000_000  # bytes of an entry; a compiled guard has a hundredth of it
PRIVATE = stat.S_IRWXG | stat.S_IRWXO  # the bits of a mode that let others in


@dataclass(frozen=True)
class Cache:
    """The entries of one kind, in a folder of the user's cache."""

    kind: str

    def read(self, name: str) -> bytes | None:
        """The entry of that name; None where there is none that this user's programs wrote."""
        folder, key = cache_folder(), _user_key()
        if folder is None or key is None:
            return None
        stored, _ = _read_file(folder / self.kind / name)
        mark, content = stored[:MARK_BYTES], stored[MARK_BYTES:]
        return content if hmac.compare_digest(mark, self._mark(key, name, content)) else None

    def keep(self, name: str, content: bytes) -> None:
        """Keeps an entry, as far as that can be done: in a read-only home the next run makes it anew."""
        folder, key = cache_folder(), _user_key()
        if folder is None or key is None:
            return
        with suppress(OSError):
            marked = self._mark(key, name, content) + content
            replace_file(folder / self.kind / name, marked, durable=False)

    def _mark(self, key: bytes, name: str, content: bytes) -> bytes:
        head = f"{self.kind}/{name}".encode()
        return hmac.digest(key, len(head).to_bytes(8, "big") + head + content, "sha256")


def cache_folder() -> Path | None:
    """The folder of all entries; None where there is no home."""
    return _user_folder("XDG_CACHE_HOME", ".cache")


def _user_folder(variable: str, default: str) -> Path | None:
    """This program's folder by the XDG base directory specification, in which a path that is not absolute is void."""
    stated = Path(os.environ.get(variable, ""))
    if stated.is_absolute():
        return stated / "ledger"
    try:
        home = Path.home()
    except RuntimeError:
        return None
    return home / default / "ledger" if home.is_absolute() else None


def _user_key() -> bytes | None:
    """The user's key, made where there is none; None where it cannot be kept from others."""
    folder = _user_folder("XDG_STATE_HOME", ".local/state")
    return _key_at(folder / "cache-key") if folder else None


@lru_cache(maxsize=8)
def _key_at(path: Path) -> bytes | None:
    """The key in a file that its owner alone can read or write; made once, whole, and never written over."""
    earlier_mask = os.umask(PRIVATE)
    try:
        with suppress(OSError):
            create_file(path, lambda: secrets.token_bytes(KEY_BYTES))
    finally:
        os.umask(earlier_mask)
    key, status = _read_file(path)
    is_private = status is not None and status.st_uid == os.geteuid() and not status.st_mode & PRIVATE
    return key if is_private and len(key) == KEY_BYTES else None


def _read_file(path: Path) -> tuple[bytes, os.stat_result | None]:
    """The content and status of a plain file; nothing of what is none, or too large."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b"", None
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        return (file.read(), status) if stat.S_ISREG(status.st_mode) and status.st_size <= LARGEST else (b"", None)
