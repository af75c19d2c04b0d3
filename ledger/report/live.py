"""The plan as a program of its own: its structures as a graph in JavaScript, for a reader who moves its sizes offline.

Every number that the page shows is the compiler's own arithmetic, traced. A structure holds for all settings that meet
its guards; the page has those that are reached from the plan's own by splitting an axis or not, by other numbers of
pipeline stages, and with one micro-batch a step or several, as many as its size allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import combinations
from math import log2
from typing import Any

from ledger.arithmetic.tracing import Graph
from ledger.books.calendar import Bytes, saved_bytes
from ledger.books.counts import with_token_count
from ledger.books.traced import (
    CHOICES,
    DEVICE,
    STAGES,
    Evaluation,
    Structure,
    TracedBooks,
    TracedRule,
    at_inputs,
    priced_structure,
    setting,
    traced_books,
    traced_rules,
)
from ledger.model.schedule import schedule
from ledger.spec.inputs import UNREAD, spec_text, violations
from ledger.spec.load import read_with_overrides
from ledger.spec.plan import Plan
from ledger.spec.rules.table import RULES, WARNINGS

DEVICES = ("h100-sxm", "h200-sxm", "b200", "a100-sxm-80gb")  # which most of the library's measurements are of
POLICIES = ("none", "selective", "full")
READ = tuple(part.name for part in fields(Plan) if part.name not in UNREAD)


@dataclass(frozen=True)
class PlanChoices:
    """By input, the words that it may have, each with the plan that it gives; the plan's own first.

    `plans_by_place` and `judged` keep what was found: plans by the places of their words, and which settings are legal.
    """

    options: Mapping[str, Mapping[str, Plan]]
    plans_by_place: dict[tuple[int, ...], Plan] = field(default_factory=dict, repr=False, compare=False)
    judged: dict[tuple[tuple[str, Any], ...], bool] = field(default_factory=dict, repr=False, compare=False)

    @property
    def plan(self) -> Plan:
        """The plan as it is written."""
        return next(plan for words in self.options.values() for plan in words.values())

    def plan_places(self) -> dict[str, int]:
        """The places of the plan's own words."""
        return dict.fromkeys(self.options, 0)

    def words(self, name: str) -> tuple[str, ...]:
        """What an input may be."""
        return tuple(self.options[name])

    def at(self, values: Mapping[str, Any]) -> Plan:
        """The plan in which each choice has the word at its place: what one of them changes, the others keep."""
        places = tuple(values[name] for name in self.options)
        if places not in self.plans_by_place:
            self.plans_by_place[places] = self._plan_at(places)
        return self.plans_by_place[places]

    def _plan_at(self, places: tuple[int, ...]) -> Plan:
        plan = base = self.plan
        for words, place in zip(self.options.values(), places, strict=True):
            variant = tuple(words.values())[place]
            if variant is not base:
                plan = replace(plan, **{name: getattr(variant, name) for name in _changed_parts(base, variant)})
        return plan

    @cached_property
    def changed(self) -> Mapping[str, frozenset[str]]:
        """By input, the parts of the plan that another word of it changes."""
        return {
            name: frozenset(part for variant in words.values() for part in _changed_parts(self.plan, variant))
            for name, words in self.options.items()
        }


def _changed_parts(first: Plan, second: Plan) -> frozenset[str]:
    """The parts in which two plans differ."""
    return frozenset(name for name in READ if getattr(first, name) != getattr(second, name))


def choices_of(plan: Plan) -> PlanChoices:
    """The policies and devices that a plan may have; of one that was read from no spec its own alone."""
    named = {"recompute": spec_text(plan.recompute, "recompute"), DEVICE: plan.accelerator.name}
    return PlanChoices({name: {word: plan, **legal_variants(plan, name, word)} for name, word in named.items()})


