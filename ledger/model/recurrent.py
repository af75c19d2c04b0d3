"""Recurrences along a sequence: dims of their states, the convolution before them, and kernels made for their scans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import sympy

from ledger.model import dtypes
from ledger.model.causes import BIAS, Module, Parameter
from ledger.model.contraction import Contraction
from ledger.model.dims import Dim
from ledger.model.elementwise import Weighed
from ledger.model.operations import Operation, differentiable, total
from ledger.model.tape import Tape
from ledger.model.tensors import BUFFER, CeilDiv, Tensor, product
from ledger.spec.kernel_classes import ACTIVATION, COPY, ELEMENTWISE, KernelClass
from ledger.spec.plan import Attention

SILU = KernelClass(ACTIVATION, "silu")
CONVOLUTION = Module("attention", "convolution")
STATE, WINDOW = "attention/cache.state", "attention/cache.window"  # what a sequence keeps, however long it is


@dataclass(frozen=True)
class Sizes:
    """The dims of a recurrence: of its heads and their states, and of the chunks that it takes a sequence in.

    A sequence is padded to whole chunks; `source` is a token of a chunk that another one of it reads.
    """

    batch: Dim
    seq: Dim
    heads: Dim
    head_dim: Dim
    groups: Dim
    state: Dim
    chunks: Dim
    chunk: Dim
    source: Dim

    @property
    def values(self) -> tuple[Dim, ...]:
        """The dims of what each head writes into its state."""
        return (self.batch, self.seq, self.heads, self.head_dim)

    @property
    def shared(self) -> tuple[Dim, ...]:
        """The dims of where a group of heads writes values to, or reads them from."""
        return (self.batch, self.seq, self.groups, self.state)

    @property
    def of_heads(self) -> tuple[Dim, ...]:
        """The dims of a number for each head of a token."""
        return (self.batch, self.seq, self.heads)

    @property
    def channels(self) -> Dim:
        """The channels that are convolved: values of all heads, and two vectors as wide as a state of each group."""
        width = self.heads.symbol * self.head_dim.symbol
        return Dim("channels", width + 2 * self.groups.symbol * self.state.symbol)

    def chunked(self, dims: Sequence[Dim]) -> tuple[Dim, ...]:
        """Dims with the sequence in chunks."""
        return tuple(
            chunk_dim for dim in dims for chunk_dim in ((self.chunks, self.chunk) if dim == self.seq else (dim,))
        )


def sizes(tape: Tape) -> Sizes:
    """The dims of a recurrence of the layer that is written."""
    batch, seq, heads, head_dim = tape.dims("batch seq heads head_dim")
    groups, state, chunk = tape.dims("state_groups state_size scan_chunk")
    places = [Dim(name, chunk.symbol) for name in ("chunk", "source")]
    chunks = Dim("chunks", CeilDiv(seq.symbol, chunk.symbol))
    return Sizes(batch, seq, heads, head_dim, groups, state, chunks, *places)


def convolved(tape: Tape, x: Tensor, spec: Attention) -> Tensor:
    """A causal convolution of each channel along the sequence and its SiLU (batch seq channels).

    As PyTorch runs it, zeros stand before and after a sequence, and the rows of its end are cut off afterwards. Of a
    token that is decoded, the window stands before it, and it sees as many tokens as a filter is wide.
    """
    batch, seq, channels = x.dims
    width = tape.dims("convolution")[0].symbol
    compute = tape.precision.compute if tape.precision.autocast else filters(tape, x, spec)[0].dtype
    narrow = tape.cast(tape.cast(x, filters(tape, x, spec)[0].dtype), compute)
    operands = (narrow, *(tape.cast(weight, compute) for weight in filters(tape, x, spec)))
    further = 0 if is_fused(tape) else 1 if decodes(tape) else width - 1
    rows = Dim("rows", seq.symbol + further) if further != 0 else seq
    result = tape.activation(str(CONVOLUTION), (batch, rows, channels), compute, x.split)
    waiting = window(tape, x) if tape.cache else ()
    tape.record(
        replace(
            depthwise(operands, result, spec),
            inputs=(*operands, *waiting[:1]),
            outputs=(result, *waiting[1:]),
            saves=operands[:2],
        )
    )
    causal = result if rows == seq else tape.views_of_parts(result, {f"{CONVOLUTION}.causal": x.dims})[0]
    active = tape.pointwise(f"{CONVOLUTION}.silu", causal, kernel=SILU, flops=8, saves=[result])
    return tape.cast(active, x.dtype)


def filters(tape: Tape, x: Tensor, spec: Attention) -> tuple[Tensor, ...]:
    """The filter of each channel, and their biases."""
    channels, (width,) = x.dims[-1], tape.dims("convolution")
    weight = tape.weight(Parameter(CONVOLUTION, elementwise=True), (channels, Dim("tap", width.symbol)))
    biased = spec.state is not None and spec.state.convolution_bias
    return (weight, tape.weight(Parameter(CONVOLUTION, BIAS), (channels,))) if biased else (weight,)


def depthwise(operands: Sequence[Tensor], result: Tensor, spec: Attention) -> Contraction:
    """The products of a convolution of (batch seq channels) by a filter of each channel, bound by what it moves.

    Each of its gradients has as many. FlopCounterMode takes that of the filters for one from every channel to every
    other one, and counts it as often as there are channels (torch, flop_counter.py, conv_backward_flop).
    """
    rows = result.dims[1].name
    einsum = f"batch ({rows}+tap-{spec.convolution - 1}) channels, channels tap -> batch {rows} channels"
    return Contraction(str(CONVOLUTION), ELEMENTWISE, tuple(operands), (result,), einsum=einsum)


def window(tape: Tape, x: Tensor) -> tuple[Tensor, Tensor]:
    """The last tokens that a sequence keeps for the convolution, as they are read and as they are written."""
    (width,) = tape.dims("convolution")
    dims = (x.dims[0], Dim("tap", width.symbol), x.dims[-1])
    return tuple(Tensor(f"{WINDOW}{suffix}", dims, x.dtype, BUFFER) for suffix in (".read", ""))  # type: ignore[return-value]


def states(of: Sizes) -> tuple[Tensor, Tensor]:
    """The state of every head of a sequence, in fp32, as it is read and as it is written."""
    dims = (of.batch, of.heads, of.head_dim, of.state)
    return tuple(Tensor(f"{STATE}{suffix}", dims, "fp32", BUFFER) for suffix in (".read", ""))  # type: ignore[return-value]


def decodes(tape: Tape) -> bool:
    """Whether a pass gives sequences their next token."""
    return tape.cache is not None and tape.cache.decodes


def is_fused(tape: Tape) -> bool:
    """Whether kernels made for it run a scan."""
    return tape.kernels.scan == "fused"


def repeated(tape: Tape, x: Tensor, name: str, of: Sizes) -> Tensor:
    """A copy of what a group of heads shares, once for each of its heads."""
    dims = tuple(of.heads if dim == of.groups else dim for dim in x.dims)
    return copied(tape, x, name, dims)


def copied(tape: Tape, x: Tensor, name: str, dims: tuple[Dim, ...] = ()) -> Tensor:
    """A copy under these dims; its gradient is summed over what stands there again, or cut to what was there."""
    return tape.pointwise(name, x, dims=dims or None, kernel=COPY, add=True)


def weighed(tape: Tape, name: str, x: Tensor, factor: Tensor) -> Tensor:
    """The product with a smaller factor, which is seen again along the dims that it lacks; both are saved."""
    result = tape.activation(name, x.dims, dtypes.promote(x.dtype, factor.dtype), x.split)
    return tape.record(Weighed(name, ELEMENTWISE, (x, factor), (result,), (x, factor)))


def learned(tape: Tape, name: str, *dims: Dim) -> Tensor:
    """A weight of its own that multiplies or adds element by element, as `A_log`."""
    return tape.weight(Parameter(Module("attention", name), "", elementwise=True), dims)


def viewed(x: Tensor, dims: tuple[Dim, ...]) -> Tensor:
    """A view under other dims, whose bytes and gradient are the tensor's own."""
    return replace(x, dims=dims, view_of=x.storage)


