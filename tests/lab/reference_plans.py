"""Models at published sizes, and small ones whose sizes are all different, for tests that ask PyTorch."""

from __future__ import annotations

from fractions import Fraction

from ledger.spec.plan import MLP, Attention, Group, Model, Norm, Precision
from ledger.spec.precision import WeightFormats

TENTH = Fraction(1, 10)

BF16 = Precision("bf16", WeightFormats.alike("bf16"), "bf16", None, "bf16", "bf16", "bf16", "bf16")
FP32 = Precision("fp32", WeightFormats.alike("fp32"), "fp32", None, "fp32", "fp32", "fp32", "fp32")
AUTOCAST = Precision(
    "bf16-autocast", WeightFormats.alike("fp32"), "fp32", None, "fp32", "bf16", "bf16", "fp32", autocast=True
)


def llama(d_model: int, attention: Attention, d_ff: int, vocab: int, layers: int) -> Model:
    """A Llama: RMS norms, gated SiLU MLP, untied head."""
    group = Group("decoder", layers, attention, MLP(d_ff))
    return Model("llama", "Llama", d_model=d_model, vocab=vocab, groups=(group,), max_seq_len=8192)


def rotary(heads: int, kv_heads: int, head_dim: int) -> Attention:
    """Attention with rotary positions on the whole head."""
    return Attention(heads, kv_heads, head_dim, rotary=Fraction(1))


def gpt2(d_model: int, heads: int, d_ff: int, vocab: int, layers: int, *, dropout: Fraction = TENTH) -> Model:
    """A GPT-2: LayerNorm, one projection for q, k and v, biases, learned positions, tied head."""
    attention = Attention(heads, heads, d_model // heads, qkv_bias=True, out_bias=True, fused_qkv=True, dropout=dropout)
    return Model(
        "gpt2",
        "GPT-2",
        d_model=d_model,
        vocab=vocab,
        groups=(Group("decoder", layers, attention, MLP(d_ff, "plain", "gelu_tanh", bias=True)),),
        norm=Norm("layer", bias=True),
        tied=True,
        learned_positions=1024,
        embedding_dropout=dropout,
        residual_dropout=dropout,
        max_seq_len=1024,
    )


LLAMA_3_8B = llama(4096, rotary(32, 8, 128), 14336, 128256, 32)
LLAMA_3_70B = llama(8192, rotary(64, 8, 128), 28672, 128256, 80)
LLAMA_2_7B = llama(4096, rotary(32, 32, 128), 11008, 32000, 32)
GPT2_SMALL = gpt2(768, 12, 3072, 50257, 12)

# Small, with no two products of sizes alike: 102 = d_model, 6 x 24 = 144 = q, 3 x 24 = 72 = k and v, 272 = d_ff.
SMALL_LLAMA = llama(102, rotary(6, 3, 24), 272, 211, 2)
