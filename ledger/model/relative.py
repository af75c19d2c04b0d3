"""Biases of scores by the distance of query and key, of a table that all layers of an encoder or a decoder share (T5).

transformers 5.23, models/t5/modeling_t5.py: the first layer looks them up, and hands them to the others.
"""

from __future__ import annotations

from dataclasses import replace

from ledger.model.dims import symbol
from ledger.model.elementwise import Lookup
from ledger.model.modules import Module
from ledger.model.shared_results import shared
from ledger.model.sides import CROSS
from ledger.model.tape import Tape
from ledger.model.tensors import Tensor
from ledger.spec.kernel_classes import EMBEDDING

TABLE = Module("attention", "relative")


def biased(tape: Tape, scores: Tensor) -> Tensor:
    """Scores (batch heads seq key) with what their distance adds; of tokens of an encoder, zeros without a gradient."""
    of = tape.side.attention
    if of == CROSS:
        zeros = Tensor(f"{of}/bias.table", scores.named("heads", "seq", "key"), scores.dtype, "table")
        return tape.pointwise(f"{of}/bias", scores, zeros, add=True)
    return tape.pointwise(f"{of}/bias", scores, tape.side.bias or _looked_up(tape, scores), add=True)


def _looked_up(tape: Tape, scores: Tensor) -> Tensor:
    """A number of each head for each pair of tokens (heads seq key), by the bucket that their distance falls into."""
    heads, seq, key = scores.named("heads", "seq", "key")
    name = tape.side.named(str(TABLE))
    buckets = Tensor(f"{name}.index", (seq, key), "int64", "index")
    table = tape.weight(TABLE, "relative_buckets heads")
    found = tape.activation(name, (seq, key, heads), table.dtype)
    found = tape.record(Lookup(name, EMBEDDING, (buckets, table), (found,), (buckets,)))
    first = replace(found, dims=(heads, seq, key))
    return shared(tape, first, symbol("layers", tape.suffix))
