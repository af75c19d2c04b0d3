"""Elements, lettering, scales and colours from which charts are drawn, as text.

Presentation attributes serve the PDF, which applies no page CSS inside a picture; classes serve the browser,
where they override the attributes and follow light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from ledger.report import assets

SIZE = 13.0  # px of chart lettering
ASCENT, DESCENT = 0.75, 0.22  # em; of the sans family, as its figures and letters use them
UNKNOWN = 0.55  # em; the advance assumed for a character that the fonts do not carry
SEMIBOLD = 600


@dataclass(frozen=True)
class Box:
    """A rectangle in chart coordinates; y grows downwards."""

    left: float
    top: float
    right: float
    bottom: float

    @classmethod
    def centred_at(cls, x: float, y: float, across: float, up: float) -> Box:
        """The box around a point, which reaches so far to each side."""
        return cls(x - across, y - up, x + across, y + up)

    def overlaps(self, other: Box, gap: float = 0.0) -> bool:
        """Whether the two come closer than `gap`."""
        apart = (
            self.right + gap <= other.left
            or other.right + gap <= self.left
            or self.bottom + gap <= other.top
            or other.bottom + gap <= self.top
        )
        return not apart

    def inside(self, other: Box) -> bool:
        """Whether this lies within the other."""
        return (
            self.left >= other.left
            and self.right <= other.right
            and self.top >= other.top
            and self.bottom <= other.bottom
        )


def text_width(text: str, size: float = SIZE, weight: int = 400) -> float:
    """The length of a line of text in px."""
    table, column = assets.letter_widths(), 1 if weight >= SEMIBOLD else 0
    return size * sum(table[letter][column] if letter in table else UNKNOWN for letter in text)


@dataclass(frozen=True)
class Text:
    """A line of lettering at its baseline; `anchor` is start, middle or end."""

    x: float
    y: float
    text: str
    size: float = SIZE
    anchor: str = "start"
    weight: int = 400
    fill: str = "ink"

    @property
    def width(self) -> float:
        """The length of the line in px."""
        return text_width(self.text, self.size, self.weight)

    @property
    def box(self) -> Box:
        """The rectangle that its letters fill, in px."""
        left = self.x - self.width * {"start": 0.0, "middle": 0.5, "end": 1.0}[self.anchor]
        return Box(left, self.y - ASCENT * self.size, left + self.width, self.y + DESCENT * self.size)

    def draw(self) -> str:
        """The SVG element of the line."""
        return element(
            "text",
            escape(self.text),
            x=self.x,
            y=self.y,
            font_size=self.size,
            font_weight=None if self.weight == 400 else self.weight,
            text_anchor=None if self.anchor == "start" else self.anchor,
            **fill(self.fill),
        )


def element(name: str, *children: str, **attributes: str | float | None) -> str:
    """An element; `_` in attribute names stands for `-`, attributes that are None are left out."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{attribute(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{written}>{''.join(children)}</{name}>" if children else f"<{name}{written}/>"


def attribute(value: str | float) -> str:
    """A number to a hundredth of a pixel, or escaped text."""
    if isinstance(value, str):
        return escape(value)
    return trimmed(value)


def trimmed(value: float) -> str:
    """Two decimals, without zeros at the end."""
    return f"{round(value, 2) + 0.0:.2f}".rstrip("0").rstrip(".")


def fill(colour: str) -> dict[str, str | float | None]:
    """Attributes that fill with a colour of the palette, on paper and on screen."""
    return {"fill": light(colour), "class_": f"f-{colour}"}


def stroke(colour: str, width: float = 1.0, dashes: str | None = None) -> dict[str, str | float | None]:
    """Attributes that draw a line in a colour of the palette."""
    return {
        "stroke": light(colour),
        "stroke_width": width,
        "stroke_dasharray": dashes,
        "class_": f"s-{colour}",
        "fill": "none",
    }


def rectangle(box: Box, colour: str, tip: str = "") -> str:
    """A filled rectangle; `tip` is shown while the pointer rests on it."""
    inner = (element("title", escape(tip)),) if tip else ()
    return element(
        "rect",
        *inner,
        x=box.left,
        y=box.top,
        width=max(box.right - box.left, 0.0),
        height=box.bottom - box.top,
        **fill(colour),
    )


Position = tuple[float, float]


def svg_line(start: Position, end: Position, colour: str, width: float = 1.0, dashes: str = "") -> str:
    """A straight line between two points, `width` px wide."""
    return element("line", x1=start[0], y1=start[1], x2=end[0], y2=end[1], **stroke(colour, width, dashes or None))


