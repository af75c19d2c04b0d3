"""The gated delta rule operator by operator, as transformers runs it without other kernels: chunks, and a loop.

modeling_qwen3_next.py, torch_chunk_gated_delta_rule. States, and all that makes them, are in fp32 whatever the model
is in.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import sympy

from ledger.model import dtypes
from ledger.model.contraction import Contraction
from ledger.model.dims import Dim
from ledger.model.elementwise import Pointwise
from ledger.model.modules import Module, Parameter
from ledger.model.norms import over_rms
from ledger.model.operations import ONE, Matmul, Operation
from ledger.model.recurrent import SILU, Sizes, copied, learned, repeated, states, weighed
from ledger.model.tape import Tape
from ledger.model.tensors import Tensor
from ledger.spec.kernel_classes import COPY, ELEMENTWISE, REDUCTION, matmul
from ledger.spec.windows import terms

NORM = Module("attention", "gated_norm")
WIDE = "fp32"


@dataclass(frozen=True)
class DeltaInputs:
    """Queries, keys and values after the convolution, which has all of them, and three numbers or more of each head.

    `gate` multiplies the result, `decay` (a logarithm) the state, and `rate` is how much of a value is written to it.
    """

    convolved: Tensor
    query: Tensor
    key: Tensor
    value: Tensor
    gate: Tensor
    decay: Tensor
    rate: Tensor


@dataclass(frozen=True)
class DeltaScan:
    """The tape of a scan, its dims, and its operands in chunks and in fp32."""

    tape: Tape
    of: Sizes
    query: Tensor  # batch heads chunks chunk state
    key: Tensor
    value: Tensor  # batch heads chunks chunk head_dim
    rate: Tensor  # batch heads chunks chunk
    decay: Tensor  # logarithms, summed from the beginning of a chunk on

    def product(self, name: str, einsum: str, left: Tensor, right: Tensor, density: sympy.Expr = ONE) -> Tensor:
        """A product of two results in fp32, or in what autocast makes of it."""
        dtype = "" if self.tape.precision.autocast else WIDE
        return self.tape.contract(Module("attention", name), einsum, left, right, density=density, dtype=dtype)

    def exponential(self, name: str, dims: tuple[Dim, ...]) -> Tensor:
        """exp of sums or differences of decays, which backward reads."""
        return self.tape.pointwise(name, self.decay, dims=dims, flops=4, saves=["out"])


def delta_operators(tape: Tape, inputs: DeltaInputs, of: Sizes) -> Tensor:
    """Chunks by themselves, the states between them, and the norm of it all with its gate."""
    scan = _operands(tape, inputs, of)
    values, keys, seen = _within_chunks(scan)
    found = _along(scan, values, keys, seen)
    if tape.cache:
        tape.record(Pointwise("attention/cache", COPY, (states(of)[0],), (states(of)[1],), flops=0))
    laid = tape.pointwise("attention/scan.copy", found, dims=of.values, dtype=inputs.gate.dtype, kernel=COPY, add=True)
    return gated_norm(tape, laid, inputs.gate)


def _operands(tape: Tape, inputs: DeltaInputs, of: Sizes) -> DeltaScan:
    """Everything of each head, in fp32 and contiguous; queries and keys of length 1; padded to whole chunks."""
    wide = []
    for tensor in (inputs.query, inputs.key, inputs.value, inputs.rate, inputs.decay):
        shared = of.groups in tensor.dims and of.groups.symbol != of.heads.symbol
        each = repeated(tape, tensor, f"{tensor.name}.repeat", of) if shared else tensor
        name = f"{tensor.name}.wide"
        wide.append(tape.pointwise(name, each, dtype=WIDE, kernel=COPY, add=True))
    query, key, value, rate, decay = wide
    query = tape.pointwise("attention/q.scaled", _unit(tape, "attention/q.unit", query))
    key = _unit(tape, "attention/k.unit", key)

    def padded(x: Tensor) -> Tensor:
        rest = tuple(each for each in x.dims if each not in of.of_heads)
        return copied(tape, x, f"{x.name}.pad", (of.batch, of.heads, of.chunks, of.chunk, *rest))

    query, key, value, rate, decay = map(padded, (query, key, value, rate, decay))
    return DeltaScan(tape, of, query, key, value, rate, tape.pointwise("attention/decay.sum", decay))


def _unit(tape: Tape, name: str, x: Tensor) -> Tensor:
    """x over the root of the sum of its squares in the last dim (l2norm)."""
    square = tape.pointwise(f"{name}.square", x, saves=[x])
    total = tape.pointwise(f"{name}.sum", square, dims=x.dims[:-1], kernel=REDUCTION)
    inverse = tape.pointwise(f"{name}.rsqrt", total, saves=["out"])
    return weighed(tape, name, x, inverse)


def _within_chunks(scan: DeltaScan) -> tuple[Tensor, Tensor, Tensor]:
    """What each token would write and where, as if its chunk began with no state; and how tokens of a chunk see others.

    A triangular system has the writes of a chunk that correct each other (the UT transform: Yang et al. 2024,
    arXiv 2406.06484, section 3).
    """
    tape, of = scan.tape, scan.of
    values, keys = (weighed(tape, f"attention/{n}.rate", x, scan.rate) for n, x in (("v", scan.value), ("k", scan.key)))
    rows = (of.batch, of.heads, of.chunks)
    mask = Tensor("attention/pairs.mask", (of.chunk, of.source), "bool", "mask")
    apart = tape.pointwise("attention/pairs.difference", scan.decay, dims=(*rows, of.chunk, of.source))
    masked = tape.pointwise("attention/pairs.masked", apart, saves=[mask])
    pairs = tape.pointwise("attention/pairs", masked, flops=4, saves=["out"])
    earlier = replace(scan.key, dims=(*rows, of.source, of.state), view_of=scan.key.storage)
    half = (of.chunk.symbol + 1) / (2 * of.chunk.symbol)
    einsum = "batch heads chunks chunk state_size, batch heads chunks source state_size"
    out = f"{einsum} -> batch heads chunks chunk source"
    corrected = scan.product("corrections", out, keys, earlier, half)
    system = tape.pointwise("attention/system", corrected, pairs, saves=[corrected, pairs])
    scores = scan.product("scores", out, scan.query, earlier, half)
    seen = tape.pointwise("attention/seen", scores, pairs, saves=[scores, pairs])
    decayed = weighed(tape, "attention/k.decayed", keys, scan.exponential("attention/decay.until", scan.decay.dims))
    return _solved(scan, "attention/v.new", system, values), _solved(scan, "attention/k.new", system, decayed), seen


@dataclass(frozen=True)
class TriangularSolve(Pointwise):
    """A solve of (... chunk width) by a triangular system (... chunk source) that has ones on its diagonal.

    No counter of FLOPs knows it; backward solves once more, and the gradient of the system is a product.
    """

    def gradients(self) -> tuple[Operation, ...]:
        """The gradient of the right side by the system, and of that by the solution (torch, solve_triangular)."""
        right, system = self.inputs
        width, source = right.dims[-1], system.dims[-1]
        again = replace(self.output, dims=(*right.dims[:-2], source, width), view_of=self.output.storage)
        rows = " ".join(each.name for each in right.dims[:-2])
        chunk, of_width = right.dims[-2].name, width.name
        einsum = f"{rows} {chunk} {of_width}, {rows} {source.name} {of_width} -> {rows} {chunk} {source.name}"
        operands = (right.gradient, again)
        name = f"{self.name}.system_gradient"
        return (
            Pointwise(f"{self.name}.gradient", self.kernel, (system, self.output.gradient), (right.gradient,)),
            Contraction(name, matmul(self.output.dtype), operands, (system.gradient,), einsum=einsum),
        )


def _solved(scan: DeltaScan, name: str, system: Tensor, right: Tensor) -> Tensor:
    """The solution for a right side; both it and the system are saved."""
    result = scan.tape.activation(name, right.dims, WIDE, right.split)
    solve = TriangularSolve(name, ELEMENTWISE, (right, system), (result,), (system, result))
    return scan.tape.record(solve)


@dataclass(frozen=True)
class ButOneChunk(Contraction):
    """The gradients of a product in a loop, all but one of as many as there are of the `whole`."""

    whole: Contraction = field(kw_only=True)

    def shape(self) -> Matmul:
        """The shape of a loop's product, also where there is one chunk and nothing runs."""
        return self.whole.shape()


