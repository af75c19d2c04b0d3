"""Specs that are no plans, given where a plan is due."""

from __future__ import annotations

import pytest

from ledger.spec.library import default_library
from ledger.spec.load import load_plan
from ledger.spec.problems import SpecError


@pytest.mark.parametrize("kind", ["accelerator", "evidence", "lecture", "model", "price"])
def test_another_kind_of_spec_is_called_what_it_is(kind: str) -> None:
    """One problem that names the kind, not a list of everything that a plan would have."""
    library = default_library()
    for name in library.names(kind):
        with pytest.raises(SpecError) as caught:
            load_plan(library.folder(kind) / f"{name}.yaml")
        (problem,) = caught.value.problems
        assert problem.message == f"this is a spec of kind `{kind}`, not a plan"
