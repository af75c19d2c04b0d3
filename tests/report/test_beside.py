"""Work in a process of its own."""

from __future__ import annotations

import os
from multiprocessing import active_children

import pytest

from ledger.cli import report as module
from ledger.cli.report import prepare_in_background, run_in_background

needs_fork = pytest.mark.skipif(not module.FORKS or len(os.sched_getaffinity(0)) < 2, reason="needs a second core")


@needs_fork
def test_the_result_is_made_elsewhere() -> None:
    """Its bytes arrive, of any number, and were made by another process."""
    made = run_in_background(lambda: str(os.getpid()).encode() + bytes(5_000_000))()
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

    assert run_in_background(only_here)() == b"here"
    with pytest.raises(ValueError, match="nowhere"):
        run_in_background(nowhere)()
    assert capfd.readouterr().err == ""


@needs_fork
def test_work_whose_arguments_come_later_is_done_elsewhere() -> None:
    """The process has prepared itself before, and what it prepared is its own."""
    known: list[int] = []
    begin = prepare_in_background(lambda *given: (os.getpid(), given, known), lambda: known.append(os.getpid()))
    there, given, prepared = begin("a", 2)()
    assert given == ("a", 2)
    assert prepared == [there]
    assert there != os.getpid()
    assert known == []


@needs_fork
def test_a_process_that_could_not_prepare_leaves_the_work_here() -> None:
    """The work is done with what it was to be sent."""

    def prepare() -> None:
        raise ImportError("not installed")

    assert prepare_in_background(lambda number: (os.getpid(), number), prepare)(3)() == (os.getpid(), 3)


@needs_fork
def test_what_nobody_waits_for_ends() -> None:
    """A page that is refused while its PDF is set leaves no process behind, whatever that had to say."""
    before = set(active_children())
    first, second = run_in_background(lambda: bytes(5_000_000)), prepare_in_background(lambda: b"", lambda: None)
    third = prepare_in_background(bytes, lambda: None)(5_000_000)
    begun = set(active_children()) - before
    assert len(begun) == 3
    del first, second, third
    assert not set(active_children()) & begun


def test_one_core_does_it_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a second core, or where no process can be forked, the work waits until it is asked for."""

    def work() -> bytes:
        return b"done"

    monkeypatch.setattr(module, "FORKS", False)
    assert run_in_background(work) is work
    assert prepare_in_background(work, work)()() == b"done"
