"""At which revision of its repository a plan is, and who wrote it, as git says; nothing of clock, user or machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

from ledger.report.seals.seal import Revision

SECONDS = 30.0  # for git to answer
# The same answer whatever the user's language and settings, and nothing written.
ENVIRONMENT = {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"}
HEAD = "HEAD"


def revision_of(top: Path, plan: str, files: Iterable[str], revision: str = "") -> Revision | None:
    """The commit of a work tree, or that which `revision` names; None where git does not have the plan's file in it.

    `plan` and `files` are paths within the work tree.
    """
    commit = _git(top, "rev-parse", "--verify", "--end-of-options", f"{revision or HEAD}^{{commit}}")
    if not commit or not _git(top, "ls-tree", "--name-only", commit, "--", plan):
        return None
    date = _git(top, "log", "-1", "--no-show-signature", "--format=%cI", commit)
    authors = _git(top, "log", "--no-show-signature", "--reverse", "--format=%aN", commit, "--", plan)
    # A file that is ignored is not as the commit has it either.
    changed = "" if revision else _git(top, "status", "--porcelain", "--ignored=matching", "--", *files)
    return Revision(commit, date, bool(changed), tuple(dict.fromkeys(authors.splitlines())))


def _git(top: Path, *arguments: str) -> str:
    """What git prints; nothing where it fails or is not installed."""
    command = ["git", "--literal-pathspecs", "-C", str(top), *arguments]
    try:
        done = subprocess.run(  # noqa: S603 - git, not a shell
            command, capture_output=True, check=False, timeout=SECONDS, env={**os.environ, **ENVIRONMENT}
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else ""
