"""Meaning is a record, never a name: no rule reads what an account, a kernel class, a tensor or a total is called.

What caused an amount, what a kernel is, what a tensor is of: all of it stands in fields where it is derived, and names
are printed from them. A component called `x_norm` must not change a price.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "ledger"
ROOMS = ("model", "books", "evidence")
# Methods that take a text apart, and attributes that are names of our own.
METHODS = {"split", "rsplit", "partition", "rpartition", "startswith", "endswith", "removeprefix", "removesuffix"}
NAMES = {"name", "account"}
# The functions that read a text, each with whose text it is; `module: re` where a module has patterns for it.
READ: dict[str, str] = {
    "books/memory/gathering.py: _runs_in": "paths of modules, whose hooks gather weights",
    "books/parameter_traffic.py: _backward_visits": "paths of modules, whose hooks gather weights",
    "books/parameter_traffic.py: module_of": "paths of modules, whose hooks gather weights",
    "books/parameter_traffic.py: modules": "paths of modules, whose hooks gather weights",
    "model/dims.py: listed": "einsums and lists of dims, as models and authors of components write them",
    "model/einsums.py: re": "einsums, as authors of questions write them",
    "model/einsums.py: parse": "einsums, as authors of questions write them",
    "model/einsums.py: _term": "einsums, as authors of questions write them",
    "model/strides.py: cut": "parts of a dim, as authors of questions write them: `0:2`",
    "books/closed_forms.py: re": "names of terms, which a form is printed with",
    "books/closed_forms.py: rank": "names and titles of terms and totals, which a form is printed with",
    "books/closed_forms.py: layer_letters": "names and titles of terms and totals, which a form is printed with",
    "books/closed_forms.py: _names": "names and titles of terms and totals, which a form is printed with",
    "books/closed_forms.py: priced": "names and titles of terms and totals, which a form is printed with",
    "books/closed_forms.py: price": "names and titles of terms and totals, which a form is printed with",
    "books/closed_forms.py: shared_number": "names and titles of terms and totals, which a form is printed with",
    "books/closed_forms.py: candidates": "names and titles of terms and totals, which a form is printed with",
    "books/closed_forms.py: form": "names and titles of terms and totals, which a form is printed with",
    "books/closed_forms.py: is_whole": "names and titles of terms and totals, which a form is printed with",
    "books/closed_forms.py: conditions": "names and titles of terms and totals, which a form is printed with",
    "books/closed_forms.py: taken_for_granted": "names and titles of terms and totals, which a form is printed with",
    "books/closed_forms.py: short_names": "names and titles of terms and totals, which a form is printed with",
    "books/closed_forms.py: __getitem__": "names and titles of terms and totals, which a form is printed with",
    "books/names.py: under": "accounts and totals as users type them, whole or their beginning",
    "books/notation.py: _order": "sympy's symbols, which keep nothing but a name",
    "books/what_if/ordered.py: without_effect": "keys of totals as users type them, whole or the beginning of others",
    "books/meanings.py: re": "keys of totals as users type them, held against the table of meanings",
    "books/meanings.py: value_of_input": "paths of a plan, as the table of meanings and `--set` write them",
    "books/plan_quantities.py: re": "totals of transfers as authors of questions write them",
    "books/plan_quantities.py: __call__": "inputs of plans and devices as authors of questions write them",
    "books/what_if/conditions.py: re": "conditions as users type them",
    "books/what_if/conditions.py: condition": "conditions as users type them: a limit in per cent",
    "evidence/citations.py: re": "sources of prices, which name a file of evidence",
    "evidence/citations.py: find_cited": "sources of prices, which name a file of the library by its folder",
    "evidence/microbenchmarks/records.py: _rows": "tables of measurements, a line each",
    "evidence/microbenchmarks/sets.py: _published_fit": "what a file says was held out: `none` if nothing was",
    "evidence/tables.py: re": "tables as people write them, in CSV",
    "evidence/tables.py: _require_commas": "tables as people write them, cut by something else than commas",
    "evidence/tables.py: _cell": "cells as people write them, with what no terminal should obey",
    "evidence/verification.py: _verification": "records of verdicts: a plan and its title in a line",
}


def modules(rooms: tuple[str, ...]) -> Iterator[Path]:
    """The modules of some rooms."""
    return (path for room in rooms for path in sorted((PACKAGE / room).rglob("*.py")))


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """Every node of a module with the name of the outermost function, or method, that it stands in."""

    def within(node: ast.AST, name: str) -> Iterator[tuple[str, ast.AST]]:
        for child in ast.iter_child_nodes(node):
            own = child.name if not name and isinstance(child, ast.FunctionDef) else name
            yield own, child
            yield from within(child, own)

    return within(tree, "")


def reads_a_name(node: ast.AST) -> bool:
    """Whether a node takes a text apart, or asks what it holds or looks like."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr in METHODS
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        held = isinstance(node.left, ast.Constant) and any(map(is_name, node.comparators))
        inside = isinstance(node.ops[0], ast.In | ast.NotIn) and held
        return inside or any(isinstance(side, ast.JoinedStr) for side in sides)
    return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice) and is_name(node.value)


def is_name(node: ast.AST) -> bool:
    """Whether an expression is a name of our own."""
    return isinstance(node, ast.Attribute) and node.attr in NAMES


def readings(path: Path) -> Iterator[str]:
    """The functions of a module that read names, and whether it has patterns."""
    module = path.relative_to(PACKAGE).as_posix()
    for function, node in functions(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import) and any(name.name == "re" for name in node.names):
            yield f"{module}: re"
        elif reads_a_name(node):
            yield f"{module}: {function}"


def test_no_rule_reads_meaning_out_of_a_name() -> None:
    """What takes a text apart is listed with whose text it is; what is listed still does."""
    found = {place for path in modules(ROOMS) for place in readings(path)}
    assert found - set(READ) == set(), "a rule reads a name: carry what it means as a field"
    assert set(READ) - found == set(), "nothing is read there any more: take it from the list"


@pytest.mark.parametrize(
    "text",
    [
        'row.account.endswith(".again")',
        'row.account.split("/")[0]',
        'tensor.name == f"{weight.name}.gradient"',
        '"/shared" in row.account',
        'row.name[:6] == "memory"',
        "unit.name.removesuffix(INNER) in names",
    ],
)
def test_the_walk_sees_each_way_of_reading(text: str) -> None:
    """A test that misses them would hold nothing."""
    assert any(reads_a_name(node) for node in ast.walk(ast.parse(text)))


@pytest.mark.parametrize("text", ["row.cause.unit == unit.name", "tensor.name in names", "SHARED in row.cause.region"])
def test_names_may_be_compared_and_printed(text: str) -> None:
    """A name is an identity: two of them may be the same."""
    assert not any(reads_a_name(node) for node in ast.walk(ast.parse(text)))
