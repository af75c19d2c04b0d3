"""The script of a plan's page: its structures and rules as functions, with the values of its controls."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ledger.arithmetic.operations import CALL, OPERATIONS, PRODUCT, SUM
from ledger.arithmetic.tracing import CONSTANT, INPUT, Graph, Trace, Traced, needed
from ledger.arithmetic.values import largest
from ledger.books.calendar import LEAST
from ledger.books.memory.holdings import CATEGORIES
from ledger.books.price_changes import LIMITS, PRICES, shares
from ledger.books.results import OF_A_RUN
from ledger.books.traced import AMOUNTS, CHOICES, DEVICE, PATHS, Guard, Structure, TracedRule
from ledger.numbers import DAY
from ledger.report import assets
from ledger.report.live import LivePage
from ledger.spec.headroom import headroom_words
from ledger.spec.inputs import origin
from ledger.spec.parallelism import MULTIPLIED
from ledger.spec.plan import BATCH, Plan
from ledger.spec.rules.table import WARNINGS

STEP = "step"  # the input that has the seconds of a step, and what those with better prices begin with


def page_script(page: LivePage) -> str:
    """The whole script of the page, whose names stay inside it."""
    return f"{{\n{calculator(page)}\n{assets.text('format.js')}\n{assets.text('panel.js')}}}\n"


def calculator(page: LivePage) -> str:
    """The script without its panel: `evaluate(chosen)` gives the totals of another setting, `settings` its `--set`."""
    plan = page.plan
    prices = [price.path for price in PRICES]
    steps = [STEP, *(f"{STEP}.{path}" for path in prices)]
    limit = _limiting_resource(page.graph, steps)
    rules = (*page.rules, *page.warnings)
    roots = [[*_condition_places(page.structures, rules)]]
    for structure in page.structures:
        values = (*structure.totals.values(), structure.moment)
        roots.append([value.place for value in values if isinstance(value, Traced)])
    roots.append([limit.place])
    written = script(page.graph, [*page.plan_setting, *prices, *steps], roots)
    data = {
        "inputs": list(page.plan_setting),
        "controls": [name for name in page.plan_setting if may_change(page, name)],
        "own": page.plan_setting,
        "paths": {name: path for name, path in PATHS.items() if name in page.plan_setting},
        "units": {name: unit for name, unit in UNITS.items() if name in page.plan_setting},
        "words": {name: page.choices.words(name) for name in CHOICES},
        "multiplied": MULTIPLIED,
        "offers": [_price_offer(variant) for variant in page.choices.options[DEVICE].values()],
        "notices": {name: [_notices(variant) for variant in page.choices.options[name].values()] for name in CHOICES},
        **_spec_data(plan),
        "stops": page.stops,
        "devices": plan.cluster.devices,
        "of_a_run": OF_A_RUN,
        "most": BATCH.most,
        "headroom": headroom_words(plan.assumptions.headroom),
        "least": LEAST,
        "prices": [price.better_by for price in PRICES],
        "limits": list(LIMITS.values()),
        "limit": written.slots[limit.place],
        "categories": CATEGORIES,
        "rules": [_rule_data(rule, written) for rule in page.rules],
        "warnings": [_rule_data(rule, written) for rule in page.warnings],
        "structures": [_structure_data(structure, written) for structure in page.structures],
        "size": written.size,
        "blocks": written.blocks_of,
    }
    blocks = ",\n".join(f"(v)=>{{{block}}}" for block in written.blocks)
    scripts = f"{assets.text('live.js')}\n{assets.text('live_text.js')}"
    return f"const PLAN = {literal(data)};\nconst BLOCKS = [\n{blocks}];\n{scripts}"


def _price_offer(plan: Plan) -> dict[str, Any]:
    """The price of an hour of the plan's device and its date; empty where none is stated."""
    price = plan.assumptions.price
    return {"price": price.per_device_hour, "date": price.date} if price else {}


def _notices(plan: Plan) -> list[tuple[str, str]]:
    """Message and help of each warning of reading the plan; those of rules are left out, as the page evaluates them."""
    rules = {rule.__name__ for rule in WARNINGS}
    return [(warning.message, warning.help) for warning in plan.warnings if warning.rule not in rules]


def _spec_data(plan: Plan) -> dict[str, Any]:
    """The plan's file, what was set beside it, and whether it states a price of its own."""
    if plan.reading is None:
        return {"file": f"{plan.name}.yaml", "overrides": [], "priced": True}
    price, file = origin(plan, "assumptions.price.per_device_hour"), plan.reading.source.file
    priced = price is not None and price.where.file == file
    return {"file": file, "overrides": plan.reading.overrides, "priced": priced}


