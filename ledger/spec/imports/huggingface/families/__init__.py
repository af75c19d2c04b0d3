"""The architectures whose config.json can be read and written, by their `model_type`: one row each."""

from __future__ import annotations

from collections.abc import Mapping

from ledger.spec.imports.huggingface.families.dense import AFTER_LLAMA, DENSE
from ledger.spec.imports.huggingface.families.encoder_decoders import ENCODER_DECODERS, ENCODERS
from ledger.spec.imports.huggingface.families.experts import EXPERTS, LATENT, RECURRENT
from ledger.spec.imports.huggingface.families.images import IMAGES
from ledger.spec.imports.huggingface.families.parallel import PARALLEL
from ledger.spec.imports.huggingface.families.residual import RESIDUAL
from ledger.spec.imports.huggingface.family import Family, Wrapping

FAMILIES: Mapping[str, Family] = {
    **DENSE,
    **EXPERTS,
    **LATENT,
    **AFTER_LLAMA,
    **PARALLEL,
    **ENCODERS,
    **IMAGES,
    **RECURRENT,
    **RESIDUAL,
    **ENCODER_DECODERS,
}
# Models of text and more: where the decoder's own configuration is, and what it is.
WRAPPED: Mapping[str, Wrapping] = {
    "gemma3": Wrapping("text_config", "gemma3_text"),
    "llama4": Wrapping("text_config", "llama4_text"),
    "qwen2_vl": Wrapping(
        "text_config",
        "qwen2_vl_text",
        outside=("tie_word_embeddings",),
        foreign_fields=frozenset(
            """
            architectures image_token_id video_token_id vision_config vision_end_token_id vision_start_token_id
            vision_token_id
            """.split()  # noqa: SIM905 - as a literal, one name a line, these would be half of the row
        ),
    ),
}
