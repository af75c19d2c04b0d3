"""Settings of kernels and software that change no figure of a plan: whatever they say, its books are the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import isfinite
from typing import Any

from ledger.books.compiled import Compiled
from ledger.books.compiler import compile_plan, compile_totals
from ledger.books.what_if.sought import stated_as, with_settings
from ledger.spec.inputs import LABELS, value_at
from ledger.spec.options import options_of
from ledger.spec.parts import PartOf
from ledger.spec.paths import Places, bounds, key_of, parent_of, row_at, type_of, unit
from ledger.spec.plan import Plan
from ledger.spec.problems import Problem
from ledger.spec.rules.device import idle
from ledger.spec.stages import depth
from ledger.spec.structures import Fields, ListOf, MappingOf

PARTS = ("kernels", "stack")  # of a plan, those that say how it is run and that a plan may state one by one
OF_NO_FIGURE = frozenset((*LABELS, "framework", "version", "replay"))  # what names a stack, and what other verbs read
FEW = 3  # values that a message lists


def idle_settings(compiled: Compiled) -> tuple[Problem, ...]:
    """A warning of each key of `kernels` and `stack` that the plan itself states and that changes none of its figures.

    Such a key gives the totals and accounts that the plan has without it; a number, or a value that holds without it,
    those that the plan has with every other value that the rules allow. What a part on file says is no statement of
    the plan, and what a rule has told already is left out.
    """
    places = Places(compiled.plan.origins)
    reasons = ((path, _why_idle(compiled, path)) for path in stated_settings(compiled.plan))
    return tuple(idle(path, reason, _instead(compiled, path), places) for path, reason in reasons if reason)


def warnings(compiled: Compiled) -> tuple[Problem, ...]:
    """What a compiled plan is warned of: by rules on its spec, and of settings that change no figure of it."""
    return (*compiled.plan.warnings, *idle_settings(compiled))


def said_in_vain(compiled: Compiled) -> tuple[Problem, ...]:
    """The warnings of a compiled plan that are of values without any effect."""
    return tuple(warning for warning in warnings(compiled) if warning.vain)


def stated_settings(plan: Plan) -> Iterator[str]:
    """The keys of `kernels` and `stack` that the plan itself states and that no rule calls idle."""
    places, told = Places(plan.origins), {warning.vain for warning in plan.warnings}
    for path in plan.origins:
        steps = [*_path_and_parents(path)]
        is_setting = steps[-1] in PARTS and _is_value(path) and OF_NO_FIGURE.isdisjoint(map(key_of, steps))
        if is_setting and told.isdisjoint(steps) and places.is_stated_by_plan(path):
            yield path


def _path_and_parents(path: str) -> Iterator[str]:
    """A path and those of the mappings around it, the innermost first."""
    while path:
        yield path
        path = parent_of(path)


def _why_idle(compiled: Compiled, path: str) -> str:
    """Why a key has no effect; empty where it has one, or where the rules leave it no other value."""
    without = _with(compiled.plan, {path: None})
    if without is not None and value_at(without, path) != value_at(compiled.plan, path):
        if not _has_figures_of(compiled, without):
            return ""
        if not _is_number(value_at(without, path)):  # a number may state what follows where none is stated
            return "without it the plan has the same figures"
    values = []
    for value, settings in _other_values(compiled.plan, path):
        other = _with(compiled.plan, settings)
        if other is not None and not _has_figures_of(compiled, other):
            return ""
        values += [value] if other is not None else []
    listed = ", ".join(f"`{value}`" for value in values) if len(values) <= FEW else "every other value"
    return f"with {listed} the plan has the same figures" if values else ""


def _instead(compiled: Compiled, path: str) -> str:
    """What to type instead: nothing, or the first choice with which the plan has other figures."""
    for value, settings in _other_values(compiled.plan, path):
        other = None if _is_number(value) else _with(compiled.plan, settings)
        if other is not None and not _has_figures_of(compiled, other):
            return f"leave it out, or `{value}`"
    return "leave it out"


def _with(plan: Plan, settings: dict[str, object]) -> Plan | None:
    """The plan under settings; None where the rules refuse them."""
    draft = with_settings(plan, settings)
    return None if draft.problems else draft.plan


def _is_value(path: str) -> bool:
    """Whether a value stands at a path, not a mapping or an entry of a list."""
    return row_at(path) is not None and not isinstance(type_of(path), Fields | PartOf | MappingOf)


def _other_values(plan: Plan, path: str) -> Iterator[tuple[Any, dict[str, object]]]:
    """Values that a key might have in place of the plan's, each with what `--set` is to be given."""
    kind, now = type_of(path), value_at(plan, path)
    listed = [stated for stated, meant in options_of(kind, depth(plan.model)) if meant != now]
    if isinstance(kind, ListOf) and now and [] not in listed:
        listed = [[], *listed]
    if listed:
        yield from ((stated, {path: stated}) for stated in listed)
    elif _is_number(now):
        least, most = bounds(path)
        numbers = (getattr(row_at(path), "default", None), least, 2 * now or 1, now // 2, 1000 * now, most)
        for number in dict.fromkeys(numbers):
            if number is not None and isfinite(number) and number != now and least <= number <= most:
                yield number, dict(stated_as(path, type(now)(number), unit(path)))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _has_figures_of(compiled: Compiled, plan: Plan) -> bool:
    """Whether a plan has the totals and the accounts of a compiled one, to the last digit."""
    totals = compile_totals(plan)
    if any(compiled.totals.get(key) != amount for key, amount in totals.items()):
        return False
    return _amounts(compile_plan(plan)) == _amounts(compiled)


def _amounts(compiled: Compiled) -> Counter[tuple[object, ...]]:
    return Counter(
        (leaf.role, leaf.account, leaf.when, leaf.resource, leaf.amount, leaf.times) for leaf in compiled.accounts
    )
