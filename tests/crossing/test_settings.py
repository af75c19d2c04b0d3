"""Keys of kernels and software crossed with models: one that changes nothing is told of, one that does is not."""

from __future__ import annotations

import pytest

from ledger.spec.library import default_library
from tests.crossing.settings import BY_FIGURES, BY_RULE, EFFECT, SILENT, WRONG, case_of, keys

MODELS = sorted(default_library().names("model"))
OF_KERNELS = keys("kernels")
PAIRS = [
    (model, OF_KERNELS[(place + turn) % len(OF_KERNELS)]) for turn in range(4) for place, model in enumerate(MODELS)
]


@pytest.mark.parametrize(("model", "key"), PAIRS)
def test_a_key_in_vain_is_told_of(model: str, key: str) -> None:
    """Each value is compiled by itself, and all totals and accounts are compared."""
    assert case_of(model, key).outcome not in (SILENT, WRONG)


def test_the_table_tells_outcomes_apart() -> None:
    """Of a dense model: its norm, experts that it has none of, and a dropout that it has none of."""
    outcomes = [case_of("llama-3-8b", f"kernels.{key}").outcome for key in ("norm", "experts", "residual")]
    assert outcomes == [EFFECT, BY_RULE, BY_FIGURES]
    assert {"kernels.norm", "kernels.loss_chunks", "kernels.attention"} < {*OF_KERNELS}
