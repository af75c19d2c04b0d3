"""An encoder and a decoder of transformers: what a micro-batch of them holds, and how their loss is taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from ledger.lab.reference.model import Workload


def source(work: Workload, device: str) -> torch.Tensor:
    """What the encoder reads: tokens (batch source), or frames (batch bands frames) as wide as the weights."""
    import torch

    from ledger.lab.reference.torch_dtypes import torch_dtype

    if work.model.sound is None:
        return torch.zeros(work.batch, work.source_len, dtype=torch.long, device=device)
    shape, dtype = (work.batch, work.model.sound.bands, work.model.sound.frames), work.precision.weights.base
    return torch.zeros(*shape, dtype=torch_dtype(dtype), device=device)


def loss_of_two_stacks(
    built: Any, work: Workload, batch: tuple[torch.Tensor, torch.Tensor], *, masked: bool = False
) -> torch.Tensor:
    """Cross-entropy of the decoder's tokens as other models of text take it; `masked`: masks are added to scores.

    Encoders of sound take none.
    """
    given, tokens = batch
    square = _mask(work, tokens, "tt") if masked else None
    asked: dict[str, Any]
    if work.model.sound:
        asked = {"input_features": given.to(built.dtype)}
    elif masked:
        encoded = built.encoder(input_ids=given, attention_mask=_mask(work, tokens, "ss"))
        asked = {"encoder_outputs": encoded, "attention_mask": _mask(work, tokens, "ts")}
    else:
        asked = {"input_ids": given}
    outputs = built(**asked, decoder_input_ids=tokens, decoder_attention_mask=square, use_cache=False)
    loss: torch.Tensor = built.loss_function(logits=outputs.logits, labels=tokens, vocab_size=work.model.vocab)
    return loss


def _mask(work: Workload, tokens: torch.Tensor, sides: str) -> torch.Tensor:
    """What is added to the scores of queries for keys, of the source (`s`) or the target (`t`) each."""
    import torch

    from ledger.lab.reference.torch_dtypes import torch_dtype

    length = {"s": work.source_len, "t": work.seq_len}
    shape = (length[side] for side in sides)
    return torch.zeros(work.batch, 1, *shape, device=tokens.device, dtype=torch_dtype(work.precision.compute))
