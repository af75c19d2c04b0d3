"""Suites: plans with overrides, read from a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.spec.load import load_plan
from ledger.spec.problems import SpecError
from ledger.spec.suite import SuiteCase, is_suite, load_suite

HEAD = "spec: ledger/1\nsuite: two of a kind\ngroups:\n  - group: one device\n    plan: gpt2\n"
CASES = """    set: {recompute: none}
    cases:
      - {case: first, quick: true}
      - {case: second, set: {recompute: {keep: [matmul]}, run.micro_batch: 2}}
"""


def written(folder: Path, text: str) -> str:
    """A suite as a file."""
    path = folder / "suite.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_case_has_its_groups_overrides_and_its_own(tmp_path: Path) -> None:
    """Its own come last, so they win; mappings are written as YAML has them in one line."""
    (group,) = load_suite(written(tmp_path, HEAD + CASES)).groups
    assert group.cases == (
        SuiteCase("first", "gpt2", ("recompute=none",), quick=True),
        SuiteCase(
            "second", "gpt2", ("recompute=none", 'recompute={"keep": ["matmul"]}', "run.micro_batch=2"), quick=False
        ),
    )


def test_two_cases_of_one_name_are_refused(tmp_path: Path) -> None:
    """They would write the same record; both places are told."""
    with pytest.raises(SpecError) as caught:
        load_suite(written(tmp_path, HEAD + CASES.replace("second", "first")))
    assert [problem.where.line for problem in caught.value.problems] == [8, 9]


def test_a_plan_that_is_nowhere_is_refused(tmp_path: Path) -> None:
    """Neither in the library nor beside the suite."""
    with pytest.raises(SpecError, match="no plan is named `gpt3`"):
        load_suite(written(tmp_path, (HEAD + CASES).replace("gpt2", "gpt3")))


def test_a_plan_is_no_suite() -> None:
    """`verify` takes both, and tells them apart."""
    assert is_suite("specs/verify/pytorch.yaml")
    assert not is_suite("specs/gpt2.yaml")


@pytest.mark.parametrize("case", list(load_suite("pytorch").cases), ids=lambda case: case.name)
def test_every_case_of_the_library_is_a_plan(case: SuiteCase) -> None:
    """The suite that PyTorch judges compiles without a problem."""
    assert load_plan(case.plan, case.overrides).run.global_batch