def _limiting_resource(graph: Graph, steps: Sequence[str]) -> Traced:
    """Which resource limits a step, from its seconds and those with better prices, which are inputs."""
    trace = Trace(graph)
    seconds = [trace.input(name, 1.0) for name in steps]
    place: Traced = largest(list(shares(seconds[0], seconds[1:]).values()), lambda share: share)
    return place


def _condition_places(structures: Iterable[Structure], rules: Iterable[TracedRule]) -> Iterator[int]:
    """Places of the terms that decide which structure holds and which rules are broken."""
    for structure in structures:
        yield from (place for place, _ in structure.guards)
    for rule in rules:
        yield from (place for conditions in rule.silent for place, _ in conditions)
        for finding in rule.findings:
            yield from (place for place, _ in finding.conditions)
            yield from (part for part in (*finding.message, *finding.help) if isinstance(part, int))


def _structure_data(structure: Structure, written: LiveScript) -> dict[str, Any]:
    return {
        "guards": _slots(structure.guards, written),
        "totals": {key: _slot(value, written) for key, value in structure.totals.items()},
        "moment": _slot(structure.moment, written),
        "moments": structure.moments,
    }


def _slot(value: Any, written: LiveScript) -> list[Any]:
    """Where a value is, or the number that it always is."""
    return [written.slots[value.place]] if isinstance(value, Traced) else [-1, float(value)]


def _slots(guards: Sequence[Guard], written: LiveScript) -> list[list[Any]]:
    return [[written.slots[place], int(truth)] for place, truth in guards]


def _rule_data(rule: TracedRule, written: LiveScript) -> dict[str, Any]:
    def pieces(parts: Sequence[str | int]) -> list[str | int]:
        return [part if isinstance(part, str) else written.slots[part] for part in parts]

    findings = (
        {
            "conditions": _slots(finding.conditions, written),
            "message": pieces(finding.message),
            "help": pieces(finding.help),
        }
        for finding in rule.findings
    )
    return {"silent": [_slots(conditions, written) for conditions in rule.silent], "findings": list(findings)}


def may_change(page: LivePage, name: str) -> bool:
    """Whether an input has another value in the page, and changes anything: a price needs a run, a failure a save."""
    if name in UNITS:
        run, saves = bool(page.plan.run.tokens), page.plan.operations.saves
        return run and (saves or name not in AMOUNTS["operations"])
    return name in ("global_batch", "zero") or len(page.stops[name]) > 1


# --- a traced graph as JavaScript ---

SAFE = 2**53  # integers beyond it are floats in JavaScript, as every number there is
ASSOCIATIVE = ("add", "multiply", "both")
LONGEST = 400  # characters of an expression, from which on a term has a place of its own


@dataclass(frozen=True)
class LiveScript:
    """Blocks of JavaScript; `blocks_of` lists those of each structure, in order, `slots` the place of each term.

    `size` is that of the array: every input has a place, read or not.
    """

    blocks: tuple[str, ...]
    blocks_of: tuple[tuple[int, ...], ...]
    slots: Mapping[int, int]
    size: int


def script(graph: Graph, inputs: Sequence[str], roots: Sequence[Collection[int]]) -> LiveScript:
    """The terms behind the roots of each structure; the first structure is evaluated before any other."""
    users: dict[int, list[int]] = {}
    for structure, asked in enumerate(roots):
        for place in needed(graph, list(asked)):
            users.setdefault(place, []).append(structure)
    writer = _Writer(graph, inputs, sorted(users), {place for asked in roots for place in asked})
    members: dict[tuple[int, ...], list[int]] = {}
    for place in writer.stored:
        structures = (0,) if 0 in users[place] else tuple(users[place])
        members.setdefault(structures, []).append(place)
    order = sorted(members, key=lambda structures: (structures != (0,), -len(structures), members[structures][0]))
    blocks = tuple("".join(writer.assignments(members[structures])) for structures in order)
    blocks_of = tuple(
        tuple(index for index, structures in enumerate(order) if structure in structures)
        for structure in range(len(roots))
    )
    return LiveScript(blocks, blocks_of, writer.slots, len(inputs) + len(writer.stored))


