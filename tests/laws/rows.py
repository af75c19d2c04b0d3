"""The law of rows: each total of a layout that a search prices is that of `ledger show` with the layout's changes.

Whole numbers are equal up to 2**53, where a float64 ends; floats to 1e-9; a total that a plan lacks is no number in its
row; and the rows of a space are its legal layouts, each once.
"""

from __future__ import annotations

import json
import math
import shlex
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count, islice
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

import click

from ledger.books.compiler import compile_plan, compile_totals
from ledger.search.pricing import pieces, price_piece
from ledger.search.space import Layout, Space
from ledger.spec.load import load_plan
from ledger.spec.overrides import assignments
from ledger.spec.problems import SpecError
from tests.laws.random_spaces import Case, numbered_case

CLOSE = 1e-9  # of sums of floats in another order
ROUNDING = 1e-12  # seconds: of a difference that is 0, in another order
LARGEST = 2**53  # of the whole numbers that a float64 holds
MOST_OF_A_SPACE = 12  # rows
SHARES, WITH_SHARES = "pace.", 4  # totals that take a compilation half of its time: one row in so many has them
FRONT = ("time.step", "memory.reserved")  # all that a sweep asks for where nothing else is wanted of it
FEW = "a search for a step and its memory alone: "  # before a total of such a search
ERRORS = (  # of the compiler or the search itself
    *(ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError),
    SpecError,
)
LAYOUTS, SEARCH, COMPILER = "the layouts of the space", "the search fails", "the compiler fails"
NOTHING = "nothing"
PROGRESS_EVERY = 20.0  # seconds
BATCH = 16  # cases of a worker before the next are handed out
KEPT = Path("build/laws")
Totals = Mapping[str, Any]


@dataclass(frozen=True)
class Difference:
    """A total of a row, or what else the search says, beside what the compiler says."""

    case: Case
    layout: Layout | None  # None: of the whole space
    total: str
    searched: str
    compiled: str

    @property
    def commands(self) -> tuple[str, str]:
        """The commands that show what the compiler says, and what the search does."""
        file = str(KEPT / f"{self.case.number}.yaml")
        total = self.total.removeprefix(FEW)
        is_total = total not in (LAYOUTS, SEARCH, COMPILER)
        settings = [word for text in assignments(self.layout or {}) for word in ("--set", text)]
        show = ["ledger", "show", file, *settings, "--json"]
        values = [f"{key}={','.join(map(json.dumps, listed))}" for key, listed in self.case.over.items()]
        over = [word for text in values for word in ("--over", text)]
        least = ["--minimize", total] if is_total and total == self.total and self.compiled != NOTHING else []
        sweep = ["ledger", "sweep", file, *over, *least, "--headroom", "none", "--top", "100"]
        return shlex.join(show), shlex.join(sweep)


