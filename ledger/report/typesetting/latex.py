"""Formulas in LaTeX, factors and terms in the order they were written."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from ledger.report.typesetting.trees import FormulaError, parse

WORD = re.compile(r"(?<!_\{)\\mathrm")  # not in an index
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


@dataclass(frozen=True)
class LatexText:
    """An expression in some notation, and how tightly it binds."""

    text: str
    binds: int

    def within(self, least: int) -> str:
        """The text, in parentheses where it binds less tightly than its surroundings."""
        return self.text if self.binds >= least else rf"\left({self.text}\right)"


def latex(formula: str) -> str:
    """The formula in LaTeX, factors and terms in the order they were written."""
    return in_latex(parse(formula)).text


def in_latex(node: ast.expr) -> LatexText:
    """A tree in LaTeX."""
    match node:
        case ast.Constant(value=value):
            return LatexText(number(value), ATOM)
        case ast.Name(id=name):
            return LatexText(symbol(name), ATOM)
        case ast.UnaryOp(operand=operand):
            return LatexText(f"-{in_latex(operand).within(PRODUCT)}", SUM)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
            sign = "+" if isinstance(op, ast.Add) else "-"
            tail = in_latex(right).within(SUM if sign == "+" else PRODUCT)
            return LatexText(f"{in_latex(left).text} {sign} {tail}", SUM)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return LatexText(product(left, right), PRODUCT)
        case ast.BinOp(left=left, op=ast.Div() | ast.FloorDiv() as op, right=right):
            return LatexText(quotient(left, op, right), PRODUCT)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return LatexText(f"{in_latex(left).within(ATOM)}^{{{in_latex(right).text}}}", POWER)
        case ast.Call(func=ast.Name(id="over"), args=[above, below]):
            return LatexText(f"{in_latex(above).within(PRODUCT)} / {in_latex(below).within(POWER)}", PRODUCT)
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


def call(name: str, arguments: list[str]) -> LatexText:
    """A function: rounding with its brackets, anything else by its name."""
    if name in LATEX_CALLS:
        return LatexText(LATEX_CALLS[name].format(*arguments), ATOM)
    called = name.lower().replace("_", r"\_")
    return LatexText(rf"\operatorname{{{called}}}\left({', '.join(arguments)}\right)", ATOM)


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
