"""Files of git revisions: paths within the repository, links, and the library as it was."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from ledger.spec.git import open_revision
from ledger.spec.library import Library
from ledger.spec.load import load_plan, plan_of
from ledger.spec.problems import SpecError
from ledger.spec.sources import from_revision
from ledger.spec.trees import FolderTree, RevisionTree, is_plan, moved_files, plan_paths, range_trees
from tests.spec.shelf import LIBRARY, SMALL

Commit = Callable[[Mapping[str, str]], None]
MODEL = (LIBRARY.folder("model") / "tiny.yaml").read_text("utf-8")
WHO = {f"GIT_{role}_{what}": "a@b" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
ALONE = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}


@pytest.fixture
def commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commit:
    """Writes files into an empty repository, the current folder, and commits all that there is."""
    monkeypatch.chdir(tmp_path)
    for name, value in {**WHO, **ALONE}.items():
        monkeypatch.setenv(name, value)
    subprocess.run(["git", "init", "-q", "--initial-branch=main"], check=True)

    def write(files: Mapping[str, str]) -> None:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        subprocess.run(["git", "add", "--all"], check=True)
        subprocess.run(["git", "commit", "-qm", "x"], check=True)

    return write


def test_a_plan_in_a_folder_names_files_of_another(commit: Commit) -> None:
    """`../models/own.yaml` is read as it was then: git knows no `..` within a path."""
    commit({"plans/p.yaml": SMALL.replace("model: tiny", "model: ../models/own.yaml"), "models/own.yaml": MODEL})
    Path("models/own.yaml").write_text(MODEL.replace("32000", "64000"), "utf-8")
    then = load_plan("HEAD:plans/p.yaml", library=LIBRARY)
    assert (then.model.vocab, load_plan("plans/p.yaml", library=LIBRARY).model.vocab) == (32000, 64000)
    assert then.origins["model.vocab"].where.file == "HEAD:models/own.yaml"


def test_paths_are_from_the_top_or_from_here(commit: Commit, monkeypatch: pytest.MonkeyPatch) -> None:
    """As git has it: `HEAD:plans/p.yaml` is from the top wherever one is, `HEAD:./p.yaml` from the folder one is in."""
    commit({"plans/p.yaml": SMALL})
    monkeypatch.chdir("plans")
    names = {
        load_plan(f"HEAD:{path}", library=LIBRARY).name for path in ("plans/p.yaml", "./p.yaml", "../plans/p.yaml")
    }
    assert names == {"p"}


def test_a_path_out_of_the_repository_is_refused(commit: Commit) -> None:
    """What git does not have at a revision is not read from the disk."""
    commit({"plans/p.yaml": SMALL.replace("model: tiny", "model: ../../own.yaml")})
    Path("../own.yaml").write_text(MODEL, "utf-8")
    with pytest.raises(SpecError, match=r"HEAD:plans/p\.yaml:\d+:\d+: `../../own.yaml`: the path leads out"):
        load_plan("HEAD:plans/p.yaml", library=LIBRARY)


def test_links_are_followed(commit: Commit) -> None:
    """A link to a file, and a folder that is one, lead to what git has of their targets; a circle is told."""
    Path("shared").mkdir()
    Path("hw").symlink_to("shared")
    Path("shared/link.yaml").symlink_to("own.yaml")
    Path("round.yaml").symlink_to("round.yaml")
    commit({"shared/own.yaml": MODEL, "p.yaml": SMALL.replace("model: tiny", "model: hw/link.yaml")})
    assert load_plan("HEAD:p.yaml", library=LIBRARY).model.vocab == 32000
    with pytest.raises(SpecError, match="links that lead to each other"):
        load_plan("HEAD:round.yaml", library=LIBRARY)


def test_a_revision_that_git_does_not_know_is_told(commit: Commit) -> None:
    """The name, and why it may be missing."""
    commit({"p.yaml": SMALL})
    with pytest.raises(SpecError, match="git knows no revision 'nosuch' here") as caught:
        load_plan("nosuch:p.yaml", library=LIBRARY)
    assert "shallow" in caught.value.problems[0].help


def test_the_library_of_a_revision_has_its_names(commit: Commit) -> None:
    """A part that came later is none of that revision, where the library is asked as it was."""
    shutil.copytree(LIBRARY.root, "specs")
    commit({})
    commit({"specs/models/later.yaml": MODEL, "specs/late.yaml": SMALL.replace("model: tiny", "model: later")})
    today = Library(Path("specs"))
    now, then = (open_revision(name) for name in ("HEAD", "HEAD~1"))
    assert set(today.at_revision(now).names("model")) - set(today.at_revision(then).names("model")) == {"later"}
    late = from_revision(now, "specs/late.yaml")
    assert plan_of(late, (), today.at_revision(now)).model.name == "later"
    with pytest.raises(SpecError, match="no model is named `later`"):
        plan_of(late, (), today.at_revision(then))


def test_a_library_of_another_repository_stays_as_it_is(commit: Commit) -> None:
    """What git has here says nothing of files elsewhere, though their paths be the same."""
    commit({"specs/models/tiny.yaml": MODEL.replace("32000", "64000"), "p.yaml": SMALL})
    assert load_plan("HEAD:p.yaml", library=LIBRARY).model.vocab == 32000


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (SMALL, True),
        (SMALL + "\n: broken: [", True),
        ('{"spec": "ledger/1", "plan": "A"}', True),
        ("---\nspec: ledger/1\nplan: A\n", True),
        (MODEL, False),
        ("plan: of another tool\n", False),
        ("spec: ledger/1\nevidence: x\nplan: {run: 1}\n", False),
        ("spec: ledger/1\nsuite: x\nplans:\n  - plan: A\n", False),
        ("{broken", False),
    ],
)
def test_plans_are_told_by_their_top_level(text: str, found: bool) -> None:
    """`spec: ledger/1` and `plan:` make a plan, be it sound or not; other kinds and other tools' files are none."""
    assert is_plan(text.encode()) is found


