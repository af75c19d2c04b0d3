"""Specs of one's own, beside those of the library."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.spec.library import Library, default_library, display_path, installed_specs, using
from ledger.spec.load import load_model, load_plan
from ledger.spec.problems import SpecError
from tests.spec.shelf import LIBRARY, SMALL

TINY = (LIBRARY.folder("model") / "tiny.yaml").read_text("utf-8")
MINE = SMALL.replace("model: tiny", "model: mine")


def own(folder: Path, vocab: int, name: str = "mine") -> None:
    """A model in the `specs/` of a folder, told from others by its vocabulary; nothing is expected of it."""
    path = folder / "specs" / "models" / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(TINY.partition("expect:")[0].replace("32000", str(vocab)), "utf-8")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_specs_of_the_working_directory_are_named_like_the_librarys(here: Path) -> None:
    """A folder `specs/` outside a checkout serves by name, also over a name that the library has."""
    own(here, 64_000)
    own(here, 128_000, "gpt2")
    assert load_model("mine").vocab == 64_000
    assert load_model("gpt2").vocab == 128_000
    assert load_model("llama-3-8b").vocab == 128_256
    assert {"mine", "gpt2", "llama-3-8b"} <= set(default_library().names("model"))
    titles = {entry.name: entry.path for entry in default_library().entries("model")}
    assert titles["gpt2"] == here / "specs" / "models" / "gpt2.yaml"


def test_specs_beside_the_plan_come_before_those_of_the_working_directory(here: Path, tmp_path: Path) -> None:
    """A plan means the same from any folder as long as its own `specs/` have what it names."""
    own(here, 64_000)
    there = tmp_path / "there"
    own(there, 96_000)
    (there / "plan.yaml").write_text(MINE, "utf-8")
    (there / "specs" / "within.yaml").write_text(MINE, "utf-8")
    assert load_plan(there / "plan.yaml").model.vocab == 96_000
    assert load_plan(there / "specs" / "within.yaml").model.vocab == 96_000
    assert load_plan(MINE).model.vocab == 64_000
    with pytest.raises(SpecError, match="no model is named `mine`"):
        load_plan(there / "plan.yaml", library=LIBRARY)


def test_specs_at_the_top_of_a_repository_serve_its_plans(here: Path, tmp_path: Path) -> None:
    """A plan in a folder of a repository finds them from any working folder; outside of one, folders above do not."""
    own(tmp_path / "ours", 96_000)
    plan = tmp_path / "ours" / "plans" / "plan.yaml"
    plan.parent.mkdir()
    plan.write_text(MINE, "utf-8")
    with pytest.raises(SpecError, match="no model is named `mine`"):
        load_plan(plan)
    (tmp_path / "ours" / ".git").mkdir()
    assert load_plan(plan).model.vocab == 96_000


def test_a_folder_of_that_name_may_hold_anything_else(here: Path) -> None:
    """What is no spec is not listed, and in nobody's way."""
    (here / "specs").mkdir()
    (here / "specs" / "pipeline.yaml").write_text("steps: [build]\n", "utf-8")
    (here / "specs" / "broken.yaml").write_text("{{ template }}\n", "utf-8")
    names = {entry.name for entry in default_library().entries("plan")}
    assert "70b" in names
    assert not {"pipeline", "broken"} & names


def test_a_checkouts_own_folder_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the working directory's `specs/` is the library, it is not searched before itself."""
    monkeypatch.chdir(installed_specs().parent)
    assert default_library() == Library(installed_specs())


def test_a_library_with_a_home_reads_nothing_outside_it(tmp_path: Path) -> None:
    """Names are relative to it, whatever the working directory; a path out of it is refused, a symlink's too."""
    own(tmp_path / "home", 64_000)
    home = (tmp_path / "home").resolve()
    (home / "plan.yaml").write_text(MINE, "utf-8")
    (tmp_path / "outside.yaml").write_text(MINE, "utf-8")
    library = Library(home / "specs", home=home)
    with using(library):
        assert default_library() is library
        assert display_path(home / "specs" / "models" / "mine.yaml") == "specs/models/mine.yaml"
        assert library.read_in_home("plan.yaml").file == "plan.yaml"
        for outside in ("../outside.yaml", str(tmp_path / "outside.yaml"), "specs/../../outside.yaml"):
            with pytest.raises(SpecError, match="not among the files of the seal"):
                library.read_in_home(outside)
    assert default_library() is not library


def test_a_network_that_would_be_assumed_may_be_ones_own(here: Path) -> None:
    """Where it states none, the plan is told to."""
    path = here / "specs" / "clusters" / "h100-400g.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("spec: ledger/1\ncluster: mine\nsource: a test\ndevices: 64\n", "utf-8")
    with pytest.raises(SpecError, match="no network is stated, and `h100-400g`"):
        load_plan("8b", ["cluster={devices: 64, devices_per_node: 8}"])
