"""The plans whose layouts are searched: one for each combination of the keys that are not of the layout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from ledger.books.absent import Absent, absent
from ledger.search.axes import FLAG, Axes
from ledger.search.batches import text_of
from ledger.search.choices import VALUES
from ledger.search.space import DATA, LAYOUT, NEUTRAL, Space, laid_out, space_of
from ledger.spec.inputs import violations
from ledger.spec.load import load_plan
from ledger.spec.overrides import assignments, read_overrides
from ledger.spec.plan import Plan
from ledger.spec.problems import FLAG as SET
from ledger.spec.problems import Location, Problem, SpecError


@dataclass(frozen=True)
class Base:
    """A plan, what it was changed by (`--set` values, then the combination's), and the space of its layouts."""

    plan: Plan
    changes: Mapping[str, Any]
    fixed: Mapping[str, Any]
    space: Space


def stated(overrides: Sequence[str]) -> dict[str, Any]:
    """The `--set` values that hold for every layout: those of keys that a layout does not state itself."""
    values = {".".join(one.steps): one.value.plain() for one in read_overrides(overrides)}
    return {key: value for key, value in values.items() if not _is_of_layout(key)}


@dataclass(frozen=True)
class LeftOut:
    """A base that has not a total that is asked for, and why."""

    base: Base
    key: str
    why: Absent


def with_totals(every: Sequence[Base], keys: Sequence[str]) -> tuple[tuple[Base, ...], tuple[LeftOut, ...]]:
    """The bases that may have all of these totals, and those that lack an input of one."""
    lacking = [LeftOut(base, key, why) for base in every for key in keys if (why := absent(base.plan, key))]
    others = [one.base for one in lacking]
    return tuple(base for base in every if not any(base is one for one in others)), tuple(lacking)


def left_out_words(left_out: Sequence[LeftOut]) -> str:
    """Which plans are left out, in a line: by what they lack, the devices where those lack it."""
    told: dict[tuple[str, str], dict[str, None]] = {}
    for one in left_out:
        told.setdefault((one.key, one.why.needed), {})[one.why.of or _said(one.base)] = None
    lacking = (f"{', '.join(names)} ({key} needs `{needed}`)" for (key, needed), names in told.items())
    return f"left out: {'; '.join(lacking)}"


def _said(base: Base) -> str:
    return ", ".join(f"{key} {text_of(value)}" for key, value in base.fixed.items()) or "the plan"


def _is_of_layout(key: str) -> bool:
    return any(key == one or key.startswith(f"{one}.") for one in (*LAYOUT, DATA))


def bases(
    spec: str, overrides: Sequence[str], axes: Axes, note: Callable[[int], None] = lambda _: None
) -> tuple[Base, ...]:
    """The bases of all combinations that can be read; SpecError for values that no combination can have.

    What the rules of a spec refuse depends on the layout, so that it is asked of each layout.
    """
    always = stated(overrides)
    found: list[Base] = []
    failures: list[tuple[Mapping[str, Any], SpecError]] = []
    for number, chosen in enumerate(combinations(axes.others)):
        try:
            plan = load_plan(spec, (*overrides, *assignments(chosen)), rules=())
        except SpecError as error:
            failures.append((chosen, error))
            continue
        found.append(Base(plan, {**always, **chosen}, chosen, space_of(plan, axes.layout)))
        note(number + 1)
    _raise_for_values(axes, [base.fixed for base in found], failures)
    _raise_for_keys(axes, found)
    return tuple(found)


def combinations(values: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Every choice of one value of each key, the last key's changing first."""
    return (dict(zip(values, chosen, strict=True)) for chosen in product(*values.values()))


def _raise_for_values(
    axes: Axes, read: Sequence[Mapping[str, Any]], failures: Sequence[tuple[Mapping[str, Any], SpecError]]
) -> None:
    """Raises SpecError where a value of a key could be read in no combination."""
    problems: list[Problem] = []
    sources: dict[str, str] = {}
    for key, values in axes.others.items():
        for value in values:
            if any(text_of(one[key]) == text_of(value) for one in read):
                continue
            error = next(error for chosen, error in failures if text_of(chosen[key]) == text_of(value))
            where = axes.place(key, value)
            typed = f"{SET}{assignments({key: value})[0]}"
            own = [one for one in error.problems if one.where.file == typed]
            problems += [Problem(_place(key, where, one.where.column), one.message, one.help) for one in own]
            if not own and not problems:
                problems, sources = list(error.problems), dict(error.sources)
    if problems:
        raise SpecError(problems, sources | _texts(problems))


def _place(key: str, value: Location, column: int) -> Location:
    """A place in `--set KEY=VALUE` as it is in the text of an axis: in the key, or else at the value."""
    within = column - len(SET)
    return Location(value.file, 1, len(FLAG) + within) if within <= len(key) else value


def _raise_for_keys(axes: Axes, found: Iterable[Base]) -> None:
    """Raises SpecError for a key of the layout none of whose values any base's rules let it have."""
    problems: list[Problem] = []
    every = list(found)
    for key, values in axes.layout.items():
        if any(text_of(value) in map(text_of, VALUES[key](base.plan)) for base in every for value in values):
            continue
        reasons = {value: _reason(key, value, every) for value in map(_Value, values)}
        if all(reasons.values()):
            problems += [
                Problem(axes.place(key, one.value), reason, _known(key, every)) for one, reason in reasons.items()
            ]
    if problems:
        raise SpecError(problems, _texts(problems))


@dataclass(frozen=True, eq=False)
class _Value:
    """A value that may be a list or a mapping, as a key of a dict."""

    value: Any


def _reason(key: str, one: _Value, every: Sequence[Base]) -> str:
    """Why no base can have a value of a key, as the first says; nothing where one can."""
    reasons = []
    for base in every:
        neutral = {**NEUTRAL, "parallelism.zero": 3 if base.plan.cluster.devices > 1 else 0}
        plain = {key: neutral[key] for key in base.space.keys}
        usual = {problem.message for problem in violations(laid_out(base.plan, plain))}
        told = [problem.message for problem in violations(laid_out(base.plan, {**plain, key: one.value}))]
        reasons.append(next((message for message in told if message not in usual), ""))
    return reasons[0] if all(reasons) else ""


def _known(key: str, every: Sequence[Base]) -> str:
    values = {text_of(value) for base in every for value in VALUES[key](base.plan)}
    several = ", ".join(sorted(values, key=lambda text: (len(text), text))[:12])
    return f"`{key}` is {several} in every layout of this plan" if len(values) == 1 else f"`{key}` may be {several}"


def _texts(problems: Iterable[Problem]) -> dict[str, str]:
    return {one.where.file: one.where.file for one in problems if one.where.file.startswith(FLAG)}
