"""The core of attention: what each kernel computes, reads and saves, by how scores are kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import sympy

from ledger.model.causes import Module, Parameter
from ledger.model.collectives import Collective
from ledger.model.contraction import Contraction
from ledger.model.dims import Dim, symbol
from ledger.model.elementwise import Addition, Lookup, Pointwise
from ledger.model.operations import ONE, ZERO, Matmul, Operation, differentiable, handed_on, total
from ledger.model.tape import Tape
from ledger.model.tensors import CROSS, SHARED, CeilDiv, Tensor, product
from ledger.spec.kernel_classes import (
    ATTENTION,
    CAST,
    COPY,
    DROPOUT,
    ELEMENTWISE,
    EMBEDDING,
    FORWARD,
    NO_KERNEL,
    REDUCTION,
    SOFTMAX,
    KernelClass,
)
from ledger.spec.plan import Attention

TABLE = Module("attention", "relative")


def add_distance_bias(tape: Tape, scores: Tensor) -> Tensor:
    """Scores (batch heads seq key) with what their distance adds; of tokens of an encoder, zeros without a gradient."""
    of = tape.side.attention
    if of == CROSS:
        zeros = Tensor(f"{of}/bias.table", scores.named("heads", "seq", "key"), scores.dtype, "table")
        return tape.pointwise(f"{of}/bias", scores, zeros, add=True)
    return tape.pointwise(f"{of}/bias", scores, tape.side.bias or _distance_bias(tape, scores), add=True)


def _distance_bias(tape: Tape, scores: Tensor) -> Tensor:
    """A number of each head for each pair of tokens (heads seq key), by the bucket that their distance falls into."""
    heads, seq, key = scores.named("heads", "seq", "key")
    name = tape.side.named(str(TABLE))
    buckets = Tensor(f"{name}.index", (seq, key), "int64", "index")
    table = tape.weight(TABLE, "relative_buckets heads")
    bias = tape.activation(name, (seq, key, heads), table.dtype)
    bias = tape.record(Lookup(name, EMBEDDING, (buckets, table), (bias,), (buckets,)))
    first = replace(bias, dims=(heads, seq, key))
    return share_result(tape, first, symbol("layers", tape.suffix))


# --- attention sinks ---


def sinks(tape: Tape) -> Tensor:
    """The logits of the sinks, one for each head (heads)."""
    return tape.weight(Parameter(Module("attention", "sinks"), kind=""), "heads")


def shares_beside_sinks(tape: Tape, scores: Tensor) -> Tensor:
    """Softmax of (batch heads seq key) beside the sink's logit, without its share, a kernel an operator."""
    *rows, key = scores.dims
    wide = (*rows, Dim("key_or_sink", key.symbol + 1))
    joint = tape.concatenate("attention/scores.joined", [scores, sinks(tape)], wide)
    place = Tensor("attention/largest.index", tuple(rows), "int64", "statistic", joint.split)
    largest = tape.pointwise("attention/largest", joint, dims=tuple(rows), kernel=REDUCTION, extras=[place])
    shifted = tape.pointwise("attention/shift", joint, largest, add=True)
    shares = tape.pointwise("attention/softmax", shifted, kernel=SOFTMAX, flops=5, saves=["out"])
    (shares_of_keys,) = tape.views_of_parts(shares, {"attention/shares": scores.dims})
    return shares_of_keys


# --- fused attention ---


@dataclass(frozen=True)
class FusedAttention(Operation):
    """Scores, softmax and context in one kernel: FLOPs of its parts, only external traffic.

    `parts` are the two contractions inside; a kernel that skips masked blocks runs only `density` of them. The
    backward kernel rebuilds the scores, so it runs five contractions, of which one is redone work. `slowest` is what
    the busiest device does over the average, where a cut sequence leaves them unequal shares of a mask. `packed`: each
    document of a sequence is a square of its own.
    """

    parts: tuple[Contraction, ...] = ()
    skips: bool = True  # masked blocks are not computed
    density: sympy.Expr = ONE
    slowest: sympy.Expr = ONE
    packed: bool = False

    def spent(self) -> sympy.Expr:
        """FLOPs of the busiest device, for which the others wait."""
        return product(self.slowest, super().spent())

    def useful(self) -> sympy.Expr:
        """The FLOPs of both contractions that the mask leaves."""
        return total(part.useful() for part in self.parts)

    def masked(self) -> sympy.Expr:
        """FLOPs on scores that the mask throws away; none where masked blocks are skipped."""
        return ZERO if self.skips else total(part.masked() for part in self.parts)

    def counted(self) -> sympy.Expr:
        """FLOPs of both contractions over the full square of scores."""
        return total(part.counted() for part in self.parts)

    def shape(self) -> Matmul:
        """The scores: batch of (queries x head_dim) by (head_dim x keys); documents are one of the batch each."""
        square = self.parts[0].shape()
        if not self.packed:
            return square
        return replace(square, batch=square.batch * square.m / square.n, m=square.n)

    def gradients(self) -> tuple[Operation, ...]:
        """One kernel of five contractions, which gives the gradients of queries, keys and values."""
        reads = (*self.saves, self.output.gradient)
        writes = tuple(tensor.gradient for tensor in self.inputs if differentiable(tensor))
        name = f"{self.name}.gradient"
        return (AttentionBackward(name, self.kernel.backward(), reads, writes, of=self),)


