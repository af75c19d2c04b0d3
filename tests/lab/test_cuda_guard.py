"""The compiled guard is machine code: only what this program built for this user is loaded, from nowhere else."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.lab.reference import cuda_guard
from ledger.whole_files import UNFINISHED

BUILT, PLANTED = b"what the compiler made", b"what somebody put there"


class LoadedGuards:
    """Stands for the dynamic linker: the path and the content of every library that is loaded."""

    def __init__(self) -> None:
        self.loaded: list[tuple[Path, bytes]] = []

    def __call__(self, path: str) -> LoadedGuards:
        """Loads a library."""
        self.loaded.append((Path(path), Path(path).read_bytes()))
        return self

    def install_guard(self) -> None:
        """Does nothing."""


@pytest.fixture
def loader(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> LoadedGuards:
    """A torch without CUDA, a compiler that answers at once, a working directory and a home of the test's own."""
    import torch

    made = LoadedGuards()
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: False)
    monkeypatch.setattr(ctypes, "CDLL", made)
    monkeypatch.setattr(cuda_guard, "_build", lambda *_: BUILT)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return made


def names() -> str:
    """The name of the guard of this torch."""
    import torch

    return cuda_guard._guard(Path(torch.__file__).parent, torch.__version__)[0]


@pytest.mark.parametrize("stated", ["", ".", "ledger", None])
def test_the_working_directory_gives_no_guard(
    loader: LoadedGuards, stated: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty or relative XDG_CACHE_HOME is void, so a repository that brings a `ledger/*.so` has no say."""
    for folder in (Path("ledger"), Path("ledger/ledger"), Path("ledger/guards")):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / names()).write_bytes(PLANTED)
    if stated is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", stated)
    cuda_guard.install_cuda_guard()
    ((path, content),) = loader.loaded
    assert content == BUILT
    assert not path.is_relative_to(Path.cwd())


@pytest.mark.parametrize(
    "planted", [lambda _: PLANTED, lambda kept: kept[:32] + PLANTED, lambda kept: kept[:-1], lambda _: b""]
)
def test_a_guard_that_was_planted_in_the_cache_is_built_anew(
    loader: LoadedGuards, planted: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    """What is loaded is a private copy of what was checked, and is gone afterwards."""
    cuda_guard.install_cuda_guard()
    kept = tmp_path / "home" / ".cache" / "ledger" / "guards" / names()
    kept.write_bytes(planted(kept.read_bytes()))
    cuda_guard.install_cuda_guard()
    for path, content in loader.loaded:
        assert content == BUILT
        assert path.parent.name.endswith(UNFINISHED)
        assert not path.exists()
