"""Every colour of the report, once: for light and dark, for the page and for the charts.

What persists from step to step is blue, what comes and goes within a step is orange: the pair that every common colour
blindness keeps apart. Within a family lightness separates the members.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


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
}

MEMORY_ORDER = (
    *("weights", "master", "optimizer", "gradients", "cache"),
    *("unsharded", "activations", "logits", "workspace"),
)
STEP_ORDER = (
    *("forward", "recompute", "backward", "slowed", "update"),
    *("tensor", "context", "expert", "data", "pipeline", "host", "host_sum"),
    *("launches", "bubble"),
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