def legal_variants(plan: Plan, name: str, plan_word: str) -> dict[str, Plan]:
    """Legal variants of a plan, one input set to another word; a device has a price where the plan's own has one."""
    if plan.reading is None:
        return {}
    known_devices = plan.reading.library.names("accelerator")
    words = POLICIES if name != DEVICE else [word for word in DEVICES if word in known_devices]
    drafts = {word: read_with_overrides(plan, (f"{name}={word}",)) for word in words if word != plan_word}
    legal = {word: draft.plan for word, draft in drafts.items() if draft.plan and not draft.problems}
    priced = plan.assumptions.price is not None
    return {word: variant for word, variant in legal.items() if (variant.assumptions.price is not None) == priced}


# How far from the plan another value of an input is, and each further one: what readers ask for first is near.
SETTING_DISTANCES: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(("global_batch", "tensor", "zero", *CHOICES), (1.0, 0.25)),
    STAGES: (1.0, 1.5),
    **dict.fromkeys(("context", "expert", "data"), (1.5, 0.5)),
}
ZERO_STAGES = range(4)  # of ZeRO
WIDER = 8  # how far beyond the plan's own value a control goes
SHORTEST, LONGEST = 256, 131072  # tokens of a sequence that a control offers
BATCH = 0.25  # of a plan with one micro-batch a step, to several: any further degree brings them
MOST_TURNS = 2  # inputs beside the batch that differ from the plan in a structure that is looked for
MOST_TERMS = 41_000  # of the graph of one page: some 600 kB, and half of the time of a report without paper
MOST_LEFT_OUT = 40  # settings without a structure, from where on no more are looked at
# Degrees that most plans do not split over, or that need more devices than whole nodes have.
UNUSUAL_SETTINGS = (
    *({name: 3} for name in ("tensor", "context", "data", "expert")),
    *({STAGES: 5}, {"data": 1, "context": 1}, {"data": 5, "context": 5}),
)

Setting = Mapping[str, Any]


@dataclass(frozen=True)
class LivePage:
    """What the page of a plan knows: its structures, the rules that its sizes can break, and the controls' values.

    `plan_setting` is the plan's own setting. `left_out`: settings, as they differ from it, whose structures are not in
    the page.
    """

    choices: PlanChoices
    plan_setting: Setting
    graph: Graph
    structures: tuple[Structure, ...]
    rules: tuple[TracedRule, ...]
    warnings: tuple[TracedRule, ...]
    stops: Mapping[str, Sequence[int]]
    left_out: tuple[Setting, ...]

    @property
    def plan(self) -> Plan:
        """The plan as it is written."""
        return self.choices.plan


def page_of(plan: Plan) -> LivePage | None:
    """The page of a plan; None where only a parameter count is known."""
    if plan.model.bare:
        return None
    plan = with_token_count(plan)
    graph, choices = Graph(), choices_of(plan)
    base, legal = {**setting(plan), **choices.plan_places()}, control_values(choices)
    structures: list[Structure] = []
    left_out: list[Setting] = []
    books: dict[tuple[Any, ...], TracedBooks] = {}
    saved = saved_bytes(plan)
    tried = [*reachable_settings(choices, legal), *_single_changes(choices, legal)]
    for chosen in tried:
        if len(left_out) > MOST_LEFT_OUT:
            break
        at = Evaluation(graph, chosen)
        if any(at.meets(structure.guards) for structure in structures):
            continue
        if len(graph.terms) > MOST_TERMS:
            left_out.append(difference(base, chosen))
        else:
            structures.append(_priced_structure(choices, graph, chosen, books, saved))
    further = [*tried, *_awkward_settings(choices)]
    rules, warnings = (traced_rules(table, choices.at, graph, further, choices.changed) for table in (RULES, WARNINGS))
    offered = {
        name: [value for value in values if _is_reached(choices, graph, structures, name, value)]
        for name, values in legal.items()
    }
    return LivePage(choices, base, graph, tuple(structures), rules, warnings, offered, tuple(left_out))


