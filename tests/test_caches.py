"""The cache believes what this user's programs wrote, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger import caches
from ledger.caches import Cache
from ledger.report.typesetting import pictures

FORMULA, OTHER = "2 \\, B", "3 \\, B \\, S"
PLANTED = '<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache and a key of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def entry(folder: Path, kind: str) -> Path:
    """The one file of a kind in a cache."""
    (file,) = (folder / "cache" / "ledger" / kind).iterdir()
    return file


def marked(file: Path, content: bytes) -> bytes:
    """A content behind the mark that the file has for another one."""
    return file.read_bytes()[: caches.MARK_BYTES] + content


@pytest.mark.parametrize(
    "planted",
    [
        lambda _: PLANTED.encode(),
        lambda file: marked(file, PLANTED.encode()),
        lambda _: b"",
        lambda file: file.read_bytes()[:-1],
        lambda file: marked(file, b""),
    ],
    ids=["a script", "a script behind the mark of the picture", "nothing", "cut", "a mark alone"],
)
def test_a_picture_that_was_planted_is_drawn_again(tmp_path: Path, planted: Callable[[Path], bytes]) -> None:
    """It reaches no page; what is drawn takes its place."""
    drawn = pictures.cached_picture(FORMULA)
    file = entry(tmp_path, "formulas")
    content = file.read_bytes()
    file.write_bytes(planted(file))
    assert pictures.cached_picture(FORMULA) == drawn
    assert file.read_bytes() == content


def test_the_picture_of_another_formula_is_not_taken(tmp_path: Path) -> None:
    """A sound entry under another name says something else than was asked."""
    drawn = pictures.cached_picture(FORMULA)
    file = entry(tmp_path, "formulas")
    sound = file.read_bytes()
    file.unlink()
    assert pictures.cached_picture(OTHER) != drawn
    entry(tmp_path, "formulas").write_bytes(sound)
    assert pictures.cached_picture(OTHER) != drawn


def test_a_cache_that_came_from_elsewhere_is_not_believed(tmp_path: Path) -> None:
    """Who packs a folder has another key."""
    Cache("things").keep("one", b"content")
    assert Cache("things").read("one") == b"content"
    (tmp_path / "state" / "ledger" / "cache-key").unlink()
    caches._key_at.cache_clear()
    assert Cache("things").read("one") is None


def test_a_key_that_others_can_read_is_none(tmp_path: Path) -> None:
    """Nothing is kept then, and nothing is believed."""
    Cache("things").keep("one", b"content")
    key = tmp_path / "state" / "ledger" / "cache-key"
    assert key.stat().st_mode & 0o777 == 0o600
    key.chmod(0o640)
    caches._key_at.cache_clear()
    assert Cache("things").read("one") is None


@pytest.mark.parametrize("stated", ["", ".", "cache", "../cache"])
def test_a_path_that_is_not_absolute_is_no_cache(stated: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The XDG base directory specification says so: the folder that one happens to work in is not the user's own."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", stated)
    monkeypatch.setenv("XDG_STATE_HOME", stated)
    monkeypatch.chdir(tmp_path)
    Cache("things").keep("one", b"content")
    assert (tmp_path / "home" / ".cache" / "ledger" / "things" / "one").is_file()
    assert os.listdir(tmp_path) == ["home"]  # noqa: PTH208 - names alone


def test_without_a_home_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service has none; it makes everything anew."""

    def homeless() -> Path:
        raise RuntimeError

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    Cache("things").keep("one", b"content")
    assert Cache("things").read("one") is None