@dataclass(frozen=True)
class LoopProduct(Contraction):
    """A product of each chunk of a loop; the gradient of operands `but_one` leaves a chunk out.

    Nothing was there before the first chunk, so no gradient flows into its state; nobody reads what the last leaves.
    Under autocast each chunk has casts of its own, and autograd drops those that it does not need: they count here.
    """

    but_one: tuple[str, ...] = ()

    def gradient_product(self, einsum: str, operands: tuple[Tensor, Tensor], of: Tensor, which: str) -> Contraction:
        """The gradient of an operand, of all chunks or of all but one."""
        plain = super().gradient_product(einsum, operands, of, which)
        if of.name not in self.but_one:
            return plain
        fewer = tuple(replace(each, dims=tuple(map(_but_one, each.dims))) for each in plain.inputs)
        return ButOneChunk(plain.name, plain.kernel, fewer, plain.outputs, einsum=einsum, whole=plain)


def _but_one(dim: Dim) -> Dim:
    return Dim(dim.name, dim.symbol - 1) if dim.name == "chunks" else dim


def _in_loop(scan: DeltaScan, name: str, einsum: str, operands: tuple[Tensor, Tensor], *but_one: Tensor) -> Tensor:
    tape = scan.tape
    dtype = tape.precision.compute if tape.precision.autocast else WIDE
    narrow = tuple(tape.cast(operand, dtype) for operand in operands)
    names = tuple(cast.name for cast, plain in zip(narrow, operands, strict=True) if plain in but_one)
    table = {each.name: each for operand in operands for each in operand.dims}
    dims = tuple(table[each] for each in terms(einsum)[2])
    result, account = tape.activation(f"attention/{name}", dims, dtype), f"attention/{name}"
    kernel = matmul(dtypes.rate(dtype))
    return tape.record(LoopProduct(account, kernel, narrow, (result,), narrow, einsum=einsum, but_one=names))


