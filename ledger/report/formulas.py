"""Formulas as their authors wrote them, set as mathematics.

The text (`2*B*S*D*H*E`, `ceil(V/T)*D`) is read into a small tree that keeps the author's order, and the tree is
written as LaTeX for ziamath, and in words for those who do not see it. Pictures are cached by content.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import os
import re
import warnings
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from pathlib import Path

from ledger.report.files import replace_file
from ledger.report.palette import light

VERSION = "1"  # of the typesetting; changes when the same formula is to look different
POINTS = 15.0
PAPER = 0.74  # of the size on the screen, as the tables around it
WORD = re.compile(r"(?<!_\{)\\mathrm")  # not in an index
EXTENT = re.compile(r' (width|height)="([\d.]+)"')  # the first two are those of the whole picture
CACHED = 4096
GREEK = frozenset(
    ("alpha", "beta", "gamma", "delta", "epsilon", "theta", "lambda", "mu", "nu", "pi", "rho", "sigma", "tau", "phi")
)
SUM, PRODUCT, POWER, ATOM = range(4)  # how tightly an expression binds

LATEX_CALLS = {
    "ceil": r"\left\lceil {0} \right\rceil",
    "floor": r"\left\lfloor {0} \right\rfloor",
    "CeilDiv": r"\left\lceil \frac{{{0}}}{{{1}}} \right\rceil",
    "sqrt": r"\sqrt{{{0}}}",
}
SPOKEN_CALLS = {
    "ceil": "{0} rounded up",
    "floor": "{0} rounded down",
    "CeilDiv": "{0} over {1}, rounded up",
    "sqrt": "the square root of {0}",
}


class FormulaError(ValueError):
    """A text that is not an expression of sums, products, quotients, powers and calls."""


@dataclass(frozen=True)
class Written:
    """An expression in some notation, and how tightly it binds."""

    text: str
    binds: int

    def within(self, least: int) -> str:
        """The text, in parentheses where it binds less tightly than its surroundings."""
        return self.text if self.binds >= least else rf"\left({self.text}\right)"


def parse(formula: str) -> ast.expr:
    """The tree of a formula; FormulaError where it is none."""
    try:
        tree = ast.parse(formula.strip(), mode="eval").body
    except SyntaxError as error:
        message = f"not a formula: {formula}"
        raise FormulaError(message) from error
    allowed = (ast.BinOp, ast.UnaryOp, ast.Call, ast.Name, ast.Constant, ast.operator, ast.unaryop, ast.expr_context)
    for node in ast.walk(tree):
        if not isinstance(node, allowed) or (isinstance(node, ast.Call) and not isinstance(node.func, ast.Name)):
            message = f"not a formula, because of its {type(node).__name__.lower()}: {formula}"
            raise FormulaError(message)
    return tree


def latex(formula: str) -> str:
    """The formula in LaTeX, factors and terms in the order they were written."""
    return in_latex(parse(formula)).text


def in_latex(node: ast.expr) -> Written:
    """A tree in LaTeX."""
    match node:
        case ast.Constant(value=value):
            return Written(number(value), ATOM)
        case ast.Name(id=name):
            return Written(symbol(name), ATOM)
        case ast.UnaryOp(operand=operand):
            return Written(f"-{in_latex(operand).within(PRODUCT)}", SUM)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
            sign = "+" if isinstance(op, ast.Add) else "-"
            tail = in_latex(right).within(SUM if sign == "+" else PRODUCT)
            return Written(f"{in_latex(left).text} {sign} {tail}", SUM)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return Written(product(left, right), PRODUCT)
        case ast.BinOp(left=left, op=ast.Div() | ast.FloorDiv() as op, right=right):
            return Written(quotient(left, op, right), PRODUCT)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return Written(f"{in_latex(left).within(ATOM)}^{{{in_latex(right).text}}}", POWER)
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return call(name, [in_latex(argument).text for argument in arguments])
    message = f"no notation for {ast.dump(node)}"
    raise FormulaError(message)


def product(left: ast.expr, right: ast.expr) -> str:
    """Factors side by side; a dot before a figure and beside words, which would run into what stands before them."""
    tail = in_latex(right)
    second = tail.within(PRODUCT) if not isinstance(right, ast.BinOp) else tail.within(POWER)
    if isinstance(right, ast.BinOp) and isinstance(right.op, ast.Div | ast.FloorDiv):
        second = tail.text
    first = in_latex(left).within(PRODUCT)
    dotted = second[0].isdigit() or WORD.search(first) or WORD.search(second)
    space = r" \cdot " if dotted else r" \, "
    return f"{first}{space}{second}"


def quotient(left: ast.expr, op: ast.operator, right: ast.expr) -> str:
    """A fraction; `a/b/c` is one fraction, with b and c below."""
    below = [right]
    while isinstance(op, ast.Div) and isinstance(left, ast.BinOp) and isinstance(left.op, ast.Div):
        below.insert(0, left.right)
        left = left.left
    parts = [in_latex(part) for part in below]
    denominator = r" \, ".join(part.within(PRODUCT) for part in parts) if len(parts) > 1 else parts[0].text
    fraction = rf"\frac{{{in_latex(left).text}}}{{{denominator}}}"
    return fraction if isinstance(op, ast.Div) else rf"\left\lfloor {fraction} \right\rfloor"


def call(name: str, arguments: list[str]) -> Written:
    """A function: rounding with its brackets, anything else by its name."""
    if name in LATEX_CALLS:
        return Written(LATEX_CALLS[name].format(*arguments), ATOM)
    return Written(rf"\operatorname{{{name.lower()}}}\left({', '.join(arguments)}\right)", ATOM)


def number(value: object) -> str:
    """A number as it was written; FormulaError for anything else in quotes."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        message = f"not a number: {value!r}"
        raise FormulaError(message)
    mantissa, _, power = f"{value!r}".partition("e")
    return rf"{mantissa} \cdot 10^{{{int(power)}}}" if power else mantissa


