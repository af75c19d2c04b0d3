"""`make fuzz`: mutants for a time or up to a number, what was found as files, and a table of what ran.

`python -m tests.fuzz --replay FILE` runs a mutant that was kept, `--only NUMBER` one of a seed.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import click

from tests.fuzz.mutants import Mutant, kind_of, mutant, of_json
from tests.fuzz.watch import Outcome, limit_memory, quiet_room, run_cold, run_warm

FOUND = Path(__file__).parent / "found"
TOLD_EVERY = 1000  # mutants


@dataclass
class Tally:
    """What ran: mutants by verb and kind, how they ended, their seconds, and each fault with how often it was met."""

    ran: Counter[tuple[str, str]] = field(default_factory=Counter)
    codes: Counter[tuple[str, int]] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    cold: int = 0
    slowest: float = 0.0
    largest: int = 0
    faults: Counter[str] = field(default_factory=Counter)

    def count(self, one: Mutant, outcome: Outcome, *, cold: bool) -> None:
        """Adds a mutant."""
        self.ran[one.verb, one.kind] += 1
        self.codes[one.verb, outcome.code] += 1
        self.seconds[one.verb] += outcome.seconds
        self.cold += cold
        self.slowest, self.largest = max(self.slowest, outcome.seconds), max(self.largest, outcome.memory)
        if outcome.fault:
            self.faults[outcome.fault] += 1


def kept(one: Mutant, outcome: Outcome, folder: Path) -> Path:
    """Writes a mutant that was found; one file for each fault."""
    name = hashlib.sha256(outcome.fault.encode("utf-8", "backslashreplace")).hexdigest()[:8]
    path = folder / f"{one.verb}-{one.kind}-{name}.json"
    if not path.exists():
        path.write_text(one.as_json(), encoding="utf-8")
    return path


def run(options: argparse.Namespace, tally: Tally) -> Iterator[str]:
    """Runs mutants until the time or the number is over; yields what is to be told."""
    end = time.monotonic() + options.seconds
    every = options.mutants // options.cold if options.cold else 0
    limit_memory()
    with quiet_room() as room:
        for number in range(options.first, options.first + options.mutants):
            if time.monotonic() > end:
                break
            if options.kind and kind_of(options.seed, number) not in options.kind:
                continue
            one, cold = mutant(options.seed, number), bool(every) and number % every == 0
            outcome = (run_cold if cold else run_warm)(one, room)
            tally.count(one, outcome, cold=cold)
            if outcome.fault and tally.faults[outcome.fault] == 1:
                yield f"{number}: {outcome.fault}\n  {kept(one, outcome, options.found)}\n{outcome.detail}"
            if (number + 1 - options.first) % TOLD_EVERY == 0:
                yield f"{number + 1 - options.first} mutants, {sum(tally.faults.values())} of them at fault"


def table(tally: Tally) -> Iterator[str]:
    """The count by verb and kind, exit codes and mean seconds of each verb."""
    kinds = sorted({kind for _, kind in tally.ran})
    verbs = sorted({verb for verb, _ in tally.ran})
    yield "  ".join(
        [f"{'verb':<10}", *(f"{kind:>10}" for kind in kinds), "    all  exit 0  exit 1  exit 2   other  s each"]
    )
    for verb in (*verbs, "all"):
        those = [verb] if verb != "all" else verbs
        by_kind = [sum(tally.ran[one, kind] for one in those) for kind in kinds]
        codes = [sum(tally.codes[one, code] for one in those) for code in (0, 1, 2)]
        total = sum(by_kind)
        cells = [
            *(f"{count or '-':>10}" for count in by_kind),
            *(f"{count:>6}" for count in (total, *codes, total - sum(codes))),
        ]
        yield "  ".join([f"{verb:<10}", *cells, f"{sum(tally.seconds[one] for one in those) / max(total, 1):6.3f}"])
    yield f"{tally.cold} of them as commands of their own"
    yield f"slowest {tally.slowest:.1f} s, largest {tally.largest / 2**20:.0f} MB"
    for fault, count in tally.faults.most_common():
        yield f"{count:>6} x {fault}"
    yield f"{sum(tally.faults.values())} faults"


def asked(words: list[str]) -> argparse.Namespace:
    """What is asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Runs mutants over every verb.")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--mutants", type=int, default=100_000)
    parser.add_argument("--cold", type=int, default=0, help="how many of them as commands of their own")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the number of the first mutant")
    parser.add_argument("--kind", action="append", help="mutants of these kinds alone, as the table has them")
    parser.add_argument("--only", type=int, help="one mutant, with what it prints")
    parser.add_argument("--replay", type=Path, help="one that was kept")
    parser.add_argument("--found", type=Path, default=FOUND)
    return parser.parse_args(words)


def replayed(one: Mutant) -> int:
    """Runs one mutant, prints it and its verdict."""
    click.echo(one.as_json()[:4000])
    with quiet_room() as room:
        outcome = run_warm(one, room)
    click.echo(outcome.detail)
    told = f"exit code {outcome.code}, {outcome.seconds:.2f} s, {outcome.memory / 2**20:.0f} MB"
    click.echo(f"{told}: {outcome.fault or 'sound'}")
    return bool(outcome.fault)


def main(words: list[str]) -> int:
    """Runs; the exit code is 1 where anything was found."""
    options = asked(words)
    if options.replay:
        return replayed(of_json(options.replay.read_text("utf-8")))
    if options.only is not None:
        return replayed(mutant(options.seed, options.only))
    options.found = options.found.resolve()
    options.found.mkdir(exist_ok=True)
    click.echo(f"seed {options.seed}, mutants {options.first} to {options.first + options.mutants - 1}")
    tally = Tally()
    for line in run(options, tally):
        click.echo(line)
    click.echo("\n".join(table(tally)))
    return bool(tally.faults)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
