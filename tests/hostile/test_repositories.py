"""Repositories that somebody else made: nothing of theirs is run, followed without end, or read without bounds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ledger.cli import main
from ledger.report.seals.gathering import revision_of
from ledger.spec.git import LARGEST_BLOB, LONGEST_PATH
from tests.fuzz.seeds import seeds

ROOT = Path(__file__).resolve().parents[2]
PLAN = seeds()["plan"][0].text
MEASURED = """
import sys
from pathlib import Path
from ledger.cli import main
try:
    main(["ci"], prog_name="ledger")
finally:
    print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0], file=sys.stderr)
"""
CHANGED = PLAN.replace('"seq_len": 256', '"seq_len": 128')


def ledger(*words: str) -> Result:
    """What the command line says."""
    return CliRunner().invoke(main, words, prog_name="ledger")


def git(*words: str, given: bytes = b"") -> str:
    """What git prints in the current folder."""
    named = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *named, *words], check=True, capture_output=True, input=given).stdout.decode().strip()


def commit(text: str) -> None:
    """All files, with the plan as this text."""
    Path("plan.yaml").write_text(text, "utf-8")
    git("add", "-A")
    git("commit", "-q", "-m", "a")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty repository as working directory."""
    folder = tmp_path / "repository"
    folder.mkdir()
    monkeypatch.chdir(folder)
    git("init", "-q")
    return folder


def test_its_configuration_runs_nothing(here: Path, tmp_path: Path) -> None:
    """A monitor of files, a hook and a filter are programs that git starts where a configuration names them."""
    commit(PLAN)
    commit(CHANGED)
    seen = tmp_path / "seen"
    git("config", "core.fsmonitor", f"touch {seen}; false")
    git("config", "filter.x.clean", f"touch {seen}; cat")
    git("config", "diff.x.textconv", f"touch {seen}; cat")
    git("config", "diff.external", f"touch {seen}")
    Path(".gitattributes").write_text("*.yaml filter=x diff=x\n")
    os.utime("plan.yaml", (1, 1))
    for words in (
        ("report", "plan.yaml", "--no-search", "--format", "md", "--out", str(tmp_path / "out")),
        ("ci",),
        ("diff", "HEAD~1:plan.yaml", "plan.yaml"),
    ):
        assert ledger(*words).exit_code == 0
        assert not seen.exists(), words


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_a_file_is_changed_where_its_text_is(here: Path, ends: str) -> None:
    """Line ends are a matter of the checkout; a file that git does not have is no part of the commit."""
    commit(PLAN)
    Path("plan.yaml").write_text(PLAN, "utf-8", newline=ends)
    found = revision_of(here, "plan.yaml", ["plan.yaml"])
    assert found is not None
    assert not found.changed
    Path("other.yaml").write_text("x: 1\n")
    assert getattr(revision_of(here, "plan.yaml", ["plan.yaml", "other.yaml"]), "changed")  # noqa: B009
    Path("plan.yaml").write_text(CHANGED, "utf-8", newline=ends)
    assert getattr(revision_of(here, "plan.yaml", ["plan.yaml"]), "changed")  # noqa: B009


