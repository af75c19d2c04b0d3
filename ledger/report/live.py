"""The plan as a program of its own: its structures as a graph in JavaScript, for a reader who moves its sizes offline.

Every number that the page shows is the compiler's own arithmetic, traced. A structure holds for all settings that meet
its guards; the page has those that are reached from the plan's own by splitting an axis or not, by other numbers of
pipeline stages, and with one micro-batch a step or several, as many as its size allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import log2
from typing import Any

from ledger.arithmetic.tracing import Graph, Trace, Traced
from ledger.arithmetic.values import largest
from ledger.books.memory.holdings import CATEGORIES
from ledger.books.price_changes import LIMITS, PRICES, shares
from ledger.books.traced import (
    NAMES,
    STAGES,
    Guard,
    Structure,
    TracedRule,
    covers,
    resized,
    setting,
    structure,
    traced_rules,
)
from ledger.model.schedule import schedule
from ledger.report import assets
from ledger.report.graph_script import Script, literal, script
from ledger.spec.inputs import violations
from ledger.spec.plan import Plan

RUN = ("micro_batch", "seq_len", "global_batch")
AXES = ("data", "tensor", STAGES, "context", "expert")
TURNED = ("global_batch", "tensor", STAGES, "context", "expert", "data")  # the structures that readers ask for first
STEP = "step"  # the input that has the seconds of a step, and what those with better prices begin with
WIDER = 8  # how far beyond the plan's own value a control goes
SHORTEST, LONGEST = 256, 131072  # tokens of a sequence that a control offers
MOST_TERMS = 24_000  # of the graph of one page: some 300 kB, and a second or so of a report's time
# Degrees that most plans do not split over, or that need more devices than whole nodes have.
AWKWARD = (
    {"data": 1, "context": 1},
    {"tensor": 3},
    {"context": 3},
    {STAGES: 5},
    {"data": 3},
    {"expert": 3},
    {"data": 5, "context": 5},
)

Setting = Mapping[str, int]


@dataclass(frozen=True)
class Page:
    """What the page of a plan knows: its structures, the rules that its sizes can break, and the controls' values.

    `left_out`: settings, as they differ from the plan, whose structures are not in the page.
    """

    plan: Plan
    graph: Graph
    structures: tuple[Structure, ...]
    rules: tuple[TracedRule, ...]
    stops: Mapping[str, Sequence[int]]
    left_out: tuple[Setting, ...]


def page_of(plan: Plan) -> Page | None:
    """The page of a plan; None where only a parameter count is known."""
    if plan.model.bare:
        return None
    graph, own, legal = Graph(), setting(plan), stops(plan)
    found: list[Structure] = []
    left_out: list[Setting] = []
    tried = [*reachable(plan, legal), *_single(plan, legal)]
    for chosen in tried:
        if any(covers(graph, one.guards, chosen) for one in found):
            continue
        if len(graph.terms) > MOST_TERMS:
            left_out.append(difference(own, chosen))
        else:
            found.append(structure(plan, graph, chosen))
    rules = traced_rules(plan, graph, [*tried, *_awkward(plan)])
    offered = {
        name: [value for value in values if _reached(plan, graph, found, name, value)] for name, values in legal.items()
    }
    return Page(plan, graph, tuple(found), rules, offered, tuple(left_out))


# --- structures ---------------------------------------------------------------------------------


def reachable(plan: Plan, legal: Mapping[str, Sequence[int]]) -> Iterator[dict[str, int]]:
    """Legal settings that may differ from the plan in structure, the nearest first: one of each kind."""
    own = setting(plan)
    ranked = [
        (rank, (name, value)) for name in TURNED for rank, value in enumerate(_turned(own[name], name, legal[name]))
    ]
    turns = [turn for _, turn in sorted(ranked, key=lambda pair: pair[0])]
    yield own
    for several in range(1, 1 + len({name for name, _ in turns})):
        for chosen in combinations(turns, several):
            if len({name for name, _ in chosen}) == several:
                other = repaired(plan, {**own, **dict(chosen)}, turned=("global_batch", 0) in chosen)
                if not violations(resized(plan, other)):
                    yield other


def _turned(own: int, name: str, legal: Sequence[int]) -> Iterator[int]:
    """Values of an input that turn a structure into another: split or not, other stages; 0 for one micro-batch."""
    if name == "global_batch":
        yield 0
    elif name == STAGES:
        yield from sorted((count for count in legal if count != own), key=lambda count: abs(log2(count / own)))
    else:
        yield from [1] if own > 1 else [count for count in legal if count > 1][:1]


def repaired(plan: Plan, chosen: Setting, *, turned: bool = False) -> dict[str, int]:
    """The setting with a global batch of whole micro-batches, several or one as in the plan, or else `turned`."""
    own, ways = setting(plan), schedule(resized(plan, chosen).parallelism).ways
    least = chosen["data"] * chosen["micro_batch"] * ways
    several = own["global_batch"] > own["data"] * own["micro_batch"] * schedule(plan.parallelism).ways
    if several == turned:
        return {**chosen, "global_batch": least}
    kept = chosen["global_batch"] > least and chosen["global_batch"] % least == 0
    return {**chosen, "global_batch": chosen["global_batch"] if kept else least * 2 * chosen[STAGES]}


def _single(plan: Plan, legal: Mapping[str, Sequence[int]]) -> Iterator[dict[str, int]]:
    """Legal settings in which one input alone has another value, and the batch follows."""
    own = setting(plan)
    for name, values in legal.items():
        for value in values:
            moved = {**own, name: value}
            ways = (moved, repaired(plan, moved), repaired(plan, moved, turned=True))
            yield from [chosen for chosen in ways if not violations(resized(plan, chosen))][:1]


def _awkward(plan: Plan) -> Iterator[dict[str, int]]:
    """Settings that most plans cannot have, so that what is said against them is known."""
    own = setting(plan)
    longer = {"seq_len": 2 * max(own["seq_len"], plan.model.learned_positions or 0)}
    odd: tuple[dict[str, int], ...]
    odd = ({"global_batch": own["global_batch"] + 1}, {"seq_len": own["seq_len"] + 1}, longer)
    alone = dict.fromkeys(("tensor", STAGES, "context", "expert"), 1)
    at_once = own["data"] * own["micro_batch"]
    odd = (*odd, {"global_batch": 3 * at_once}, {"global_batch": (2 * own[STAGES] + 1) * at_once})
    odd = (*odd, {"data": 2 * own["global_batch"]}, {**alone, "data": plan.cluster.devices_per_node + 1})
    odd = (*odd, *({"tensor": 2**power * own["tensor"]} for power in (1, 2, 3)))
    yield from ({**own, **change} for change in (*AWKWARD, *odd))


def difference(own: Setting, chosen: Setting) -> dict[str, int]:
    """What a setting has that is not the plan's."""
    return {name: value for name, value in chosen.items() if value != own[name]}