@dataclass(frozen=True)
class AttentionBackward(Operation):
    """The backward kernel of fused attention: the gradients of both contractions, and the scores once more."""

    of: FusedAttention = field(kw_only=True)

    def spent(self) -> sympy.Expr:
        """FLOPs of the busiest device, for which the others wait."""
        return product(self.of.slowest, super().spent())

    def useful(self) -> sympy.Expr:
        """Twice the forward FLOPs, and the scores."""
        return total((product(2, self.of.useful()), self.redone()))

    def redone(self) -> sympy.Expr:
        """FLOPs of the scores, which backward computes again instead of keeping them."""
        return self.of.parts[0].useful()

    def masked(self) -> sympy.Expr:
        """FLOPs on scores that the mask throws away, in five contractions; none where masked blocks are skipped."""
        return ZERO if self.of.skips else total((product(2, self.of.masked()), self.of.parts[0].masked()))

    def counted(self) -> sympy.Expr:
        """FLOPs of five contractions over the full square of scores."""
        return total((product(2, self.of.counted()), self.of.parts[0].counted()))

    def shape(self) -> Matmul:
        """The shape that prices the kernel: that of the contraction of queries and keys."""
        return self.of.shape()


# --- attention around a ring ---

AXIS = "context"


@dataclass(frozen=True)
class RingPass(Collective):
    """Tensors sent to the next device of the ring, `rounds` times for each layer."""

    rounds: sympy.Expr = ONE

    def payload(self) -> sympy.Expr:
        """Bytes that one round sends."""
        return total(tensor.bytes() for tensor in self.inputs)


@dataclass(frozen=True)
class RingAttention(FusedAttention):
    """The kernel on one block after another; `merged` is what all of them add up to, which backward reads."""

    merged: Tensor = field(kw_only=True)

    def traffic(self) -> sympy.Expr:
        """Each block is read with all queries, and has a result of its own."""
        return product(self.pieces, total(tensor.bytes() for tensor in (*self.inputs[:3], *self.outputs)))

    def gradients(self) -> tuple[Operation, ...]:
        """Blocks come by again, each with the sums of its gradients so far."""
        operands = self.inputs[:3]
        blocks = _tensors_from_before(self.inputs[1:3], "again")
        parts = tuple(replace(tensor.gradient, name=f"{tensor.name}.gradient.block") for tensor in operands)
        sums = tuple(replace(part, name=f"{part.name}.sum", dtype="fp32") for part in parts)
        home = _tensors_from_before(sums[1:], "home")
        (attention,) = super().gradients()
        if not isinstance(attention, AttentionBackward):
            raise TypeError(f"{attention.name} is no backward of attention")
        reads = (*attention.inputs, self.merged, *blocks)
        return (
            _send_on(f"{self.name}.again", self.inputs[1:3], blocks, symbol(AXIS) - 1),
            RingBackward(attention.name, attention.kernel, reads, parts, of=self, blocks=blocks),
            Accumulation(f"{self.name}.accumulate", ELEMENTWISE, (*parts, *sums), sums),
            _send_on(f"{self.name}.return", sums[1:], home, symbol(AXIS)),
            Pointwise(
                f"{self.name}.gradient.cast", CAST, (sums[0], *home), tuple(tensor.gradient for tensor in operands)
            ),
        )


