"""Ends verbs at random moments, by kill -9 and by Ctrl-C, and counts what they leave behind.

    python benchmarks/faults.py [--moments 50] [--seed 1] [VERB ...]    # of those that write files; all without VERB

A moment of a kill is drawn from the whole time that a verb takes, or, every other one, from the first twentieth of a
second in which a file is being written. Then every file under its final name must be a whole one, of this run or of
the one before; the same verb, run to its end, must leave its own files, every record that there was, and nothing else.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ended_verbs import RECORD, RECORDS, VERBS, Place, Verb, marked, tables, unfinished

WRITING = 0.05  # seconds after a file is begun in which half of the kills are, most of them in its first hundredth
ORPHANED = 5.0  # seconds in which processes of one that was killed must have ended
IN_TIME = 2.0  # seconds in which Ctrl-C must end a verb
INTERRUPTED = (130, -signal.SIGINT)  # both are 130 to a shell


class FaultError(Exception):
    """What must not be."""


@dataclass
class Trial:
    """A verb that is ended again and again: the files of its two variants, its seconds, and what was seen."""

    name: str
    place: Place
    drawn: random.Random
    expected: list[dict[str, bytes]] = field(default_factory=list)
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def verb(self) -> Verb:
        """What is ended."""
        return VERBS[self.name]

    def begin(self) -> None:
        """Runs both variants to their end."""
        tables(self.place.home)
        for variant in (0, 1):
            self.seconds = self.place.run(self.verb, variant)
            self.expected.append(self.place.files())

    def afresh(self) -> None:
        """Takes away the file of a verb that goes on with what is there."""
        if self.verb.appends:
            for path in self.place.out.iterdir():
                path.unlink()

    def kill(self, number: int) -> None:
        """One moment: the verb is killed, what it leaves is looked at, and the same verb mends it."""
        self.afresh()
        variant = number % 2
        self.counts["killed"] += killed(self.place, self.verb, variant, self.wait(number))
        found = self.place.files()
        self.counts["while a file was written"] += bool(self.place.left())
        if self.verb.appends:
            found = {key: content[: content.rfind(b"\n") + 1] for key, content in found.items()}
            self.counts["records kept"] += sum(content.count(RECORD) for content in found.values())
        else:
            self.look_at(found)
        self.place.run(self.verb, variant)
        self.look_after(found, self.place.files(), variant)

    def wait(self, number: int) -> Callable[[], None]:
        """What waits for a moment."""
        if number // 2 % 2 or self.verb.appends:
            return lambda: time.sleep(self.drawn.uniform(0, self.seconds))
        return lambda: self.first_write(WRITING * self.drawn.random() ** 3)

    def first_write(self, further: float) -> None:
        """Waits until a file is being written, where it comes to that, and then for some further seconds."""
        until = time.monotonic() + 2 * self.seconds
        while time.monotonic() < until and not any(map(unfinished, self.place.out.rglob("*"))):
            time.sleep(0.0005)
        time.sleep(further)

    def look_at(self, found: dict[str, bytes]) -> None:
        """Holds every file to be of one of the two variants."""
        partial = [key for key, content in found.items() if content not in (one.get(key) for one in self.expected)]
        require(not partial, f"{self.name}: partial files under their final names: {partial}")
        mixed = not any(found.items() <= one.items() for one in self.expected)
        self.counts["old beside new"] += mixed

    def look_after(self, found: dict[str, bytes], after: dict[str, bytes], variant: int) -> None:
        """Holds what the next run leaves to be all that it should."""
        if self.verb.appends:
            lost = [key for key, content in found.items() if not after[key].startswith(content)]
            require(not lost, f"{self.name}: lost records of {lost}")
            count = sum(content.count(RECORD) for content in after.values())
            require(count == RECORDS, f"{self.name}: {count} records instead of {RECORDS}")
        else:
            require(after == self.expected[variant], f"{self.name}: the next run does not mend the set")
        require(not self.place.left(), f"{self.name}: left after the next run: {self.place.left()}")

    def interrupt(self, number: int) -> None:
        """One moment: Ctrl-C, as a terminal sends it, to all processes of the group."""
        self.afresh()
        after = self.drawn.uniform(0.3, max(self.seconds, 0.4))
        self.counts["interrupted"] += interrupted(self.place, self.verb, number % 2, after)


def require(holds: bool, what: str) -> None:
    """Raises FaultError with what was found where a condition does not hold."""
    if not holds:
        raise FaultError(what)


def killed(place: Place, verb: Verb, variant: int, wait: Callable[[], object]) -> bool:
    """Kills the verb after the wait; whether it had not ended before. FaultError where a process of it lives on."""
    mark = uuid.uuid4().hex
    process = place.start(verb, variant, mark)
    wait()
    running = process.poll() is None
    process.kill()
    process.communicate()
    until = time.monotonic() + ORPHANED
    while left := marked(mark):
        require(time.monotonic() < until, f"{verb.words[0]}: processes outlive the one that was killed: {left}")
        time.sleep(0.01)
    return running


def interrupted(place: Place, verb: Verb, variant: int, after: float) -> bool:
    """Ctrl-C after so many seconds; whether the verb had not ended before. FaultError where it does not end in time."""
    mark = uuid.uuid4().hex
    process = place.start(verb, variant, mark)
    time.sleep(after)
    running, begin = process.poll() is None, time.monotonic()
    if running:
        os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate()
    took = time.monotonic() - begin
    if running and process.returncode != 0:  # it was not about to end anyway
        what = f"{' '.join(verb.words)} after {after:.2f} s: {process.returncode} in {took:.2f} s: {errors.decode()}"
        require(process.returncode in INTERRUPTED and took < IN_TIME and b"Traceback" not in errors, what)
    time.sleep(0.1)
    require(not marked(mark), f"{verb.words[0]}: processes outlive Ctrl-C")
    return running


def lines(verbs: Sequence[str], moments: int, seed: int) -> Iterator[str]:
    """A line for each verb and way to end it; raises FaultError."""
    for name in verbs:
        for how, one in (("kill -9", Trial.kill), ("Ctrl-C", Trial.interrupt)):
            with tempfile.TemporaryDirectory() as folder:
                trial = Trial(name, Place(Path(folder)), random.Random(seed))  # noqa: S311 - moments, no secrets
                trial.begin()
                for number in range(moments):
                    one(trial, number)
            told = ", ".join(f"{number} {what}" for what, number in trial.counts.items())
            yield f"{name}, {how} at {moments} moments: {told}; 0 partial, 0 lost, 0 left"


def main() -> None:
    """Prints the counts of each verb; a FaultError says what was found that must not be."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("verbs", nargs="*", choices=[[], *VERBS], metavar="VERB")
    parser.add_argument("--moments", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    for line in lines(given.verbs or list(VERBS), given.moments, given.seed):
        print(line, flush=True)


if __name__ == "__main__":
    main()