def _reached(plan: Plan, graph: Graph, found: Sequence[Structure], name: str, value: int) -> bool:
    """Whether some structure holds where one input alone has another value, and the batch follows."""
    moved = {**setting(plan), name: value}
    ways = (moved, repaired(plan, moved), repaired(plan, moved, turned=True))
    return any(covers(graph, one.guards, chosen) for one in found for chosen in ways)


# --- controls -----------------------------------------------------------------------------------


def stops(plan: Plan) -> dict[str, list[int]]:
    """The values that each control offers, each legal by itself; those of the global batch follow from two others."""
    own = setting(plan)
    layers = sum(group.repeat for group in plan.model.groups)
    longest = plan.model.learned_positions or max(LONGEST, WIDER * own["seq_len"])
    wide = {
        "micro_batch": round_numbers(1, WIDER * own["micro_batch"]),
        "seq_len": round_numbers(SHORTEST, longest),
        "data": round_numbers(1, WIDER * own["data"]),
        "tensor": round_numbers(1, max(WIDER, WIDER * own["tensor"])),
        STAGES: list(range(1, min(layers, max(WIDER * 2, WIDER * own[STAGES])) + 1)),
        "context": round_numbers(1, max(WIDER, WIDER * own["context"])),
        "expert": round_numbers(1, max(group.mlp.experts for group in plan.model.groups) or 1),
        "global_batch": [],
    }
    return {
        name: sorted({own[name], *(value for value in values if _legal_alone(plan, name, value))})
        for name, values in wide.items()
    }


