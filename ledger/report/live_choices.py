"""What a reader of a page may choose among words: recomputation and devices, each read as a plan of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

from ledger.books.traced import DEVICE
from ledger.spec.inputs import UNREAD, spec_text
from ledger.spec.load import revised
from ledger.spec.plan import Plan

DEVICES = ("h100-sxm", "h200-sxm", "b200", "a100-sxm-80gb")  # which most of the library's measurements are of
POLICIES = ("none", "selective", "full")
READ = tuple(part.name for part in fields(Plan) if part.name not in UNREAD)


@dataclass(frozen=True)
class Choices:
    """By input, the words that it may have, each with the plan that it gives; the plan's own first.

    `known` and `judged` keep what was found: plans by the places of their words, and which settings are legal.
    """

    options: Mapping[str, Mapping[str, Plan]]
    known: dict[tuple[int, ...], Plan] = field(default_factory=dict, repr=False, compare=False)
    judged: dict[tuple[tuple[str, Any], ...], bool] = field(default_factory=dict, repr=False, compare=False)

    @property
    def plan(self) -> Plan:
        """The plan as it is written."""
        return next(plan for words in self.options.values() for plan in words.values())

    def own(self) -> dict[str, int]:
        """The places of the plan's own words."""
        return dict.fromkeys(self.options, 0)

    def words(self, name: str) -> tuple[str, ...]:
        """What an input may be."""
        return tuple(self.options[name])

    def at(self, values: Mapping[str, Any]) -> Plan:
        """The plan in which each choice has the word at its place: what one of them changes, the others keep."""
        places = tuple(values[name] for name in self.options)
        if places not in self.known:
            self.known[places] = self._chosen(places)
        return self.known[places]

    def _chosen(self, places: tuple[int, ...]) -> Plan:
        plan = own = self.plan
        for words, place in zip(self.options.values(), places, strict=True):
            other = tuple(words.values())[place]
            if other is not own:
                plan = replace(plan, **{name: getattr(other, name) for name in _changed(own, other)})
        return plan

    @cached_property
    def changed(self) -> Mapping[str, frozenset[str]]:
        """By input, the parts of the plan that another word of it changes."""
        return {
            name: frozenset(part for other in words.values() for part in _changed(self.plan, other))
            for name, words in self.options.items()
        }


def _changed(own: Plan, other: Plan) -> frozenset[str]:
    """The parts in which two plans differ."""
    return frozenset(name for name in READ if getattr(own, name) != getattr(other, name))


def choices_of(plan: Plan) -> Choices:
    """The policies and devices that a plan may have; of one that was read from no spec its own alone."""
    named = {"recompute": spec_text(plan.recompute, "recompute"), DEVICE: plan.accelerator.name}
    return Choices({name: {own: plan, **others(plan, name, own)} for name, own in named.items()})


def others(plan: Plan, name: str, own: str) -> dict[str, Plan]:
    """The legal plans with another word; another device has a price where the plan's own has one."""
    if plan.reading is None:
        return {}
    known = plan.reading.library.names("accelerator")
    words = POLICIES if name != DEVICE else [word for word in DEVICES if word in known]
    drafts = {word: revised(plan, (f"{name}={word}",)) for word in words if word != own}
    legal = {word: draft.plan for word, draft in drafts.items() if draft.plan and not draft.problems}
    priced = plan.assumptions.price is not None
    return {word: other for word, other in legal.items() if (other.assumptions.price is not None) == priced}
