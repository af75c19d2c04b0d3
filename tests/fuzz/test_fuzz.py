"""Inputs that nobody writes on purpose: a few hundred at each run of the tests, and every one that was ever found."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

import ledger
from tests.fuzz import commands, seeds, watch
from tests.fuzz.__main__ import FOUND, main
from tests.fuzz.mutants import SHARE, Mutant, kind_of, mutant, of_json
from tests.fuzz.watch import quiet_room, run_cold, run_warm

SEED, MUTANTS, COLD = 15, 240, 3
KEPT = sorted(FOUND.glob("*.json"))
SOUND = {"check": ("--no-search",), "calibrate": ("--table",), "score": ("--rows",)}
WITH_PYTORCH = {"suite", "bench"}  # tests/lab/test_hostile_inputs.py runs them
SHOWN = Mutant("plan", "show", ("gpt2", "--json"))


@pytest.fixture(scope="module")
def room() -> Iterator[Path]:
    """An empty folder, in which mutants run."""
    with quiet_room() as folder:
        yield folder


@pytest.mark.parametrize("start", range(0, MUTANTS, MUTANTS // 6))
def test_no_mutant_breaks_the_program(room: Path, start: int) -> None:
    """Each ends in 0, 1 or 2, in seconds, without a traceback or a number that is none; `make fuzz` runs many more."""
    faults = {}
    for number in range(start, start + MUTANTS // 6):
        if kind_of(SEED, number) in WITH_PYTORCH:
            continue
        outcome = run_warm(mutant(SEED, number), room)
        if outcome.fault:
            faults[number] = f"{outcome.fault}\n{outcome.detail}"
    assert faults == {}, f"python -m tests.fuzz --seed {SEED} --only {next(iter(faults))}"


@pytest.mark.parametrize("number", range(COLD))
def test_no_mutant_breaks_a_command_of_its_own(room: Path, number: int) -> None:
    """As a shell starts it."""
    outcome = run_cold(mutant(SEED, number), room)
    assert outcome.fault == "", outcome.detail


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_what_was_found_once_is_not_found_again(room: Path, path: Path) -> None:
    """A regression: `python -m tests.fuzz --replay FILE` shows it alone."""
    outcome = run_warm(of_json(path.read_text("utf-8")), room)
    assert outcome.fault == "", outcome.detail


def test_sound_inputs_are_sound(room: Path) -> None:
    """What is mutated is accepted as it is, of every kind; else mutants would all be refused for one reason."""
    other = {"other.yaml": seeds.seeds()["plan"][0].text.encode()}
    for kind, sound in seeds.seeds().items():
        if kind in WITH_PYTORCH:
            continue
        for given in sound[:: max(1, len(sound) // 3)]:
            verb = commands.VERBS[kind][0][0]
            files = {**other, given.name: given.text.encode()}
            outcome = run_warm(Mutant(kind, verb, (given.name, *SOUND.get(verb, ())), files), room)
            refused = kind == "file"  # a part alone is read as one, and told to be no plan
            assert (outcome.code == 2) == refused, (kind, given.text[:200])
            assert outcome.fault == ""


def test_a_mutant_is_the_same_each_time() -> None:
    """Its seed and its number are all that it is made of, and a file keeps all of it, whatever bytes it has."""
    for number in range(300):
        one = mutant(3, number)
        assert one == mutant(3, number) == of_json(one.as_json())
    assert mutant(3, 1) != mutant(4, 1)


def test_every_kind_and_every_verb_is_met() -> None:
    """Thousands of mutants leave out no kind of input and no verb that takes one, and most are not the sound input."""
    first = {kind: next(number for number in count() if kind_of(5, number) == kind) for kind in SHARE}
    numbers = [number for number in (*range(3000), *first.values()) if kind_of(5, number) not in WITH_PYTORCH]
    several = [mutant(5, number) for number in numbers]
    assert {one.kind for one in several} == set(SHARE) - WITH_PYTORCH
    assert set(SHARE) == {*seeds.seeds(), "set", "words", "sealed", "repository", "bench"}
    verbs = Counter(one.verb for one in several)
    assert set(verbs) == {verb for rows in commands.VERBS.values() for verb, _, _ in rows} | {
        "init",
        "schema",
        "units",
        "reproduce",
        "ci",
    }
    sound = {given.text.encode() for rows in seeds.seeds().values() for given in rows}
    assert sum(any(data in sound for data in one.files.values()) for one in several if one.kind == "plan") < 200


def raised(*_: object) -> None:
    """A mistake of the program."""
    raise ZeroDivisionError


def slow(*_: object) -> None:
    """An answer that takes its time."""
    started = time.process_time()
    while time.process_time() - started < 0.3:
        pass


def large(*_: object) -> int:
    """An answer that takes room."""
    return len(b"x" * 2**26)


@pytest.mark.parametrize(
    ("made", "limits", "said"),
    [
        (raised, {}, "ZeroDivisionError at ledger/"),
        (slow, {"SLOWEST": 0.1}, "show: more than 0.1 s"),
        (slow, {"HARD_STOP": 0.1}, "more than 0.1 s"),
        (large, {"LARGEST": 2**25}, "more than 32 MB"),
    ],
)
def test_the_watchdog_sees_what_it_is_for(
    room: Path, monkeypatch: pytest.MonkeyPatch, made: object, limits: dict[str, float], said: str
) -> None:
    """A mistake, too much time, too much memory: each is a fault with its place."""
    monkeypatch.setattr(ledger, "compile", made)
    for name, limit in limits.items():
        monkeypatch.setattr(watch, name, limit)
    if not limits or "HARD_STOP" in limits:
        assert run_warm(SHOWN, room).fault.startswith(said)
    else:
        monkeypatch.setattr(ledger, "compile", lambda *_: (made(), exit_with_two()))  # type: ignore[operator]
        assert run_warm(SHOWN, room).fault.startswith(said)


def exit_with_two() -> None:
    """A refusal, after all that."""
    raise SystemExit(2)


@pytest.mark.parametrize("printed", ["nan", "inf", "-Infinity", "NaN %", "1.5 nan"])
def test_a_number_that_is_none_is_seen(room: Path, printed: str) -> None:
    """In what a person reads, and in JSON; a word of the input that looks like it is the input's own."""
    assert watch._told(SHOWN, f"total  {printed}\n", room)
    assert watch._told(SHOWN, "Infinity Fabric of the financial nanosecond\n", room) == ""
    said = Mutant("plan", "show", ("a.yaml",), {"a.yaml": b"plan: .nan\n"})
    assert watch._told(said, f"total  {printed}\n", room) == ""
    assert watch._told(Mutant("plan", "show", ("a.yaml", "--json"), said.files), '{"a": [NaN]}', room)


def test_what_is_found_is_kept_and_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One file for each fault, which runs again by itself; the exit code says that something was found."""
    monkeypatch.setattr(watch, "DOCUMENTED", (0, 1))
    assert main(["--mutants", "12", "--seed", "3", "--found", str(tmp_path)]) == 1
    (path,) = tmp_path.iterdir()
    told = capsys.readouterr().out
    assert "seed 3, mutants 0 to 11" in told
    assert "x exit code 2\n" in told
    assert main(["--replay", str(path)]) == 1
    monkeypatch.setattr(watch, "DOCUMENTED", (0, 1, 2))
    assert main(["--replay", str(path)]) == 0
    assert json.loads(path.read_text("utf-8"))["words"]
