"""Files as git has them: a revision of the repository around the current folder, its listing, its contents."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from posixpath import join, normpath

from ledger.spec.problems import Location, Problem, SpecError

LINK, MODULE = "120000", "160000"  # modes of symbolic links and of other repositories
LONGEST_LINKS = 40  # that one path may follow, as Linux has it
SHORT_COMMIT = 12  # digits that tell a commit from others
LARGEST_BLOB = 2_000_000  # bytes of a file that are read, twice what a text may have
BATCH = 32_000_000  # bytes of files that are asked for at once
LONGEST_PATH = 4096  # bytes, as Linux has it; of a link too
SLOWEST = 60  # seconds that git may take
# A repository's own configuration starts no program, and what a partial clone lacks is not fetched.
GIT = ("git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "protocol.allow=never")
ENVIRONMENT = {"GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
RENAMED = ("diff", "--no-ext-diff", "--name-status", "-z", "-M", "--diff-filter=R")
FROM_THE_TOP = "REV:path reads `path` at the git revision REV; a path in a folder starts at the repository's top"
OUTSIDE = "of a revision, only files of its repository can be read"


@dataclass(frozen=True)
class Revision:
    """The files of a repository at a revision: `name` as typed, `top` the repository's folder, `tree` their object."""

    name: str
    top: Path
    tree: str
    prefix: str = ""  # the folder, below the top, that `./` means

    def file(self, path: str) -> str:
        """The name of a file of the revision, for users and for git."""
        return f"{self.name}:{path}"

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of all files, sorted."""
        return tuple(_listing(self.top, self.tree))

    def typed(self, path: str) -> str:
        """A path as a user types it, from the top: one that begins with `./` or `../` is from the current folder."""
        return normpath(join(self.prefix, path)) if path.startswith(("./", "../")) else path

    def holds(self, folder: str) -> bool:
        """Whether a folder has a file at this revision."""
        return any(path.startswith(f"{folder}/") for path in self.paths)

    def resolve(self, path: str) -> str:
        """The path of a file from the top, without `..` and links; raises SpecError for one that leads outside."""
        typed, listing = path, _listing(self.top, self.tree)
        if len(path) > LONGEST_PATH:
            raise SpecError([Problem(Location(self.name), "a path that is longer than any")])
        path = printable(normpath(path))
        for _ in range(LONGEST_LINKS):
            if path.startswith(("../", "/")):
                raise SpecError([Problem(Location(self.file(typed)), "the path leads out of the repository", OUTSIDE)])
            link = next((prefix for prefix in _prefixes(path) if listing.get(prefix, ("", ""))[0] == LINK), None)
            if link is None:
                return path
            target = readable(_cached_blob(self.top, listing[link][1]))
            if len(target) + len(path) > LONGEST_PATH:
                raise SpecError([Problem(Location(self.file(typed)), "a link that is longer than any path")])
            path = normpath(join(str(PurePosixPath(link).parent), target, path[len(link) + 1 :]))
        raise SpecError([Problem(Location(self.file(typed)), "links that lead to each other")])

    def content(self, path: str) -> bytes:
        """The bytes of a file by its path from the top; raises SpecError where there is none."""
        mode, blob = _listing(self.top, self.tree).get(self.resolve(path), ("", ""))
        if not blob or mode == MODULE:
            raise SpecError([Problem(Location(self.file(path)), f"no such file at {self.name}", FROM_THE_TOP)])
        return _cached_blob(self.top, blob)

    def contents(self, paths: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """The bytes of many files, asked for together; of those beyond LARGEST_BLOB the beginning; no links."""
        listing = _listing(self.top, self.tree)
        objects = [(path, listing[path][1]) for path in paths if listing[path][0] not in {LINK, MODULE}]
        batch: list[tuple[str, str]] = []
        batch_bytes = 0
        for (path, blob), size in zip(objects, _object_sizes(self.top, [blob for _, blob in objects]), strict=True):
            if size is None:
                message = f"git lacks the content of this file at {self.name}, or it is damaged"
                help_text = "in a partial clone: `git fetch --refetch`"
                raise SpecError([Problem(Location(self.file(path)), message, help_text)])
            if size > LARGEST_BLOB:
                yield path, _read_blob(self.top, blob)
            else:
                batch.append((path, blob))
                batch_bytes += size
            if batch_bytes > BATCH:
                yield from self._read_batch(batch)
                batch, batch_bytes = [], 0
        yield from self._read_batch(batch)

    def _read_batch(self, objects: Iterable[tuple[str, str]]) -> Iterator[tuple[str, bytes]]:
        """The bytes of some files, in their order."""
        answer = ask_git(["cat-file", "--batch"], self.top, "".join(f"{blob}\n" for _, blob in objects).encode())
        position = 0
        for path, _ in objects:
            end = answer.index(b"\n", position)
            size = int(answer[position:end].split()[2])
            yield path, answer[end + 1 : end + 1 + size]
            position = end + size + 2

    def renamed_paths(self, later: Revision) -> Mapping[str, str]:
        """New path -> old path of the files that git takes for renamed between this revision and a later one."""
        words = readable(ask_git([*RENAMED, self.tree, later.tree], self.top)).split("\0")
        return {new: old for _, old, new in zip(words[::3], words[1::3], words[2::3], strict=False)}


def open_revision(name: str) -> Revision:
    """The revision that git knows by a name, of the repository around the current folder; raises SpecError."""
    try:
        tree = ask_git(["rev-parse", "--verify", "--end-of-options", f"{name}^{{tree}}"]).decode().strip()
        top, prefix = (one_line(["rev-parse", option]) for option in ("--show-toplevel", "--show-prefix"))
    except SpecError as error:
        help_text = "`git log` has the revisions; a shallow clone lacks most of them (`git fetch --unshallow`)"
        message = f"git knows no revision {name!r} here: {error.problems[0].message.removeprefix('git: ')}"
        raise SpecError([Problem(Location(name), message, help_text)]) from error
    return Revision(name, Path(top), tree, prefix)


def one_line(command: Iterable[str]) -> str:
    """Git's output without its line end: a path, whatever bytes it has."""
    return os.fsdecode(ask_git(command).removesuffix(b"\n"))


