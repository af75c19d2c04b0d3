"""At which revision of its repository a plan is, and who wrote it, as git says; nothing of clock, user or machine."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from ledger.report.seals.seal import Revision
from ledger.spec.bounded_files import read_bounded
from ledger.spec.git import GIT, LARGEST_BLOB, LINK, environment

SECONDS = 30.0  # for git to answer
PLAIN = {"LC_ALL": "C"}  # the same answer whatever the user's language
HEAD = "HEAD"
SHA1 = 40  # digits of an object's name


def revision_of(top: Path, plan: str, files: Iterable[str], revision: str = "") -> Revision | None:
    """The commit of a work tree, or that which `revision` names; None where git does not have the plan's file in it.

    `plan` and `files` are paths within the work tree.
    """
    commit = _git(top, "rev-parse", "--verify", "--end-of-options", f"{revision or HEAD}^{{commit}}")
    if not commit or not _git(top, "ls-tree", "--name-only", commit, "--", plan):
        return None
    date = _git(top, "log", "-1", "--no-show-signature", "--format=%cI", commit)
    authors = _git(top, "log", "--no-show-signature", "--reverse", "--format=%aN", commit, "--", plan)
    changed = not revision and _changed(top, commit, sorted({*files}))
    return Revision(commit, date, changed, tuple(dict.fromkeys(authors.splitlines())))


def _changed(top: Path, commit: str, files: Sequence[str]) -> bool:
    """Whether a file is not as the commit has it, but for line ends: hashed here, since `git status` runs filters."""
    rows = _git(top, "ls-tree", "-z", commit, "--", *files).split("\0")
    known = {name: entry.split() for entry, _, name in (row.partition("\t") for row in rows if row)}
    return any(name not in known or not _as_committed(top / name, *known[name]) for name in files)


def _as_committed(path: Path, mode: str, _: str, blob: str) -> bool:
    try:
        content = os.fsencode(path.readlink()) if mode == LINK else read_bounded(path, LARGEST_BLOB)
    except OSError:
        return False
    kind = hashlib.sha1 if len(blob) == SHA1 else hashlib.sha256
    written = (content, content.replace(b"\r\n", b"\n"))
    return any(kind(b"blob %d\0" % len(one) + one).hexdigest() == blob for one in written)


def _git(top: Path, *arguments: str) -> str:
    """What git prints; nothing where it fails or is not installed."""
    command = [*GIT, "--literal-pathspecs", "-C", str(top), *arguments]
    try:
        done = subprocess.run(  # noqa: S603 - git, not a shell
            command, capture_output=True, check=False, timeout=SECONDS, env={**environment(), **PLAIN}
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else ""