def _priced_structure(
    choices: PlanChoices, graph: Graph, chosen: Setting, books: dict[tuple[Any, ...], TracedBooks], saved: Bytes
) -> Structure:
    """The structure of a setting; devices with equal kernels and software share their traced books."""
    plan = choices.at(chosen)
    key = tuple(value for name, value in chosen.items() if name not in (DEVICE, "price"))
    if key not in books or (books[key].plan.kernels, books[key].plan.stack) != (plan.kernels, plan.stack):
        books[key] = traced_books(plan, graph, chosen)
    return priced_structure(books[key], plan, chosen, saved)


# --- settings of other structures ---


def reachable_settings(choices: PlanChoices, legal: Mapping[str, Sequence[int]]) -> Iterator[dict[str, Any]]:
    """Legal settings that may differ from the plan in structure, the nearest first: one of each kind."""
    base = {**setting(choices.plan), **choices.plan_places()}
    one_micro_batch = base["global_batch"] == base["data"] * base["micro_batch"]
    turns = [
        ((BATCH if name == "global_batch" and one_micro_batch else first) + rank * further, (name, value))
        for name, (first, further) in SETTING_DISTANCES.items()
        for rank, value in enumerate(_turning_values(base[name], name, legal[name]))
    ]
    groups = (group for count in range(2 + MOST_TURNS) for group in combinations(turns, count))
    several = [group for group in groups if sum(name != "global_batch" for _, (name, _) in group) <= MOST_TURNS]
    for group in sorted(several, key=lambda group: sum(far for far, _ in group)):
        moved = dict(turn for _, turn in group)
        if len(moved) == len(group):
            changed = with_legal_batch(choices, {**base, **moved}, turned=moved.get("global_batch") == 0)
            if not group or is_legal(choices, changed):
                yield changed if group else base


def is_legal(choices: PlanChoices, chosen: Setting) -> bool:
    """Whether no rule speaks against a setting; the rules are asked once of each."""
    key = tuple(chosen.items())
    if key not in choices.judged:
        choices.judged[key] = not violations(at_inputs(choices.at(chosen), chosen))
    return choices.judged[key]


def _turning_values(base: int, name: str, legal: Sequence[int]) -> Iterator[int]:
    """Values of an input that turn a structure into another: split or not, other stages; 0 for one micro-batch."""
    if name == "global_batch":
        yield 0
    elif name == STAGES:
        yield from sorted((count for count in legal if count != base), key=lambda count: abs(log2(count / base)))
    elif name in (*CHOICES, "zero"):
        yield from sorted((value for value in legal if value != base), key=lambda value: abs(value - base))
    else:
        yield from [1] if base > 1 else [count for count in legal if count > 1][:1]


def with_legal_batch(choices: PlanChoices, chosen: Setting, *, turned: bool = False) -> dict[str, Any]:
    """The setting with a global batch of whole micro-batches, several or one as in the plan, or else `turned`.

    Another device has a price of its own.
    """
    plan = choices.plan
    base, pipeline_ends = setting(plan), schedule(at_inputs(plan, chosen).parallelism).pipeline_ends
    price = setting(choices.at(chosen)).get("price")
    chosen = chosen if price is None or chosen["price"] != base["price"] else {**chosen, "price": price}
    least = chosen["data"] * chosen["micro_batch"] * pipeline_ends
    several = base["global_batch"] > base["data"] * base["micro_batch"] * schedule(plan.parallelism).pipeline_ends
    if several == turned:
        return {**chosen, "global_batch": least}
    may_stay = chosen["global_batch"] > least and chosen["global_batch"] % least == 0
    return {**chosen, "global_batch": chosen["global_batch"] if may_stay else least * 2 * chosen[STAGES]}


def _settings_with(choices: PlanChoices, name: str, value: int) -> Iterator[dict[str, Any]]:
    """Settings in which one input alone has another value, and the batch follows."""
    moved = {**setting(choices.plan), **choices.plan_places(), name: value}
    yield from (moved, with_legal_batch(choices, moved), with_legal_batch(choices, moved, turned=True))


