"""What a sweep varies: the values that `--over` gives, of keys of the layout and of any other key of the plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from ledger.search.batches import text_of
from ledger.search.space import DATA, LAYOUT, MICRO_BATCH, NEUTRAL, keys_of
from ledger.spec.faults import Fault, Written
from ledger.spec.paths import row
from ledger.spec.plan import Plan
from ledger.spec.problems import Location, Problem, SpecError
from ledger.spec.reader import as_node, read_value
from ledger.spec.values import Size

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
        """Where a value was given."""
        return self.places[key, text_of(value)]


def read_axes(texts: Iterable[str]) -> Axes:
    """The axes of `KEY=V,V` texts; SpecError with the place of all that are none."""
    named: dict[str, tuple[Any, ...]] = {}
    places: dict[tuple[str, str], Location] = {}
    problems: list[Problem] = []
    sources = {FLAG + text: FLAG + text for text in texts}
    for file in sources:
        try:
            key, values = _read(file, named)
        except SpecError as error:
            problems.extend(error.problems)
            continue
        problems.extend(_problems(key, values))
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
    known = keys_of(plan)
    problems = [
        Problem(
            Location(axes.place(key, values[0]).file, 1, len(FLAG) + 1),
            f"`{key}` is not of the layouts of a plan that serves",
            f"vary {', '.join(known)}, or any other key of the plan, as `serve.concurrency`",
        )
        for key, values in axes.layout.items()
        if key not in known
    ]
    if problems:
        raise SpecError(problems, {one.where.file: one.where.file for one in problems})


def _read(file: str, named: Mapping[str, Any]) -> tuple[str, list[tuple[Any, Location]]]:
    """A key with its values, each with its place; lists and mappings keep their commas."""
    key, equals, text = file.removeprefix(FLAG).partition("=")
    key, here = key.strip(), Location(file, 1, len(FLAG) + 1)
    if not equals or not key or not text.strip():
        raise SpecError([Problem(here, f"`{file.removeprefix(FLAG)}` is no `KEY=VALUE,VALUE`", EXAMPLE)])
    if key in named:
        raise SpecError([Problem(here, f"`{key}` is given twice", "name all its values at once")])
    start = file.index("=") + 1  # the bracket that makes a list of them stands where the equals sign is
    listed = read_value(f"[{text}]", Location(file, 1, start))
    return key, [(one.plain(), one.where) for one in listed.items]


def _problems(key: str, values: Sequence[tuple[Any, Location]]) -> Iterator[Problem]:
    """What is wrong with a key as an axis, and with values of a key of the layout."""
    here = Location(values[0][1].file, 1, len(FLAG) + 1)
    if key in FIXED:
        yield Problem(here, f"`{key}` cannot vary: {FIXED[key]}")
    below = next((one for one in LAYOUT if key.startswith(f"{one}.")), "")
    if below:
        yield Problem(
            here, f"`{key}` is a part of `{below}`", f"give whole values: `--over '{below}=none,{{every: 2}}'`"
        )
    above = [one for one in LAYOUT if one.startswith(f"{key}.")]
    if above:
        yield Problem(here, f"`{key}` holds keys of the layout", f"name them one by one: {', '.join(above)}")


def _layout_value(key: str, value: Any, where: Location, problems: list[Problem]) -> Any:
    """A value as a layout states it: whole numbers as such, and what leaving a key out (null) means; or REFUSED."""
    kind = row(key)
    if value is None and key in ALWAYS_STATED:
        problems.append(Problem(where, f"`{key}` cannot be left out of a layout", ALWAYS_STATED[key]))
        return REFUSED
    if value is None or kind is None:
        return NEUTRAL.get(key)
    faults: list[Fault] = []
    read = kind.type.read(Written(as_node(value, where), tuple(key.split(".")), kind.meaning), faults)
    problems.extend(fault.problem for fault in faults)
    if faults:
        return REFUSED
    return read if isinstance(kind.type, Size) else value
