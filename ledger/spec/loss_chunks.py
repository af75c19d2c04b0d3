"""How many parts of a sequence pass the head and the loss one after the other."""

from __future__ import annotations

from ledger.spec.plan import Kernels, Model, Parallelism, Run

CHUNKED_LOSSES = ("chunked", "fused_linear")  # losses that go part by part
USUAL_CHUNKS = 8  # parts in torchtitan's and torchtune's chunked losses


def loss_chunk_count(kernels: Kernels, model: Model, run: Run, parallelism: Parallelism) -> int:
    """As many as are asked for, or as the kernel chooses.

    Liger takes as many tokens, up to a power of two, as have no more logits than all tokens have hidden values
    (ops/fused_linear_cross_entropy.py).
    """
    if kernels.loss_chunks or kernels.loss == "chunked":
        return kernels.loss_chunks or USUAL_CHUNKS
    tokens = run.micro_batch * run.seq_len // parallelism.context
    least = -(-tokens // -(-model.vocab // max(1, model.d_model)))
    return -(-tokens // min(tokens, 1 << (least - 1).bit_length()))
