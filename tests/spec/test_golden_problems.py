from __future__ import annotations

from pathlib import Path

import pytest

from ledger.spec.library import Library
from ledger.spec.load import load_plan
from ledger.spec.problems import SpecError
from tests.spec.shelf import HERE, LIBRARY, rendered

BAD = sorted(path.stem for path in (HERE / "bad").glob("*.yaml"))


@pytest.mark.parametrize("name", BAD)
def test_a_bad_plan_is_told_word_for_word(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every bad plan has its message: place, words, source line, caret and help are what a reviewer once read."""
    monkeypatch.chdir(HERE)
    with pytest.raises(SpecError) as caught:
        load_plan(f"bad/{name}.yaml", library=Library(Path("library")))
    assert rendered(caught.value) == (HERE / "bad" / f"{name}.txt").read_text("utf-8")


def test_every_message_belongs_to_a_bad_plan() -> None:
    """A message whose plan is gone would protect nothing."""
    assert sorted(path.stem for path in (HERE / "bad").glob("*.txt")) == BAD


def test_the_order_is_that_of_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several problems of one file come in the order in which its reader meets them."""
    monkeypatch.chdir(HERE)
    with pytest.raises(SpecError) as caught:
        load_plan("bad/several.yaml", library=LIBRARY)
    places = [(problem.where.line, problem.where.column) for problem in caught.value.problems]
    assert places == sorted(places)
    assert len(places) == 5  # devices, model, field, zero, tokens: one each


@pytest.mark.parametrize(
    "given", ["nowhere.yaml", "bad", "bad/empty.yaml", "x" * 400, "a\0b", "-x:y", "HEAD:no/such", ""]
)
def test_what_cannot_be_read_is_a_problem(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing file, a folder, an impossible name or revision end in a problem with a place, never in a traceback."""
    monkeypatch.chdir(HERE)
    with pytest.raises(SpecError) as caught:
        load_plan(given, library=LIBRARY)
    assert len(caught.value.problems) == 1
    assert rendered(caught.value)


def test_a_missing_file_has_near_misses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who mistypes a file's name is told the name that is there."""
    monkeypatch.chdir(HERE)
    with pytest.raises(SpecError) as caught:
        load_plan("library/smal.yaml", library=LIBRARY)
    assert caught.value.problems[0].message == "no such file"
    assert "library/small.yaml" in caught.value.problems[0].help
