"""Files as bytes: never more than asked for, and never a wait for a pipe that nobody fills."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

YAML = (".yaml", ".yml")  # how files of specs are called
PIPED = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")  # what a shell hands over: `ledger check <(make-plan)`
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # what a disk says that takes no more
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
