"""`make laws`: random valid plans held to the laws; prints what was held to each, and every plan that breaks one.

With `--rows`, rows of searches instead, each total beside what the compiler says; prints where they differ.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from random import Random

import click

from ledger.books import compile_plan
from ledger.books.compiled import Compiled
from ledger.spec.load import load_plan
from tests.laws.laws import LAWS, Law
from tests.laws.random_plans import Drawn, numbered_plan, text_of
from tests.laws.rows import ERRORS, hold

TOLD_EVERY = 50  # plans


def broken(seed: int, number: int, laws: dict[Law, int], held: Counter[str]) -> Iterator[str]:
    """What one plan breaks, each with its law; counts the laws that it was held to."""
    drawn, random = numbered_plan(seed, number)
    try:
        base = compile_plan(load_plan(text_of(drawn)))
    except ERRORS:
        yield f"compiles, plan {number} of seed {seed}: an error of the compiler\n{traceback.format_exc()}"
        return
    for law, every in laws.items():
        if number % every == 0:
            held[law.__name__] += 1
            for what in _violations(law, drawn, base, random):
                yield f"{law.__name__}, plan {number} of seed {seed}: {what}\n{text_of(drawn)}"


def _violations(law: Law, drawn: Drawn, base: Compiled, random: Random) -> Iterator[str]:
    """What breaks a law; an error of the compiler under it too."""
    try:
        yield from law(drawn, base, random)
    except ERRORS:
        yield f"an error of the compiler\n{traceback.format_exc()}"


def main(words: list[str]) -> int:
    """Runs; the exit code is 1 where a law is broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.laws", description="Holds random plans to laws.")
    parser.add_argument("--plans", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--law", choices=[law.__name__ for law in LAWS], help="one law; all where none is named")
    parser.add_argument("--first", type=int, default=0, help="the number of the first plan, or of the first space")
    parser.add_argument("--seconds", type=float, default=36_000.0)
    parser.add_argument("--rows", type=int, help="compare so many rows of searches with the compiler instead")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes that compare rows")
    options = parser.parse_args(words)
    if options.rows is not None:
        return hold(options.rows, options.seed, options.first, options.seconds, options.workers)
    laws = {law: every for law, every in LAWS.items() if options.law in (None, law.__name__)}
    held: Counter[str] = Counter()
    violations: Counter[str] = Counter()
    end = time.monotonic() + options.seconds
    for number in range(options.first, options.first + options.plans):
        for what in broken(options.seed, number, laws, held):
            law = what.partition(",")[0]
            violations[law] += 1
            click.echo(what)
        if (number + 1) % TOLD_EVERY == 0:
            click.echo(f"{number + 1} plans, {sum(violations.values())} violations")
        if time.monotonic() > end:
            break
    for law in laws:
        counts = f"{held[law.__name__]:>6} plans  {violations[law.__name__]:>4} violations"
        click.echo(f"{counts}  {str(law.__doc__).splitlines()[0]}")
    return bool(violations)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
