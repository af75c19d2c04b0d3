"""The question of a search: the objective, the conditions on a layout, the front, and how many layouts to list."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import inf
from typing import TYPE_CHECKING

from ledger.books.names import absent
from ledger.books.what_if.conditions import RELATIONS, Condition, condition, fault, host_conditions, served_conditions
from ledger.numbers import with_unit
from ledger.spec import headroom
from ledger.spec.headroom import POLICIES, Headroom
from ledger.spec.near import closest, nearest
from ledger.spec.plan import Plan
from ledger.spec.quantities import QuantityError, parse, parse_any
from ledger.units import is_more_better

if TYPE_CHECKING:
    import numpy as np


TIME, MEMORY, CAPACITY = "time.step", "memory.reserved", "memory.capacity"
RATE = "tokens_per_second"
EDIT_RANK = "edit_rank"  # a total that orders layouts by the keys they change, then by the time of a step or token
SHOWN = (TIME, MEMORY, "mfu", RATE)  # totals of every row, beside those that are asked for
# Totals that a layout may have and the plan itself need not: what its collectives move.
MADE_BY_LAYOUTS = re.compile(r"comm\.[a-z_]+\.[a-z_]+\.(bytes|count)")


@dataclass(frozen=True)
class Limit:
    """A bound on a total of a layout, in its base unit; `text` as it was asked for."""

    text: str
    key: str
    relation: str
    bound: float
    if_any: bool = False

    def excess(self, values: np.ndarray) -> np.ndarray:
        """How far each value misses the limit, as a share of it; 0 where it holds, infinite where there is no value.

        Where there need not be one (`if_any`), the limit holds.
        """
        import numpy as np

        with np.errstate(invalid="ignore"):
            difference = values - self.bound if self.relation in {"<=", "<"} else self.bound - values
            difference = np.abs(difference) if self.relation == "==" else difference
            missed = np.maximum(difference, 0.0) / max(abs(self.bound), 1e-300)
            at_bound = np.where(values == self.bound, np.finfo(float).tiny, 0.0)
            missed = {"<": missed + at_bound, ">": missed + at_bound, "!=": at_bound}.get(self.relation, missed)
        return np.where(np.isnan(values), 0.0 if self.if_any else inf, missed)


@dataclass(frozen=True)
class Question:
    """The objective (least of it, or most), conditions, the keys of the front, and how many of the best are wanted.

    `listed_totals`: totals of every row, of which the first is the time that a page draws.
    """

    objective: str = TIME
    largest: bool = False
    conditions: tuple[Condition, ...] = ()
    front: tuple[str, ...] = (TIME, MEMORY)
    top: int = 10
    listed_totals: tuple[str, ...] = SHOWN

    @property
    def keys(self) -> tuple[str, ...]:
        """Every total that a row needs, each once."""
        of_conditions = (condition.key for condition in self.conditions)
        return tuple(dict.fromkeys((*self.listed_totals, self.objective, *self.front, *of_conditions)))

    @property
    def signs(self) -> Mapping[str, float]:
        """1 for totals of which less is better, -1 for the others: of the keys of the front."""
        return {key: -1.0 if is_more_better(key) else 1.0 for key in self.front}

    def limits(self, plan: Plan, headroom: float, words: str) -> tuple[Limit, ...]:
        """The limits on the layouts of a plan: its memory first."""
        text = f"{MEMORY} within {CAPACITY}" + (f" less {words} headroom" if headroom else "")
        limits = [Limit(text, MEMORY, "<=", plan.accelerator.memory - headroom)]
        for asked in self.conditions:
            bound = float(plan.accelerator.memory if asked.against == CAPACITY else asked.limit)
            limits.append(Limit(asked.text, asked.key, asked.relation, bound, asked.if_any))
        return tuple(limits)


def read_question(  # noqa: PLR0913 - the parts of a question, as they are typed
    plan: Plan, known: Collection[str], objective: tuple[str, bool], conditions: Sequence[str], front: str, top: int
) -> Question:
    """The question of a command line about a plan that has `known` totals; SpecError with the place in the text.

    Totals that the plan lacks, and that another could have, may be asked for: see ledger/search/axes.py.
    """
    key, largest = objective
    typed = (key, *front.split(","), *(word for text in conditions for word in text.split()))
    known = {*known, *(total for total in map(str.strip, typed) if absent(plan, total))}
    _require_total(key, known, f"--{'maximize' if largest else 'minimize'} ")
    keys = tuple(part.strip() for part in front.split(",") if part.strip())
    if not keys:
        raise fault(f"--front {front}", 9, "a front needs a total", f"for example `--front {TIME},{MEMORY}`")
    for total in keys:
        _require_total(total, known, "--front ")
        if keys.count(total) > 1:
            column = len("--front ") + front.rindex(total) + 1
            raise fault(f"--front {front}", column, f"`{total}` is named twice", "name each total once")
    named = {match[0] for text in conditions for match in MADE_BY_LAYOUTS.finditer(text)}
    asked = tuple(condition(text, {*known, *named}) for text in conditions)
    for problem in contradictions(asked):
        raise fault(problem, 1, "no layout can meet both conditions", "leave one of them out")
    return Question(key, largest, (*asked, *host_conditions(plan), *served_conditions(plan)), keys, top)


def _require_total(key: str, known: Collection[str], flag: str) -> None:
    if key not in known and not MADE_BY_LAYOUTS.fullmatch(key):
        raise fault(flag + key, len(flag) + 1, f"no total `{key}`", nearest(key, sorted(known)))


def contradictions(conditions: Sequence[Condition]) -> Iterator[str]:
    """Pairs of conditions on one total of which no value meets both."""
    for first, second in combinations(conditions, 2):
        if first.key != second.key or first.against != second.against:
            continue
        low, high = sorted((first.limit, second.limit))
        # At the limits, between them and beyond them: one value of each range that they tell apart.
        values = (low - 1, low, (low + high) / 2, high, high + 1)
        if not any(
            RELATIONS[first.relation](value, first.limit) and RELATIONS[second.relation](value, second.limit)
            for value in values
        ):
            yield f"{first.text} and {second.text}"


# --- memory of a device that stays free in a search ---

FLAG = "--headroom "
HELP = f"{', '.join(POLICIES)}, a share such as `10 %`, or bytes such as `8 GB`"


def kept_free(plan: Plan, text: str = "") -> float:
    """Bytes of each device that stay free; raises SpecError for a text that is no headroom, or leaves nothing."""
    stated, memory = text.strip(), plan.accelerator.memory
    amount = headroom.headroom_bytes(_read_headroom(stated, text) if stated else plan.assumptions.headroom, memory)
    if amount < 0:
        raise fault(
            f"{FLAG}{text}", len(FLAG) + 1, "headroom is what stays free, so it is not negative", f"give {HELP}"
        )
    if amount >= memory:
        words = kept_free_words(plan, text)
        message = f"{words} headroom leaves nothing of the {with_unit(memory, 'B')} of a device"
        raise fault(f"{FLAG}{text or words}", len(FLAG) + 1, message, f"give {HELP}")
    return amount


def kept_free_words(plan: Plan, text: str = "") -> str:
    """The headroom as it was asked for, or as the plan has it."""
    return text.strip() or headroom.headroom_words(plan.assumptions.headroom)


def _read_headroom(stated: str, text: str) -> Headroom:
    if stated in POLICIES:
        return stated
    try:
        return float(parse_any(stated)[0]) if stated.endswith("%") else int(parse(stated, "B"))
    except QuantityError as error:
        near = closest(stated, [*POLICIES])
        help_text = f"did you mean `{near[0]}`?" if near else f"give {HELP}"
        raise fault(f"{FLAG}{text}", len(FLAG) + 1, f"`{stated}` is no headroom", help_text) from error
