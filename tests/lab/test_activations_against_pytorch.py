"""Every nonlinearity that a feed-forward part can name saves what PyTorch's own saves, fused and spelt out."""

from __future__ import annotations

import pytest

from ledger.spec.components import NONLINEARITIES
from tests.lab.saved_cases import packed, predicted
from tests.model import plans


@pytest.mark.parametrize("form", ["fused", "eager"])
@pytest.mark.parametrize("model", [plans.LLAMA, plans.GPT2], ids=["gated", "plain"])
@pytest.mark.parametrize("kind", NONLINEARITIES)
def test_saved_bytes_of_a_nonlinearity(kind: str, model: plans.Mapped, form: str) -> None:
    """A layer with it saves exactly what PyTorch packs."""
    kernels = {"attention": "flash", "norm": "fused", "activation": form}
    changed = plans.layer(model, mlp={"activation": kind})
    compiled = plans.compiled(model=changed, precision="bf16-true", kernels=kernels)
    assert predicted(compiled) == packed(compiled)
