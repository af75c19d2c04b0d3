"""An encoder and a decoder of transformers: what a micro-batch of them holds, and how their loss is taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from ledger.lab.reference.model import Workload


def source(work: Workload, device: str) -> torch.Tensor:
    """What the encoder reads: tokens (batch source), or frames (batch bands frames) as wide as the weights."""
    import torch

    if work.model.sound is None:
        return torch.zeros(work.batch, work.source_len, dtype=torch.long, device=device)
    return torch.zeros(work.batch, work.model.sound.bands, work.model.sound.frames, device=device)


def loss_of_two_stacks(built: Any, work: Workload, batch: tuple[torch.Tensor, torch.Tensor], *, masked: bool) -> Any:
    """Cross-entropy of the decoder's tokens as other models of text take it; `masked`: masks are added to scores.

    Encoders of sound take none.
    """
    given, tokens = batch
    mask, seen, square = None, None, None
    if masked:
        mask, seen, square = (_mask(work, tokens, *sides) for sides in ("ss", "ts", "tt"))
    if work.model.sound is None:
        encoded = built.encoder(input_ids=given, attention_mask=mask)
        asked = {"encoder_outputs": encoded, "attention_mask": seen}
    else:
        asked = {"input_features": given}
    logits = built(**asked, decoder_input_ids=tokens, decoder_attention_mask=square, use_cache=False).logits
    return built.loss_function(logits=logits, labels=tokens, vocab_size=work.model.vocab)


def _mask(work: Workload, tokens: torch.Tensor, queries: str, keys: str) -> torch.Tensor:
    """What is added to the scores of one sequence's tokens for those of another: `s` the source, `t` the target."""
    import torch

    from ledger.lab.reference.model import torch_dtype

    length = {"s": work.source_len, "t": work.seq_len}
    shape = work.batch, 1, length[queries], length[keys]
    return torch.zeros(*shape, device=tokens.device, dtype=torch_dtype(work.precision.compute))
