"""Files that transformers' own `save_pretrained` writes, imported, against the models that it builds from them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, PreTrainedConfig

from ledger.lab.observed.flop_counts import counter_formulas
from ledger.lab.reference.modules import imaginary_gpu
from ledger.spec.imports.huggingface.config import config_model
from ledger.spec.imports.huggingface.families import FAMILIES, WRAPPED
from tests.invented_configs import INVENTED
from tests.lab.built_configs import built, parameters
from tests.lab.test_compiler_against_pytorch import compiled, predicted
from tests.model import plans

# What a class has no default for, or one that no kernel for groups of rows takes.
NEEDED: Mapping[str, Mapping[str, Any]] = {"deepseek_v2": {"num_experts_per_tok": 6, "moe_intermediate_size": 1408}}
SEQUENCES, LENGTH = 3, 37  # as `compiled` runs a model


def saved(folder: Path, fields: Mapping[str, Any]) -> PreTrainedConfig:
    """The configuration of these fields as transformers has it; its file is in `folder`."""
    others = {key: value for key, value in fields.items() if key != "model_type"}
    config = AutoConfig.for_model(fields["model_type"], **others)
    config.save_pretrained(folder)
    return AutoConfig.from_pretrained(folder)


def imported(folder: Path) -> plans.Mapped:
    """The model that the file in a folder becomes."""
    return config_model(folder).document


def counted(model: Any) -> tuple[int, int]:
    """FlopCounterMode's forward with the loss, and that with backward, of the model as transformers runs it."""
    tokens = torch.zeros(SEQUENCES, LENGTH, dtype=torch.long, device="meta")
    mask = torch.zeros(SEQUENCES, 1, LENGTH, LENGTH, device="meta", dtype=torch.bfloat16)
    model = model.to(torch.bfloat16).train()
    model.loss_type = "ForCausalLM"
    with imaginary_gpu():
        with FlopCounterMode(display=False, custom_mapping=counter_formulas()) as forward:
            loss = model(tokens, attention_mask=mask, labels=tokens, use_cache=False).loss
        with FlopCounterMode(display=False, custom_mapping=counter_formulas()) as backward:
            loss.backward()
    return forward.get_total_flops(), forward.get_total_flops() + backward.get_total_flops()


@pytest.mark.parametrize("name", FAMILIES)
def test_what_a_class_saves_of_its_defaults_is_imported(name: str, tmp_path: Path) -> None:
    """Nothing that transformers writes by itself refuses a file, and the count is that of the model it builds."""
    config = saved(tmp_path, {"model_type": name, **NEEDED.get(name, {})})
    plan = compiled(imported(tmp_path), LENGTH, "eager")
    assert plan.totals["parameters"] == parameters(built(config))


@pytest.mark.parametrize("name", INVENTED)
def test_what_a_class_saves_of_other_values_is_imported(name: str, tmp_path: Path) -> None:
    """Parameters and FLOPs of forward and backward are those of the model that transformers builds of its own file."""
    config = saved(tmp_path, INVENTED[name])
    plan = compiled(imported(tmp_path), LENGTH, "eager")
    model = built(config)
    assert plan.totals["parameters"] == parameters(model)
    assert predicted(plan) == counted(model)


@pytest.mark.parametrize("name", WRAPPED)
def test_what_a_class_of_text_and_more_saves_is_imported(name: str, tmp_path: Path) -> None:
    """The decoder inside has the parameters of transformers' own model of text."""
    config = saved(tmp_path, {"model_type": name})
    plan = compiled(imported(tmp_path), LENGTH, "eager")
    assert plan.totals["parameters"] == parameters(built(config.get_text_config()))