def readable(name: bytes) -> str:
    r"""A path as text; bytes that are not UTF-8 are spelt out, as `\xff`, so that names stay apart."""
    return name.decode(errors="backslashreplace")


def printable(path: str) -> str:
    """A path as it may be printed and written, whatever bytes its file has for a name."""
    return readable(os.fsencode(path))


def merge_base(first: str, second: str) -> str:
    """The commit at which two revisions parted, shortened; raises SpecError where there is none."""
    return ask_git(["merge-base", "--end-of-options", first, second]).decode().strip()[:SHORT_COMMIT]


def ask_git(command: Iterable[str], folder: Path | None = None, stdin: bytes = b"") -> bytes:
    """Git's output; raises SpecError with its own words where it fails."""
    words = [*GIT, *command]
    where = Location(f"git {words[len(GIT)]}")
    try:
        done = subprocess.run(  # noqa: S603 - git, not a shell
            words, cwd=folder, input=stdin, capture_output=True, check=False, timeout=SLOWEST, env=environment()
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise SpecError([Problem(where, f"git could not be asked: {error}")]) from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise SpecError([Problem(where, f"git: {said[0] if said else 'no answer'}")])
    return done.stdout


def environment() -> dict[str, str]:
    """Git's environment variables: nothing is fetched, locked or asked for."""
    return {**os.environ, **ENVIRONMENT}


def folder_moves(old: Path, new: Path) -> Mapping[str, str]:
    """New path -> old path of the files that git takes for renamed between two folders; none where there is no git."""
    words = [*GIT, *RENAMED, "--no-index", str(old), str(new)]
    try:
        done = subprocess.run(words, capture_output=True, check=False, timeout=SLOWEST, env=environment())  # noqa: S603 - git, not a shell
    except (OSError, subprocess.TimeoutExpired):
        return {}
    names = done.stdout.decode(errors="replace").split("\0")
    pairs = zip(names[1::3], names[2::3], strict=False)
    return {
        PurePosixPath(b).relative_to(new).as_posix(): PurePosixPath(a).relative_to(old).as_posix() for a, b in pairs
    }


@cache
def _listing(top: Path, tree: str) -> Mapping[str, tuple[str, str]]:
    """Path -> mode and object, of every file of a tree; raises SpecError for two paths that are written alike."""
    rows = readable(ask_git(["ls-tree", "-r", "-z", tree], top)).split("\0")
    files: dict[str, tuple[str, str]] = {}
    for entry, _, path in (row.partition("\t") for row in rows if row):
        if path in files:
            message = "two files of this name: one has bytes that are not UTF-8, one has them spelt out"
            raise SpecError([Problem(Location(f"{tree[:SHORT_COMMIT]}:{path}"), message, "rename one of them")])
        files[path] = (entry.split()[0], entry.split()[2])
    return files


@cache
def _cached_blob(top: Path, blob: str) -> bytes:
    """The content of a file, kept: what is read once is read again, by the plans that name it."""
    return _read_blob(top, blob)


def _read_blob(top: Path, blob: str) -> bytes:
    """The content of a file, cut off where it is longer than any text that is read."""
    command = ["cat-file", "blob", blob]
    with subprocess.Popen(  # noqa: S603 - git, not a shell
        [*GIT, *command], cwd=top, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment()
    ) as git:
        content = git.stdout.read(LARGEST_BLOB) if git.stdout else b""
        if len(content) == LARGEST_BLOB:
            git.kill()
            return content
    return ask_git(command, top) if git.returncode else content


def _object_sizes(top: Path, blobs: Sequence[str]) -> Iterator[int | None]:
    """Bytes of each of these objects; None of one that git has not."""
    answer = ask_git(["cat-file", "--batch-check=%(objectsize)"], top, "".join(f"{blob}\n" for blob in blobs).encode())
    yield from (int(line) if line.isdigit() else None for line in answer.decode().splitlines())


def _prefixes(path: str) -> Iterator[str]:
    """`a`, `a/b`, `a/b/c` of `a/b/c`."""
    steps = path.split("/")
    return ("/".join(steps[:count]) for count in range(1, len(steps) + 1))
