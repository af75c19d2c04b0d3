"""What a row's step would be under other values of what was assumed of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ledger.books.compiled_roles import compile_roles
from ledger.books.price_changes import step_time
from ledger.model.schedule import roles
from ledger.spec.load import load_plan
from ledger.spec.plan import Plan
from ledger.spec.problems import SpecError

# How an assumption begins, the path that it fills, and what else may stand there.
OTHERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "recompute not stated": ("recompute", ("full", "selective")),
    "sequence parallelism not stated": ("parallelism.sequence", ("off",)),
    "data_parallel_kind not stated": ("parallelism.zero", ("0", "1", "3")),
    "interleave not stated": ("parallelism.interleave", ("2", "4")),
    "micro_batch not stated": ("run.micro_batch", ("2", "4")),
    "dtype not stated": ("precision", ("fp32",)),
}


@dataclass(frozen=True)
class Otherwise:
    """An assumption, another value for what it fills, and the step under that over the step as assumed."""

    assumed: str
    setting: str
    ratio: float


def otherwise(text: str, assumed: Sequence[str]) -> tuple[Otherwise, ...]:
    """Every other value that makes a legal plan of a row's text, what moves the step most first."""
    stated = _step(load_plan(text))
    found = (
        Otherwise(words, setting, step / stated)
        for words in assumed
        for setting in _settings(words)
        if (step := _tried(text, setting)) and abs(step / stated - 1) > 0
    )
    return tuple(sorted(found, key=lambda one: -abs(one.ratio - 1)))


def lines(found: Sequence[Otherwise]) -> Iterator[str]:
    """Sentences, the first of which is about what moves the step most."""
    for one in found:
        yield f'`{one.setting}` instead of "{one.assumed}" changes the step by {one.ratio - 1:+.1%}'


def _settings(words: str) -> Iterator[str]:
    for beginning, (path, values) in OTHERS.items():
        if words.startswith(beginning):
            yield from (f"{path}={value}" for value in values)


def _tried(text: str, setting: str) -> float:
    """Seconds under a setting; 0 where that is no legal plan."""
    try:
        return _step(load_plan(text, [setting]))
    except SpecError:
        return 0.0


def _step(plan: Plan) -> float:
    return float(step_time(plan, compile_roles(plan, roles(plan))))
