"""What a search of a plan's layouts recommends: frozen data that report and check print, and the search fills."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from ledger import numbers
from ledger.spec.edit import flow
from ledger.spec.load import read_with_overrides
from ledger.spec.overrides import assignments
from ledger.spec.problems import Location, Problem, SpecError

if TYPE_CHECKING:
    from ledger.spec.plan import Plan

SHORT = ("parallelism.", "run.", "cluster.")  # parts whose keys are clear without them
OWN = "the plan as it is"
LAYOUTS = ("smallest", "fastest", "cheapest", "nearest")  # fields that hold one
LISTED = 8  # entries of a list that a line has room for


@dataclass(frozen=True)
class Recommendation:
    """A layout: the fewest keys that make the plan this layout, as `--set` takes them (None: taken away), its totals.

    `totals` are those of the plan compiled with these changes and nothing else.
    """

    changes: Mapping[str, Any]
    totals: Mapping[str, float]

    @property
    def label(self) -> str:
        """The changes in a line: `tensor 4, recompute full`."""
        return ", ".join(map(_change_text, self.changes, self.changes.values())) or OWN

    @property
    def yaml(self) -> tuple[str, ...]:
        """The lines that a spec must have instead; a key that must go is named in a comment."""
        nested: dict[str, list[str]] = {}
        for key, value in self.changes.items():
            part, _, subkey = key.partition(".")
            name = subkey or part
            said = f"# remove `{name}`" if value is None else f"{name}: {flow(value)}"
            nested.setdefault(part if subkey else "", []).append(said)
        lines = []
        for part, entries in nested.items():
            lines += [f"{part}:", *(f"  {entry}" for entry in entries)] if part else entries
        return tuple(lines)


@dataclass(frozen=True)
class Recommendations:
    """The best of the layouts that fit with the plan's own headroom; None where there is none.

    `smallest` changes the fewest keys, then is the least slow; `cheapest` is None where the run has no price. `front`:
    layouts that no other beats in time and memory, fastest first, compiled; `points`: bytes and seconds of all of them.
    `legal`, `fitting`: how many layouts were looked at, and how many fit. `fixed_keys`: keys of a layout that stayed as
    the plan has them. `fewer`: smaller numbers of devices, with how many of their layouts were looked at for the
    cheapest. `nearest`: where nothing fits, the layout that misses least. `headroom`: bytes that stay free. Not
    `complete` where the search was stopped. `near`: only layouts that change few keys of the plan were looked at.
    `failure`: why the search failed, in plain words; empty where it did not.
    """

    smallest: Recommendation | None = None
    fastest: Recommendation | None = None
    cheapest: Recommendation | None = None
    front: tuple[Recommendation, ...] = ()
    points: tuple[tuple[float, float], ...] = ()
    legal: int = 0
    fitting: int = 0
    fixed_keys: tuple[str, ...] = ()
    fewer: Mapping[int, int] = field(default_factory=dict)
    nearest: Recommendation | None = None
    headroom: float = 0.0
    complete: bool = True
    near: bool = False
    failure: str = ""

    @property
    def note(self) -> str:
        """Why no layouts, or no more of them, were looked at; empty where the search came to its end or its time."""
        if not self.legal and not self.complete:
            return f"no other layouts were looked at: {self.failure or 'the time was over before the first was priced'}"
        return f"no more layouts were looked at: {self.failure}" if self.failure else ""

    @property
    def scope(self) -> str:
        """How many layouts were looked at, of which space, and how many of them fit; or why there were none."""
        if not self.legal and self.note:
            return self.note
        free = f" with {numbers.size(self.headroom)} free" if self.headroom else ""
        unchanged = (
            f" ({', '.join(key.rpartition('.')[2] for key in self.fixed_keys)} as in the plan)"
            if self.fixed_keys
            else ""
        )
        tried, fitting = numbers.integer(self.legal), numbers.integer(self.fitting)
        layouts = f"legal layout{'' if self.legal == 1 else 's'}{' near the plan' if self.near else ''}"
        said = f"{tried} {layouts} tried{unchanged}, of which {fitting} fit{free}"
        if self.note:
            said += f"; {self.note}"
        elif not self.complete:
            said += "; the search was stopped before its end"
        if fewer := {devices: count for devices, count in self.fewer.items() if count}:
            more = ", ".join(f"{numbers.integer(count)} more on {devices} devices" for devices, count in fewer.items())
            said += f"; for the cheapest, {more}"
        return said

    def by_reason(self) -> dict[str, Recommendation]:
        """What is recommended, by why: `cheapest and fastest` where one layout is both."""
        pairs: list[tuple[str, Recommendation]] = []
        for name, layout in (("smallest edit", self.smallest), ("cheapest", self.cheapest), ("fastest", self.fastest)):
            if layout is None:
                continue
            place = next((at for at, (_, listed) in enumerate(pairs) if listed.changes == layout.changes), None)
            if place is None:
                pairs.append((name, layout))
            else:
                pairs[place] = (f"{pairs[place][0]} and {name}", layout)
        return dict(pairs)


def with_layout(plan: Plan, search: Recommendations | None, name: str) -> Plan:
    """The plan with its `fastest`, `cheapest` or `smallest` layout; raises SpecError where none was found."""
    layout: Recommendation | None = getattr(search, name) if search else None
    if layout is None:
        lacks = "no layout that could be searched" if search is None else search.scope
        raise SpecError([Problem(Location(f"--with {name}"), f"there is no such layout of {plan.name}: {lacks}")])
    changed = read_with_overrides(plan, assignments(layout.changes)).plan
    return changed or plan


JSON_NAMES = {"fixed_keys": "kept"}  # fields that seals have under another name


def as_record(search: Recommendations) -> dict[str, Any]:
    """Recommendations as JSON has them."""
    record = {JSON_NAMES.get(field.name, field.name): getattr(search, field.name) for field in fields(search)}
    record |= {name: _layout_record(record[name]) for name in LAYOUTS if record[name]}
    return record | {
        "front": [_layout_record(layout) for layout in search.front],
        "fewer": list(search.fewer.items()),
    }


def from_record(record: Mapping[str, Any]) -> Recommendations:
    """The recommendations of a record as `as_record` writes it, which is held to the schema of seals before."""
    names = {name: field for field, name in JSON_NAMES.items()}
    return Recommendations(
        **{
            **{names.get(name, name): value for name, value in record.items()},
            **{name: _read_layout(record[name]) for name in LAYOUTS if record[name]},
            "front": tuple(map(_read_layout, record["front"])),
            "points": tuple((float(memory), float(time)) for memory, time in record["points"]),
            "fixed_keys": tuple(record["kept"]),
            "fewer": dict(record["fewer"]),
        }
    )


def _layout_record(layout: Recommendation) -> dict[str, Any]:
    return {"changes": dict(layout.changes), "totals": dict(layout.totals)}


def _read_layout(record: Mapping[str, Any]) -> Recommendation:
    return Recommendation(record["changes"], {key: float(value) for key, value in record["totals"].items()})


def _change_text(key: str, value: Any) -> str:
    name = next((key.removeprefix(part) for part in SHORT if key.startswith(part)), key)
    if value is None:
        return f"no {name}"
    if isinstance(value, list) and len(value) > LISTED:
        return f"{name} a list of {len(value)}"
    return f"{name} {value if isinstance(value, str) else json.dumps(value)}"
