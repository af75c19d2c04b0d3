"""Cut the report's fonts, and the table of their widths, from Adobe's Source families: `python cut.py TTF_DIRECTORY`.

The sources are the npm packages source-sans 3.52.0, source-serif 4.5.1 and source-code-pro 2.42.0 (OFL 1.1).
Their licence reserves the name Source, so the cut fonts are called Ledger Sans, Ledger Serif and Ledger Mono.
"""

# ruff: noqa: INP001 - a folder of fonts is no package
from __future__ import annotations

import json
import sys
from pathlib import Path

from fontTools import subset
from fontTools.ttLib import TTFont

CUTS = (  # source file, family, style, file
    ("SourceSans3-Regular.ttf", "Ledger Sans", "Regular", "sans-regular.woff2"),
    ("SourceSans3-Semibold.ttf", "Ledger Sans", "Semibold", "sans-semibold.woff2"),
    ("SourceSans3-It.ttf", "Ledger Sans", "Italic", "sans-italic.woff2"),
    ("SourceSerif4Subhead-Semibold.ttf", "Ledger Serif", "Semibold", "serif-semibold.woff2"),
    ("SourceCodePro-Regular.ttf", "Ledger Mono", "Regular", "mono-regular.woff2"),
)
CHARACTERS = (
    "".join(map(chr, range(0x20, 0x7F)))
    + "".join(map(chr, range(0xA0, 0x100)))
    + "‐‑–—‘’“”„†•…‰′″‹›\u2007\u2009\u202f⁰⁴⁵⁶⁷⁸⁹⁺⁻₀₁₂₃₄₅₆₇₈₉"
    + "€™Ω←↑→↓↔∂∆∏∑−√∞≈≠≤≥▲▼◆○●✓αβγδεθλμπρστφω"
)
FEATURES = ["kern", "mark", "mkmk", "ccmp", "locl", "case"]  # the default figures are tabular
THIN = 1 / 6  # em; the width TeX gives a thin space (Knuth, The TeXbook, p. 167)
MEASURED = ("sans-regular.woff2", "sans-semibold.woff2")  # what charts are lettered in


def cut(source: Path, family: str, style: str, target: Path) -> None:
    """Write the characters the report needs, under a name of our own."""
    font = TTFont(source, recalcTimestamp=False)
    kept = [0, 1, 2, 4, 6, 13, 14]  # name records: copyright, names, licence
    options = subset.Options(layout_features=FEATURES, hinting=False, notdef_outline=True, name_IDs=kept)
    subsetter = subset.Subsetter(options)
    subsetter.populate(text=CHARACTERS)
    subsetter.subset(font)
    for space in (0x2009, 0x202F):
        if glyph := font.getBestCmap().get(space):
            font["hmtx"][glyph] = (round(THIN * font["head"].unitsPerEm), 0)
    names = {1: family, 2: style, 4: f"{family} {style}", 6: f"{family}-{style}".replace(" ", "")}
    for record in font["name"].names:
        record.string = names.get(record.nameID, str(record))
    font.flavor = "woff2"
    font.save(target)


def widths(fonts: list[Path]) -> dict[str, list[float]]:
    """The advance of every character in each font, in em."""
    opened = [TTFont(path) for path in fonts]
    characters = sorted(set.intersection(*(set(font.getBestCmap()) for font in opened)))
    return {
        chr(code): [font["hmtx"][font.getBestCmap()[code]][0] / font["head"].unitsPerEm for font in opened]
        for code in characters
    }


if __name__ == "__main__":
    here = Path(__file__).parent
    for source, family, style, target in CUTS:
        cut(Path(sys.argv[1]) / source, family, style, here / target)
    table = widths([here / name for name in MEASURED])
    (here / "widths.json").write_text(json.dumps(table, ensure_ascii=True, separators=(",", ":")) + "\n")