def _legal_alone(plan: Plan, name: str, value: int) -> bool:
    moved = {**setting(plan), name: value}
    return any(not violations(resized(plan, repaired(plan, moved, turned=turned))) for turned in (False, True))


def round_numbers(least: int, most: int) -> list[int]:
    """Powers of two, and those times three."""
    powers = [2**power for power in range(most.bit_length())]
    return sorted(n for n in {*powers, *(3 * power for power in powers)} if least <= n <= most)


# --- the script ---------------------------------------------------------------------------------


def page_script(page: Page) -> str:
    """The whole script of the page, whose names stay inside it."""
    return f"{{\n{calculator(page)}\n{assets.text('format.js')}\n{assets.text('panel.js')}}}\n"


def calculator(page: Page) -> str:
    """The script without its panel: `evaluate(chosen)` gives the totals of the plan under other sizes."""
    known, plan = page, page.plan
    prices = [price.path for price in PRICES]
    steps = [STEP, *(f"{STEP}.{path}" for path in prices)]
    limit = _limit(known.graph, steps)
    roots = [_conditions(known), *(_asked(one) for one in known.structures), [limit.place]]
    written = script(known.graph, [*NAMES, *prices, *steps], roots)
    data = {
        "inputs": NAMES,
        "own": setting(plan),
        "stops": known.stops,
        "prices": [price.better_by for price in PRICES],
        "limits": list(LIMITS.values()),
        "limit": written.slots[limit.place],
        "categories": CATEGORIES,
        "capacity": plan.accelerator.memory,
        "rules": [_rule(one, written) for one in known.rules],
        "structures": [_structure(one, written) for one in known.structures],
        "size": written.size,
        "blocks": written.blocks_of,
    }
    blocks = ",\n".join(f"(v)=>{{{block}}}" for block in written.blocks)
    return f"const PLAN = {literal(data)};\nconst BLOCKS = [\n{blocks}];\n{assets.text('live.js')}"


def _limit(graph: Graph, steps: Sequence[str]) -> Traced:
    """Which resource limits a step, from its seconds and those with better prices, which are inputs."""
    trace = Trace(graph)
    seconds = [trace.input(name, 1.0) for name in steps]
    place: Traced = largest(list(shares(seconds[0], seconds[1:]).values()), lambda share: share)
    return place


def _conditions(known: Page) -> list[int]:
    """What is asked before any structure is chosen."""
    found = [place for one in known.structures for place, _ in one.guards]
    for rule in known.rules:
        found += [place for conditions in rule.silent for place, _ in conditions]
        for finding in rule.findings:
            found += [place for place, _ in finding.conditions]
            found += [part for part in (*finding.message, *finding.help) if isinstance(part, int)]
    return found


def _asked(one: Structure) -> list[int]:
    return [value.place for value in (*one.totals.values(), one.moment) if isinstance(value, Traced)]


def _structure(one: Structure, written: Script) -> dict[str, Any]:
    return {
        "guards": _slots(one.guards, written),
        "totals": {key: _slot(value, written) for key, value in one.totals.items()},
        "moment": _slot(one.moment, written),
        "moments": one.moments,
    }


def _slot(value: Any, written: Script) -> list[Any]:
    """Where a value is, or the number that it always is."""
    return [written.slots[value.place]] if isinstance(value, Traced) else [-1, float(value)]


def _slots(guards: Sequence[Guard], written: Script) -> list[list[Any]]:
    return [[written.slots[place], int(truth)] for place, truth in guards]


def _rule(one: TracedRule, written: Script) -> dict[str, Any]:
    def pieces(parts: Sequence[str | int]) -> list[str | int]:
        return [part if isinstance(part, str) else written.slots[part] for part in parts]

    findings = (
        {"conditions": _slots(each.conditions, written), "message": pieces(each.message), "help": pieces(each.help)}
        for each in one.findings
    )
    return {"silent": [_slots(conditions, written) for conditions in one.silent], "findings": list(findings)}
