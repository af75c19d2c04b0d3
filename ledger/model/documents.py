"""How far the tokens of packed documents see: means over all tokens, which may be values of a trace."""

from __future__ import annotations

from collections.abc import Callable

from ledger.arithmetic.values import Amount, divide, minimum
from ledger.spec.documents import Documents


def causal_keys(documents: Documents, tokens: Amount, window: int | None = None) -> Amount:
    """Twice the keys that a causal query of a sequence of `tokens` sees on average, less one.

    Of documents of one length, without a window, it is their length.
    """
    return _mean(documents, tokens, lambda length: _causal(length, window))


def document_keys(documents: Documents, tokens: Amount, window: int | None = None) -> Amount:
    """The keys of a query's document, no more than its window, whatever a causal mask leaves of them; on average."""
    return _mean(documents, tokens, lambda length: length * (minimum(length, window) if window else length))


def _mean(documents: Documents, tokens: Amount, summed: Callable[[Amount], Amount]) -> Amount:
    """What is `summed` over the tokens of each document, over all tokens of a sequence."""
    if documents.lengths:
        above = sum(one.share * summed(one.tokens) for one in documents.lengths)
        return divide(above, sum(one.share * one.tokens for one in documents.lengths))
    whole = tokens // documents.length
    return divide(whole * summed(documents.length) + summed(tokens - whole * documents.length), tokens)


def _causal(length: Amount, window: int | None) -> Amount:
    """Twice the points of a document's (query, key) square that a causal mask and a window leave, less its tokens."""
    seen = minimum(length, window) if window else length
    return 2 * seen * length - seen * seen + seen - length