def _single_changes(choices: PlanChoices, legal: Mapping[str, Sequence[int]]) -> Iterator[dict[str, Any]]:
    """Legal settings in which one input alone has another value, and the batch follows."""
    for name, values in legal.items():
        for value in values:
            yield from [chosen for chosen in _settings_with(choices, name, value) if is_legal(choices, chosen)][:1]


def _awkward_settings(choices: PlanChoices) -> Iterator[dict[str, Any]]:
    """Settings that most plans cannot have, so that what is said against them is known."""
    plan, base = choices.plan, {**setting(choices.plan), **choices.plan_places()}
    longest = max(base["seq_len"], plan.model.learned_positions or 0, plan.model.max_seq_len)
    unsplit = dict.fromkeys(("tensor", STAGES, "context", "expert"), 1)
    at_once = base["data"] * base["micro_batch"]
    odd: list[dict[str, int]] = [
        *({"global_batch": base["global_batch"] + 1}, {"seq_len": base["seq_len"] + 1}, {"seq_len": 2 * longest}),
        *({"global_batch": 3 * at_once}, {"global_batch": (2 * base[STAGES] + 1) * at_once}),
        *({"data": 2 * base["global_batch"]}, {**unsplit, "data": plan.cluster.devices_per_node + 1}),
        *({"tensor": 2**power * base["tensor"]} for power in (1, 2, 3)),
        *({"zero": zero} for zero in ZERO_STAGES),
        *({**unsplit, "data": 1, "zero": zero} for zero in ZERO_STAGES),
    ]
    yield from ({**base, **change} for change in (*UNUSUAL_SETTINGS, *odd))


def difference(base: Setting, chosen: Setting) -> dict[str, int]:
    """What a setting has that is not the plan's."""
    return {name: value for name, value in chosen.items() if value != base[name]}


def _is_reached(choices: PlanChoices, graph: Graph, structures: Sequence[Structure], name: str, value: int) -> bool:
    """Whether some structure holds where one input alone has another value, and the batch follows."""
    evaluations = (Evaluation(graph, chosen) for chosen in _settings_with(choices, name, value))
    return any(at.meets(structure.guards) for at in evaluations for structure in structures)


# --- values of the controls ---


def control_values(choices: PlanChoices) -> dict[str, list[int]]:
    """The values that each control offers, each legal by itself; those of the global batch follow from two others.

    Of choices they are places among words.
    """
    plan, base = choices.plan, {**setting(choices.plan), **choices.plan_places()}
    layers = sum(group.repeat for group in plan.model.groups)
    longest = plan.model.learned_positions or max(LONGEST, WIDER * base["seq_len"])
    wide = {
        "micro_batch": round_numbers(1, WIDER * base["micro_batch"]),
        "seq_len": round_numbers(SHORTEST, longest),
        "data": round_numbers(1, WIDER * base["data"]),
        "tensor": round_numbers(1, max(WIDER, WIDER * base["tensor"])),
        STAGES: list(range(1, min(layers, max(WIDER * 2, WIDER * base[STAGES])) + 1)),
        "context": round_numbers(1, max(WIDER, WIDER * base["context"])),
        "expert": round_numbers(1, max(group.mlp.experts for group in plan.model.groups) or 1),
        "global_batch": [],
        "zero": list(ZERO_STAGES),
        **{name: list(range(len(choices.words(name)))) for name in choices.options},
    }
    return {
        name: sorted({base[name], *(value for value in values if _is_legal_alone(choices, name, value))})
        for name, values in wide.items()
    }


def _is_legal_alone(choices: PlanChoices, name: str, value: int) -> bool:
    _, *settings = _settings_with(choices, name, value)
    return any(is_legal(choices, chosen) for chosen in settings)


def round_numbers(least: int, most: int) -> list[int]:
    """Powers of two, and those times three."""
    powers = [2**power for power in range(most.bit_length())]
    return sorted(n for n in {*powers, *(3 * power for power in powers)} if least <= n <= most)
