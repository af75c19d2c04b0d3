"""Files that transformers' own `save_pretrained` writes, imported, against the models that it builds from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, PreTrainedConfig

from ledger.lab.observed.one_device import counter_formulas
from ledger.lab.reference.modules import imaginary_gpu
from ledger.spec.imports.huggingface.config import config_model
from ledger.spec.imports.huggingface.families import FAMILIES, WRAPPED
from ledger.spec.problems import SpecError
from tests.invented_configs import INVENTED
from tests.lab.built_configs import built, parameters
from tests.lab.test_compiler_against_pytorch import compiled, predicted
from tests.model import plans

# What a class has no default for, or one that no kernel for groups of rows takes.
NEEDED: Mapping[str, Mapping[str, Any]] = {"deepseek_v2": {"num_experts_per_tok": 6, "moe_intermediate_size": 1408}}
SEQUENCES, LENGTH = 3, 37  # as `compiled` runs a model
# The first invented configuration of each family; of these, every field in `make test`.
FIRST = {config["model_type"]: config for config in reversed(INVENTED.values())}
SHORT = ("falcon", "resnet", "vit")
UNTOUCHED = ("architectures", "dtype", "model_type", "transformers_version")


def saved(folder: Path, fields: Mapping[str, Any]) -> PreTrainedConfig:
    """The configuration of these fields as transformers has it; its file is in `folder`."""
    others = {key: value for key, value in fields.items() if key != "model_type"}
    config = AutoConfig.for_model(fields["model_type"], **others)
    config.save_pretrained(folder)
    return AutoConfig.from_pretrained(folder)


def imported(folder: Path) -> plans.Mapped:
    """The model that the file in a folder becomes."""
    return config_model(folder).document


def tokens(config: Any) -> Mapping[str, Any]:
    """What a model of text is given; a scan takes no mask of pairs."""
    words = torch.zeros(SEQUENCES, LENGTH, dtype=torch.long, device="meta")
    square = torch.zeros(SEQUENCES, 1, LENGTH, LENGTH, device="meta", dtype=torch.bfloat16)
    kinds = set(getattr(config, "layer_types", None) or ())
    mask = {"full_attention": square, "linear_attention": None} if "linear_attention" in kinds else square
    mask = None if kinds == {"linear_attention"} else mask
    return {"input_ids": words, "attention_mask": mask, "labels": words, "use_cache": False}


def pixels(config: Any) -> Mapping[str, Any]:
    """What a model of images is given, in the dtype of its weights; ImageNet's where the class says no size."""
    sides = getattr(config, "image_size", 224)
    size = sides if isinstance(sides, list | tuple) else [sides] * 2
    images = torch.zeros(SEQUENCES, config.num_channels, *size, device="meta", dtype=torch.bfloat16)
    return {"pixel_values": images, "labels": torch.zeros(SEQUENCES, dtype=torch.long, device="meta")}


def both_sides(config: Any) -> Mapping[str, Any]:
    """What a model with an encoder is given: sources longer than answers, or sound."""
    words = torch.zeros(SEQUENCES, LENGTH, dtype=torch.long, device="meta")
    if config.model_type == "whisper":
        frames = torch.zeros(SEQUENCES, config.num_mel_bins, 2 * config.max_source_positions, device="meta")
        given = {"input_features": frames.to(torch.bfloat16)}
    else:
        given = {"input_ids": torch.zeros(SEQUENCES, LENGTH + 16, dtype=torch.long, device="meta")}
    return {**given, "decoder_input_ids": words, "labels": words}


def counted(model: Any) -> tuple[int, int]:
    """FlopCounterMode's forward with the loss, and that with backward, of the model as transformers runs it."""
    model = model.to(torch.bfloat16).train()
    given = pixels(model.config) if hasattr(model.config, "num_channels") else tokens(model.config)
    given = both_sides(model.config) if getattr(model.config, "is_encoder_decoder", False) else given
    if "use_cache" in given:
        model.loss_type = "ForCausalLM"
    with imaginary_gpu():
        with FlopCounterMode(display=False, custom_mapping=counter_formulas()) as forward:
            loss = model(**given).loss
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


def changed(fields: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The configuration with each of its fields, in turn, another one."""
    for name, value in AutoConfig.for_model(**fields).to_dict().items():
        whole = isinstance(value, int) and not isinstance(value, bool)
        others = [not value] if isinstance(value, bool) else [2 * value or 1] if whole else []
        others += [0.5] if isinstance(value, float) else [1, 2, True] if value is None else []
        yield from ({**fields, name: other} for other in others if name not in UNTOUCHED)


def runs(config: PreTrainedConfig) -> tuple[int, tuple[int, int]] | None:
    """Parameters and FLOPs of what transformers builds; None where it builds nothing that runs."""
    with suppress(Exception):  # of any kind: what a class raises for values that it does not take is its own
        model = built(config)
        return parameters(model), counted(model)
    return None


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in SHORT else pytest.mark.long) for n in FIRST])
def test_every_field_that_a_class_saves_is_understood_or_refused(name: str, tmp_path: Path) -> None:
    """Each changed by itself: what is imported has the counts of what transformers builds, and runs."""
    understood = 0
    for number, fields in enumerate(changed(FIRST[name])):
        folder = tmp_path / str(number)
        try:
            config = saved(folder, fields)
        except Exception:  # noqa: BLE001, S112 - as above
            continue
        found = runs(config)
        with suppress(SpecError):
            plan = compiled(imported(folder), LENGTH, "eager")
            understood += 1
            if found is not None:
                assert (plan.totals["parameters"], predicted(plan)) == found, fields
    assert understood
