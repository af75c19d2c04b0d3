"""Files that are each there whole or not at all: every file that this program writes is written here.

A file in the making lies beside its place as `.NAME.unfinished`, locked by the process that writes it, and is put there
in one move. An error takes it away and leaves what was there before. Only a process that is killed leaves one, without
a lock, and the next process that writes the same file takes it away and says so.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from errno import EBUSY, EISDIR
from pathlib import Path
from types import TracebackType
from typing import Self

UNFINISHED = ".unfinished"
SCRATCH = "ledger-"  # begins the name of a folder for temporary files
PATIENCE = 10.0  # seconds to wait for another process that writes the same file
TURN = 0.02  # seconds between two looks at it
FORGOTTEN = 60.0  # seconds after which a file that nobody writes is a dead process's, where there are no locks
LOG = logging.getLogger("ledger")


def replace_file(path: Path, content: bytes, *, durable: bool = True) -> bool:
    """The file holds `content` afterwards; whether it had to be written. OSError, with this path, where it cannot be.

    What can be made anew, as a cache, need not be `durable`: it then costs no wait for the disk.
    """
    return bool(replace_files({path: content}, durable=durable))


def replace_files(contents: Mapping[Path, bytes], *, durable: bool = True) -> tuple[Path, ...]:
    """All files hold these contents afterwards, or none is changed; returns those that had to be written.

    One that holds its content already is left alone. Raises OSError with the path of a file that cannot be written. A
    process that is killed here may leave new files beside old ones, and then an unfinished one, too: the next call
    writes what is missing and says on the log which files an earlier run was cut off at.
    """
    before = {path: path.read_bytes() if path.is_file() else None for path in contents}
    changed = sorted(path for path, content in contents.items() if before[path] != content)  # one order for all
    left_over = [path for path in contents if path not in changed and _clear_if_dead(draft_of(path))]
    placed: list[Path] = []
    with ExitStack() as stack:
        drafts = []
        for path in changed:
            drafts.append(stack.enter_context(UnfinishedFile(path)))
            drafts[-1].write(contents[path])
        left_over += [draft.path for draft in drafts if draft.left_over]
        try:
            for draft in drafts:
                draft.put_in_place(durable=durable)
                placed.append(draft.path)
        except BaseException:
            _restore({path: before[path] for path in placed})
            raise
    if left_over and durable:
        names = ", ".join(map(str, sorted(left_over)))
        LOG.warning("note: an earlier run was cut off before it had written %s; now all files are of one run", names)
    return tuple(changed)


def create_file(path: Path, content: Callable[[], bytes]) -> None:
    """Creates a file with content made then; raises FileExistsError where there is one, which stays as it is."""
    with UnfinishedFile(path) as draft:
        if path.exists() or path.is_symlink():
            raise FileExistsError(path)
        draft.write(content())
        draft.put_in_place()


def draft_of(path: Path) -> Path:
    """The path of a file until it is complete."""
    return path.with_name(f".{path.name}{UNFINISHED}")


class UnfinishedFile:
    """A file in the making, which this process alone writes at `draft`; left as a block without its place, it is gone.

    `left_over`: whether an earlier process was killed over it. Every OSError names `path`; one that another process
    goes on writing for PATIENCE seconds is EBUSY.
    """

    def __init__(self, path: Path, draft: Path | None = None, *, patience: float = PATIENCE) -> None:
        with name_errors(path):
            if path.is_dir():
                raise IsADirectoryError(EISDIR, os.strerror(EISDIR))
        self.path, self.draft = path, draft or draft_of(path)
        with name_errors(path):
            self.draft.parent.mkdir(parents=True, exist_ok=True)
            self.handle, self.left_over = _claim(self.draft, patience)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abandon()

    def write(self, content: bytes) -> None:
        """Writes more of it."""
        with name_errors(self.path), os.fdopen(self.handle, "ab", closefd=False) as file:
            file.write(content)

    def put_in_place(self, *, durable: bool = True) -> None:
        """Puts it where it belongs, on disk as well where it is `durable`; a file that was there gives it its mode."""
        with name_errors(self.path):
            with suppress(OSError):  # of a new file, the mode is what the umask leaves
                os.fchmod(self.handle, stat.S_IMODE(self.path.stat().st_mode))
            if durable:
                os.fsync(self.handle)
            if not _is_at(self.handle, self.draft):
                raise OSError(EBUSY, "another process has begun to write it")
            self.draft.replace(self.path)
            self._close()
            if durable:
                _sync_folder(self.path.parent)

    def abandon(self) -> None:
        """Removes the draft, unless the file is in its place."""
        if self.handle >= 0:
            with suppress(OSError):
                self.draft.unlink()
            self._close()

    def _close(self) -> None:
        handle, self.handle = self.handle, -1
        os.close(handle)


@contextmanager
def name_errors(path: Path) -> Iterator[None]:
    """An OSError names this file: the one that was asked for."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder for temporary files of this process, gone afterwards; those of processes that were killed go first."""
    for abandoned in Path(tempfile.gettempdir()).glob(f"{SCRATCH}*{UNFINISHED}"):
        _clear_if_dead(abandoned)
    handle = -1
    while handle < 0:
        folder = tempfile.mkdtemp(prefix=SCRATCH, suffix=UNFINISHED)
        handle = _open_locked(Path(folder), os.O_RDONLY)
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


@contextmanager
def scratch_files() -> Iterator[None]:
    """Temporary files that libraries make meanwhile are in a scratch folder."""
    with scratch_folder() as folder:
        earlier_folder, tempfile.tempdir = tempfile.tempdir, str(folder)
        try:
            yield
        finally:
            tempfile.tempdir = earlier_folder


def _claim(draft: Path, patience: float) -> tuple[int, bool]:
    """A new file that this process has a lock on, and whether a dead process had left one; OSError where one lives."""
    left_over, until = False, time.monotonic() + patience
    while True:
        with suppress(FileExistsError):
            handle = _open_locked(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            if handle >= 0:
                return handle, left_over
            continue
        if _clear_if_dead(draft):
            left_over = True
        elif time.monotonic() > until:
            raise OSError(EBUSY, "another process is writing it")
        else:
            time.sleep(TURN)


def _open_locked(path: Path, flags: int) -> int:
    """A file or folder opened under a lock; -1 where another process took it away meanwhile."""
    handle = os.open(path, flags | os.O_NOFOLLOW, 0o666)
    with suppress(OSError):  # some file systems of clusters have no locks
        fcntl.flock(handle, fcntl.LOCK_EX)
    if _is_at(handle, path):
        return handle
    os.close(handle)
    return -1


def _clear_if_dead(path: Path) -> bool:
    """Takes away what a process that is dead was writing; false where there is nothing, or its process lives."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # it is gone, or somebody else's
        return False
    try:
        if not (_is_dead(handle) and _is_at(handle, path)):
            return False
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def _is_dead(handle: int) -> bool:
    """Whether the process that a file or folder belonged to is gone, by its lock."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # no locks here; a clock may have been set back meanwhile
        return abs(time.time() - os.fstat(handle).st_mtime) > FORGOTTEN
    return True


def _is_at(handle: int, path: Path) -> bool:
    """Whether an open file is still the one that a path names."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(handle), path.lstat())
    return False


def _restore(contents: Mapping[Path, bytes | None]) -> None:
    """The files as they were, as far as that can be done."""
    for path, content in contents.items():
        with suppress(OSError):
            if content is None:
                path.unlink()
            else:
                replace_file(path, content)


def _sync_folder(folder: Path) -> None:
    """Waits until the names in a folder are on disk, where its file system can be asked to."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # what a disk says that takes no more