def _along(scan: DeltaScan, values: Tensor, keys: Tensor, seen: Tensor) -> Tensor:
    """Chunk after chunk: what is new to the state, what queries read of it and of their chunk, and the next state."""
    of, tape = scan.of, scan.tape
    query = weighed(tape, "attention/q.decayed", scan.query, scan.exponential("attention/decay.q", scan.decay.dims))
    key = weighed(tape, "attention/k.to_end", scan.key, scan.exponential("attention/decay.k", scan.decay.dims))
    ends = scan.exponential("attention/decay.chunk", scan.decay.dims[:3])
    loop = replace(scan, tape=tape.repeated(of.chunks.symbol))
    dims = (of.batch, of.heads, of.chunks, of.state, of.head_dim)
    state = loop.tape.pointwise("attention/states", ends, dims=dims, flops=2, saves=["out", ends])
    reading = "batch heads chunks chunk state_size, batch heads chunks state_size head_dim"
    out = "batch heads chunks chunk head_dim"
    known = _in_loop(loop, "predicted", f"{reading} -> {out}", (keys, state), state)
    new = loop.tape.pointwise("attention/v.corrected", values, known, dtype=WIDE, add=True)
    between = _in_loop(loop, "reading", f"{reading} -> {out}", (query, state), state)
    earlier = replace(new, dims=(of.batch, of.heads, of.chunks, of.source, of.head_dim), view_of=new.storage)
    inner = "batch heads chunks chunk source, batch heads chunks source head_dim"
    within = _in_loop(loop, "within", f"{inner} -> {out}", (seen, earlier))
    writing = "batch heads chunks chunk state_size, batch heads chunks chunk head_dim"
    _in_loop(loop, "writing", f"{writing} -> batch heads chunks state_size head_dim", (key, new), key, new)
    both = loop.tape.pointwise("attention/scan.add", between, within, dtype=WIDE, add=True)
    return copied(loop.tape, both, "attention/scan")


def gated_norm(tape: Tape, x: Tensor, gate: Tensor) -> Tensor:
    """RMSNorm of each head in fp32, its weight, the SiLU of the gate (transformers, Qwen3NextRMSNormGated)."""
    weight = norm_weight(tape, x.dims[-1])
    normed = tape.cast(over_rms(tape, str(NORM), tape.cast(x, WIDE), 1), x.dtype)
    scaled = weighed(tape, f"{NORM}.weigh", normed, weight)
    wide = tape.cast(gate, WIDE)
    active = tape.pointwise("attention/gate.silu", wide, kernel=SILU, flops=8, saves=[wide])
    gated = tape.pointwise("attention/gate", scaled, active, dtype=WIDE, saves=[scaled, active])
    return tape.cast(gated, x.dtype)


def norm_weight(tape: Tape, head_dim: Dim) -> Tensor:
    """What the norm of the gated result multiplies each head by."""
    return tape.weight(Parameter(NORM, elementwise=True), (head_dim,))


def of_heads(tape: Tape, of: Sizes) -> tuple[Tensor, Tensor]:
    """What is learned of each head: the bias of its steps of time, and its decay."""
    return learned(tape, "dt_bias", of.heads), learned(tape, "a_log", of.heads)