def test_plans_are_found_wherever_they_are(commit: Commit, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a revision, or those that lie below, are or match what a user types in the folder that he is in."""
    commit({"a/p.yaml": SMALL, "a/b/q.yml": SMALL, "r.yaml": SMALL, "model.yaml": MODEL, "notes.md": SMALL})
    tree = RevisionTree(open_revision("HEAD"))
    assert plan_paths(tree, tree.path_filter([])) == ("a/b/q.yml", "a/p.yaml", "r.yaml")
    assert plan_paths(tree, tree.path_filter(["a/b", "r.yaml"])) == ("a/b/q.yml", "r.yaml")
    assert plan_paths(tree, tree.path_filter(["*.yml"])) == ("a/b/q.yml",)
    monkeypatch.chdir("a")
    inner = RevisionTree(open_revision("HEAD"))
    assert plan_paths(inner, inner.path_filter(["b"])) == ("a/b/q.yml",)
    assert plan_paths(inner, inner.path_filter(["../r.yaml", str(Path.cwd() / "p.yaml")])) == ("a/p.yaml", "r.yaml")


def test_files_that_moved_are_known(commit: Commit) -> None:
    """A rename with a small edit is a rename, between revisions and between folders alike."""
    commit({"old/p.yaml": SMALL})
    shutil.copytree(".", "../before", ignore=shutil.ignore_patterns(".git"))
    Path("old/p.yaml").unlink()
    commit({"new/q.yaml": SMALL.replace("Small", "Smaller")})
    assert moved_files(*range_trees("HEAD~1..")) == {"new/q.yaml": "old/p.yaml"}
    assert moved_files(FolderTree(Path("../before")), FolderTree(Path())) == {"new/q.yaml": "old/p.yaml"}


def test_ranges_are_those_of_git(commit: Commit) -> None:
    """Two dots compare two revisions, three where the second left the first; a side that is left out is HEAD."""
    commit({"p.yaml": SMALL})
    subprocess.run(["git", "checkout", "-qb", "topic"], check=True)
    commit({"q.yaml": SMALL})
    subprocess.run(["git", "checkout", "-q", "main"], check=True)
    commit({"r.yaml": SMALL})
    trees = {typed: range_trees(typed) for typed in ("main..topic", "main...topic", "topic..")}
    paths = {typed: [plan_paths(tree, tree.path_filter([])) for tree in pair] for typed, pair in trees.items()}
    assert paths == {
        "main..topic": [("p.yaml", "r.yaml"), ("p.yaml", "q.yaml")],
        "main...topic": [("p.yaml",), ("p.yaml", "q.yaml")],
        "topic..": [("p.yaml", "q.yaml"), ("p.yaml", "r.yaml")],
    }
