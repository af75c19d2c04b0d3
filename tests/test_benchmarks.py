"""The scripts that show what a change moved: what they call a difference, a cycle, a name with two meanings."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import ledger

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """A script of `benchmarks`, imported as Python does that runs one."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return import_module


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        (2**70, 2**70, 0),
        (2**70, 2**70 + 1, 1),
        (3, 3.0, 1),
        (1.0, 1.0 + 4e-13, 0),
        (1.0, 1.0 + 4e-12, 1),
        ("2*B*S", "2*S*B", 1),
        (Fraction(1, 3), Fraction(1, 3), 0),
        (Fraction(1, 3), 1 / 3, 1),
        ([1, 2], [1], 1),
        ({"a": 1}, {"b": 1}, 2),
        (True, 1, 1),
    ],
)
def test_integers_are_equal_and_floats_close(
    script: Callable[[str], ModuleType], before: Any, after: Any, found: int
) -> None:
    """A number that moved, changed its kind, went or came is a difference; the last digits of a float are none."""
    module = script("differences")
    told = list(module.differences({"key": module.exact(before)}, {"key": module.exact(after)}))
    assert len(told) == found
    assert all(text.startswith("key") for text in told)


def test_a_generated_plan_is_legal_and_the_same_again(script: Callable[[str], ModuleType]) -> None:
    """A number stands for one plan, whose first choice is in it, and what it kept as refused is refused."""
    generated = script("generated")
    plan = generated.grow(5)
    assert plan == generated.grow(5)
    assert dict(generated.FIRSTS[5]).items() <= dict(plan.settings).items()
    assert ledger.compile(plan.text, generated.texts(plan.settings)).totals
    assert plan.refused
    for refused in plan.refused:
        with pytest.raises(ledger.SpecError):
            ledger.compile(plan.text, generated.texts(refused))


TREE = {
    "ledger/one/a.py": """
'Long enough to say something.'
import ledger.two.b
# name.split("/")
class Part:
    'Parts.'
""",
    "ledger/two/b.py": """
class Part:
    def move(self):
        self.place = "x.split()".split("/")

    def __init__(self):
        self.place = 1
if TYPE_CHECKING:
    import ledger.one.a
""",
    "ledger/two/c.py": """
def load():
    from ledger.one.a import Part
    from ledger.two import d
    return Part, d
""",
    "ledger/two/d.py": """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import ledger.two.b
import ledger.two.c
""",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A package of two rooms with one of each fault, and comments that look like faults."""
    for name, text in TREE.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.lstrip(), encoding="utf-8")
    return tmp_path


def test_a_house_is_read_from_syntax_trees(script: Callable[[str], ModuleType], tree: Path) -> None:
    """Calls count and comments do not; imports in functions close cycles at run time, those for types where asked."""
    house = script("house")
    found = house.House(tree)
    listed = {
        figure: list(house.listed(found, figure)) for figure in ("decodings", "mutations", "docstrings", "homonyms")
    }
    assert [text.partition(":")[0] for text in listed["decodings"]] == ["ledger/two/b.py"]
    assert [text.split(":")[:2] for text in listed["mutations"]] == [["ledger/two/b.py", "3"]]
    assert listed["docstrings"] == ["ledger/one/a.py:4: Parts."]
    assert listed["homonyms"] == ["Part: ledger/one/a.py, ledger/two/b.py"]
    assert house.cycles(found, lazy=False) == []
    assert house.cycles(found, lazy=True) == [["ledger.two.c", "ledger.two.d"]]
    assert ["ledger.one.a", "ledger.two.b"] in house.cycles(found, lazy=True, types=True)
    assert sum(house.lines_by_kind(found).values()) == found.lines
    assert {figure.title: figure.parts for figure in house.figures(found)}["lines of ledger/"] == {
        "ledger/one/": "5",
        "ledger/two/": "16",
    }


def test_seconds_are_those_of_the_processes_that_are_started(script: Callable[[str], ModuleType]) -> None:
    """A child's work counts on both clocks, its sleep on the wall alone, and this process on neither processor's."""
    timing = script("timing")

    def run(code: str) -> int:
        sum(range(10**6))
        return subprocess.run([sys.executable, "-c", f"import time; {code}"], check=True).returncode

    busy, made = timing.timed(lambda: run("sum(number * number for number in range(4_000_000))"))
    idle, _ = timing.timed(lambda: run("time.sleep(0.4)"))
    assert made == 0
    assert busy.user > idle.user + 0.1
    assert idle.wall > 0.4
    assert timing.medians([timing.Seconds(1, 9), timing.Seconds(3, 7), timing.Seconds(2, 8)]) == timing.Seconds(2, 8)
