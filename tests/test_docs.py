"""The documents say what is there."""

from __future__ import annotations

import re
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from click.testing import CliRunner

from ledger.cli import VERBS, main
from ledger.model.dims import LETTERS

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [
    "README.md",
    "CHANGELOG.md",
    "SECURITY.md",
    *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").glob("*.md"))),
]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_to_files(document: str) -> None:
    """A reader who follows a link within the repository arrives."""
    folder = (ROOT / document).parent
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / document).read_text(encoding="utf-8")):
        assert (folder / target).exists(), f"{document} links to {target}"


def test_links_to_definitions_name_their_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tour of a plan, and what else points into code: `python scripts/tour.py` where code has moved."""
    monkeypatch.syspath_prepend(ROOT / "scripts")
    tour = import_module("tour")
    texts = [(ROOT / document).read_text(encoding="utf-8") for document in DOCUMENTS]
    assert sum(len(tour.LINK.findall(text)) for text in texts) > 10
    assert [link for text in texts for link in tour.wrong(text)] == []


def test_the_figure_of_the_rooms_is_that_of_the_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawn anew it is the same, and no room reaches itself: `python scripts/tour.py` where imports have changed."""
    monkeypatch.syspath_prepend(ROOT / "scripts")
    tour = import_module("tour")
    rooms = tour.imported_rooms()
    assert [room for room in rooms if room in tour.below(rooms, room)] == []
    assert tour.figure() in (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("document", ["docs/architecture.md", "docs/words.md", "docs/CONTRIBUTING.md"])
def test_files_that_are_named_are_there(document: str) -> None:
    """A module in backticks is one of this repository, by its path or by its name."""
    text = (ROOT / document).read_text(encoding="utf-8")
    names = {
        path.name for folder in ("ledger", "tests", "benchmarks", "scripts") for path in (ROOT / folder).rglob("*.py")
    }
    for module in re.findall(r"`([\w/.]+\.py)`", text):
        there = any((ROOT / folder / module).is_file() for folder in ("", "ledger", "tests"))
        assert there or ("/" not in module and module in names) or any((ROOT / "ledger").rglob(module)), module


def test_the_readme_lists_the_verbs() -> None:
    """The table of the command line has each verb, and no other; so has that of their options."""
    for document in ("README.md", "docs/commands.md"):
        text = (ROOT / document).read_text(encoding="utf-8")
        assert re.findall(r"^\| `ledger ([\w-]+)", text, re.MULTILINE) == list(VERBS)


def test_the_readme_prints_what_the_program_prints() -> None:
    """Each command of a console in README.md, run now."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    consoles = re.findall(r"```console\n\$ ledger ([^\n]*)\n(.*?)```", readme, re.DOTALL)
    assert consoles
    for words, printed in consoles:
        assert CliRunner().invoke(main, words.split(), prog_name="ledger").output == printed


def test_the_commands_with_a_schema_are_named() -> None:
    """Of what `--json` prints; the row of `ledger schema` has them all."""
    (row,) = re.findall(r"^\| `ledger schema.*", (ROOT / "docs" / "commands.md").read_text("utf-8"), re.MULTILINE)
    named = set(re.findall(r"`(\w+)`", row.partition("`--json` prints")[2]))
    assert named == {path.name.partition(".")[0] for path in (ROOT / "ledger" / "cli" / "schemas").glob("*.json")}


def test_every_dependency_is_accounted_for() -> None:
    """Each package that is asked for has a line that says why."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["evidence"]]
    table = (ROOT / "docs" / "decisions.md").read_text(encoding="utf-8").partition("## Dependencies")[2]
    for requirement in asked:
        name = re.split(r"[<>=]", requirement)[0]
        assert re.search(rf"^\| .*\b{name}\b", table, re.MULTILINE), f"{name} has no line in docs/decisions.md"


def test_decisions_are_found_from_their_index() -> None:
    """The index has a link to each theme and each decision, in their order, and no paragraph lacks a heading."""
    lines = (ROOT / "docs" / "decisions.md").read_text(encoding="utf-8").splitlines()
    headings = [line.split(" ", 1) for line in lines if line.startswith(("## ", "### "))]
    index = [f"{'  ' * (len(level) - 2)}* [{title}](#{anchor(title)})" for level, title in headings]
    assert [line for line in lines if line.lstrip().startswith("* [")] == index
    assert len(set(index)) == len(index), "two decisions have one name"
    assert not [line for line in lines if line.startswith("**")], "a decision begins with its own heading (###)"


def anchor(title: str) -> str:
    """Where GitHub puts a heading of this title."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def test_the_table_of_symbols_is_the_one_that_formulas_use() -> None:
    """A letter that a formula may use is explained in the documents, with the same meaning."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = {
        line.split("|")[1].strip(" `"): line.split("|")[2].strip()
        for line in text.splitlines()
        if line.startswith("| `")
    }
    for row in LETTERS:
        assert rows[row.letter] == row.meaning
