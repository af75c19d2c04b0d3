"""`expect:` lines: which dimension each total has, and the assertions as values in SI base units."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from ledger.spec.explain import Finding, Steps
from ledger.spec.plan import Expectation
from ledger.spec.problems import Problem
from ledger.spec.quantities import DIMENSIONS, QuantityError, parse, parse_any
from ledger.spec.reader import Node
from ledger.spec.view import View
from ledger.units import spelt

BESIDE = ("tolerance", "source")
DUE = ("B", "s", "USD", "J")  # units without which a number says nothing


def expectations(root: Node) -> tuple[Expectation, ...]:
    """The plan's assertions, then its model's; an overridden model is another model, and owes nothing."""
    lines = list(root.fields["expect"].items) if "expect" in root.fields else []
    model = root.fields.get("model")
    if model is not None and "expect" in model.fields and _unchanged(model):
        lines += model.fields["expect"].items
    return tuple(expectation for line in lines for expectation in _line(View(line)))


def faults(root: Node) -> Iterator[Finding]:
    """What is wrong with the values of `expect:` lines, the plan's and its model's."""
    for path in (("expect",), ("model", "expect")):
        node = root
        for step in path:
            node = node.fields.get(step, Node(None, node.where))
        for index, line in enumerate(node.items):
            yield from _faults_of(line, (*path, index))


def _faults_of(line: Node, path: Steps) -> Iterator[Finding]:
    """No assertion, a bare number where a unit is due, a unit of something else; types are left to the schema."""
    asserted = {key: node.value for key, node in line.fields.items() if key not in BESIDE}
    if line.fields and not asserted:
        yield Finding(path, Problem(line.where, "the line asserts nothing", "for example `memory.peak: 60 GB`"))
    for key, given in asserted.items():
        if isinstance(given, str | int | float) and not isinstance(given, bool):
            try:
                value(key, given)
            except QuantityError as error:
                problem = Problem(line.fields[key].where, f"`{key}`: {error.message}", error.help)
                yield Finding((*path, key), problem)


def value(key: str, given: object) -> Fraction:
    """The asserted value of a total in its base unit; raises QuantityError."""
    unit = spelt(key)
    if unit in DUE:
        return Fraction(parse(str(given), unit))
    number, found = parse_any(str(given))
    if found not in {"1", unit}:
        raise QuantityError(f"`{given}` is {DIMENSIONS[found].noun}, which `{key}` is not", "write a bare number")
    return number


def _line(view: View) -> Iterator[Expectation]:
    tolerance, source = view.amount("tolerance", "1"), view.text("source")
    for key, node in view.node.fields.items():
        if key not in BESIDE:
            exact = value(key, node.value)
            number = int(exact) if exact.denominator == 1 else float(exact)
            yield Expectation(key, number, tolerance, source)


def _unchanged(model: Node) -> bool:
    """Whether every value of the model stands in the file that states what to expect of it."""
    file = model.fields["expect"].where.file
    return all(place == file for place in _files(model))


def _files(node: Node) -> Iterator[str]:
    yield node.where.file
    for inner in (*node.fields.values(), *node.items):
        yield from _files(inner)
