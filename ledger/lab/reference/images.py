"""Models of images among those of transformers: what a micro-batch of them holds, and how their loss is taken."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from ledger.lab.reference import two_stacks

if TYPE_CHECKING:
    import torch

    from ledger.lab.reference.model import Workload
    from ledger.spec.plan import Model


def micro_batch(work: Workload, device: str) -> tuple[torch.Tensor, ...]:
    """Tokens (batch seq), or pixels (batch channels height width) in fp32, as data loaders give them.

    What an encoder reads goes before the tokens of its decoder.
    """
    import torch

    image = work.model.image
    if image is None:
        tokens = torch.zeros(work.batch, work.seq_len, dtype=torch.long, device=device)
        return (two_stacks.source(work, device), tokens) if work.model.encoder_groups else (tokens,)
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