def symbol(name: str) -> str:
    """Single letters slanted, words upright, what follows an underscore below the line."""
    stem, _, index = name.partition("_")
    return f"{letters(stem)}_{{{letters(index)}}}" if index else letters(stem)


def letters(name: str) -> str:
    """A letter, a Greek letter by its name, a letter with a number, or a word."""
    if name.lower() in GREEK:
        return f"\\{name}"
    if numbered := re.fullmatch(r"([A-Za-z])(\d+)", name):
        return f"{numbered[1]}_{{{numbered[2]}}}"
    return name if len(name) <= 1 else rf"\mathrm{{{name.replace('_', ' ')}}}"


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


def is_sum(node: ast.expr) -> bool:
    """Whether a node is a sum or a difference."""
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub)


@dataclass(frozen=True)
class Typeset:
    """A formula as a picture, and in words."""

    svg: str
    words: str

    @property
    def inline(self) -> str:
        """The picture as part of a page, in the ink of its surroundings."""
        label = escape(self.words)
        opened = self.svg.replace("<svg", f'<svg role="img" aria-label="{label}" class="formula"', 1)
        return opened.replace('fill="black"', 'fill="currentColor"')

    @property
    def address(self) -> str:
        """The picture as an address that holds it, in the ink and the size of paper."""
        drawn = self.svg.replace('fill="black"', f'fill="{light("ink")}"')
        drawn = EXTENT.sub(lambda found: f' {found[1]}="{float(found[2]) * PAPER:.2f}"', drawn, count=2)
        return "data:image/svg+xml;base64," + base64.b64encode(drawn.encode()).decode("ascii")


@lru_cache(maxsize=CACHED)
def typeset(formula: str) -> Typeset:
    """The formula as a picture; FormulaError where the text is not a formula."""
    return Typeset(cached(latex(formula)), spoken(formula))


def cached(expression: str) -> str:
    """A picture of the LaTeX, from the user's cache where it has been drawn before."""
    key = hashlib.sha256(f"{VERSION}\n{POINTS}\n{expression}".encode()).hexdigest()
    place = cache_folder() / f"{key}.svg"
    try:
        return place.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        picture = draw(expression)
    try:
        replace_file(place, picture.encode())
    except OSError:  # a read-only home: the next run draws again
        return picture
    return picture


def cache_folder() -> Path:
    """Where drawn formulas are kept (XDG base directory specification)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ledger" / "formulas"


def draw(expression: str) -> str:
    """A picture by ziamath, one shape per letter."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # ziamath opens its font in the way of Python 3.10
        import ziamath
    ziamath.config.svg2 = True
    ziamath.config.precision = 2
    return str(ziamath.Latex(expression, size=POINTS).svg())
