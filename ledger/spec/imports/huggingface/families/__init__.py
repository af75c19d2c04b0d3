"""The architectures whose config.json can be read and written, by their `model_type`: one row each."""

from __future__ import annotations

from collections.abc import Mapping

from ledger.spec.imports.huggingface.families.dense import DENSE
from ledger.spec.imports.huggingface.families.experts import EXPERTS
from ledger.spec.imports.huggingface.families.latent import LATENT
from ledger.spec.imports.huggingface.family import Family

FAMILIES: Mapping[str, Family] = {**DENSE, **EXPERTS, **LATENT}
# Models of text and more: where the decoder's own configuration is, and what it is.
WRAPPED: Mapping[str, tuple[str, str]] = {
    "gemma3": ("text_config", "gemma3_text"),
    "llama4": ("text_config", "llama4_text"),
}