class _Writer:
    """Writes terms, each after those that it reads."""

    def __init__(self, graph: Graph, inputs: Sequence[str], places: Sequence[int], roots: Collection[int]) -> None:
        self.terms = graph.terms
        uses = Counter(part for place in places if self._is_computed(place) for part in self.terms[place][1:])
        self.slots = {place: inputs.index(self.terms[place][1]) for place in places if self.terms[place][0] == INPUT}
        self.stored: list[int] = []
        self.written: dict[int, tuple[str, int]] = {}
        for place in places:
            name = self.terms[place][0]
            if name == INPUT:
                continue
            if name == CONSTANT:
                text = number(self.terms[place][2])
                self.written[place] = (text, CALL if text[0] != "-" and "/" not in text else SUM)
                if place not in roots:
                    continue
            elif uses[place] <= 1 and place not in roots:
                expression = self.expression(place)
                if len(expression[0]) < LONGEST:
                    self.written[place] = expression
                    continue
            self.stored.append(place)
            self.slots[place] = len(inputs) + len(self.stored) - 1

    def _is_computed(self, place: int) -> bool:
        return self.terms[place][0] not in (INPUT, CONSTANT)

    def assignments(self, places: Sequence[int]) -> Iterator[str]:
        """The terms with a place of their own."""
        for place in places:
            yield f"v[{self.slots[place]}]={self.expression(place)[0]};"

    def expression(self, place: int) -> tuple[str, int]:
        """A term as JavaScript, and how tightly it binds."""
        if not self._is_computed(place):
            return self.written[place]
        name, *operands = self.terms[place]
        operation, parts = OPERATIONS[name], [self.operand(operand) for operand in operands]
        if operation.script.startswith(("Math", "!")) or "**" in operation.script:
            least = 0 if "(" in operation.script else CALL
            enclosed = [_enclose(*part, least) for part in parts]
            if name in ("floor_divide", "ceil_divide"):
                enclosed = [_enclose(*parts[0], PRODUCT), _enclose(*parts[1], PRODUCT + 1)]
            elif name in ("truncate", "floor", "next_power_of_two"):
                enclosed = [_enclose(*parts[0], SUM)]
            return operation.script.format(*enclosed), CALL
        if name == "where":
            condition, yes, no = parts
            return f"{_enclose(*condition, 2)}?{_enclose(*yes, 2)}:{_enclose(*no, 1)}", operation.binds
        after = operation.binds if name in ASSOCIATIVE else operation.binds + 1
        return operation.script.format(
            _enclose(*parts[0], operation.binds), _enclose(*parts[1], after)
        ), operation.binds

    def operand(self, place: int) -> tuple[str, int]:
        """A term where another one reads it."""
        if place in self.slots and (place not in self.written or self.terms[place][0] != CONSTANT):
            return f"v[{self.slots[place]}]", CALL
        return self.written[place]


def _enclose(text: str, binds: int, least: int) -> str:
    return text if binds >= least else f"({text})"


def number(value: float | Fraction | bool) -> str:
    """A number that JavaScript reads as the same double that Python makes of it."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, Fraction):
        return f"{value.numerator}/{value.denominator}"
    if isinstance(value, int):
        return str(value) if abs(value) < SAFE else repr(float(value))
    return repr(value).replace("e-0", "e-").replace("e+", "e").removesuffix(".0")


def literal(data: object) -> str:
    """Data as it may stand inside a script of a page: JSON, in which no markup can end the script."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


# --- titles and units of the controls ---

TITLES: Mapping[str, str] = {
    "micro_batch": "micro-batch, sequences",
    "seq_len": "sequence, tokens",
    "global_batch": "global batch, sequences",
    "data": "data parallel",
    "tensor": "tensor parallel",
    "pipeline": "pipeline stages",
    "context": "context parallel",
    "expert": "expert parallel",
    "zero": "ZeRO stage",
    "recompute": "recomputation",
    "accelerator": "device",
    "tokens": "tokens of the run",
    "price": "price of a device-hour",
    "failure_rate": "failures of a device",
    "checkpoint_interval": "checkpoint every",
    "checkpoint_cost": "a checkpoint takes",
    "restart_time": "a restart takes",
    "storage_bandwidth": "checkpoint storage",
}
# By amount, the unit that a reader types, and what it is in SI base units.
UNITS: Mapping[str, tuple[str, float]] = {
    "tokens": ("B tokens", 1e9),
    "price": ("USD", 1),
    "failure_rate": ("/d", 1 / DAY),
    "checkpoint_interval": ("min", 60),
    "checkpoint_cost": ("s", 1),
    "restart_time": ("min", 60),
    "storage_bandwidth": ("GB/s", 1e9),
}
