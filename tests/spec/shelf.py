"""The small library that tests of the stage read, and a sound plan to be spoilt."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.spec.library import Library
from ledger.spec.load import load_plan
from ledger.spec.plan import Plan
from ledger.spec.problems import Problem, SpecError
from ledger.spec.render import render_problems

HERE = Path(__file__).parent
LIBRARY = Library(HERE / "library")
SMALL = (HERE / "library" / "small.yaml").read_text("utf-8")


def loaded(*settings: str, text: str = SMALL) -> Plan:
    """The small plan, or another text, with settings."""
    return load_plan(text, settings, library=LIBRARY)


def problems(*settings: str, text: str = SMALL) -> tuple[Problem, ...]:
    """What is wrong with the small plan, or another text, under these settings."""
    with pytest.raises(SpecError) as caught:
        loaded(*settings, text=text)
    return caught.value.problems


def messages(*settings: str, text: str = SMALL) -> list[str]:
    """The messages alone."""
    return [problem.message for problem in problems(*settings, text=text)]


def rendered(error: SpecError) -> str:
    """What a user reads."""
    return render_problems(error.problems, error.sources) + "\n"
