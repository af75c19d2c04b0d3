"""Formulas as JavaScript: one function of named sizes that returns the value of every formula, shared parts once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import sympy

from ledger.model.tensors import CeilDiv

SAFE = 2**53  # integers beyond it are floats in JavaScript, as every number there is
Names = Mapping[sympy.Expr, str]


@dataclass
class Formulas:
    """Formulas in the order in which they were first asked for; equal ones have one number."""

    numbers: dict[sympy.Expr, int] = field(default_factory=dict)

    def number(self, formula: sympy.Expr) -> int:
        """The place of a formula's value in what the function returns."""
        return self.numbers.setdefault(formula, len(self.numbers))

    def function(self, name: str) -> str:
        """The function: it takes an object of sizes by symbol, and returns an array of values."""
        roots = tuple(self.numbers)
        signs = sorted({sign.name for root in roots for sign in root.free_symbols})
        names: dict[sympy.Expr, str] = {}
        lines = [f"function {name}({{{', '.join(signs)}}}) {{"]
        for part in shared(roots):
            written = expression(part, names)
            names[part] = f"_{len(names)}"
            lines.append(f"  const {names[part]} = {written};")
        values = ", ".join(expression(root, names) for root in roots)
        return "\n".join((*lines, f"  return [{values}];", "}"))


def literal(data: object) -> str:
    """Data as it may stand inside a script of a page: JSON, in which no markup can end the script."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def shared(roots: Iterable[sympy.Expr]) -> Iterator[sympy.Expr]:
    """Parts that stand in more than one place, each after the parts it is made of."""
    uses: Counter[sympy.Expr] = Counter()
    order: list[sympy.Expr] = []

    def visit(node: sympy.Expr) -> None:
        uses[node] += 1
        if uses[node] == 1:
            for part in node.args:
                visit(part)
            order.append(node)

    for root in roots:
        visit(root)
    return (node for node in order if uses[node] > 1 and isinstance(node, sympy.Add | sympy.Mul | CeilDiv))


def expression(node: sympy.Expr, names: Names) -> str:
    """A formula as JavaScript; parts that have a name are called by it."""
    if node in names:
        return names[node]
    if isinstance(node, sympy.Add):
        return " + ".join(expression(term, names) for term in node.args).replace("+ -", "- ")
    if isinstance(node, sympy.Mul):
        return _product(node.args, names)
    if isinstance(node, sympy.Pow | sympy.Rational):
        return _product((node,), names)
    if isinstance(node, CeilDiv):
        rows, shards = (factor(part, names) for part in node.args)
        return f"Math.ceil({rows} / {shards})"
    if isinstance(node, sympy.Symbol):
        return str(node.name)
    raise TypeError(f"no JavaScript for {type(node).__name__}")


def factor(node: sympy.Expr, names: Names) -> str:
    """A formula as a factor of a product, or on either side of a division."""
    written = expression(node, names)
    plain = node in names or isinstance(node, sympy.Symbol | CeilDiv) or written.isdigit()
    return written if plain else f"({written})"


def _product(factors: Sequence[sympy.Expr], names: Names) -> str:
    """All that is multiplied over all that divides, so that whole numbers stay whole as long as they can."""
    above: list[str] = []
    below: list[str] = []
    sign = ""
    for part in factors:
        if isinstance(part, sympy.Rational):
            sign += "-" if part < 0 else ""
            above += [number(abs(part.p))] if abs(part.p) != 1 else []
            below += [number(part.q)] if part.q != 1 else []
        elif isinstance(part, sympy.Pow):
            side = above if part.exp > 0 else below
            side += [factor(part.base, names)] * abs(int(part.exp))
        else:
            above.append(factor(part, names))
    written = sign + (" * ".join(above) or "1")
    if not below:
        return written
    return f"{written} / {below[0]}" if len(below) == 1 else f"{written} / ({' * '.join(below)})"


def number(value: int) -> str:
    """A whole number; one that JavaScript cannot hold exactly is written as the float it becomes."""
    return str(int(value)) if value < SAFE else repr(float(value))
