"""The script of a plan's page: its structures and rules as functions, with the values of its controls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ledger.arithmetic.tracing import Graph, Trace, Traced
from ledger.arithmetic.values import largest
from ledger.books.calendar import LEAST
from ledger.books.memory.holdings import CATEGORIES
from ledger.books.price_changes import LIMITS, PRICES, shares
from ledger.books.results import OF_A_RUN
from ledger.books.traced import AMOUNTS, CHOICES, DEVICE, PATHS, Guard, Structure
from ledger.books.traced_rules import TracedRule
from ledger.report import assets
from ledger.report.graph_script import Script, literal, script
from ledger.report.live import Page
from ledger.report.live_words import UNITS
from ledger.spec.axes import MULTIPLIED
from ledger.spec.headroom import headroom_words
from ledger.spec.inputs import origin
from ledger.spec.plan import BATCH, Plan
from ledger.spec.rules.table import WARNINGS

STEP = "step"  # the input that has the seconds of a step, and what those with better prices begin with


def page_script(page: Page) -> str:
    """The whole script of the page, whose names stay inside it."""
    return f"{{\n{calculator(page)}\n{assets.text('format.js')}\n{assets.text('panel.js')}}}\n"


def calculator(page: Page) -> str:
    """The script without its panel: `evaluate(chosen)` gives the totals of another setting, `settings` its `--set`."""
    known, plan = page, page.plan
    prices = [price.path for price in PRICES]
    steps = [STEP, *(f"{STEP}.{path}" for path in prices)]
    limit = _limit(known.graph, steps)
    rules = (*known.rules, *known.warnings)
    roots = [[*_conditions(known.structures, rules)], *(_asked(one) for one in known.structures), [limit.place]]
    written = script(known.graph, [*known.own, *prices, *steps], roots)
    data = {
        "inputs": list(known.own),
        "controls": [name for name in known.own if moves(page, name)],
        "own": known.own,
        "paths": {name: path for name, path in PATHS.items() if name in known.own},
        "units": {name: unit for name, unit in UNITS.items() if name in known.own},
        "words": {name: known.choices.words(name) for name in CHOICES},
        "multiplied": MULTIPLIED,
        "offers": [_offer(other) for other in known.choices.options[DEVICE].values()],
        "notices": {name: [_notices(other) for other in known.choices.options[name].values()] for name in CHOICES},
        **_spec(plan),
        "stops": known.stops,
        "devices": plan.cluster.devices,
        "of_a_run": OF_A_RUN,
        "most": BATCH.most,
        "headroom": headroom_words(plan.assumptions.headroom),
        "least": LEAST,
        "prices": [price.better_by for price in PRICES],
        "limits": list(LIMITS.values()),
        "limit": written.slots[limit.place],
        "categories": CATEGORIES,
        "rules": [_rule(one, written) for one in known.rules],
        "warnings": [_rule(one, written) for one in known.warnings],
        "structures": [_structure(one, written) for one in known.structures],
        "size": written.size,
        "blocks": written.blocks_of,
    }
    blocks = ",\n".join(f"(v)=>{{{block}}}" for block in written.blocks)
    scripts = f"{assets.text('live.js')}\n{assets.text('live_text.js')}"
    return f"const PLAN = {literal(data)};\nconst BLOCKS = [\n{blocks}];\n{scripts}"


def _offer(plan: Plan) -> dict[str, Any]:
    """What an hour of the plan's device costs, and since when."""
    price = plan.assumptions.price
    return {"price": price.per_device_hour, "date": price.date} if price else {}


def _notices(plan: Plan) -> list[tuple[str, str]]:
    """What reading a plan warns of beyond the rules, which the page asks itself."""
    rules = {rule.__name__ for rule in WARNINGS}
    return [(one.message, one.help) for one in plan.warnings if one.rule not in rules]


def _spec(plan: Plan) -> dict[str, Any]:
    """The plan's file, what was set beside it, and whether it states a price of its own."""
    if plan.reading is None:
        return {"file": f"{plan.name}.yaml", "overrides": [], "priced": True}
    price, file = origin(plan, "assumptions.price.per_device_hour"), plan.reading.source.file
    priced = price is not None and price.where.file == file
    return {"file": file, "overrides": plan.reading.overrides, "priced": priced}


def _limit(graph: Graph, steps: Sequence[str]) -> Traced:
    """Which resource limits a step, from its seconds and those with better prices, which are inputs."""
    trace = Trace(graph)
    seconds = [trace.input(name, 1.0) for name in steps]
    place: Traced = largest(list(shares(seconds[0], seconds[1:]).values()), lambda share: share)
    return place


def _conditions(structures: Iterable[Structure], rules: Iterable[TracedRule]) -> Iterator[int]:
    """What is asked before any structure is chosen."""
    for one in structures:
        yield from (place for place, _ in one.guards)
    for rule in rules:
        yield from (place for conditions in rule.silent for place, _ in conditions)
        for finding in rule.findings:
            yield from (place for place, _ in finding.conditions)
            yield from (part for part in (*finding.message, *finding.help) if isinstance(part, int))


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


def moves(page: Page, name: str) -> bool:
    """Whether an input has another value in the page, and changes anything: a price needs a run, a failure a save."""
    if name in UNITS:
        run, saves = bool(page.plan.run.tokens), page.plan.operations.saves
        return run and (saves or name not in AMOUNTS["operations"])
    return name in ("global_batch", "zero") or len(page.stops[name]) > 1