@dataclass(frozen=True)
class RingBackward(AttentionBackward):
    """The backward kernel on one block after another, of keys and values that have come by again."""

    blocks: tuple[Tensor, ...] = field(kw_only=True)

    def traffic(self) -> sympy.Expr:
        """Each block is read with all that was saved, and has gradients of its own."""
        reads = [tensor for tensor in self.inputs if tensor not in self.blocks]
        return product(self.pieces, total(tensor.bytes() for tensor in (*reads, *self.outputs)))


@dataclass(frozen=True)
class Accumulation(Pointwise):
    """Gradients of each block, added up in fp32."""

    def traffic(self) -> sympy.Expr:
        """A block's gradients are read, the sums read and written, for every block."""
        return product(self.pieces, super().traffic())


@dataclass(frozen=True)
class Merge(Addition):
    """Results of blocks, put together by the sums of their rows: an fp32 result is read and written for each."""

    def traffic(self) -> sympy.Expr:
        """Bytes, for each block but the first: its result read, an fp32 result read and written."""
        block = self.inputs[0]
        return product(self.pieces, total((block.bytes(), product(8, block.elements()))))

    def vector(self) -> sympy.Expr:
        """FLOPs of the merge, for each block but the first."""
        return product(self.pieces, super().vector())


def ring_attention(tape: Tape, attention: FusedAttention) -> Tensor:
    """The kernel's result over the whole sequence, from keys and values of which every device has a block."""
    blocks = _tensors_from_before(attention.inputs[1:3], "passed")
    tape.record(_send_on(f"{attention.name}.pass", attention.inputs[1:3], blocks, symbol(AXIS) - 1))
    out, *extras = attention.outputs
    part = replace(out, name=f"{out.name}.block")
    saves = tuple(tensor for tensor in attention.saves if tensor != out)
    options = {name: getattr(attention, name) for name in ("parts", "skips", "density", "slowest")}
    inputs, outputs = (*attention.inputs, *blocks), (part, *extras)
    ring = RingAttention(attention.name, attention.kernel, inputs, outputs, saves, **options, merged=out)
    tape.repeated(symbol(AXIS)).record(ring)
    merge = Merge(f"{attention.name}.merge", ELEMENTWISE, (part,), (out,), (out,), flops=6)
    return tape.repeated(symbol(AXIS) - 1).record(merge)


def _tensors_from_before(tensors: tuple[Tensor, ...], how: str) -> tuple[Tensor, ...]:
    """The tensors that arrive from the device before."""
    return tuple(replace(t, name=f"{t.name}.{how}", role="statistic", view_of="") for t in tensors)


def _send_on(name: str, tensors: tuple[Tensor, ...], got: tuple[Tensor, ...], rounds: sympy.Expr) -> RingPass:
    """The transfer of tensors to the next device: no gradient flows along, what is sent are bytes."""
    sent = tuple(replace(tensor, role="statistic") for tensor in tensors)
    return RingPass(name, KernelClass("send"), sent, got, collective="send", axis=AXIS, rounds=rounds)


# --- cores ---

SCORES = "batch seq heads head_dim, batch key heads head_dim -> batch heads seq key"


def context_einsum(value: Tensor) -> str:
    """Values weighed and summed; their heads may have another width than those of queries."""
    width = value.dims[-1].name
    return f"batch heads seq key, batch key heads {width} -> batch seq heads {width}"


@dataclass(frozen=True)
class FusedKernel:
    """The properties by which fused attention kernels differ."""

    repeats: bool  # needs keys and values repeated for every query head
    skips: bool  # leaves out masked blocks
    random_state: int  # bytes of random-number state saved
    pads: bool = False  # needs values as wide as queries
    follows: bool = True  # lays its result out as the query is, not as the output projection reads it
    rows: int = 1  # the log-sum-exp is padded to a multiple of so many queries


def density(tape: Tape, spec: Attention) -> sympy.Expr:
    """The share of the (query, key) square that the causal mask, documents and a window or chunks leave, exactly."""
    if spec.bidirectional:
        return ONE
    if tape.packed:
        return (symbol("document", tape.suffix) + 1) / (2 * symbol("seq"))
    seq, window, chunk = symbol("seq"), symbol("window", tape.suffix), symbol("chunk", tape.suffix)
    if spec.chunk is not None:
        full_chunks = CeilDiv(seq + 1, chunk) - 1
        remainder = seq - full_chunks * chunk
        return (full_chunks * chunk * (chunk + 1) + remainder * (remainder + 1)) / (2 * seq**2)
    if spec.window is None:
        return (seq + 1) / (2 * seq)
    return window * (2 * seq - window + 1) / (2 * seq**2)