def lower(size: sympy.Expr) -> sympy.Expr:
    """The share of a square that lies on its diagonal and below."""
    return (size + 1) / (2 * size)


# --- a scan in kernels made for it ---


@dataclass(frozen=True)
class FusedScan(Operation):
    """Products within chunks and between them, in a few kernels that are called as one.

    `parts` are its contractions, of which backward runs those again that are `rebuilt`; `between` is what one of its
    kernels writes for another to read.
    """

    parts: tuple[Contraction, ...] = ()
    rebuilt: tuple[Contraction, ...] = ()
    between: tuple[Tensor, ...] = ()

    def useful(self) -> sympy.Expr:
        """The FLOPs that its masks leave."""
        return total(part.useful() for part in self.parts)

    def masked(self) -> sympy.Expr:
        """FLOPs of what tokens of a chunk would read of those after them."""
        return total(part.masked() for part in self.parts)

    def counted(self) -> sympy.Expr:
        """FLOPs of all its products, masked or not."""
        return total(part.counted() for part in self.parts)

    def traffic(self) -> sympy.Expr:
        """Bytes: inputs and results once, and what passes between kernels twice."""
        return total((super().traffic(), *(product(2, tensor.bytes()) for tensor in self.between)))

    def gradients(self) -> tuple[Operation, ...]:
        """Kernels that rebuild what passed between those of forward, and give all gradients."""
        reads = (*self.saves, self.output.gradient)
        writes = tuple(tensor.gradient for tensor in self.inputs if differentiable(tensor))
        return (ScanBackward(f"{self.name}.gradient", self.kernel.backward(), reads, writes, of=self),)


@dataclass(frozen=True)
class ScanBackward(Operation):
    """The backward kernels of a scan: both gradients of each product, and some products once more."""

    of: FusedScan = field(kw_only=True)

    def useful(self) -> sympy.Expr:
        """Twice the forward FLOPs, and what is rebuilt."""
        return total((product(2, self.of.useful()), self.redone()))

    def redone(self) -> sympy.Expr:
        """FLOPs of forward that run again."""
        return total(part.useful() for part in self.of.rebuilt)

    def masked(self) -> sympy.Expr:
        """FLOPs of forward that masks throw away, twice, and of what is rebuilt."""
        return total((product(2, self.of.masked()), *(part.masked() for part in self.of.rebuilt)))

    def counted(self) -> sympy.Expr:
        """FLOPs of all products of forward, twice, and of what is rebuilt."""
        return total((product(2, self.of.counted()), *(part.counted() for part in self.of.rebuilt)))

    def traffic(self) -> sympy.Expr:
        """Bytes: what is read and written once, and what passes between kernels and its gradient twice each."""
        return total((super().traffic(), *(product(4, tensor.bytes()) for tensor in self.of.between)))
