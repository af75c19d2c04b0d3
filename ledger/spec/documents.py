"""Documents that are packed into sequences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, ClassVar

from ledger.arithmetic.values import Amount, divide, minimum
from ledger.spec.parts import PartHeader
from ledger.spec.structures import quantity

# Kernels that are told where documents begin, and run no scores between two of them (FlashAttention's `cu_seqlens`,
# cuDNN's `thd` layout in Transformer Engine, torch.nn.attention.varlen). Those that write scores out mask them.
TOLD_BOUNDS = ("flash", "flash_repeated", "flash3", "varlen", "cudnn", "cudnn_grouped")
WRITES_SCORES = ("math", "eager", "fused_softmax")


@dataclass(frozen=True)
class DocumentLength:
    """Documents of `tokens` each, and the `share` of all documents that they are."""

    tokens: Annotated[int, quantity("tokens"), "Of each of them: `300 tokens`."]
    share: Annotated[Fraction, quantity("1", greatest=1, exact=True), "Of all documents: `25 %`."]


@dataclass(frozen=True)
class Documents:
    """Packed documents, which attention does not leave: all of one `length`, or `lengths` with the share of each.

    Of one length a sequence holds as many as fit, and the last is cut. Of several, sequences hold whole documents.
    """

    spec: ClassVar[PartHeader] = PartHeader(
        meaning="Documents packed into sequences, which attention does not leave: `{length: 700 tokens}`, or lengths "
        "with the share of documents that have each. A mean alone understates attention where lengths vary.",
        least=1,
        most=1,
    )

    length: Annotated[int, quantity("tokens"), "Of every document, the last of a sequence cut: `700 tokens`."] = 0
    lengths: Annotated[
        tuple[DocumentLength, ...],
        "Several lengths: `[{tokens: 300 tokens, share: 75 %}, {tokens: 1900 tokens, share: 25 %}]`.",
    ] = ()


# --- keys that tokens of packed documents see ---


def causal_keys(documents: Documents, tokens: Amount, window: int | None = None) -> Amount:
    """Twice the keys that a causal query of a sequence of `tokens` sees on average, less one.

    Of documents of one length, without a window, it is their length.
    """
    return _mean_over_tokens(documents, tokens, lambda length: _causal_points(length, window))


def document_keys(documents: Documents, tokens: Amount, window: int | None = None) -> Amount:
    """The keys of a query's document, no more than its window, whatever a causal mask leaves of them; on average."""
    return _mean_over_tokens(documents, tokens, lambda length: length * (minimum(length, window) if window else length))


def _mean_over_tokens(documents: Documents, tokens: Amount, summed: Callable[[Amount], Amount]) -> Amount:
    """The mean over the tokens of a sequence of what `summed` gives for a document of some length."""
    if documents.lengths:
        total = sum(length.share * summed(length.tokens) for length in documents.lengths)
        return divide(total, sum(length.share * length.tokens for length in documents.lengths))
    count = tokens // documents.length
    cut = tokens - count * documents.length
    return divide(count * summed(documents.length) + summed(cut), tokens)


def _causal_points(length: Amount, window: int | None) -> Amount:
    """Twice the points of a document's (query, key) square that a causal mask and a window leave, less its tokens."""
    seen = minimum(length, window) if window else length
    return 2 * seen * length - seen * seen + seen - length
