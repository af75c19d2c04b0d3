"""Formulas as pictures, cached by content, and in words."""

from __future__ import annotations

import ast
import base64
import hashlib
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from html import escape
from types import ModuleType
from typing import Any
from xml.etree.ElementTree import Element

from ledger.caches import Cache
from ledger.report.svg import light
from ledger.report.typesetting.lines import break_lines
from ledger.report.typesetting.trees import is_sum, parse

VERSION = "1"  # of the typesetting; changes when the same formula is to look different
POINTS = 15.0
PAPER = 0.74  # of the size on the screen, as the tables around it
EXTENT = re.compile(r' (width|height)="([\d.]+)"')  # the first two are those of the whole picture
BOX = re.compile(r' viewBox="[-\d.]+ ([-\d.]+) [-\d.]+ ([-\d.]+)"')  # its top over the baseline, its height
SHAPE = re.compile(r'<symbol id="([^"]+)" viewBox="([^"]+)">(.*?)</symbol>', re.DOTALL)
PLACE = r' x="([-\d.]+)" y="([-\d.]+)" width="([\d.]+)" height="([\d.]+)" '
USE = re.compile(rf'<use href="#([^"]+)"{PLACE}(fill="[^"]*") ?/>')
FIRST_LINES = 8  # of a formula of more than twice as many, on paper
DEEPEST = 24  # px below the baseline that the stylesheet knows
CACHED = 4096
ROWS = {"math", "mrow", "mtd", "mtr", "none"}  # of MathML, in each of which operators stretch by themselves
DRAWN = Cache("formulas")


@dataclass(frozen=True)
class LinePicture:
    """One line of a formula: its picture, and what it is called; further lines are called nothing."""

    svg: str
    words: str = ""

    @property
    def drop(self) -> str:
        """The class of a picture that reaches so far below the baseline."""
        box = BOX.search(self.svg)
        below = float(box[1]) + float(box[2]) if box else 0.0
        return f"drop-{min(max(round(below), 0), DEEPEST)}"

    @property
    def inline(self) -> str:
        """The picture as part of a page, in the ink of its surroundings."""
        called = f'role="img" aria-label="{escape(self.words)}"' if self.words else 'aria-hidden="true"'
        opened = self.svg.replace("<svg", f'<svg {called} class="formula {self.drop}"', 1)
        return opened.replace('fill="black"', 'fill="currentColor"')

    @property
    def address(self) -> str:
        """The picture as an address that holds it, in the ink and the size of paper."""
        drawn = inline_letters(self.svg).replace('fill="black"', f'fill="{light("ink")}"')
        drawn = EXTENT.sub(lambda match: f' {match[1]}="{float(match[2]) * PAPER:.2f}"', drawn, count=2)
        return "data:image/svg+xml;base64," + base64.b64encode(drawn.encode()).decode("ascii")


def inline_letters(svg: str) -> str:
    """The picture without letters that are referred to: the PDF writer misplaces those of one that it draws again."""
    shapes = {name: (box.split(), shape) for name, box, shape in SHAPE.findall(svg)}

    def placed(match: re.Match[str]) -> str:
        (left, top, wide, high), shape = shapes[match[1]]
        x, y, width, height = map(float, match.groups()[1:5])
        scale = min(width / float(wide), height / float(high))
        across = x + (width - scale * float(wide)) / 2 - scale * float(left)
        down = y + (height - scale * float(high)) / 2 - scale * float(top)
        return f'<g transform="translate({across:.3f} {down:.3f}) scale({scale:.5f})" {match[6]}>{shape}</g>'

    return USE.sub(placed, SHAPE.sub("", svg))


@dataclass(frozen=True)
class TypesetFormula:
    """A formula line by line, and the lines of what its own letters stand for; the first has all in words."""

    lines: tuple[LinePicture, ...]
    definitions: tuple[LinePicture, ...] = ()

    @property
    def paper(self) -> tuple[LinePicture, ...]:
        """The lines on paper, where a row of a table breaks over no pages: all of them, or the first few of many."""
        return self.lines if len(self.lines) <= 2 * FIRST_LINES else self.lines[:FIRST_LINES]

    @property
    def further(self) -> int:
        """How many lines paper leaves out."""
        return len(self.lines) - len(self.paper)


