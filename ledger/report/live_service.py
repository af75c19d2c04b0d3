"""A plan that serves at settings around its own, each compiled beforehand, for a reader who moves its load offline.

The steady state of a service is found in steps, as many as its numbers ask for, which no graph of formulas holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from ledger.books.results import EXCESS, UNANSWERED, UNDER_LOAD, Number
from ledger.books.serving.memory import devices_memory, room
from ledger.books.serving.passes import served_roles
from ledger.books.serving.steady import Service
from ledger.books.serving.totals import answering, memory
from ledger.books.serving.verdict import beyond_engine, keeps_up
from ledger.report import assets
from ledger.report.live_script import literal
from ledger.spec.inputs import violations
from ledger.spec.load import read_with_overrides
from ledger.spec.plan import Plan, Serve

LOADS = (0.25, 0.5, 1.0, 2.0, 4.0)  # times the plan's own sequences in flight, or requests that arrive
AROUND = (0.5, 1.0, 2.0)  # times its own lengths, and its own degree of tensor parallelism
# Settings of a page, those of fewest changes first: some ten milliseconds each, and a hundred where requests arrive,
# for which the sequences in flight are looked for.
MOST_SETTINGS, MOST_ARRIVING = 135, 15
NUMBERS = (
    ("memory.reserved", "memory per device"),
    ("serve.ttft", "first token of a prompt alone"),
    (UNDER_LOAD, "first token under this load"),
    ("serve.time_per_token", "time per token"),
    ("serve.tokens_per_second", "output of all sequences"),
    ("serve.requests_per_second", "answers"),
    ("serve.concurrency", "sequences in flight"),
    ("serve.concurrency.max", "most sequences in flight"),
    ("cost.per_million_tokens", "a million output tokens"),
    ("devices", "devices"),
)
TOTALS = (*(key for key, _ in NUMBERS), "memory.capacity", EXCESS, UNANSWERED)


@dataclass(frozen=True)
class ServedInput:
    """An input of a service that a reader moves: its path, what it is, its values and how a plan writes each.

    `plan_place` is the place of the plan's own value.
    """

    name: str
    path: str
    title: str
    values: tuple[float, ...]
    texts: tuple[str, ...]
    plan_place: int


Places = tuple[int, ...]  # of a setting: that of each input's value


@dataclass(frozen=True)
class ServedPage:
    """What the page of a service knows: its inputs, and its totals and verdict at each setting that was compiled."""

    plan: Plan
    inputs: tuple[ServedInput, ...]
    settings: Mapping[Places, Mapping[str, Number]]
    answers: Mapping[Places, str]

    @property
    def plan_places(self) -> Places:
        """The plan's own setting."""
        return tuple(control.plan_place for control in self.inputs)


def served_page(plan: Plan) -> ServedPage | None:
    """The page of a plan that serves; None of one that was read from no spec, in which nothing can be set."""
    if plan.serve is None or plan.reading is None:
        return None
    inputs = tuple(served_inputs(plan, plan.serve))
    most = MOST_SETTINGS if plan.serve.concurrency else MOST_ARRIVING
    places = sorted(
        product(*(range(len(control.values)) for control in inputs)),
        key=lambda setting: _distance(setting, inputs),
    )[:most]
    settings = dict(compiled_settings(plan, inputs, places))
    answers = {place: answer(totals) for place, totals in settings.items()}
    listed = {place: {key: totals[key] for key in TOTALS if key in totals} for place, totals in settings.items()}
    return ServedPage(plan, inputs, listed, answers)


def served_inputs(plan: Plan, serve: Serve) -> Iterator[ServedInput]:
    """The load, lengths that are alike for all, and the degree of tensor parallelism; the load comes first."""
    if serve.concurrency:
        counts = {max(1, round(serve.concurrency * times)) for times in LOADS}
        yield _served_input("concurrency", "serve.concurrency", "sequences in flight", counts, (serve.concurrency, ""))
    else:
        rate = serve.arrival_rate or 0.0
        rates = {rate * times for times in AROUND}
        yield _served_input(
            "arrival_rate", "serve.arrival_rate", "requests that arrive in a second", rates, (rate, " requests/s")
        )
    for name, title in (("prompt", "tokens of a prompt"), ("output", "tokens of an answer")):
        length = getattr(serve, name)
        if len(length.parts) == 1:
            around = {max(1, round(length.longest * times)) for times in AROUND}
            yield _served_input(name, f"serve.{name}", title, around, (length.longest, " tokens"))
    tensor = plan.parallelism.tensor
    degrees = {int(tensor * times) for times in AROUND if tensor * times == int(tensor * times)}
    yield _served_input("tensor", "parallelism.tensor", "tensor parallel", degrees, (tensor, ""))


