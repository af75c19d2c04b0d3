"""Models of images, and of an encoder and a decoder, among those of transformers: their micro-batches and losses."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from ledger.lab.reference.workload import Workload
    from ledger.spec.plan import Model


def micro_batch(work: Workload, device: str) -> tuple[torch.Tensor, ...]:
    """Tokens (batch seq), or pixels (batch channels height width) in fp32, as data loaders give them.

    What an encoder reads goes before the tokens of its decoder.
    """
    import torch

    image = work.model.image
    if image is None:
        tokens = torch.zeros(work.batch, work.seq_len, dtype=torch.long, device=device)
        return (source(work, device), tokens) if work.model.encoder_groups else (tokens,)
    return (torch.zeros(work.batch, image.channels, image.height, image.width, device=device),)


def initialised(model: Model) -> AbstractContextManager[None]:
    """Within, a model is built; one of images without first values, whose distribution reads what it draws."""
    from transformers.initialization import no_init_weights

    return no_init_weights() if model.image else nullcontext()


def one_sequence_only(model: Model) -> None:
    """Raises `NoReferenceError` for a model with an encoder, where the judge's ranks read one sequence of tokens."""
    from ledger.lab.transformers.config import NoReferenceError

    text_only(model)
    if model.encoder_groups:
        raise NoReferenceError(f"{model.title}: these ranks of the judge read one sequence, and this model reads two")


def text_only(model: Model) -> None:
    """Raises `NoReferenceError` for a model of images, where the judge's ranks read tokens."""
    from ledger.lab.transformers.config import NoReferenceError

    if model.image:
        raise NoReferenceError(f"{model.title}: ranks of the judge read tokens, and this model reads images")


def as_weights(built: Any, pixels: torch.Tensor) -> torch.Tensor:
    """Pixels in the dtype of the weights, unless autocast casts both: a convolution takes no two dtypes."""
    import torch

    if pixels.device.type != "meta" and torch.is_autocast_enabled(pixels.device.type):
        return pixels
    return pixels.to(next(built.parameters()).dtype)


def loss_of_images(built: Any, pixels: torch.Tensor, mask: torch.Tensor | None, *, stem: bool) -> torch.Tensor:
    """Cross-entropy of the classes in fp32; transformers' own leaves scores in the dtype that they have.

    `stem`: of a model without attention, which takes pixels as they are.
    """
    import torch

    classes = torch.zeros(pixels.shape[0], dtype=torch.long, device=pixels.device)
    scores = (built(as_weights(built, pixels)) if stem else built(pixels, attention_mask=mask)).logits
    return torch.nn.functional.cross_entropy(scores.float(), classes)


# --- models with an encoder and a decoder ---


def source(work: Workload, device: str) -> torch.Tensor:
    """What the encoder reads: tokens (batch source), or frames (batch bands frames) as wide as the weights."""
    import torch

    from ledger.lab.reference.cuda_guard import torch_dtype

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
    encoder_input, tokens = batch
    square = _mask(work, tokens, "tt") if masked else None
    inputs: dict[str, Any]
    if work.model.sound:
        inputs = {"input_features": encoder_input.to(built.dtype)}
    elif masked:
        encoded = built.encoder(input_ids=encoder_input, attention_mask=_mask(work, tokens, "ss"))
        inputs = {"encoder_outputs": encoded, "attention_mask": _mask(work, tokens, "ts")}
    else:
        inputs = {"input_ids": encoder_input}
    outputs = built(**inputs, decoder_input_ids=tokens, decoder_attention_mask=square, use_cache=False)
    loss: torch.Tensor = built.loss_function(logits=outputs.logits, labels=tokens, vocab_size=work.model.vocab)
    return loss


def _mask(work: Workload, tokens: torch.Tensor, sides: str) -> torch.Tensor:
    """What is added to the scores of queries for keys, of the source (`s`) or the target (`t`) each."""
    import torch

    from ledger.lab.reference.cuda_guard import torch_dtype

    length = {"s": work.source_len, "t": work.seq_len}
    shape = (length[side] for side in sides)
    return torch.zeros(work.batch, 1, *shape, device=tokens.device, dtype=torch_dtype(work.precision.compute))
