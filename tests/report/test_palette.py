from __future__ import annotations

import json
from itertools import combinations

import pytest
from fontTools.ttLib import TTFont

from ledger.report import assets
from ledger.report.svg import COLOURS, MEMORY_ORDER, STEP_ORDER

LEGIBLE = 4.5  # WCAG 2.2, success criterion 1.4.3, for text of any size
TEXTS = ("ink", "muted", "link", "good", "warn", "bad")


def luminance(colour: str) -> float:
    """Relative luminance (WCAG 2.2)."""
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first: str, second: str) -> float:
    """The contrast ratio (WCAG 2.2)."""
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("ground", ["paper", "panel"])
@pytest.mark.parametrize("text", TEXTS)
def test_text_is_legible_on_every_ground(theme: str, ground: str, text: str) -> None:
    """Text keeps a contrast of 4.5 in light and in dark."""
    assert contrast(getattr(COLOURS[text], theme), getattr(COLOURS[ground], theme)) >= LEGIBLE


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", [name for name, colour in COLOURS.items() if colour.on_light])
def test_amounts_are_legible_on_their_bars(theme: str, name: str) -> None:
    """An amount written inside a bar has the ink that its colour needs."""
    colour = COLOURS[name]
    assert contrast(getattr(colour, theme), getattr(colour, f"on_{theme}")) >= LEGIBLE


@pytest.mark.parametrize("categories", [MEMORY_ORDER, STEP_ORDER])
def test_every_category_has_a_colour_of_its_own(categories: tuple[str, ...]) -> None:
    """No two categories of memory look alike, and no two parts of a step."""
    for first, second in combinations(categories, 2):
        assert COLOURS[first].light != COLOURS[second].light
        assert COLOURS[first].dark != COLOURS[second].dark


def test_widths_are_those_of_the_fonts() -> None:
    """Charts leave the room that the embedded fonts will need."""
    folder = assets.templates() / "fonts"
    for column, file in enumerate(("sans-regular.woff2", "sans-semibold.woff2")):
        font = TTFont(folder / file)
        glyphs, advances = font.getBestCmap(), font["hmtx"]
        for letter, widths in json.loads((folder / "widths.json").read_text()).items():
            assert widths[column] == advances[glyphs[ord(letter)]][0] / font["head"].unitsPerEm