def _served_input(name: str, path: str, title: str, values: set[Any], stated: tuple[float, str]) -> ServedInput:
    plan_value, unit = stated
    ordered = tuple(sorted(values))
    return ServedInput(
        name, path, title, ordered, tuple(f"{value}{unit}" for value in ordered), ordered.index(plan_value)
    )


def _distance(places: Places, inputs: Sequence[ServedInput]) -> tuple[int, int, Places]:
    far = [abs(place - control.plan_place) for place, control in zip(places, inputs, strict=True)]
    return sum(map(bool, far)), sum(far), places


def overrides(plan: Plan, inputs: Sequence[ServedInput], places: Places) -> list[str]:
    """What `--set` takes for a setting; replicas stay, so that devices follow the degree of tensor parallelism."""
    moved = [(control, place) for control, place in zip(inputs, places, strict=True) if place != control.plan_place]
    texts = [f"{control.path}={control.texts[place]}" for control, place in moved]
    for control, place in moved:
        if control.name == "tensor":
            devices = plan.cluster.devices * control.values[place] / control.values[control.plan_place]
            texts.append(f"cluster.devices={int(devices)}")
    return texts


def compiled_settings(
    plan: Plan, inputs: Sequence[ServedInput], places: Sequence[Places]
) -> Iterator[tuple[Places, dict[str, Number]]]:
    """The totals of each setting that is legal; what devices run, and have room for, is derived once for all loads."""
    load = inputs[0]
    for other_places in dict.fromkeys(place[1:] for place in places):
        revised_plan = read_with_overrides(plan, overrides(plan, inputs, (load.plan_place, *other_places))).plan
        if revised_plan is None or revised_plan.serve is None:
            continue
        roles = served_roles(revised_plan)
        most = room(Service(revised_plan, roles))
        for place in (place for place in places if place[1:] == other_places):
            value: Any = load.values[place[0]]
            serve = replace(revised_plan.serve, **{load.name: value})
            loaded = replace(revised_plan, serve=serve)
            if not violations(loaded):
                service = Service(loaded, roles)
                held_bytes = dict(memory(devices_memory(roles, service.stated.concurrency), loaded))
                yield place, {**held_bytes, **dict(answering(service, most)), "devices": loaded.cluster.devices}


def answer(totals: Mapping[str, Number]) -> str:
    """The verdict on a setting in a few words."""
    if totals["memory.reserved"] > totals["memory.capacity"]:
        return "Does not fit"
    if not keeps_up(totals):
        return "Does not keep up with its requests"
    return "Takes not all of its sequences at once" if beyond_engine(totals) else "Fits"


def served_script(page: ServedPage) -> str:
    """The whole script of the page, whose names stay inside it."""
    return f"{{\n{served_calculator(page)}\n{assets.text('format.js')}\n{assets.text('load_panel.js')}}}\n"


def served_calculator(page: ServedPage) -> str:
    """The script without its panel: `evaluate(places)` gives the totals of a setting, `commandLine` its `--set`."""
    reading = page.plan.reading
    data = {
        "file": reading.source.file if reading else f"{page.plan.name}.yaml",
        "overrides": reading.overrides if reading else [],
        "devices": page.plan.cluster.devices,
        "own": page.plan_places,
        "inputs": [
            {
                "name": control.name,
                "path": control.path,
                "values": control.values,
                "texts": control.texts,
            }
            for control in page.inputs
        ],
        "answers": {_place_key(place): said for place, said in page.answers.items()},
        "settings": {_place_key(place): totals for place, totals in page.settings.items()},
    }
    return f"const PLAN = {literal(data)};\n{assets.text('load.js')}"


def _place_key(places: Places) -> str:
    return ",".join(map(str, places))
