"""The parts of a micro-batch that pass the head and the loss one after the other."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.arithmetic.values import Amount, ceil_divide, minimum, next_power_of_two
from ledger.spec.plan import Kernels, Model, Parallelism, Run

CHUNKED_LOSSES = ("chunked", "fused_linear")  # losses that go part by part
USUAL_CHUNKS = 8  # parts in torchtitan's and torchtune's chunked losses


@dataclass(frozen=True)
class LossParts:
    """`count` parts of `rows` tokens of a micro-batch on one device, of which the last has `last_rows`, maybe fewer."""

    count: Amount
    rows: Amount
    last_rows: Amount


def loss_parts(kernels: Kernels, model: Model, run: Run, parallelism: Parallelism) -> LossParts:
    """The parts that are asked for, or that the kernel chooses; fewer where rounding leaves none for the last.

    `chunked` cuts each sequence (torch.chunk). Liger cuts all rows of a micro-batch, and takes as many, up to a power
    of two, as have no more logits than all rows have hidden values (ops/fused_linear_cross_entropy.py: `inc_factor`,
    `chunk_size`, `num_chunks`).
    """
    tokens = run.seq_len // parallelism.context
    all_rows = run.micro_batch * tokens
    if kernels.loss == "chunked":
        rows = run.micro_batch * ceil_divide(tokens, kernels.loss_chunks or USUAL_CHUNKS)
    elif kernels.loss_chunks:
        rows = ceil_divide(all_rows, kernels.loss_chunks)
    else:
        wider = ceil_divide(model.vocab, model.d_model)
        rows = minimum(all_rows, next_power_of_two(ceil_divide(all_rows, wider)))
    count = ceil_divide(all_rows, rows)
    return LossParts(count, rows, all_rows - (count - 1) * rows)
