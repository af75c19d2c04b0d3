"""The axes of a sweep: the values that `--over` gives to keys of the layout and to any other key of the plan."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from math import prod
from typing import Any

import numpy as np

from ledger.books.names import Absent, absent
from ledger.search.batches import text_of
from ledger.search.choices import VALUES, cuts
from ledger.search.space import DATA, LAYOUT, MESH, MICRO_BATCH, NEUTRAL, Layout, Space, keys_of, space_of, with_layout
from ledger.spec.faults import Fault, StatedValue
from ledger.spec.inputs import violations
from ledger.spec.load import load_plan
from ledger.spec.overrides import assignments, read_overrides
from ledger.spec.paths import row_at
from ledger.spec.plan import Parallelism, Plan
from ledger.spec.problems import FLAG as SET
from ledger.spec.problems import Location, Problem, SpecError
from ledger.spec.reader import as_node, read_value
from ledger.spec.values import Size

ASKED, MOST_BASES, EXAMPLES = 200, 8, 20  # layouts of a base that are asked, bases, and layouts whose keys are changed
# Faults that count for a layout that is legal by all that is asked here, and for one that is no choice at all.
NOTHING, WORST = 10**6, 1000
DEGREES = tuple(MESH + key for key in ("tensor", "pipeline", "context"))
FIRST = (*DEGREES, f"{MESH}expert", f"{MESH}offload", "recompute", "run.micro_batch")  # keys that no other one idles


def _has_stages(layout: Layout) -> bool:
    return bool(layout[f"{MESH}pipeline"] > 1)


# Whether a value of a key has an effect in a layout of the keys before it, and the text of what is due.
SERVES: Mapping[str, tuple[Callable[[Layout, Any], bool], str]] = {
    "sequence": (lambda layout, value: layout[f"{MESH}tensor"] > 1 or value == "off", "is off where tensor is 1"),
    "context_exchange": (
        lambda layout, value: (value is None) == (layout[f"{MESH}context"] == 1),
        "is null where context is 1, and named elsewhere",
    ),
    "schedule": (
        lambda layout, value: (value is None) != _has_stages(layout),
        "is null where pipeline is 1, and named elsewhere",
    ),
    "interleave": (lambda layout, value: _has_stages(layout) or value == 1, "is 1 where pipeline is 1"),
    "ends": (lambda layout, value: _has_stages(layout) or value is None, "is null where pipeline is 1"),
    "stages": (lambda layout, value: _has_stages(layout) or value is None, "is null where pipeline is 1"),
    "zero": (lambda *_: True, ""),
    "reshard": (
        lambda layout, value: (value is None) == (layout[f"{MESH}zero"] != 3),
        "is null where zero is below 3, and stated where it is 3",
    ),
    "replicate": (lambda layout, value: layout[f"{MESH}zero"] > 0 or value == 1, "is 1 where zero is 0"),
}


@dataclass(frozen=True)
class Reason:
    """Why a space has no legal layout: the named key to blame, empty where none is, and the fault in words."""

    key: str
    text: str


def common_reason(bases: Sequence[Base], axes: Axes, without: Callable[[Base, str], Plan | None]) -> Reason:
    """Why some layouts of a space are not legal: the most frequent reason among those with the fewest faults.

    `without`: the plan of a base with one of its own changes taken back.
    """
    reasons: dict[int, Counter[tuple[str, str]]] = {}
    examples: dict[tuple[str, str], list[tuple[Base, Layout]]] = {}
    texts: dict[tuple[str, str], set[str]] = {}
    generator = np.random.default_rng(0)
    for base in islice(bases, MOST_BASES):
        for _ in range(ASKED):
            layout, key = _draw_layout(base, generator)
            if key:
                due = SERVES[key.removeprefix(MESH)][1] if key.removeprefix(MESH) in SERVES else ""
                missed, text = 1, f"`{key}` {due or 'has no value here'}"
            else:
                missed, key, text = _first_fault(layout, base.plan, axes.data)
            complaint = (key, _without_numbers(text))
            reasons.setdefault(missed, Counter())[complaint] += 1
            examples.setdefault(complaint, []).append((base, layout))
            texts.setdefault(complaint, set()).add(text)
    complaint, _ = reasons[min(reasons)].most_common(1)[0]
    text = min(texts[complaint], key=lambda sentence: (len(sentence), sentence))
    blamed = complaint[0] or _blamed_key(complaint[1], examples[complaint][:EXAMPLES], axes, without)
    return Reason(blamed if blamed in axes.named else "", text)


def _draw_layout(base: Base, generator: np.random.Generator) -> tuple[Layout, str]:
    """A layout of a base in which each key has an effect, or the first key that has no value with one."""
    layout: dict[str, Any] = {}
    keys = (*FIRST, *(MESH + name for name in SERVES))
    for key in filter(base.space.values.__contains__, keys):
        serves = SERVES[key.removeprefix(MESH)][0] if key not in FIRST else lambda *_: True
        fitting = [value for value in base.space.values[key] if serves(layout, value)]
        if key in (f"{MESH}ends", f"{MESH}stages") and _has_stages(layout):
            fitting = [value for value in fitting if _is_a_cut(base.plan, layout, key, value)]
        if not fitting:
            return layout, key
        layout[key] = fitting[generator.integers(len(fitting))]
    return {key: layout[key] for key in base.space.keys}, ""


def _is_a_cut(plan: Plan, layout: Layout, key: str, value: Any) -> bool:
    """Whether a value of `ends` or `stages` is one of the distinct partitions of the layers."""
    mesh = Parallelism(pipeline=layout[f"{MESH}pipeline"], interleave=layout.get(f"{MESH}interleave", 1))
    partitions = cuts(plan, mesh)
    if key == f"{MESH}ends":
        return any(ends == value for ends, _ in partitions)
    return (layout[f"{MESH}ends"], value) in partitions


def _first_fault(layout: Layout, plan: Plan, data: Sequence[int]) -> tuple[int, str, str]:
    """How many faults a layout has, the key to blame where it is known, and the text of the first."""
    devices, product = plan.cluster.devices, prod(layout.get(key, 1) for key in DEGREES)
    if devices % product:
        names = " x ".join(f"{key.removeprefix(MESH)} {layout[key]}" for key in DEGREES if key in layout)
        return WORST, "", f"for example, {names} does not divide the {devices} devices"
    messages = _violations(plan, layout)
    if messages:
        return len(messages) + 1, "", f"for example: {messages[0]}"
    if data and devices // product not in data:
        not_dividing = [degree for degree in data if devices % degree]
        if not_dividing:
            return 0, DATA, f"{', '.join(map(str, not_dividing))} does not divide the {devices} devices"
        return 0, DATA, f"the other degrees leave other values, for example {devices // product} of {devices} devices"
    return NOTHING, "", "no reason was found among some of its layouts"


def _violations(plan: Plan, layout: Layout) -> list[str]:
    try:
        return [problem.message for problem in violations(with_layout(plan, layout))]
    except SpecError as error:
        return [problem.message for problem in error.problems]


def _blamed_key(
    form: str, examples: Sequence[tuple[Base, Layout]], axes: Axes, without: Callable[[Base, str], Plan | None]
) -> str:
    """The key that was named and whose other values most often take a reason away."""
    points: Counter[str] = Counter()
    for base, layout in examples:
        for key in (*axes.others, *axes.layout):
            faults = [_first_fault(changed, plan, ()) for plan, changed in _changed_layouts(base, layout, key, without)]
            legal = any(missed == NOTHING for missed, _, _ in faults)
            is_gone = any(_without_numbers(sentence) != form for _, _, sentence in faults)
            # What makes a layout legal counts more than what shows another fault; a plan more than its layout.
            points[key] += (1 if key in LAYOUT else 2) * (EXAMPLES * legal + is_gone)
    best = points.most_common(1)
    return best[0][0] if best and best[0][1] else ""


def _changed_layouts(
    base: Base, layout: Layout, key: str, without: Callable[[Base, str], Plan | None]
) -> Iterator[tuple[Plan, Layout]]:
    """A layout with other values of a key, or in the plan that does not change it."""
    if key in LAYOUT:
        yield from ((base.plan, {**layout, key: value}) for value in VALUES[key](base.plan))
    elif plan := without(base, key):
        yield plan, layout


def _without_numbers(text: str) -> str:
    """A sentence without its numbers: what equal reasons have in common."""
    return re.sub(r"\d+", "", text)


# --- the plans whose layouts are searched ---


@dataclass(frozen=True)
class Base:
    """A plan, what it was changed by (`--set` values, then the combination's), and the space of its layouts."""

    plan: Plan
    changes: Mapping[str, Any]
    fixed: Mapping[str, Any]
    space: Space


def stated(overrides: Sequence[str]) -> dict[str, Any]:
    """The `--set` values that hold for every layout: those of keys that a layout does not state itself."""
    values = {".".join(override.steps): override.value.plain() for override in read_overrides(overrides)}
    of_layout = tuple(f"{key}." for key in (*LAYOUT, DATA))
    return {key: value for key, value in values.items() if not f"{key}.".startswith(of_layout)}


@dataclass(frozen=True)
class LeftOut:
    """A base that has not a total that is asked for, and why."""

    base: Base
    key: str
    why: Absent


def with_totals(every: Sequence[Base], keys: Sequence[str]) -> tuple[tuple[Base, ...], tuple[LeftOut, ...]]:
    """The bases that may have all of these totals, and those that lack an input of one."""
    lacking = [LeftOut(base, key, why) for base in every for key in keys if (why := absent(base.plan, key))]
    left_out = {id(lack.base) for lack in lacking}
    return tuple(base for base in every if id(base) not in left_out), tuple(lacking)


def left_out_words(left_out: Sequence[LeftOut]) -> str:
    """Which plans are left out, in a line: by what they lack, the devices where those lack it."""
    names_by_lack: dict[tuple[str, str], dict[str, None]] = {}
    for lack in left_out:
        fixed = ", ".join(f"{key} {text_of(value)}" for key, value in lack.base.fixed.items()) or "the plan"
        names_by_lack.setdefault((lack.key, lack.why.needed), {})[lack.why.of or fixed] = None
    lacking = (f"{', '.join(names)} ({key} needs `{needed}`)" for (key, needed), names in names_by_lack.items())
    return f"left out: {'; '.join(lacking)}"


def bases(
    spec: str, overrides: Sequence[str], axes: Axes, note: Callable[[int], None] = lambda _: None
) -> tuple[Base, ...]:
    """The bases of all combinations that can be read; SpecError for values that no combination can have.

    What the rules of a spec refuse depends on the layout, so that it is asked of each layout.
    """
    always = stated(overrides)
    readable: list[Base] = []
    failures: list[tuple[Mapping[str, Any], SpecError]] = []
    for number, chosen in enumerate(combinations(axes.others)):
        try:
            plan = load_plan(spec, (*overrides, *assignments(chosen)), rules=())
        except SpecError as error:
            failures.append((chosen, error))
            continue
        readable.append(Base(plan, {**always, **chosen}, chosen, space_of(plan, axes.layout)))
        note(number + 1)
    _raise_for_values(axes, [base.fixed for base in readable], failures)
    _raise_for_keys(axes, readable)
    return tuple(readable)


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
            if any(text_of(chosen[key]) == text_of(value) for chosen in read):
                continue
            error = next(error for chosen, error in failures if text_of(chosen[key]) == text_of(value))
            where = axes.place(key, value)
            typed = f"{SET}{assignments({key: value})[0]}"
            problems_here = [problem for problem in error.problems if problem.where.file == typed]
            problems += [
                Problem(_place_in_axis(key, where, problem.where.column), problem.message, problem.help)
                for problem in problems_here
            ]
            if not problems_here and not problems:
                problems, sources = list(error.problems), dict(error.sources)
    if problems:
        raise SpecError(problems, sources | _texts(problems))


def _place_in_axis(key: str, value: Location, column: int) -> Location:
    """A place in `--set KEY=VALUE` as it is in the text of an axis: in the key, or else at the value."""
    within = column - len(SET)
    return Location(value.file, 1, len(FLAG) + within) if within <= len(key) else value


def _raise_for_keys(axes: Axes, readable: Iterable[Base]) -> None:
    """Raises SpecError for a key of the layout none of whose values any base's rules let it have."""
    problems: list[Problem] = []
    every = list(readable)
    for key, values in axes.layout.items():
        if any(text_of(value) in map(text_of, VALUES[key](base.plan)) for base in every for value in values):
            continue
        reasons = [_refusal(key, value, every) for value in values]
        if all(reasons):
            help_text = _legal_values_text(key, every)
            problems += [
                Problem(axes.place(key, value), why, help_text) for value, why in zip(values, reasons, strict=True)
            ]
    if problems:
        raise SpecError(problems, _texts(problems))


def _refusal(key: str, value: Any, every: Sequence[Base]) -> str:
    """Why no base can have a value of a key, as the first says; nothing where one can."""
    reasons = []
    for base in every:
        neutral = {**NEUTRAL, "parallelism.zero": 3 if base.plan.cluster.devices > 1 else 0}
        plain = {key: neutral[key] for key in base.space.keys}
        usual = {problem.message for problem in violations(with_layout(base.plan, plain))}
        messages = [problem.message for problem in violations(with_layout(base.plan, {**plain, key: value}))]
        reasons.append(next((message for message in messages if message not in usual), ""))
    return reasons[0] if all(reasons) else ""


def _legal_values_text(key: str, every: Sequence[Base]) -> str:
    values = {text_of(value) for base in every for value in VALUES[key](base.plan)}
    listed = ", ".join(sorted(values, key=lambda text: (len(text), text))[:12])
    return f"`{key}` is {listed} in every layout of this plan" if len(values) == 1 else f"`{key}` may be {listed}"


def _texts(problems: Iterable[Problem]) -> dict[str, str]:
    return {problem.where.file: problem.where.file for problem in problems if problem.where.file.startswith(FLAG)}


FLAG = "--over "
EXAMPLE = "for example `--over run.micro_batch=1,2,4`"
MOST_VALUES = 1000  # of one key
MOST_PLANS = 10_000  # of keys beside the layout together
REFUSED = object()
ALWAYS_STATED = {DATA: "it follows from the other degrees where it is not named", MICRO_BATCH: EXAMPLE}
# Keys that make no other plan, or that another key says as well.
FIXED: Mapping[str, str] = {
    "spec": "it names the form of the spec",
    "plan": "it is the plan's title, from which nothing follows",
    "expect": "it is what the plan is checked against",
    "assumptions.headroom": "it changes no total; `--headroom` says how much memory stays free",
    "parallelism.shard": "it follows from the degrees; vary `parallelism.replicate`",
}


@dataclass(frozen=True)
class Axes:
    """Values by key: of the layout, of its data-parallel degree, and of all others; `places`: where each was given."""

    layout: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    data: tuple[int, ...] = ()
    others: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    places: Mapping[tuple[str, str], Location] = field(default_factory=dict)

    @property
    def named(self) -> Mapping[str, tuple[Any, ...]]:
        """Every key that was named, with its values."""
        return {**self.others, **({DATA: self.data} if self.data else {}), **self.layout}

    def place(self, key: str, value: Any) -> Location:
        """The place in the command line where a value was given."""
        return self.places[key, text_of(value)]


def read_axes(texts: Iterable[str]) -> Axes:
    """The axes of `KEY=V,V` texts; SpecError with the place of all that are none."""
    named: dict[str, tuple[Any, ...]] = {}
    places: dict[tuple[str, str], Location] = {}
    problems: list[Problem] = []
    sources = {FLAG + text: FLAG + text for text in texts}
    for file in sources:
        try:
            key, values = _read_axis(file, named)
        except SpecError as error:
            problems.extend(error.problems)
            continue
        problems.extend(_axis_problems(key, values))
        if key in LAYOUT or key == DATA:
            read = [(_layout_value(key, value, where, problems), where) for value, where in values]
            values = [(value, where) for value, where in read if value is not REFUSED]
        named[key] = tuple({text_of(value): value for value, _ in values}.values())
        places |= {(key, text_of(value)): where for value, where in values}
    layout = {key: values for key, values in named.items() if key in LAYOUT}
    others = {key: values for key, values in named.items() if key not in LAYOUT and key != DATA}
    for key, listed in named.items():
        if len(listed) > MOST_VALUES:
            where = Location(places[key, text_of(listed[0])].file, 1, len(FLAG) + 1)
            problems.append(Problem(where, f"`{key}` has {len(listed)} values", f"at most {MOST_VALUES}"))
    if (plans := prod(map(len, others.values()))) > MOST_PLANS:
        first = next(iter(others))
        where = Location(places[first, text_of(others[first][0])].file, 1, len(FLAG) + 1)
        message = f"{', '.join(others)} make {plans} plans, each with all of its layouts"
        problems.append(Problem(where, message, f"at most {MOST_PLANS}: vary fewer keys at a time"))
    if problems:
        raise SpecError(problems, sources)
    return Axes(layout, named.get(DATA, ()), others, places)


def require_keys(axes: Axes, plan: Plan) -> None:
    """Raises SpecError for keys of a layout that the layouts of this plan do not state, since it serves."""
    keys_of_layout = keys_of(plan)
    problems = [
        Problem(
            Location(axes.place(key, values[0]).file, 1, len(FLAG) + 1),
            f"`{key}` is not of the layouts of a plan that serves",
            f"vary {', '.join(keys_of_layout)}, or any other key of the plan, as `serve.concurrency`",
        )
        for key, values in axes.layout.items()
        if key not in keys_of_layout
    ]
    if problems:
        raise SpecError(problems, {problem.where.file: problem.where.file for problem in problems})


def _read_axis(file: str, named: Mapping[str, Any]) -> tuple[str, list[tuple[Any, Location]]]:
    """A key with its values, each with its place; lists and mappings keep their commas."""
    key, equals, text = file.removeprefix(FLAG).partition("=")
    key, here = key.strip(), Location(file, 1, len(FLAG) + 1)
    if not equals or not key or not text.strip():
        raise SpecError([Problem(here, f"`{file.removeprefix(FLAG)}` is no `KEY=VALUE,VALUE`", EXAMPLE)])
    if key in named:
        raise SpecError([Problem(here, f"`{key}` is given twice", "name all its values at once")])
    start = file.index("=") + 1  # the bracket that makes a list of them stands where the equals sign is
    listed = read_value(f"[{text}]", Location(file, 1, start))
    return key, [(node.plain(), node.where) for node in listed.items]


def _axis_problems(key: str, values: Sequence[tuple[Any, Location]]) -> Iterator[Problem]:
    """Problems of a key as an axis: keys that cannot vary, and parts or parents of a key of the layout."""
    here = Location(values[0][1].file, 1, len(FLAG) + 1)
    if key in FIXED:
        yield Problem(here, f"`{key}` cannot vary: {FIXED[key]}")
    whole_key = next((layout_key for layout_key in LAYOUT if key.startswith(f"{layout_key}.")), "")
    if whole_key:
        yield Problem(
            here, f"`{key}` is a part of `{whole_key}`", f"give whole values: `--over '{whole_key}=none,{{every: 2}}'`"
        )
    keys_below = [layout_key for layout_key in LAYOUT if layout_key.startswith(f"{key}.")]
    if keys_below:
        yield Problem(here, f"`{key}` holds keys of the layout", f"name them one by one: {', '.join(keys_below)}")


def _layout_value(key: str, value: Any, where: Location, problems: list[Problem]) -> Any:
    """A value as a layout states it: whole numbers as such, and what leaving a key out (null) means; or REFUSED."""
    kind = row_at(key)
    if value is None and key in ALWAYS_STATED:
        problems.append(Problem(where, f"`{key}` cannot be left out of a layout", ALWAYS_STATED[key]))
        return REFUSED
    if value is None or kind is None:
        return NEUTRAL.get(key)
    faults: list[Fault] = []
    read = kind.type.read(StatedValue(as_node(value, where), tuple(key.split(".")), kind.meaning), faults)
    problems.extend(fault.problem for fault in faults)
    if faults:
        return REFUSED
    return read if isinstance(kind.type, Size) else value