def slowest(tape: Tape, query: Tensor) -> sympy.Expr:
    """The points that a causal mask leaves the last part of a cut sequence, over the average of all parts."""
    if tape.layout.balanced or ("seq", "context") not in query.split:
        return ONE
    seq, parts = symbol("seq"), symbol("context")
    return (seq * (2 * parts - 1) / parts + 1) / (seq + 1)


def _core_products(
    tape: Tape, query: Tensor, key: Tensor, value: Tensor, spec: Attention
) -> tuple[Contraction, Contraction]:
    """The two contractions inside a fused kernel, over the heads of the query; of packed documents each has its own."""
    batch, seq, heads, _ = query.dims
    seen = key.dims[1].symbol
    document = symbol("document", tape.suffix) if tape.packed else seen
    keys = Dim("key", document)
    scores = Tensor("scores", (batch, heads, seq, keys), query.dtype, split=query.split)
    wide = [Tensor(t.name, (batch, keys, heads, t.dims[-1]), t.dtype, split=query.split) for t in (key, value)]
    result = Tensor("context", (batch, seq, heads, value.dims[-1]), query.dtype, split=query.split)
    share = density(tape, spec) * (seen / document)
    return (
        Contraction("scores", NO_KERNEL, (query, wide[0]), (scores,), einsum=SCORES, density=share),
        Contraction("context", NO_KERNEL, (scores, wide[1]), (result,), einsum=context_einsum(value), density=share),
    )


def _fused_core(kind: str, kernel: FusedKernel) -> Callable[[Tape, Tensor, Tensor, Tensor, Attention], Tensor]:
    def core(tape: Tape, query: Tensor, key: Tensor, value: Tensor, spec: Attention) -> Tensor:
        """Query, key, value, result and the log of each row's sum are saved; scores never leave the chip."""
        query, key, value = (tape.cast(t, tape.matmul_result) for t in (query, key, value))
        if spec.scaled == "queries":
            query, key, value = (_copy(tape, t) for t in (query, key, value))
        if kernel.repeats:
            key, value = _repeat_heads(tape, key, spec), _repeat_heads(tape, value, spec)
        name = f"{tape.side.attention}/core"
        width = value.dims[-1]
        padded = kernel.pads and width != query.dims[-1]
        if padded:
            wide = (*value.dims[:-1], query.dims[-1])
            value = tape.pointwise(f"{value.name}.padded", value, dims=wide, kernel=COPY)
        batch, seq, heads, _ = query.dims
        out = tape.activation(name, (batch, seq, heads, value.dims[-1]), query.dtype, query.split)
        rows = seq if kernel.rows == 1 else Dim("rows", kernel.rows * CeilDiv(query.local(seq), kernel.rows))
        cut = tuple(pair for pair in query.split if pair[0] in (batch.name, heads.name, rows.name))
        sums = Tensor(f"{name}.logsumexp", (batch, heads, rows), "fp32", "statistic", cut)
        words = Dim("words", sympy.Integer(kernel.random_state))
        state = Tensor(f"{name}.random_state", (words,), "bool", "statistic")
        extras = (sums, state)
        attention = FusedAttention(
            name,
            KernelClass(ATTENTION, kind, FORWARD),
            (query, key, value, *((sinks(tape),) if spec.sinks else ())),
            (out, *extras),
            (query, key, value, out, *extras),
            parts=_core_products(tape, query, key, value, spec),
            skips=kernel.skips,
            slowest=slowest(tape, query) if kernel.skips and not spec.bidirectional else ONE,
            packed=tape.packed,
        )
        ringing = ("seq", "context") in key.split
        out = ring_attention(tape, attention) if ringing else tape.record(attention)
        if padded:
            return tape.pointwise(f"{name}.cropped", out, dims=(batch, seq, heads, width), kernel=COPY)
        # On all devices of a balanced ring but the last, DTensor joins results of half the queries with the others,
        # which leaves heads before the sequence (torch.distributed.tensor.experimental, `_partial_update`).
        joins_halves = ringing and tape.dtensor and tape.layout.balanced
        return _copy(tape, out) if (kernel.follows and spec.copies_queries) or joins_halves else out

    return core