def circle(centre: Position, radius: float, colour: str, tip: str, opacity: float | None = None) -> str:
    """A filled circle; `tip` is shown while the pointer rests on it."""
    title = element("title", escape(tip))
    return element("circle", title, cx=centre[0], cy=centre[1], r=radius, fill_opacity=opacity, **fill(colour))


def path(points: Sequence[Position], colour: str, width: float = 1.5, dashes: str = "") -> str:
    """An open line through the points."""
    steps = " ".join(f"{'L' if at else 'M'}{trimmed(x)} {trimmed(y)}" for at, (x, y) in enumerate(points))
    return element("path", d=steps, **stroke(colour, width, dashes or None))


def picture(width: float, height: float, title: str, parts: Iterable[str]) -> str:
    """A whole chart; `title` says in words what it shows, for those who do not see it."""
    return element(
        "svg",
        element("title", escape(title)),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {trimmed(width)} {trimmed(height)}",
        role="img",
        aria_label=title,
        font_family="Ledger Sans, sans-serif",
    )


@dataclass(frozen=True)
class Scale:
    """A map from values to pixels, straight or logarithmic; what lies outside is brought to the edge."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        """The pixel of a value."""
        low, high, at = (math.log(v) if self.logarithmic else v for v in (self.low, self.high, self.clamped(value)))
        share = (at - low) / (high - low) if high > low else 0.0
        return self.start + share * (self.end - self.start)

    def clamped(self, value: float) -> float:
        """The nearest value inside."""
        return min(max(value, self.low), self.high)

    def decades(self, factors: Sequence[int]) -> tuple[float, ...]:
        """The factors times every power of ten inside the range."""
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        values = (factor * 10.0**power for power in powers for factor in factors)
        return tuple(value for value in values if self.low <= value <= self.high)

    def ticks(self, most: int = 6) -> tuple[float, ...]:
        """Round values inside the range: powers of ten, where few with 2 and 5; or `most` equal steps of 1, 2 or 5."""
        if self.logarithmic:
            return self.decades((1,)) if len(self.decades((1,))) > 2 else self.decades((1, 2, 5))
        step = round_step((self.high - self.low) / most)
        first = math.ceil(self.low / step - 1e-9)
        return tuple(step * at for at in range(first, math.floor(self.high / step + 1e-9) + 1))


def round_step(least: float) -> float:
    """The smallest of 1, 2 or 5 times a power of ten that is not below `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least * (1 - 1e-9))


def shortened(text: str, width: float) -> str:
    """The text, or as much of it as fits, with an ellipsis."""
    if text_width(text) <= width:
        return text
    cut = text.rstrip("… ")
    while cut and text_width(f"{cut}…") > width:
        cut = cut[:-1]
    return f"{cut.rstrip()}…"


# --- the palette of page and charts, light and dark ---


@dataclass(frozen=True)
class Colour:
    """One colour in light and in dark surroundings; `on` is the ink that is legible on it in each."""

    light: str
    dark: str
    on_light: str = ""
    on_dark: str = ""


INK, PAPER = "#1a2330", "#ffffff"
NIGHT, CHALK = "#12161c", "#e6eaf0"

COLOURS: Mapping[str, Colour] = {
    # the page
    "paper": Colour(PAPER, NIGHT),
    "panel": Colour("#f5f7f9", "#1a2028"),
    "ink": Colour(INK, CHALK),
    "muted": Colour("#566273", "#a3aebb"),
    "rule": Colour("#dde2e8", "#313a45"),
    "axis": Colour("#8792a0", "#768292"),
    "link": Colour("#1f5c99", "#85b9ec"),
    "good": Colour("#1c6b52", "#6fcba8", PAPER, NIGHT),
    "warn": Colour("#8a5a00", "#e3b25c", PAPER, NIGHT),
    "bad": Colour("#a8321f", "#f09a86", PAPER, NIGHT),
    # memory that persists
    "weights": Colour("#123f6d", "#2f6ca8", PAPER, PAPER),
    "master": Colour("#2f6ca3", "#4d8bc6", PAPER, NIGHT),
    "optimizer": Colour("#7fb0d8", "#8bbbe4", INK, NIGHT),
    "gradients": Colour("#bcd6ec", "#c5dcf0", INK, NIGHT),
    "cache": Colour("#8fa7c7", "#a9bcd8", INK, NIGHT),
    # memory that comes and goes
    "unsharded": Colour("#8c3f10", "#ab5c28", PAPER, PAPER),
    "activations": Colour("#d9772f", "#e08a45", INK, NIGHT),
    "logits": Colour("#f2b277", "#f0b983", INK, NIGHT),
    "workspace": Colour("#f8dcbf", "#f7dfc6", INK, NIGHT),
    "overhead": Colour("#c6ccd4", "#5f6a77", INK, PAPER),
    # time and rooflines
    "compute": Colour("#2f6ca3", "#4d8bc6", PAPER, NIGHT),
    "memory": Colour("#7fb0d8", "#8bbbe4", INK, NIGHT),
    "network": Colour("#d9772f", "#e08a45", INK, NIGHT),
    "launch": Colour("#f2b277", "#f0b983", INK, NIGHT),
    "idle": Colour("#c6ccd4", "#5f6a77", INK, PAPER),
    "estimate": Colour("#123f6d", "#8bbbe4", PAPER, NIGHT),
    "bound": Colour("#9fb4c9", "#56708c", INK, PAPER),
    # what a step is spent on: blue computes, orange moves, grey waits
    "forward": Colour("#2f6ca3", "#4d8bc6", PAPER, NIGHT),
    "recompute": Colour("#7fb0d8", "#8bbbe4", INK, NIGHT),
    "backward": Colour("#123f6d", "#2f6ca8", PAPER, PAPER),
    "slowed": Colour("#bcd6ec", "#c5dcf0", INK, NIGHT),
    "update": Colour("#dcebf7", "#e6f0fa", INK, NIGHT),
    "tensor": Colour("#6b2d08", "#93481a", PAPER, PAPER),
    "context": Colour("#9a4713", "#b0622c", PAPER, PAPER),
    "expert": Colour("#d9772f", "#e08a45", INK, NIGHT),
    "data": Colour("#f2b277", "#f0b983", INK, NIGHT),
    "pipeline": Colour("#f8dcbf", "#f7dfc6", INK, NIGHT),
    "host": Colour("#dcc09c", "#d3b086", INK, NIGHT),
    "host_sum": Colour("#c9ab86", "#bd9a6c", INK, NIGHT),
    "launches": Colour("#98a3b0", "#8f9ba8", INK, NIGHT),
    "bubble": Colour("#c6ccd4", "#5f6a77", INK, PAPER),
    "batch": Colour("#e6e9ed", "#7a8593", INK, NIGHT),
}

MEMORY_ORDER = (
    *("weights", "master", "optimizer", "gradients", "cache"),
    *("unsharded", "activations", "logits", "workspace"),
)
STEP_ORDER = (
    *("forward", "recompute", "backward", "slowed", "update"),
    *("tensor", "context", "expert", "data", "pipeline", "host", "host_sum"),
    *("launches", "bubble", "batch"),
)


def variables(dark: bool) -> str:
    """The palette as CSS custom properties."""
    chosen = {name: (colour.dark if dark else colour.light) for name, colour in COLOURS.items()}
    inks = {f"on-{name}": (c.on_dark if dark else c.on_light) for name, c in COLOURS.items() if c.on_light}
    return ";".join(f"--{name}:{value}" for name, value in (chosen | inks).items())


def classes() -> str:
    """Classes for swatches, and classes that override presentation attributes so that charts follow the theme."""
    fills = [f".f-{name}{{fill:var(--{name})}}.s-{name}{{stroke:var(--{name})}}" for name in COLOURS]
    grounds = [f".b-{name}{{background:var(--{name})}}" for name in COLOURS]
    inks = [f".f-on-{name}{{fill:var(--on-{name})}}" for name, colour in COLOURS.items() if colour.on_light]
    return "".join(fills + grounds + inks)


def stylesheet() -> str:
    """The palette for both surroundings, by the reader's system or by their choice on the page."""
    return (
        f":root{{color-scheme:light;{variables(dark=False)}}}\n"
        f"@media screen and (prefers-color-scheme:dark){{:root:not([data-theme=light])"
        f"{{color-scheme:dark;{variables(dark=True)}}}}}\n"
        f"@media screen{{:root[data-theme=dark]{{color-scheme:dark;{variables(dark=True)}}}}}\n"
        f"{classes()}"
    )


def light(name: str) -> str:
    """The colour on paper; names that begin with `on-` are the ink for that colour."""
    return COLOURS[name[3:]].on_light if name.startswith("on-") else COLOURS[name].light
