"""`python -m tests.crossing`: plans x stacks x verbs, and a table of what came of each; `--out` writes every fault."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from tests.crossing.crossing import (
    FIRST,
    LATER,
    MISSED,
    STACKS,
    Cell,
    Outcome,
    every_pair,
    faults_of_a_legal_plan,
    head,
    run,
)

PROGRESS_EVERY = 20.0  # seconds


def outcomes_of(pairs: Iterable[tuple[Path, str]], verbs: Sequence[str]) -> Iterator[Outcome]:
    """What comes of pairs of a plan and a stack under some verbs; of a pair that is refused, under the first alone."""
    with TemporaryDirectory() as folder:
        for plan, stack in pairs:
            outcome = run(Cell(plan, stack, FIRST), Path(folder))
            yield outcome
            for verb in () if outcome.is_refused else verbs:
                yield run(Cell(plan, stack, verb), Path(folder))


def main(words: list[str]) -> int:
    """Runs; the exit code is 1 where anything is at fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.crossing", description="Plans x stacks x verbs.")
    parser.add_argument("--plan", action="append", help="the name of a plan of specs/; all where none is named")
    parser.add_argument("--stack", action="append", help="the name of a stack; all where none is named")
    parser.add_argument("--verb", action="append", choices=LATER, help="a verb beside `check`; all where none is named")
    parser.add_argument("--seconds", type=float, default=36_000.0)
    parser.add_argument("--out", type=Path, help="a file for every fault with its command")
    options = parser.parse_args(words)
    os.environ.setdefault("LEDGER_SEARCH", "0")
    pairs = [
        (plan, stack)
        for plan, stack in every_pair()
        if (not options.plan or plan.stem in options.plan) and (not options.stack or stack in options.stack)
    ]
    begin = said = time.monotonic()
    outcomes: list[Outcome] = []
    for outcome in outcomes_of(pairs, options.verb or LATER):
        outcomes.append(outcome)
        now = time.monotonic()
        if now - said > PROGRESS_EVERY:
            said = now
            click.echo(f"{len(outcomes)} commands, now {outcome.command}", err=True)
        if now - begin > options.seconds:
            break
    faults = [(one, fault) for one in outcomes if not _is_refused_pair(one) for fault in faults_of_a_legal_plan(one)]
    for line in table(outcomes):
        click.echo(line)
    lines = [f"{one.command}\n    {fault}" for one, fault in faults]
    click.echo(f"\n{len(faults)} faults")
    for line in lines:
        click.echo(line)
    if options.out:
        options.out.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return bool(faults)


def _is_refused_pair(outcome: Outcome) -> bool:
    return outcome.cell.verb == FIRST and outcome.is_refused and not outcome.faults


def table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """How many commands by verb and by plan, with their seconds; what is refused, by the heads of the messages."""
    pairs = {(one.cell.plan, one.cell.stack) for one in outcomes}
    refused = [one for one in outcomes if _is_refused_pair(one)]
    yield (
        f"{len({plan for plan, _ in pairs})} plans x {len({stack for _, stack in pairs})} of {len(STACKS)} stacks: "
        f"{len(pairs)} pairs, of which {len(refused)} are refused; {len(outcomes)} cells, "
        f"{sum(one.seconds for one in outcomes):.0f} s of the processor\n"
    )
    legal = [one for one in outcomes if not _is_refused_pair(one)]
    yield from _counts("verb", legal, lambda one: one.cell.verb)
    yield ""
    yield from _counts("plan", legal, lambda one: one.cell.plan.stem)
    for title, some in (
        ("Plans that a stack does not run", refused),
        ("Verbs that refuse a plan", [one for one in legal if one.is_refused]),
    ):
        yield f"\n{title}, by what is said"
        heads = Counter((one.cell.verb, head(one.message, one.cell.stack)) for one in some)
        for (verb, message), count in heads.most_common():
            yield f"{count:>6}  {verb:<9}  {message}"


def _counts(title: str, outcomes: Sequence[Outcome], key: Callable[[Outcome], Hashable]) -> Iterator[str]:
    """A row for each value of a key: cells, stacks, exit codes, faults, seconds, the slowest."""
    yield f"{title:<22}{'cells':>7}{'stacks':>8}{'exit 1':>8}{'exit 2':>8}{'faults':>8}{'s each':>8}{'longest':>9}  of"
    groups: dict[Hashable, list[Outcome]] = defaultdict(list)
    for one in outcomes:
        groups[key(one)].append(one)
    for name, some in groups.items():
        slowest = max(some, key=lambda one: one.seconds)
        codes = (sum(one.code == MISSED for one in some), sum(one.is_refused for one in some))
        faults = sum(bool(faults_of_a_legal_plan(one)) for one in some)
        each = sum(one.seconds for one in some) / len(some)
        stacks = len({one.cell.stack for one in some})
        of = f"{slowest.cell.plan.stem}, {slowest.cell.stack}, {slowest.cell.verb}"
        numbers = f"{len(some):>7}{stacks:>8}{codes[0]:>8}{codes[1]:>8}{faults:>8}{each:>8.2f}{slowest.seconds:>9.2f}"
        yield f"{name!s:<22}{numbers}  {of}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
