"""Models of text, of images and of sound that transformers builds of its configurations, on meta."""

from __future__ import annotations

from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BertForMaskedLM,
    PreTrainedConfig,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen2VLTextConfig,
    ResNetConfig,
    ResNetForImageClassification,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTForImageClassification,
    WhisperConfig,
    WhisperForConditionalGeneration,
)
from transformers.initialization import no_init_weights


def built(config: PreTrainedConfig) -> Any:
    """The model that transformers makes of a configuration, without values."""
    with torch.device("meta"):
        if isinstance(config, BertConfig):
            return BertForMaskedLM._from_config(config, attn_implementation="eager")
        if isinstance(config, T5Config):
            return T5ForConditionalGeneration._from_config(config, attn_implementation="eager")
        if isinstance(config, WhisperConfig):
            return WhisperForConditionalGeneration._from_config(config, attn_implementation="eager")
        if isinstance(config, ViTConfig):
            with no_init_weights():  # one of its distributions reads what it draws
                return ViTForImageClassification._from_config(config, attn_implementation="eager")
        if isinstance(config, ResNetConfig):
            with no_init_weights():  # as above
                return ResNetForImageClassification._from_config(config)
        if not isinstance(config, Qwen2VLTextConfig):
            return AutoModelForCausalLM.from_config(config, attn_implementation="eager")
        seeing = Qwen2VLForConditionalGeneration(Qwen2VLConfig(text_config=config.to_dict()))
    seeing.set_attn_implementation("eager")
    del seeing.model.visual
    return seeing


def parameters(model: torch.nn.Module) -> int:
    """Distinct parameters."""
    return sum(parameter.numel() for parameter in model.parameters())
