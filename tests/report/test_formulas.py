from __future__ import annotations

import base64
import math
import re
from fractions import Fraction
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from ledger.books.compiled import Compiled
from ledger.report.typesetting import pictures
from ledger.report.typesetting.latex import latex as typed
from ledger.report.typesetting.pictures import spoken
from ledger.report.typesetting.trees import FormulaError

NAMES = "B S D H E F V T c n tp dp d_ff F_dense lambda_1 Z".split()  # noqa: SIM905 - one line reads better
PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53)
VALUES = dict(zip(NAMES, map(Fraction, PRIMES), strict=True))
FORMULAS = (
    "2*B*S*D*H*E",
    "ceil(V/T)*D",
    "4*B*H*E*S**2*(S + 1)/(2*S)/tp",
    "5/2*(4*B*S/tp)",
    "2*3*n**2",
    "B*(S + D)**2/d_ff - H",
    "B - (S - D)",
    "B - (S + D)*H",
    "(B + S)*(D - H)",
    "B/(S*D)*H",
    "B*(S/D)",
    "8*ceil(V*D/(dp*tp)) + 8*D*F*3/(dp*tp)",
    "2*(n - 1)/n*B",
    "(B**2)**3",
    "B*2*S",
    "-B + S",
    "F_dense*lambda_1",
    "0.5*B",
    "(Z)",
)


def value(expression: str) -> Fraction:
    """The exact value of a Python expression over the primes."""
    exact = re.sub(r"(?<![\w.])(\d+(?:\.\d+)?)", r"Fraction('\1')", expression)
    return Fraction(eval(exact, {"Fraction": Fraction, "ceil": math.ceil}, dict(VALUES)))  # noqa: S307 - test's own text


def braces(text: str, start: int) -> tuple[str, int]:
    """What stands in the braces that open at `start`, and where they end."""
    depth = 0
    for at in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return text[start + 1 : at], at + 1
    raise AssertionError(text)


def python(latex: str) -> str:
    """LaTeX read back by a reader of the test's own: factors side by side are products."""
    latex = re.sub(r"\\mathrm\{([^{}]+)\}|\\lambda", lambda found: found[1] or "lambda", latex)
    latex = re.sub(r"([A-Za-z]+)_\{([^{}]+)\}", r"\1_\2", latex)
    while (at := latex.find(r"\frac")) >= 0:
        above, middle = braces(latex, at + 5)
        below, end = braces(latex, middle)
        latex = f"{latex[:at]}(({above})/({below})){latex[end:]}"
    while (at := latex.find("^{")) >= 0:
        power, end = braces(latex, at + 1)
        latex = f"{latex[:at]}**({power}){latex[end:]}"
    brackets = {
        r"\left\lceil": "ceil(",
        r"\right\rceil": ")",
        r"\left(": "(",
        r"\right)": ")",
        r"\cdot": "*",
        r"\,": "*",
    }
    for mark, sign in brackets.items():
        latex = latex.replace(mark, sign)
    return latex


@pytest.mark.parametrize("formula", FORMULAS)
def test_a_typeset_formula_says_what_its_author_wrote(formula: str) -> None:
    """Read back from LaTeX, a formula has the same value over distinct primes."""
    assert value(python(typed(formula))) == value(formula)


def test_factors_stay_in_the_order_of_the_author() -> None:
    """Nothing is sorted, expanded or renamed."""
    assert typed("2*B*S*D*H*E") == r"2 \, B \, S \, D \, H \, E"
    assert typed("E*H*2") == r"E \, H \cdot 2"


def test_a_formula_can_be_heard() -> None:
    """The words beside the picture say the whole formula."""
    assert spoken("ceil(V/T)*D") == "V over T rounded up times D"
    assert spoken("(B + S)*D") == "the quantity B plus S, times D"


@pytest.mark.parametrize(
    "text", ["", "2*", "B; S", "a.b", "x[0]", "lambda: 1", "'text'", "B if S else D", "True", "f'{B}'"]
)
def test_what_is_no_formula_is_refused(text: str) -> None:
    """Only numbers, names, sums, products, quotients, powers and calls are read."""
    with pytest.raises(FormulaError):
        typed(text)


def test_a_picture_is_drawn_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second time a formula comes from the user's cache, without the typesetter."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    drawn = pictures.cached_picture("2 \\, B")
    monkeypatch.setattr(pictures, "draw", lambda expression: pytest.fail(f"drawn again: {expression}"))
    assert pictures.cached_picture("2 \\, B") == drawn


@pytest.mark.parametrize(
    "formula",
    [
        "2*B*S*D",
        "B_dense*ceil(S/cp)*(H_dense*(E_dense + Er_dense) - ceil(ceil(F_dense/tp)/v))",
        "4*ceil(B*(S + ceil(D*(K + floor(V/tp))/dp))/M)",
        "(a + ceil(b/(c*(d + e))))**2/(f + sqrt(g/h))",
    ],
)
def test_rows_that_are_not_measured_are_drawn_as_those_that_are(formula: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ziamath's own row measures itself for operators that are to be as high as it, where there are none too."""
    from ziamath.nodes import mnode, mrow

    text = typed(formula)
    ours = pictures.draw(text)
    monkeypatch.setitem(mnode._node_classes, "mrow", mrow.Mrow)
    assert pictures.draw(text) == ours


def test_a_letter_is_laid_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever rows it is in: ziamath lays out an index sixteen times, which took minutes for a model of many parts."""
    from ziamath.nodes import mnumber

    laid_out = []
    setup = mnumber.Midentifier._setup
    monkeypatch.setattr(
        mnumber.Midentifier, "_setup", lambda self, **placed: (laid_out.append(1), setup(self, **placed))
    )
    pictures.draw(typed("H_dense*D + Er_dense*S"))
    assert len(laid_out) == len("HdenseDErdenseS")


def test_paper_has_the_first_lines_of_a_formula_of_many() -> None:
    """A row breaks over no pages; a formula that is hardly longer stays whole."""
    line = pictures.LinePicture("<svg></svg>")
    few, many = pictures.TypesetFormula((line,) * 16), pictures.TypesetFormula((line,) * 17)
    assert (len(few.paper), few.further) == (16, 0)
    assert (len(many.paper), many.further) == (8, 9)


def test_a_home_that_cannot_be_written_costs_time_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing can be kept, formulas are drawn all the same."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    assert "<svg" in pictures.cached_picture("3 \\, B")


def test_pictures_are_sound_and_follow_the_ink(compiled: Compiled) -> None:
    """Every formula of a plan is well-formed, takes the colour of its surroundings, and has words."""
    for account in compiled.accounts:
        drawn = pictures.typeset(account.formula)
        for line in (*drawn.lines, *drawn.definitions):
            root = ET.fromstring(line.inline)  # noqa: S314 - the project's own picture
            assert root.get("aria-label" if line is drawn.lines[0] else "aria-hidden")
            assert "black" not in line.inline


def test_paper_gets_letters_that_refer_to_nothing() -> None:
    """A picture for paper holds its own shapes, each letter one that stands alone, and keeps its size."""
    (line,) = pictures.typeset("2*B*S*D*ceil(F/tp)").lines
    paper = base64.b64decode(line.address.partition(",")[2]).decode()
    assert not re.search(r"<use|<symbol|href", paper)
    assert paper.count("<path") == line.svg.count("<use")
    sizes = [pictures.EXTENT.search(svg) for svg in (line.svg, paper)]
    screen, printed = (float(found[2]) for found in sizes if found)
    assert printed == pytest.approx(pictures.PAPER * screen, abs=0.01)
