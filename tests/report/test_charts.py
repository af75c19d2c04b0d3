from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations
from xml.etree import ElementTree as ET

import pytest

from ledger.report.charts import memory, roofline, scatter, time
from ledger.report.charts import memory as plans
from ledger.report.svg import STEP_ORDER, Box, Scale, Text, round_step

GB = 10**9
CATEGORIES = ("weights", "optimizer", "gradients", "activations", "logits", "overhead")
PLACES = [
    f"{place} layer of {group}"
    for group in ("local_dense", "local", "global")
    for place in ("first", "2nd", "2nd last", "last")
]


def stack(label: str, amounts: tuple[float, ...], *, marked: bool = False, group: str = "") -> memory.StackedBar:
    """A bar with these gigabytes."""
    parts = (memory.StackPart(colour, colour, amount * GB) for colour, amount in zip(CATEGORIES, amounts, strict=False))
    return memory.StackedBar(label, tuple(parts), marked, group)


STACKS = {
    "small": [
        stack("before", (0.2, 0.5)),
        stack("backward of the loss, both gradients", (0.2, 0.5, 1, 3), marked=True),
    ],
    "full": [stack(f"stage {at} of the pipeline", (9, 18, 9, 30 + at, 4, 6), marked=at == 3) for at in range(9)],
    "over": [stack("first", (11, 3, 12, 100, 0, 6)), stack("last", (11, 3, 12, 50, 1, 6), marked=True)],
    "empty": [stack("nothing", (0,), marked=True)],
    "step": [
        stack(label, (9, 18, 9, 20 + at, 4), marked=at == 12, group=group)
        for group in ("forward", "backward")
        for at, label in enumerate(("input", *PLACES, "output", "loss"))
    ],
}
SPANS = [
    time.TimeBar("matrix products", 6.1, "compute"),
    time.TimeBar("a very long name for a part of the step", 2.2, "network"),
]
STEPS = [
    memory.StackedBar(f"70b-{at}", tuple(memory.StackPart(name, name, at + 0.1) for name in STEP_ORDER))
    for at in range(5)
]
BARS = [time.TimeBar("floor", 5.1, "bound"), time.TimeBar("estimate", 10.8, "estimate", 10.0, 11.6, strong=True)]
EFFECTS = [time.EffectBar("devices", -0.93, "−0.93 %"), time.EffectBar("tokens of the run", 1.0, "+1.00 %")]
ROOFS = [
    roofline.Roof("data sheet", 989.5e12, 3.35e12, "ink"),
    roofline.Roof("measured", 712e12, 2.4e12, "axis", "6 4"),
]
POINTS = [
    roofline.KernelPoint(f"decoder/part {at}, backward", 0.1 * 3.0**at, 3e11 * 2.4**at, 0.05 + 0.02 * at, "compute")
    for at in range(9)
]
CHOICES = [
    scatter.LayoutPoint(f"tensor {at}, pipeline 2", (8 + 9 * at) * GB, 14.0 - at, at % 2 == 0) for at in range(9)
]


def charts(width: float) -> Iterator[tuple[str, str]]:
    """Every chart with data that crowds it."""
    for name, stacks in STACKS.items():
        yield f"bars {name}", memory.bars(stacks, 85.5 * GB, "t", width)
        yield f"timeline {name}", memory.timeline(stacks, 85.5 * GB, "t", width)
        yield (
            f"plans {name}",
            plans.plan_bars(stacks, [(80 + 30 * at) * GB for at, _ in enumerate(stacks)], "B", "t", width),
        )
    yield "plans by time", plans.plan_bars(STEPS, (), "s", "t", width)
    yield "waterfall", time.waterfall(SPANS, "t", width)
    yield "bounds", time.bounds(BARS, "t", width)
    yield "tornado", time.tornado(EFFECTS, "t", width)
    yield "tornado one way", time.tornado(EFFECTS[:1], "t", width)
    yield "roofline", roofline.chart(POINTS, ROOFS, "t", width)
    yield "roofline alike", roofline.chart(POINTS[:1] * 4, ROOFS[:1], "t", width)
    yield "scatter", scatter.chart(CHOICES, 85.5 * GB, "t", width)


CASES = [
    pytest.param(width, chart, id=f"{name} {width:.0f}") for width in (760.0, 340.0) for name, chart in charts(width)
]


def tree(chart: str) -> ET.Element:
    """The picture as elements without namespaces."""
    return ET.fromstring(re.sub(r' xmlns="[^"]+"', "", chart))  # noqa: S314 - the project's own picture


def lettering(chart: str) -> list[tuple[str, Box]]:
    """Every line of text with the rectangle it fills, read from the drawn picture."""
    return [(label.text or "", drawn(label).box) for label in tree(chart).iter("text")]


def drawn(label: ET.Element) -> Text:
    """A text element as it was placed."""
    place = (float(label.get("x", "0")), float(label.get("y", "0")))
    size, weight = float(label.get("font-size", "13")), int(label.get("font-weight", "400"))
    return Text(*place, label.text or "", size, label.get("text-anchor", "start"), weight)


@pytest.mark.parametrize(("width", "chart"), CASES)
def test_no_label_lies_on_another(width: float, chart: str) -> None:
    """Every two texts of a chart are apart, on wide and on narrow pages."""
    for (first, box), (second, other) in combinations(lettering(chart), 2):
        assert not box.overlaps(other), (first, second)


