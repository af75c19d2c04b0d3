"""Rules on documents that are packed into sequences."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.spec.documents import TOLD_BOUNDS, WRITES_SCORES
from ledger.spec.places import Places
from ledger.spec.plan import Kernels, Model, Parallelism, Run
from ledger.spec.problems import Problem

DOCUMENTS = "run.documents"


def documents_fit_their_sequence(run: Run, at: Places) -> Iterator[Problem]:
    """A sequence holds whole documents of several lengths, whose shares are all of them."""
    if run.documents is None or not run.documents.lengths:
        return
    longest, shares = max(one.tokens for one in run.documents.lengths), sum(o.share for o in run.documents.lengths)
    if longest > run.seq_len:
        message = f"documents of {longest} tokens do not fit sequences of {run.seq_len}"
        yield Problem(at(f"{DOCUMENTS}.lengths"), message, "state the lengths of the parts that they are cut into")
    if abs(float(shares) - 1) > 1e-6:
        message = f"the shares of documents sum to {float(shares):.6g}, not 1"
        yield Problem(at(f"{DOCUMENTS}.lengths"), message, "give the share of all documents that have each length")


def documents_have_a_kernel(
    run: Run, kernels: Kernels, parallelism: Parallelism, model: Model, at: Places
) -> Iterator[Problem]:
    """Attention that stays within documents is told their bounds, or masks its scores."""
    if run.documents is None:
        return
    if kernels.attention not in (*TOLD_BOUNDS, *WRITES_SCORES):
        message = f"{kernels.attention} attention knows no bounds of documents"
        yield Problem(at(DOCUMENTS), message, f"`kernels.attention` of {', '.join((*TOLD_BOUNDS, *WRITES_SCORES))}")
    if parallelism.context > 1:
        message = f"packed documents with context = {parallelism.context}: how they are cut is not modelled"
        yield Problem(at(DOCUMENTS), message, "`context: 1`, or leave `documents` out")
    for group in model.groups:
        if group.attention.bidirectional:
            message = f"packed documents with layers of `{group.name}` that see both directions are not modelled"
            yield Problem(at(DOCUMENTS), message, "leave `documents` out, or a causal model")
        if any(custom.mixes for custom in group.written.values()):
            message = (
                f"packed documents with a part of `{group.name}` that is written out over a sequence: not modelled"
            )
            yield Problem(at(DOCUMENTS), message, "leave `documents` out, or a kind of attention that is known")
        if group.attention.chunk is not None:
            message = f"packed documents with layers of `{group.name}` that see chunks are not modelled"
            yield Problem(at(DOCUMENTS), message, "leave `documents` out, or a model without chunks")


def documents_are_shorter(run: Run, at: Places) -> Iterator[Problem]:
    """A document as long as its sequence is what a sequence is without any."""
    if run.documents is not None and run.documents.length >= run.seq_len:
        message = f"`documents` has no effect: one of {run.documents.length} tokens fills a sequence of {run.seq_len}"
        yield Problem(at(DOCUMENTS), message, "leave it out, or a longer `seq_len`")
