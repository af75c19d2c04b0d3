"""Encoders whose tokens see those after them. Defaults: transformers 5.23, configuration_<family>.py."""

from __future__ import annotations

from collections.abc import Mapping

from ledger.spec.imports.huggingface import fields, terms
from ledger.spec.imports.huggingface.families.common import decoder
from ledger.spec.imports.huggingface.family import Family

ENCODERS: Mapping[str, Family] = {
    "bert": Family(
        config="BertConfig",
        architecture="BertForMaskedLM",
        fields={
            **decoder(width=768, layers=12, heads=12, positions=512, vocabulary=30522),
            **fields.sizes(intermediate_size=3072, type_vocab_size=2),
            **fields.activations(hidden_act="gelu"),
            **fields.dropouts(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1),
            "tie_word_embeddings": fields.only(True),  # false keeps a second bias of the head, which nothing reads
            "is_decoder": fields.only(False),  # true masks what comes after
            "position_embedding_type": fields.only("absolute"),
        },
        terms=(
            *(*terms.OUTSIDE, terms.same("max_position_embeddings", "embedding.learned_positions")),
            *(terms.same("type_vocab_size", "embedding.types"), *terms.fixed("embedding", norm=True)),
            terms.same("hidden_dropout_prob", "embedding.dropout", "residual_dropout"),
            *(*terms.norms("layer", "residual", bias=True), terms.derived("norm.final", lambda _: False)),
            *(terms.activation("hidden_act", "head.transform"), *terms.fixed("head", bias=True)),
            *(terms.HEADS, terms.EQUAL_HEADS, terms.SPLIT_WIDTH),
            *terms.fixed("attention", qkv_bias=True, out_bias=True, bidirectional=True, softmax="input"),
            terms.same("attention_probs_dropout_prob", "attention.dropout"),
            *(*terms.mlp("plain"), *terms.fixed("mlp", bias=True)),
        ),
        ignored=frozenset(
            """
            directionality layer_norm_eps pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers
            pooler_size_per_head pooler_type
            """.split()  # noqa: SIM905 - as a literal, one name a line, these would be half of the row
        ),
        stack="encoder",
        layers="bert.encoder.layer",
    ),
}
