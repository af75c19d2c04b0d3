"""Values of several forms: what is none of them is answered with all."""

from __future__ import annotations

import pytest

from ledger.spec.load import load_plan
from ledger.spec.problems import SpecError


@pytest.mark.parametrize(
    ("setting", "message", "offered"),
    [
        ("assumptions.headroom=-1 GB", "`-1 GB` is negative", ("`production`", "a ratio (`0.5`, `50 %`)", "`80 GB`")),
        ("assumptions.headroom=prodution", "cannot be `prodution`", ("did you mean `production`?", "a size")),
        ("assumptions.headroom=8 GBs", "`GBs` is no unit", ("did you mean `8 GB`", "`cloud`", "a ratio")),
        ("assumptions.headroom=lots", "cannot be `lots`", ("`none`", "`cloud`", "a ratio", "a size (`80 GB`)")),
        ("operations.checkpoint_interval=bst", "cannot be `bst`", ("did you mean `best`?", "a time (`18 us`)")),
        ("operations.checkpoint_interval=3 hors", "`hors` is no unit", ("did you mean `3 hour", "`best`")),
        ("recompute=ful", "cannot be `ful`", ("did you mean `full`?", "`selective`", "{every: ...")),
        ("parallelism.wrap=layr", "cannot be `layr`", ("did you mean `layer`?", "`model`", "{every: ...}")),
    ],
)
def test_a_value_of_several_forms_names_all_of_them(setting: str, message: str, offered: tuple[str, ...]) -> None:
    """The near miss is found over all forms, and whoever meant another one reads that it exists."""
    with pytest.raises(SpecError) as caught:
        load_plan("8b", [setting])
    [problem] = caught.value.problems
    assert message in problem.message
    for text in offered:
        assert text in problem.help, problem.help
