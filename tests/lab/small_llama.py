"""A small Llama for judges, whose sizes divide over four ranks."""

from __future__ import annotations

from tests.model import plans

D, F, V, H, K, E, S, L = 96, 160, 208, 8, 4, 12, 64, 3  # widths of stream and MLP, words, heads, theirs, tokens, layers
MODEL = {
    **plans.layer(
        plans.LLAMA,
        repeat=L,
        attention={"heads": H, "kv_heads": K, "head_dim": E},
        mlp={"d_ff": F},
    ),
    "d_model": D,
    "vocab": V,
}
LAYER = 2 * D * E * (H + K) + 3 * D * F + 2 * D  # q and out, k and v; gate, up and down; two norms
