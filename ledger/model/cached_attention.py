"""The core of attention over a cache: new queries see what waits of earlier tokens, and theirs is written to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ledger.model.attention_cores import FusedAttention, sinks
from ledger.model.cache import KeyValueCache
from ledger.model.contraction import Contraction
from ledger.model.dims import Dim, symbol
from ledger.model.elementwise import Pointwise
from ledger.model.operations import Operation
from ledger.model.tape import Tape
from ledger.model.tensors import BUFFER, Tensor
from ledger.spec.kernel_classes import ATTENTION, BYTE_CACHES, COPY, DECODE, FORWARD, NO_KERNEL, KernelClass
from ledger.spec.plan import Attention

CORE = "core"  # region of what each sequence does by itself: no product joins sequences here
NAME = "attention/core"
ENTRY = "attention/cache.entry"  # what a pass writes to the cache
KERNELS = {"flash3": "flash3", "cudnn": "cudnn", "cudnn_grouped": "cudnn", "triton": "triton", "efficient": "efficient"}
FP8 = "_fp8"  # of kernels over a cache in a byte an element
SCORES = "batch seq heads width, batch key heads width -> batch heads seq key"
CONTEXT = "batch heads seq key, batch key heads values -> batch seq heads values"


@dataclass(frozen=True)
class CachedAttention(FusedAttention):
    """Scores, softmax and context of new queries over what waits in the cache, which is read once for all of them."""


def from_cache(tape: Tape, query: Tensor, key: Tensor, value: Tensor, spec: Attention) -> Tensor:
    """New keys and values are written to the cache, then queries see all that it has; as many heads wait as there are.

    Result (batch seq heads head_dim).
    """
    inner = tape.inside(CORE)
    query, key, value = (inner.cast(tensor, tape.matmul_result) for tensor in (query, key, value))
    width = Dim("key_and_value", key.dims[-1].symbol + value.dims[-1].symbol)
    waiting = write_to_cache(inner, (key, value), (*key.dims[:-1], width))
    batch, seq, heads, _ = query.dims
    result = inner.activation(NAME, (batch, seq, heads, value.dims[-1]), query.dtype, query.split)
    reads = (query, waiting, *((sinks(inner),) if spec.sinks else ()))
    seen = waiting.dims[1]
    keys, values = (Tensor(t.name, (batch, seen, heads, t.dims[-1]), t.dtype, split=query.split) for t in (key, value))
    return inner.record(cached_attention_kernel(inner, reads, result, (query, keys, values), (SCORES, CONTEXT)))


def write_to_cache(tape: Tape, new: Sequence[Tensor], dims: tuple[Dim, ...]) -> Tensor:
    """A copy of what is new into the cache, in its format; what a pass then reads of it, (batch key ...)."""
    cache = cache_of(tape)
    entry = Tensor(ENTRY, dims, cache.dtype, BUFFER, new[0].split)
    tape.record(Pointwise("attention/cache", COPY, tuple(new), (entry,), flops=0))
    read = (dims[0], Dim("key", symbol("read", tape.suffix)), *dims[2:])
    return Tensor("attention/cache.read", read, cache.dtype, BUFFER, new[0].split)


def cached_attention_kernel(
    tape: Tape, reads: tuple[Tensor, ...], result: Tensor, operands: tuple[Tensor, ...], einsums: tuple[str, str]
) -> CachedAttention:
    """The kernel: it reads what it `reads`; its two products are of a query with keys, and of scores with values.

    Of what a pass reads of the cache, a query attends to what its mask leaves, exactly on average.
    """
    query, keys, values = operands
    batch, seq, heads, _ = query.dims
    scores = Tensor("scores", (batch, heads, seq, keys.dims[1]), query.dtype, split=query.split)
    share = symbol("attended", tape.suffix) / symbol("read", tape.suffix)
    parts = (
        Contraction("scores", NO_KERNEL, (query, keys), (scores,), einsum=einsums[0], density=share),
        Contraction("context", NO_KERNEL, (scores, values), (result,), einsum=einsums[1], density=share),
    )
    variant = KERNELS.get(tape.kernels.attention, "flash")
    kernel = KernelClass(ATTENTION, variant, FORWARD)
    if cache_of(tape).decodes:
        narrow = FP8 if cache_of(tape).dtype in BYTE_CACHES else ""
        kernel = KernelClass(ATTENTION, f"{tape.stack.engine.decode_attention or variant}{narrow}", DECODE)
    return CachedAttention(NAME, kernel, reads, (result,), parts=parts)


def cache_of(tape: Tape) -> KeyValueCache:
    """The cache of a tape that serves."""
    if tape.cache is None:
        raise ValueError("a tape that trains has no cache")
    return tape.cache


def per_sequence(operation: Operation) -> bool:
    """Whether an operation is what each sequence does by itself, not a product over the tokens of all of them."""
    return CORE in operation.region