def _repeat_heads(tape: Tape, x: Tensor, spec: Attention) -> Tensor:
    """Keys or values copied once for each query head that shares them."""
    if spec.heads == spec.kv_heads:
        return x
    table = {d.name: d for d in (*x.dims, *tape.dims("heads"))}
    dims = tuple(table[n] for n in ("batch", "seq", "heads", "head_dim"))
    split = tuple(("heads", axis) if n == "kv_heads" else (n, axis) for n, axis in x.split)
    wide = Tensor(f"{x.name}.repeated", dims, x.dtype, split=split)
    return tape.pointwise(wide.name, x, like=wide, kernel=COPY)  # its gradient sums over the heads that share


def _eager_core(tape: Tape, query: Tensor, key: Tensor, value: Tensor, spec: Attention) -> Tensor:
    """Scores, mask, softmax and context as separate kernels, the whole square of scores in memory."""
    query, key, value = _contiguous_operands(tape, (query, key, value), spec, tape.matmul_result)
    scores = _scores(tape, query, key, spec, tape.matmul_result)
    scores = tape.pointwise(f"{tape.side.attention}/scale", scores)
    if spec.relative_buckets:
        scores = add_distance_bias(tape, scores)
    if spec.softcap:
        capped = tape.pointwise(f"{tape.side.attention}/softcap.divide", scores)
        tanh = tape.pointwise(f"{tape.side.attention}/softcap.tanh", capped, flops=6, saves=["out"])
        scores = tape.pointwise(f"{tape.side.attention}/softcap.multiply", tanh)
    scores = _mask_scores(tape, scores) if spec.masked or not spec.bidirectional else scores
    if spec.sinks:
        return _context(tape, tape.cast(shares_beside_sinks(tape, scores), tape.matmul_result), value, spec)
    wide = "fp32" if spec.softmax == "fp32" or tape.precision.autocast else scores.dtype
    if scores.dtype != "fp16":  # the only dtype that the kernel itself widens (aten SoftMax.cpp)
        scores = tape.cast(scores, wide)
    shares = tape.pointwise(
        f"{tape.side.attention}/softmax", scores, dtype=wide, kernel=SOFTMAX, flops=5, saves=["out"]
    )
    shares = shares if spec.softmax == "unconverted" else tape.cast(shares, tape.matmul_result)
    return _context(tape, shares, value, spec)


def _scores(tape: Tape, query: Tensor, key: Tensor, spec: Attention, dtype: str) -> Tensor:
    module = Module(tape.side.attention, "scores")
    return tape.contract(module, SCORES, query, key, density=density(tape, spec), dtype=dtype)


def _mask_scores(tape: Tape, scores: Tensor) -> Tensor:
    """Scores with the one mask of all layers added, which a checkpoint holds as any other input."""
    square, name = scores.named("batch", "seq", "key"), f"{tape.side.named(tape.side.attention)}/mask.table"
    mask = Tensor(name, square, tape.matmul_result, "table", tape.layout.inputs)
    return tape.pointwise(f"{tape.side.attention}/mask", scores, mask, dtype=scores.dtype, add=True)


def _math_core(tape: Tape, query: Tensor, key: Tensor, value: Tensor, spec: Attention) -> Tensor:
    """SDPA's fallback: everything in fp32, the scale taken into query and key (aten attention.cpp)."""
    query, key, value = _contiguous_operands(tape, (query, key, value), spec, "fp32")
    query = tape.pointwise(f"{tape.side.attention}/scale_q", query)
    key = tape.pointwise(f"{tape.side.attention}/scale_k", key)
    scores = _scores(tape, query, key, spec, "fp32")
    scores = tape.pointwise(f"{tape.side.attention}/mask", scores, add=True)
    shares = tape.pointwise(f"{tape.side.attention}/softmax", scores, kernel=SOFTMAX, flops=5, saves=["out"])
    return _context(tape, shares, value, spec)


def _fused_softmax_core(tape: Tape, query: Tensor, key: Tensor, value: Tensor, spec: Attention) -> Tensor:
    """Megatron-LM before flash attention: scale, mask and softmax in one kernel between two batched matmuls."""
    query, key, value = _contiguous_operands(tape, (query, key, value), spec, tape.matmul_result)
    scores = _scores(tape, query, key, spec, tape.matmul_result)
    shares = tape.pointwise(f"{tape.side.attention}/softmax", scores, kernel=SOFTMAX, flops=7, saves=["out"])
    return _context(tape, shares, value, spec)


