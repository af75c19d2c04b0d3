"""Inputs whose values are numbers in order, as the field table has them: sizes, counts of layers, real numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import sympy

from ledger.books.what_if.sought import REACH, Settings, Unknown, key_fault, stated_as
from ledger.books.what_if.trial import with_settings
from ledger.model.dims import LETTERS, symbol
from ledger.spec.paths import bounds, greatest, key_of, parent_of, size_type, unit
from ledger.spec.plan import Plan
from ledger.spec.problems import Problem, SpecError
from ledger.spec.stages import depth, growth
from ledger.spec.values import Integer, Size

ITSELF = ("batch", "seq", "d_model", "vocab", "positions", "parameters")  # symbols of values as they are stated
FINEST = 4096  # the largest step between legal sizes that is looked for


def divisors(number: int) -> tuple[int, ...]:
    """What divides a number, from 1."""
    small = [one for one in range(1, int(number**0.5) + 1) if number % one == 0]
    return tuple(sorted({*small, *(number // one for one in small)}))


def stated(path: str) -> Callable[[Any], Settings]:
    """The setting of a value alone, with its unit."""
    base = unit(path)
    return lambda value: stated_as(path, value, base)


def sign(plan: Plan, path: str) -> sympy.Symbol | None:
    """The symbol that stands for the very value at a path in formulas; None where there is none."""
    groups = plan.model.groups
    only = f"model.layers.{groups[0].name}.repeat" if len(groups) == 1 else ""
    if path == only and plan.parallelism.pipeline == 1:
        return symbol("layers")
    for row in LETTERS:
        itself = row.name in ITSELF or (row.part and row.name not in {"shared_d_ff", "rotary_dim", "capacity_factor"})
        names = [group.name for group in groups if row.path.replace("{group}", group.name) == path]
        if itself and (row.path == path or names):
            return symbol(row.name, names[0] if names and len(groups) > 1 else "")
    return None


def layer_count(plan: Plan, path: str, given: int) -> Unknown:
    """Layers of which something is said: from one to all, as far as the spec's rules allow."""
    counts = range(1, depth(plan.model) + 1)
    for settings in (
        stated(path),
        lambda value: {parent_of(path): {key_of(path): value}},
    ):  # beside what the part says, or instead of it
        if some := legal(plan, counts, settings):
            return Unknown(path, given, settings, f"{some[0]} to {some[-1]} layers", some)
    raise cannot_vary(path, with_settings(plan, stated(path)(1)).problems)


def size(plan: Plan, path: str, given: int) -> Unknown:
    """A whole number in the finest steps from the given one that the spec's rules allow."""
    kind, put = size_type(path), stated(path)
    step = finest(plan, given, put, _steps(plan, given)) if isinstance(kind, Size) else 1
    least = given % step or step
    if not given and (refused := with_settings(plan, put(least)).problems):
        raise cannot_vary(path, refused)
    if isinstance(kind, Integer) and kind.least is not None and least < kind.least:
        least += -(-(kind.least - least) // step) * step
    most = greatest(path)
    cap = f"a spec states at most {most:.0f}"
    if given:
        least = _outermost(plan, put, given, least, step)
        bound = _outermost(plan, put, given, int(min(most, REACH)) // step * step + given % step, step)
        most, cap = min(most, bound), cap if bound > most - step else _said_beyond(plan, put(bound + step))
    why = multiples(step) if not least % step else f"{least}, {least + step}, ..., in steps of {step}"
    given_steps = why if step > 1 else ""
    return Unknown(path, given, put, given_steps, step=step, least=least, greatest=most, cap=cap, sign=sign(plan, path))


def _outermost(plan: Plan, settings: Callable[[Any], Settings], given: int, end: int, step: int) -> int:
    """The legal value nearest to an end, where all from the given one up to it are legal."""
    if not _refused(plan, settings(end)):
        return end
    inner, outer = 0, (end - given) // step
    while abs(outer - inner) > 1:
        middle = (inner + outer) // 2
        inner, outer = (inner, middle) if _refused(plan, settings(given + middle * step)) else (middle, outer)
    return given + inner * step


def _said_beyond(plan: Plan, settings: Settings) -> str:
    """Why there is no larger value."""
    return "; ".join(problem.message for problem in with_settings(plan, settings).problems)


def _steps(plan: Plan, given: int) -> list[int]:
    """Steps between sizes that a rule may ask for."""
    due = {1, plan.parallelism.tensor, growth(plan.model, plan.parallelism)}
    return sorted({*due, *divisors(given or 1), *divisors(plan.cluster.devices)})


def finest(plan: Plan, given: int, settings: Callable[[Any], Settings], steps: Sequence[int]) -> int:
    """The first of the steps up from the given value that no rule refuses; the first where all are refused."""
    legal_steps = (step for step in steps if 0 < step <= FINEST and not _refused(plan, settings(given + step)))
    return next(legal_steps, steps[0])


def real(path: str, given: float) -> Unknown:
    """A real number above zero."""
    least, most = bounds(path)
    return Unknown(path, given, stated(path), smallest=least, greatest=most)


def legal(plan: Plan, values: Iterable[int], settings: Callable[[Any], Settings]) -> tuple[int, ...]:
    """The values that no rule of the spec refuses."""
    return tuple(value for value in values if not _refused(plan, settings(value)))


def _refused(plan: Plan, settings: Settings) -> bool:
    return bool(with_settings(plan, settings).problems)


def cannot_vary(path: str, problems: Iterable[Problem]) -> SpecError:
    """That a plan as it is leaves an input no other value, and why."""
    reasons = "; ".join(dict.fromkeys(problem.message for problem in problems))
    return key_fault(path, f"`{path}` cannot vary in this plan", reasons)


def multiples(step: int) -> str:
    """Which values are legal, in words; nothing where all are."""
    return f"multiples of {step}" if step > 1 else ""
