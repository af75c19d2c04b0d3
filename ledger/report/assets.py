"""Where templates and fonts lie: inside an installed package, or at the top of a checkout."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from ledger.spec.version import data_folder

FONTS = (  # family, weight, style, file
    ("Ledger Sans", 400, "normal", "sans-regular.woff2"),
    ("Ledger Sans", 400, "italic", "sans-italic.woff2"),
    ("Ledger Sans", 600, "normal", "sans-semibold.woff2"),
    ("Ledger Serif", 600, "normal", "serif-semibold.woff2"),
    ("Ledger Mono", 400, "normal", "mono-regular.woff2"),
)


@cache
def templates() -> Path:
    """The folder of templates."""
    return data_folder("templates")


@cache
def text(name: str) -> str:
    """A text file of the templates folder."""
    return (templates() / name).read_text(encoding="utf-8")


@cache
def font_faces() -> str:
    """The CSS that carries the fonts inside the page."""
    return "\n".join(font_face(*font) for font in FONTS)


def font_face(family: str, weight: int, style: str, file: str) -> str:
    """One `@font-face` rule with its font as a data: address."""
    data = base64.b64encode((templates() / "fonts" / file).read_bytes()).decode("ascii")
    source = f"url(data:font/woff2;base64,{data}) format('woff2')"
    return f"@font-face{{font-family:'{family}';font-weight:{weight};font-style:{style};src:{source}}}"


@cache
def letter_widths() -> Mapping[str, tuple[float, float]]:
    """The advance of each character in em, regular and semibold, of the sans family."""
    table = json.loads(text("fonts/widths.json"))
    return {character: (regular, semibold) for character, (regular, semibold) in table.items()}
