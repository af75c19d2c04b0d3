"""Work in a process of its own."""

from __future__ import annotations

import os

import pytest

from ledger.report import beside as module
from ledger.report.beside import beside

needs_fork = pytest.mark.skipif(not module.FORKS or len(os.sched_getaffinity(0)) < 2, reason="needs a second core")


@needs_fork
def test_the_result_is_made_elsewhere() -> None:
    """Its bytes arrive, of any number, and were made by another process."""
    made = beside(lambda: str(os.getpid()).encode() + bytes(5_000_000))()
    assert len(made) > 5_000_000
    assert made[:20].rstrip(b"\0") != str(os.getpid()).encode()


@needs_fork
def test_what_fails_there_is_done_here(capfd: pytest.CaptureFixture[str]) -> None:
    """The reason is told once, by this process; the other one is silent."""
    here = os.getpid()

    def only_here() -> bytes:
        if os.getpid() != here:
            raise ValueError("elsewhere")
        return b"here"

    def nowhere() -> bytes:
        raise ValueError("nowhere")

    assert beside(only_here)() == b"here"
    with pytest.raises(ValueError, match="nowhere"):
        beside(nowhere)()
    assert capfd.readouterr().err == ""


def test_one_core_does_it_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a second core, or where no process can be forked, the work waits until it is asked for."""

    def work() -> bytes:
        return b"done"

    monkeypatch.setattr(module, "FORKS", False)
    assert beside(work) is work
