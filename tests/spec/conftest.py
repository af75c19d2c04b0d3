"""Parameter counts from transformers itself, without memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest


@pytest.fixture(scope="session")
def parameters_on_meta() -> Callable[[Mapping[str, Any]], int]:
    """Count the distinct parameters of the causal model that transformers builds from the fields of a config.json."""

    def count(fields: Mapping[str, Any]) -> int:
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM

        others = {key: value for key, value in fields.items() if key != "model_type"}
        config = AutoConfig.for_model(fields["model_type"], **others)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
        return sum(parameter.numel() for parameter in model.parameters())

    return count