@dataclass(frozen=True)
class Comparison:
    """What was compared of a case, and what differs."""

    case: Case
    rows: int
    totals: int
    differences: tuple[Difference, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def rows_that_differ(self) -> int:
        """Rows of which a total differs."""
        return len({json.dumps(one.layout) for one in self.differences if one.layout is not None})


def compare(case: Case, most: int = MOST_OF_A_SPACE) -> Comparison:
    """Some rows of a case's space beside what the compiler says of each."""
    random = Random(case.number)  # noqa: S311 - not for secrets
    start = time.monotonic()
    space = case.space
    legal = {_text(layout): layout for layout in space.layouts()}
    chosen = random.sample(sorted(legal), min(most, len(legal)))
    compiled: dict[str, Totals] = {}
    differences: list[Difference] = []
    for place, name in enumerate(chosen):
        try:
            plan = load_plan(case.text, assignments(legal[name]))
            compiled[name] = compile_totals(plan) if place % WITH_SHARES else compile_plan(plan).totals
        except SpecError as error:
            said = "; ".join(problem.message for problem in error.problems)
            differences.append(Difference(case, legal[name], LAYOUTS, "a legal layout", f"refused: {said}"))
        except ERRORS:
            differences.append(Difference(case, legal[name], COMPILER, NOTHING, _last_line()))
    middle = time.monotonic()
    keys = tuple(dict.fromkeys(key for totals in compiled.values() for key in totals))
    for asked, prefix in ((keys, ""), (FRONT if set(FRONT) < set(keys) else (), FEW)):
        if asked:
            differences += _differences(case, space, asked, compiled, legal, prefix)
    seconds = {"compiled": middle - start, "searched": time.monotonic() - middle}
    return Comparison(case, len(compiled), sum(map(len, compiled.values())), tuple(differences), seconds)


def _differences(
    case: Case,
    space: Space,
    keys: Sequence[str],
    compiled: Mapping[str, Totals],
    legal: Mapping[str, Layout],
    prefix: str,
) -> Iterator[Difference]:
    """What a search for some totals says otherwise than the compiler."""
    rows: dict[str, Totals] = {}
    priced = 0
    try:
        for piece in pieces(space):
            for block in price_piece(piece, keys):
                priced += len(block)
                for place in range(len(block)):
                    layout = block.layout(place)
                    rows[_text(layout)] = {key: float(block.totals[key][place]) for key in keys}
    except ERRORS:
        yield Difference(case, None, prefix + SEARCH, _last_line(), f"{len(legal)} layouts")
        return
    if priced != len(rows) or rows.keys() != legal.keys():
        missing, more = len(legal.keys() - rows.keys()), len(rows.keys() - legal.keys())
        said = f"{priced} rows: {missing} missing, {more} that are not legal, {priced - len(rows)} twice"
        yield Difference(case, None, prefix + LAYOUTS, said, f"{len(legal)} layouts")
    for name, totals in compiled.items():
        has_shares = any(key.startswith(SHARES) for key in totals)
        for key in keys if name in rows else ():
            if key.startswith(SHARES) and not has_shares:
                continue
            searched, expected = rows[name][key], totals.get(key)
            if not is_same(key, searched, expected):
                said = NOTHING if expected is None else repr(expected)
                yield Difference(case, legal[name], prefix + key, repr(searched), said)


def is_same(key: str, searched: float, compiled: Any) -> bool:
    """Whether a total of a row is what the compiler says; shares may be off by 1e-9 of a step, seconds by 1e-12."""
    if compiled is None:
        return math.isnan(searched)
    if isinstance(compiled, int) and abs(compiled) < LARGEST:
        return searched == compiled
    near = CLOSE if key.startswith("pace.") else ROUNDING if key.startswith("time.") else 0.0
    return math.isclose(searched, float(compiled), rel_tol=CLOSE, abs_tol=near)


def _text(layout: Layout) -> str:
    return json.dumps(layout, sort_keys=True)


def _last_line() -> str:
    """The last line of a traceback, and where it was raised."""
    lines = traceback.format_exc().strip().splitlines()
    place = next((line.strip() for line in reversed(lines) if line.lstrip().startswith("File ")), "")
    file, _, rest = place.removeprefix('File "').partition('", line ')
    return f"{lines[-1]} ({'/'.join(Path(file).parts[-3:])}:{rest.partition(',')[0]})"


# --- the program ---


def _numbered(seed_and_number: tuple[int, int]) -> Comparison | None:
    """What the case of a number comes to; None where its stack runs no such plan."""
    case = numbered_case(*seed_and_number)
    return compare(case) if case else None


def comparisons_of(seed: int, first: int, workers: int) -> Iterator[Comparison | None]:
    """Every case from the first on, without end; in any order where several processes compare."""
    numbers = ((seed, first + place) for place in count())
    if workers == 1:
        yield from map(_numbered, numbers)
        return
    with get_context("spawn").Pool(workers) as pool:
        while True:
            yield from pool.imap_unordered(_numbered, list(islice(numbers, BATCH * workers)))


def hold(rows: int, seed: int, first: int, seconds: float, workers: int) -> int:
    """Compares so many rows of random spaces, prints what differs; 1 where anything does."""
    begin = said = time.monotonic()
    comparisons: list[Comparison] = []
    compared = refused = 0
    with closing(comparisons_of(seed, first, workers)) as results:
        for comparison in results:
            now = time.monotonic()
            if comparison is None:
                refused += 1
            else:
                compared += comparison.rows
                comparisons.append(comparison)
                _keep(comparison)
            if now - said > PROGRESS_EVERY:
                said, differ = now, sum(one.rows_that_differ for one in comparisons)
                click.echo(f"{compared} rows of {len(comparisons)} plans, {differ} rows differ", err=True)
            if compared >= rows or now - begin > seconds:
                break
    return report(comparisons, refused)


def _keep(comparison: Comparison) -> None:
    """Writes the plan of a case with differences where the printed commands read it."""
    if comparison.differences:
        KEPT.mkdir(parents=True, exist_ok=True)
        (KEPT / f"{comparison.case.number}.yaml").write_text(comparison.case.text, "utf-8")


def report(comparisons: Sequence[Comparison], refused: int) -> int:
    """Prints what was compared, by kind, and what differs, by stack and total; 1 where anything does."""
    comparisons = sorted(comparisons, key=lambda one: one.case.number)
    differences = [one for comparison in comparisons for one in comparison.differences]
    rows, totals = sum(one.rows for one in comparisons), sum(one.totals for one in comparisons)
    stacks = {one.case.stack for one in comparisons}
    spent = {name: sum(one.seconds.get(name, 0) for one in comparisons) for name in ("compiled", "searched")}
    click.echo(
        f"{rows} rows, {totals} totals, of {len(comparisons)} plans on {len(stacks)} stacks; {refused} drawings of a "
        f"stack that runs no such plan; {spent['compiled']:.0f} s compiling, {spent['searched']:.0f} s searching"
    )
    click.echo(f"{sum(one.rows_that_differ for one in comparisons)} rows differ, {len(differences)} differences\n")
    click.echo(f"{'kind':<24}{'plans':>6}{'stacks':>8}{'rows':>7}{'differ':>8}{'spaces that fail':>18}")
    by_kind: dict[str, list[Comparison]] = defaultdict(list)
    for comparison in comparisons:
        by_kind[comparison.case.kind].append(comparison)
    for kind, some in sorted(by_kind.items()):
        failing = sum(any(one.layout is None for one in comparison.differences) for comparison in some)
        counts = (len(some), len({one.case.stack for one in some}), sum(one.rows for one in some))
        differ = sum(one.rows_that_differ for one in some)
        click.echo(f"{kind:<24}{counts[0]:>6}{counts[1]:>8}{counts[2]:>7}{differ:>8}{failing:>18}")
    for line in grouped(differences):
        click.echo(line)
    return bool(differences)


def grouped(differences: Sequence[Difference]) -> Iterator[str]:
    """Differences by stack and total: how many, the first, and the commands that show it."""
    groups: dict[str, dict[str, list[Difference]]] = defaultdict(lambda: defaultdict(list))
    for one in differences:
        groups[one.case.stack][one.total].append(one)
    for stack, by_total in sorted(groups.items()):
        yield f"\n{stack}"
        examples: dict[tuple[int, str], list[str]] = defaultdict(list)
        for total, some in by_total.items():
            kinds = ", ".join(sorted(Counter(one.case.kind for one in some)))
            one = some[0]
            yield f"  {total}: {len(some)} ({kinds}), as {one.searched} by the search, {one.compiled} compiled"
            examples[one.case.number, _text(one.layout or {})].append(total)
        told = set()
        for some in by_total.values():
            example = some[0].case.number, _text(some[0].layout or {})
            if example not in told:
                told.add(example)
                yield f"  for {', '.join(examples[example])}:"
                yield from (f"    {command}" for command in some[0].commands)