def test_large_files_are_not_read(here: Path) -> None:
    """A file beyond any spec is not asked for, and others not all at once."""
    for number in range(4):
        Path(f"large{number}.yaml").write_bytes(b"#" + bytes([65 + number]) * 60 * LARGEST_BLOB)
    commit(PLAN)
    commit(CHANGED)
    done = subprocess.run(
        [sys.executable, "-c", MEASURED],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "plan.yaml" in done.stdout
    assert int(done.stderr.splitlines()[-1]) < 300_000  # kB


def test_a_plan_that_is_too_large_is_not_taken_for_one_that_is_gone(here: Path) -> None:
    """It is there, and refused for its size."""
    commit(PLAN)
    commit(PLAN + "# " + "x" * 2 * LARGEST_BLOB)
    result = ledger("ci", "--json")
    assert result.exit_code == 2
    (change,) = json.loads(result.stdout)["changes"]
    assert change["change"] == "does not compile"
    assert [one["message"] for one in change["problems"]] == ["more than 1 MB of text"]


def test_a_link_longer_than_any_path_is_refused(here: Path) -> None:
    """Linux knows none; each step of it would be looked up."""
    commit(PLAN)
    long = git("hash-object", "-w", "--stdin", given=b"x/" * LONGEST_PATH)
    tree = git("mktree", "--missing", given=f"120000 blob {long}\tlink.yaml\n".encode())
    made = git("commit-tree", tree, "-m", "x")
    result = ledger("show", f"{made}:link.yaml")
    assert result.exit_code == 2
    assert "longer than any path" in result.stderr
    assert "longer than any" in ledger("show", f"HEAD:{'x/' * LONGEST_PATH}a.yaml").stderr


def test_a_file_whose_content_is_not_there_is_named(here: Path) -> None:
    """As in a partial clone, whose content is not fetched by the way, and in a damaged one."""
    Path("other.yaml").write_text("x: 1\n")
    commit(PLAN)
    commit(CHANGED)
    blob = git("rev-parse", "HEAD:other.yaml")
    (here / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    result = ledger("ci")
    assert result.exit_code == 2
    assert "HEAD~1:other.yaml" in result.stderr
    assert "lacks the content" in result.stderr


@pytest.mark.parametrize("name", [b"new\nline", b"bad\xff"])
def test_a_folder_may_have_any_name(
    name: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What git prints of it is a path, whatever bytes it has."""
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
    folder.mkdir()
    monkeypatch.chdir(folder)
    git("init", "-q")
    commit(PLAN)
    commit(CHANGED)
    result = ledger("ci")
    assert result.exit_code == 0, result.stderr
    assert ledger("git-setup").exit_code == 0


@pytest.mark.usefixtures("here")
def test_names_that_are_not_utf_8_stay_apart() -> None:
    """Each plan has a row of its own, and is read by the bytes of its name; two that are written alike are refused."""
    names = [os.fsdecode(name) for name in (b"x\xff.yaml", b"x\xfe.yaml")]
    for name in names:
        Path(name).write_text(PLAN, "utf-8")
    commit(PLAN)
    for name in names:
        Path(name).write_text(CHANGED, "utf-8")
    commit(CHANGED)
    found = json.loads(ledger("ci", "--format", "json").stdout)
    assert {one["path"] for one in found["changes"]} == {"plan.yaml", r"x\xfe.yaml", r"x\xff.yaml"}
    assert ledger("check", f"HEAD:{names[0]}").exit_code == 0
    Path(r"x\xff.yaml").write_text(PLAN, "utf-8")
    commit(PLAN)
    result = ledger("ci")
    assert result.exit_code == 2
    assert "two files of this name" in result.stderr


def test_a_path_that_is_not_utf_8_is_spelt_out(here: Path) -> None:
    """A report names its files, and is text: before, a page of them ended on standard error instead."""
    name = os.fsdecode(b"x\xff.yaml")
    for path in (name, "plan.yaml"):
        Path(path).write_text(PLAN, "utf-8")
    for words in (["show"], ["compare", "plan.yaml", "--no-search"], ["report", "--no-search"]):
        out = ("--out", str(here / "out"), "--format", "html,md,json") if words[0] != "show" else ()
        result = ledger(words[0], name, *words[1:], *out)
        assert result.exit_code == 0, result.stderr
    texts = [path.read_text("utf-8") for path in (here / "out").iterdir()]
    assert len(texts) == 6
    assert all(r"x\xff" in text or r"x\\xff" in text for text in texts)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: path.symlink_to("/etc/hostname"), "a link"),
        (lambda path: path.write_bytes(b"caf\xe9 text\n"), "not UTF-8"),
        (os.mkfifo, "not a file"),
    ],
)
def test_attributes_are_a_text_file(here: Path, make: Callable[[Path], None], said: str) -> None:
    """Anything else is refused before something is written, to the configuration or to the file."""
    commit(PLAN)
    make(Path(".gitattributes"))
    result = ledger("git-setup")
    assert result.exit_code == 2
    assert said in result.stderr
    assert "ledger" not in (here / ".git" / "config").read_text("utf-8")


def test_a_work_tree_elsewhere_is_left_alone(here: Path, tmp_path: Path) -> None:
    """A repository that somebody else made may name any folder, and one of those may be a repository too."""
    other = tmp_path / "other"
    other.mkdir()
    subprocess.run(["git", "init", "-q", str(other)], check=True)
    before = (other / ".git" / "config").read_bytes()
    git("config", "core.worktree", str(other))
    result = ledger("git-setup")
    assert (result.exit_code, "core.worktree" in result.stderr) == (2, True)
    assert (other / ".git" / "config").read_bytes() == before
    assert not (other / ".gitattributes").exists()


def test_a_pattern_is_one_line(here: Path) -> None:
    """Another line would be an attribute of its own."""
    assert ledger("git-setup", "*.yaml\n* filter=evil").exit_code == 2
    assert not Path(".gitattributes").exists()
