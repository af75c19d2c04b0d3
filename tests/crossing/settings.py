"""`python -m tests.crossing.settings`: models x keys of kernels and stacks x values, and what became of those in vain.

Of every key of every model: whether its values give different books, and if not, who says so.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

import click

from ledger.books.compiled import Compiled
from ledger.books.compiler import compile_plan
from ledger.books.what_if.idle import idle_settings
from ledger.spec.inputs import value_at
from ledger.spec.library import default_library
from ledger.spec.load import load_plan, plan_keys
from ledger.spec.options import listed_values
from ledger.spec.overrides import assignments
from ledger.spec.paths import type_of
from ledger.spec.problems import Problem, SpecError
from ledger.spec.values import Size

PLANS: Mapping[str, str] = {
    "resnet-50": "resnet-50",
    "vit-l": "vit-l",
    "t5-11b": "t5-11b",
    "whisper-large-v3": "t5-11b",
}
LENGTHS = {"whisper-large-v3": ("run.source_len=1500", "run.seq_len=448")}
COMMON = ("expect=[]", "run.micro_batch=2", "run.global_batch=8", "stack=pytorch-fsdp2-2025", "precision=bf16-mixed")
LAYOUTS = (
    ("cluster.devices=4", "parallelism={data: 2, tensor: 2}"),
    ("cluster.devices=2", "parallelism={data: 2}"),
)
KERNELS = ("kernels=null", "kernels={attention: eager}")
COMPANIONS: Mapping[str, str] = {"kernels.loss_chunks": "kernels.loss=chunked"}  # without which a key is refused
UNREAD = ("source", "defaults", "replay", "engine", "judge", "scored_on", "framework", "version", "date", "title")
EFFECT, REFUSED, BY_RULE, BY_FIGURES, SILENT = "has an effect", "no choice", "warned by a rule", "warned", "SILENT"
VALUES, WRONG = "of some values", "WRONGLY WARNED"


@dataclass(frozen=True)
class Case:
    """A key of a model's plan, and what became of it; `values` are those that the rules allow, or that are at fault."""

    model: str
    key: str
    values: tuple[Any, ...]
    outcome: str


def settings_of(model: str) -> tuple[str, Sequence[str]]:
    """A plan that trains a model of the library on few devices, as a spec and overrides."""
    name = PLANS.get(model, "8b")
    named = () if name == model else (f"model={model}",)
    lengths = LENGTHS.get(model, ("run.seq_len=512",) if name == "8b" else ())
    problems: tuple[Problem, ...] = ()
    for kernels, layout in product(KERNELS, LAYOUTS):
        settings = (*named, *COMMON, *lengths, *layout, kernels)
        try:
            load_plan(name, settings)
        except SpecError as error:
            problems = error.problems
            continue
        return name, settings
    raise SpecError(problems)


def keys(part: str) -> tuple[str, ...]:
    """The keys of a part whose values can be listed, or are sizes."""
    names = (key for key in plan_keys() if key.startswith(f"{part}.") and not {*key.split(".")} & {*UNREAD})
    return tuple(key for key in names if values_of(key))


def values_of(key: str) -> tuple[Any, ...]:
    """Values of a key: all that can be listed, else a few numbers."""
    kind = type_of(key)
    if isinstance(kind, Size):
        return (2, 4)
    return listed_values(kind, 2)


def figures(compiled: Compiled) -> tuple[Any, ...]:
    """Every total and every account of a compiled plan."""
    accounts = Counter(
        (row.role, row.account, row.when, row.resource.name, Fraction(row.amount) * row.times)
        for row in compiled.accounts
    )
    return dict(compiled.totals), accounts


def case_of(model: str, key: str) -> Case:
    """A key with each of its values, every plan compiled by itself, and what is said of those that change nothing.

    A value changes nothing where the plan has the same figures without the key; a number, and what holds without the
    key, where every value has these figures.
    """
    name, settings = settings_of(model)
    settings = (*settings, COMPANIONS[key]) if key in COMPANIONS else settings
    try:
        without = compile_plan(load_plan(name, settings))
    except SpecError:  # of what goes with the key
        return Case(model, key, (), REFUSED)
    books: dict[str, Compiled] = {}
    for value in values_of(key):
        with suppress(SpecError):
            books[str(value)] = compile_plan(load_plan(name, (*settings, *assignments({key: value}))))
    own = {value for value, compiled in books.items() if value_at(compiled.plan, key) == value_at(without.plan, key)}
    same = {value for value, compiled in books.items() if figures(compiled) == figures(without)}
    if {*books} <= own:
        return Case(model, key, tuple(books), REFUSED)
    is_number = isinstance(type_of(key), Size)
    in_vain = same if same == {*books} else set() if is_number else same - own
    by_rule = {value for value, one in books.items() if any(is_about(key, told) for told in one.plan.warnings)}
    told = by_rule | {value for value, one in books.items() if any(is_about(key, told) for told in idle_settings(one))}
    if told != in_vain:
        return Case(model, key, tuple(told ^ in_vain), WRONG if told - in_vain else SILENT)
    outcome = BY_RULE if by_rule else BY_FIGURES
    return Case(model, key, tuple(books), EFFECT if not told else outcome if told == {*books} else VALUES)


def is_about(key: str, problem: Problem) -> bool:
    """Whether a problem says that a key is in vain."""
    return problem.vain == key


def cases(models: Sequence[str], parts: Sequence[str]) -> Iterator[Case]:
    """Every key of some parts with every model."""
    for model in models:
        for part in parts:
            yield from (case_of(model, key) for key in keys(part))


def main(words: list[str]) -> int:
    """Prints a table of keys by what became of them; the exit code is 1 where one is in vain and nothing says so."""
    parser = argparse.ArgumentParser(prog="python -m tests.crossing.settings", description=__doc__)
    parser.add_argument("--model", action="append", help="a model of the library; all where none is named")
    parser.add_argument("--part", action="append", choices=("kernels", "stack"), help="both where none is named")
    options = parser.parse_args(words)
    models = options.model or sorted(default_library().names("model"))
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    silent: list[Case] = []
    for case in cases(models, options.part or ("kernels", "stack")):
        rows[case.key][case.outcome] += 1
        silent += [case] if case.outcome in (SILENT, WRONG) else []
    outcomes = (EFFECT, VALUES, REFUSED, BY_RULE, BY_FIGURES, SILENT, WRONG)
    click.echo(f"{'key':<32}" + "".join(f"{outcome:>18}" for outcome in outcomes))
    for key, counts in rows.items():
        click.echo(f"{key:<32}" + "".join(f"{counts[outcome] or '':>18}" for outcome in outcomes))
    total = sum(rows.values(), Counter())
    click.echo(f"{'all':<32}" + "".join(f"{total[outcome] or '':>18}" for outcome in outcomes))
    for case in silent:
        click.echo(f"{case.outcome}: {case.key} of {case.model}, values {', '.join(map(str, case.values))}")
    return bool(silent)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