@lru_cache(maxsize=CACHED)
def typeset(formula: str) -> TypesetFormula:
    """The formula as pictures; FormulaError where the text is not a formula."""
    broken = break_lines(formula)
    first, *later_lines = map(cached_picture, broken.lines)
    lines = (LinePicture(first, spoken(formula)), *map(LinePicture, later_lines))
    return TypesetFormula(lines, tuple(LinePicture(cached_picture(text)) for text in broken.definitions))


def drop_rules() -> Iterator[str]:
    """A rule for every depth below the baseline; a policy that allows no style in an element allows a class."""
    for depth in range(DEEPEST + 1):
        yield f".drop-{depth}{{vertical-align:-{depth}px}}"
        yield f"@media print{{.drop-{depth}{{vertical-align:-{depth * PAPER:.1f}px}}}}"


def cached_picture(expression: str) -> str:
    """A picture of the LaTeX, from the user's cache where it has been drawn before."""
    digest = hashlib.sha256(f"{VERSION}\n{POINTS}\n{expression}".encode()).hexdigest()
    name = f"{digest}.svg"
    drawn = DRAWN.read(name)
    if drawn is not None:
        return drawn.decode()
    picture = draw(expression)
    DRAWN.keep(name, picture.encode())
    return picture


def draw(expression: str) -> str:
    """A picture by ziamath, one shape per letter."""
    return str(typesetter().Latex(expression, size=POINTS).svg())


@cache
def typesetter() -> ModuleType:
    """Ziamath, told how pictures are written, and to measure the rows alone in which something stretches.

    It measures each row, by laying all of it out, for operators that are to be as high as the row: what lies within
    four rows is laid out sixteen times.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # ziamath opens its font in the way of Python 3.10
        import ziamath
    from ziamath.nodes.mrow import Mrow
    from ziamath.operators import get_params

    def stretches(element: Element) -> bool:
        """Whether an operator of this row, or of what is in it beside other rows, is as high as the row."""
        if element.tag in ROWS:
            return False
        form = element.get("form", "infix")
        stretchy = element.get("stretchy") or get_params((element.text or "").strip(), form).get("stretchy", "false")
        return stretchy != "false" or any(map(stretches, element))

    class MeasuredRow(Mrow, tag="mrow"):
        """A row whose parts are laid out a first time where something stretches."""

        def _get_height_nostretch(self, line: list[Element], **placed: Any) -> tuple[float, float]:
            return super()._get_height_nostretch(line, **placed) if any(map(stretches, line)) else (0.0, 0.0)

    ziamath.config.svg2 = True
    ziamath.config.precision = 2
    return ziamath


# --- formulas in words, for screen readers ---

SPOKEN_CALLS = {
    "ceil": "{0} rounded up",
    "floor": "{0} rounded down",
    "CeilDiv": "{0} over {1}, rounded up",
    "sqrt": "the square root of {0}",
}
SPOKEN_OPERATORS = {
    ast.Add: "plus",
    ast.Sub: "minus",
    ast.Mult: "times",
    ast.Div: "over",
    ast.FloorDiv: "over",
    ast.Pow: "to the power of",
}


def spoken(formula: str) -> str:
    """The formula in words."""
    return in_words(parse(formula))


def in_words(node: ast.expr) -> str:
    """A tree in words; sums inside products are called what they are."""
    match node:
        case ast.BinOp(left=left, op=op, right=right):
            first, second = (in_words(side) for side in (left, right))
            if not isinstance(op, ast.Add | ast.Sub):
                first, second = (
                    f"the quantity {words}," if is_sum(side) else words
                    for side, words in ((left, first), (right, second))
                )
            return f"{first} {SPOKEN_OPERATORS[type(op)]} {second}"
        case ast.UnaryOp(operand=operand):
            return f"minus {in_words(operand)}"
        case ast.Call(func=ast.Name(id=name), args=arguments):
            words = [in_words(argument) for argument in arguments]
            return SPOKEN_CALLS.get(name, f"{name} of {' and '.join(words)}").format(*words)
        case _:
            return ast.unparse(node)