@pytest.mark.parametrize(("width", "chart"), CASES)
def test_no_label_is_cut_off(width: float, chart: str) -> None:
    """Every text lies inside its picture."""
    _, _, right, bottom = (float(value) for value in tree(chart).get("viewBox", "").split())
    frame = Box(-0.5, -0.5, right + 0.5, bottom + 0.5)
    assert right == width
    assert [text for text, box in lettering(chart) if not box.inside(frame)] == []


@pytest.mark.parametrize(("width", "chart"), CASES)
def test_no_upright_line_runs_through_a_label(width: float, chart: str) -> None:
    """Gridlines, connectors and the capacity keep off the texts."""
    uprights = [
        Box(x - 0.25, *sorted((float(mark.get("y1", "0")), float(mark.get("y2", "0"))))[:1], x + 0.25, bottom)
        for mark in tree(chart).iter("line")
        for x in [float(mark.get("x1", "0"))]
        for bottom in [max(float(mark.get("y1", "0")), float(mark.get("y2", "0")))]
        if mark.get("x1") == mark.get("x2") and "s-rule" not in mark.get("class", "")
    ]
    crossed = [text for text, box in lettering(chart) for mark in uprights if box.overlaps(mark)]
    assert crossed == []


@pytest.mark.parametrize(("width", "chart"), CASES)
def test_every_mark_has_a_colour_for_paper_and_one_for_the_screen(width: float, chart: str) -> None:
    """Presentation attributes serve the PDF, classes the browser; no style attribute, which the policy forbids."""
    for mark in tree(chart).iter():
        assert mark.get("style") is None
        if mark.tag in {"rect", "circle", "text", "line", "path"}:
            assert re.search(r"\b[fs]-[a-z]", mark.get("class", "")), mark.tag
            assert re.fullmatch("#[0-9a-f]{6}|none", mark.get("fill", "")), mark.tag


def test_a_stack_is_as_long_as_its_parts_together() -> None:
    """The bars of one stack end where their sum lies on the scale: nothing is lost, nothing drawn twice."""
    amounts = (9, 18, 9, 30, 4, 6)
    chart = memory.bars([stack("one", amounts)], 85.5 * GB, "t", 760.0)
    segments = [mark for mark in tree(chart).iter("rect") if mark.find("title") is not None]
    widths = [float(mark.get("width", "0")) for mark in segments]
    drawn_length = float(segments[-1].get("x", "0")) + widths[-1] - float(segments[0].get("x", "0"))
    assert len(segments) == len(amounts)
    for width, amount in zip(widths, amounts, strict=True):
        assert width / drawn_length == pytest.approx(amount / sum(amounts), abs=0.01)


@pytest.mark.parametrize("width", [760.0, 340.0])
def test_bars_of_plans_have_one_scale_and_each_its_wall(width: float) -> None:
    """Twice the bytes are a bar of twice the length; a wall stands where its own device ends."""
    stacks = [stack("one", (20, 20)), stack("two", (40, 40)), stack("over", (100,))]
    chart = tree(plans.plan_bars(stacks, [80 * GB, 160 * GB, 80 * GB], "B", "t", width))
    rows: dict[str, list[ET.Element]] = {}
    for one in chart.iter("rect"):
        if one.find("title") is not None:
            rows.setdefault(one.get("y", ""), []).append(one)
    ends = [max(float(one.get("x", "")) + float(one.get("width", "")) for one in row) for row in rows.values()]
    start = min(float(one.get("x", "")) for row in rows.values() for one in row)
    lengths = [end - start for end in ends]
    assert lengths[1] == pytest.approx(2 * lengths[0], rel=0.02)
    walls = [float(one.get("x1", "")) for one in chart.iter("line") if "s-ink" in one.get("class", "")]
    assert [wall - start for wall in walls] == pytest.approx([2 * lengths[0], 4 * lengths[0], 2 * lengths[0]], rel=0.02)
    failing = [one.text for one in chart.iter("text") if "f-bad" in one.get("class", "")]
    assert failing == ["100.0\u202fGB"]


def test_a_waterfall_ends_at_its_sum() -> None:
    """The last span ends where the bar of the whole step ends."""
    bars = [mark for mark in tree(time.waterfall(SPANS, "t", 760.0)).iter("rect") if mark.find("title") is not None]
    ends = [float(bar.get("x", "0")) + float(bar.get("width", "0")) for bar in bars]
    assert ends[-2] == pytest.approx(ends[-1], abs=0.02)


@pytest.mark.parametrize(("least", "step"), [(0.9, 1), (1.0, 1), (1.1, 2), (2.3, 5), (5.1, 10), (0.03, 0.05)])
def test_steps_of_an_axis_are_round(least: float, step: float) -> None:
    """1, 2 or 5 times a power of ten."""
    assert round_step(least) == pytest.approx(step)


def test_a_logarithmic_scale_gives_equal_room_to_equal_ratios() -> None:
    """Every decade is as long as the next."""
    scale = Scale(0.1, 1000.0, 0.0, 400.0, logarithmic=True)
    assert [scale(10.0**power) for power in range(-1, 4)] == pytest.approx([0, 100, 200, 300, 400])


@pytest.mark.parametrize("width", [760.0, 340.0])
def test_every_moment_of_a_step_is_named_in_full(width: float) -> None:
    """However many there are: none ends in an ellipsis, and on wide pages a pass is named once, beside its moments."""
    named = [text for text, _ in lettering(memory.timeline(STACKS["step"], 85.5 * GB, "t", width))]
    wanted = [stack.label if width > 480.0 else f"{stack.group}, {stack.label}" for stack in STACKS["step"]]
    assert [text for text in named if text in wanted] == wanted
    assert [named.count(group) for group in ("forward", "backward")] == ([1, 1] if width > 480.0 else [0, 0])