def _context(tape: Tape, shares: Tensor, value: Tensor, spec: Attention) -> Tensor:
    """Dropout of the softmax, the values it weighs, and the copy back to (batch seq heads head_dim)."""
    if spec.dropout:
        mask = Tensor(f"{tape.side.attention}/dropout.mask", shares.dims, "bool", "mask", shares.split)
        shares = tape.pointwise(f"{tape.side.attention}/dropout", shares, kernel=DROPOUT, flops=2, extras=[mask])
    shares = tape.cast(shares, value.dtype)
    module, share = Module(tape.side.attention, "context"), density(tape, spec)
    context = tape.contract(module, context_einsum(value), shares, value, density=share, dtype=shares.dtype)
    return tape.pointwise(f"{tape.side.attention}/core", tape.cast(context, tape.matmul_result), kernel=COPY, add=True)


def _contiguous_operands(
    tape: Tape, operands: tuple[Tensor, Tensor, Tensor], spec: Attention, dtype: str
) -> tuple[Tensor, Tensor, Tensor]:
    """A batched matmul reads contiguous operands: each is copied, or repeated, from its projection."""
    query, key, value = (tape.cast(t, dtype) for t in operands)
    shared = spec.heads != spec.kv_heads
    query = _copy(tape, query)
    key, value = (_repeat_heads(tape, t, spec) if shared else _copy(tape, t) for t in (key, value))
    return query, _as_keys(key), _as_keys(value)


def _copy(tape: Tape, x: Tensor) -> Tensor:
    return tape.pointwise(f"{x.name}.copy", x, kernel=COPY, add=True)


def _as_keys(x: Tensor) -> Tensor:
    """Keys or values whose sequence is a dim of its own (`key`), apart from that of the queries."""
    dims = tuple(Dim("key", d.symbol) if d.name == "seq" else d for d in x.dims)
    return replace(x, dims=dims, view_of=x.storage)


CORES: Mapping[str, Callable[[Tape, Tensor, Tensor, Tensor, Attention], Tensor]] = {
    "flash": _fused_core("flash", FusedKernel(repeats=False, skips=True, random_state=24, pads=True)),
    # the same kernel, called with keys and values of every query head (torchtitan's `repeat_kv`)
    "flash_repeated": _fused_core("flash", FusedKernel(repeats=True, skips=True, random_state=24, pads=True)),
    "flash3": _fused_core("flash3", FusedKernel(repeats=False, skips=True, random_state=24)),
    # the same kernel over packed documents (torch.nn.attention.varlen)
    "varlen": _fused_core("flash", FusedKernel(repeats=False, skips=True, random_state=16)),
    # FlashAttention-1 in Triton, with keys and values of every head (Dao-AILab/flash-attention, flash_attn_triton.py)
    "triton": _fused_core("triton", FusedKernel(repeats=True, skips=True, random_state=0)),
    "efficient": _fused_core(
        "efficient", FusedKernel(repeats=True, skips=True, random_state=16, follows=False, rows=32)
    ),
    "cudnn": _fused_core("cudnn", FusedKernel(repeats=True, skips=True, random_state=16)),
    # cuDNN called as Transformer Engine calls it: heads share keys and values in place, nothing is transposed
    "cudnn_grouped": _fused_core("cudnn", FusedKernel(repeats=False, skips=True, random_state=16, follows=False)),
    "math": _math_core,
    "eager": _eager_core,
    "fused_softmax": _fused_softmax_core,
}


# --- results that other units read ---


@dataclass(frozen=True)
class SharedResult(Operation):
    """A result under the name by which layers read it. It is written as often as gradients are added to the first."""

    @property
    def runs(self) -> bool:
        """False: nothing runs until backward."""
        return False

    def shared(self) -> tuple[tuple[str, str], ...]:
        """The gradient of the result is the sum, in its storage."""
        return handed_on(self, *filter(differentiable, self.inputs))

    def gradients(self) -> tuple[Operation, ...]:
        """One addition, in place, of the gradient of a layer to the sum of those before."""
        gradient = self.output.gradient
        part = replace(gradient, name=f"{gradient.name}.part")
        return (Pointwise(f"{gradient.name}.sum", ELEMENTWISE, (replace(gradient, earlier=True), part), (gradient,)),)


def share_result(tape: Tape, result: Tensor, readers: sympy.Expr) -> Tensor:
    """The result as so many layers read it, each of which gives a gradient."""
    view = replace(result, name=f"{result.name}.shared", role=SHARED, view_of=result.storage)
    return replace(tape, times=readers - ONE).record(SharedResult(f"{result.name}.shared", COPY, (result,), (view,)))
