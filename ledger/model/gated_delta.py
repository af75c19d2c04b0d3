"""Linear attention by the gated delta rule: the state of a head decays, and what it says of a key is corrected.

Yang et al. 2025, arXiv 2412.06464, section 3; with a convolution before it and a gate after it in Qwen3-Next.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import sympy

from ledger.model import dtypes
from ledger.model.causes import Module, Parameter
from ledger.model.contraction import Contraction
from ledger.model.dims import Dim
from ledger.model.elementwise import Pointwise
from ledger.model.norms import over_rms
from ledger.model.operations import ONE, Matmul, Operation
from ledger.model.recurrent import (
    SILU,
    FusedScan,
    Sizes,
    convolved,
    copied,
    decodes,
    is_fused,
    learned,
    lower,
    repeated,
    sizes,
    states,
    weighed,
)
from ledger.model.tape import Tape
from ledger.model.tensors import Tensor
from ledger.spec.kernel_classes import (
    COPY,
    DECODE,
    ELEMENTWISE,
    NO_KERNEL,
    NORM_BACKWARD,
    NORM_FORWARD,
    REDUCTION,
    SCAN,
    matmul,
)
from ledger.spec.plan import Attention, Norm
from ledger.spec.windows import terms

IN, GATES, OUT = Module("attention", "in"), Module("attention", "in_gates"), Module("attention", "out")


def gated_delta(tape: Tape, x: Tensor, spec: Attention, _: Norm) -> Tensor:
    """Projections, convolution, scan, norm with its gate, projection; result (batch seq d_model)."""
    of = sizes(tape)
    wide = 2 * (of.groups.symbol * of.state.symbol + of.heads.symbol * of.head_dim.symbol)
    einsum = "batch seq d_model, projected d_model -> batch seq projected"
    joint = tape.linear(IN, einsum, x, bias=spec.qkv_bias, sizes=(Dim("projected", wide),))
    two = Dim("two_heads", 2 * of.heads.symbol)
    einsum = "batch seq d_model, two_heads d_model -> batch seq two_heads"
    gates = tape.linear(GATES, einsum, x, bias=spec.qkv_bias, sizes=(two,))
    inner = tape.inside("core")
    inputs = _delta_inputs(inner, joint, gates, spec, of)
    run = _decode_step if decodes(tape) else _fused_scan if is_fused(tape) else delta_operators
    einsum = "batch seq heads head_dim, d_model heads head_dim -> batch seq d_model"
    return tape.linear(OUT, einsum, run(inner, inputs, of), bias=spec.out_bias)


def _delta_inputs(tape: Tape, joint: Tensor, gates: Tensor, spec: Attention, of: Sizes) -> DeltaInputs:
    """Parts of the projections are copied out, since those of a group of heads lie together; all but gates convolved.

    transformers, Qwen3NextGatedDeltaNet.forward.
    """
    names = {"attention/in.q": of.shared, "attention/in.k": of.shared, "attention/in.v": of.values}
    views = (
        *tape.views_of_parts(joint, names | {"attention/in.gate": of.values}),
        *tape.views_of_parts(gates, {"attention/in.rate": of.of_heads, "attention/in.step": of.of_heads}),
    )
    *parts, gate, rate, step = (copied(tape, part, f"{part.name}.copy") for part in views)
    mixed = tape.concatenate("attention/channels", parts, (of.batch, of.seq, of.channels))
    channels = convolved(tape, mixed, spec)
    names = {"attention/q": of.shared, "attention/k": of.shared, "attention/v": of.values}
    query, key, value = tape.views_of_parts(channels, names)
    written = tape.pointwise("attention/rate", rate, flops=4, saves=["out"])  # sigmoid
    return DeltaInputs(channels, query, key, value, gate, _log_decay(tape, step, of), written)


def _log_decay(tape: Tape, step: Tensor, of: Sizes) -> Tensor:
    """The logarithm by which a state decays with each token, in fp32."""
    bias, rate = of_heads(tape, of)
    added = tape.pointwise("attention/step.add", tape.cast(step, WIDE), bias, dtype=WIDE, add=True)
    positive = tape.pointwise("attention/step.softplus", added, flops=4, saves=[added])
    rate = tape.pointwise("attention/a.exp", tape.cast(rate, WIDE), flops=4, saves=["out"])
    return weighed(tape, "attention/decay", positive, tape.pointwise("attention/a.negative", rate))


def _fused_scan(tape: Tape, inputs: DeltaInputs, of: Sizes) -> Tensor:
    """Scan and norm, a call each; the scan saves what it reads and the system of each chunk, and rebuilds states.

    flash-linear-attention, ops/gated_delta_rule/chunk.py, ChunkGatedDeltaRuleFunction.
    """
    dtype = inputs.gate.dtype
    statistics = (
        replace(inputs.query, name="attention/q.unit", role="statistic", view_of=""),
        replace(inputs.key, name="attention/k.unit", role="statistic", view_of=""),
        replace(inputs.value, name="attention/v.own", role="statistic", view_of=""),
        *(Tensor(f"attention/{name}.rstd", of.shared[:3], WIDE, "statistic") for name in "qk"),
        Tensor("attention/decay.sum", of.of_heads, WIDE, "statistic"),
        Tensor("attention/system", (*of.of_heads, of.source), dtype, "statistic"),
    )
    scanned = tape.activation("attention/scan", of.values, dtype)
    waiting = states(of) if tape.cache else ()
    operands = (inputs.query, inputs.key, inputs.value, inputs.decay, inputs.rate)
    parts = _scan_products(dtype, of)
    rows = (of.batch, of.chunks, of.chunk, of.heads)
    begun = Tensor("attention/scan.states", (of.batch, of.chunks, of.heads, of.head_dim, of.state), dtype)
    keys, values = (Tensor(f"attention/{n}.new", (*rows, d), dtype) for n, d in (("k", of.state), ("v", of.head_dim)))
    tape.record(
        FusedScan(
            "attention/scan",
            SCAN,
            (*operands, *waiting[:1]),
            (scanned, *statistics, *waiting[1:]),
            (*statistics, inputs.rate),
            parts=parts,
            rebuilt=parts[1:6],
            between=(begun, keys, values, values),
        )
    )
    return _fused_norm(tape, scanned, inputs.gate, of)


def _fused_norm(tape: Tape, scanned: Tensor, gate: Tensor, of: Sizes) -> Tensor:
    return tape.pointwise(
        str(NORM),
        scanned,
        gate,
        norm_weight(tape, of.head_dim),
        dtype=scanned.dtype,
        kernel=NORM_FORWARD,
        backward_kernel=NORM_BACKWARD,
        flops=12,
        saves=[scanned, gate],
        extras=[Tensor(f"{NORM}.rstd", of.of_heads, WIDE, "statistic")],
    )


def _scan_products(dtype: str, of: Sizes) -> tuple[Contraction, ...]:
    """Keys of a chunk with each other; five products that backward runs once more; what queries read of a state.

    Solving the system of a chunk is two products with its inverse; making that takes far fewer FLOPs than they do.
    """
    rows, half = (of.batch, of.chunks, of.heads), lower(of.chunk.symbol)

    def tensor(name: str, *dims: Dim) -> Tensor:
        return Tensor(f"attention/{name}", (*rows, *dims), dtype)

    key, earlier = tensor("k", of.chunk, of.state), tensor("k", of.source, of.state)
    value, sources = tensor("v", of.chunk, of.head_dim), tensor("v", of.source, of.head_dim)
    pairs, state = tensor("system", of.chunk, of.source), tensor("states", of.state, of.head_dim)
    every, seen = "batch chunks heads", "batch chunks heads chunk source"
    keyed, valued = f"{every} chunk state_size", f"{every} chunk head_dim"

    def part(name: str, einsum: str, operands: tuple[Tensor, Tensor], result: Tensor) -> Contraction:
        share = half if " source " in einsum else ONE  # of tokens of a chunk with those before them
        return Contraction(name, NO_KERNEL, operands, (result,), einsum=einsum, density=share)

    pairwise, mixing = f"{keyed}, {every} source state_size -> {seen}", f"{seen}, {every} source head_dim -> {valued}"
    reading = f"{keyed}, {every} state_size head_dim -> {valued}"
    return (
        part("corrections", pairwise, (key, earlier), pairs),
        part("scores", pairwise, (key, earlier), pairs),
        part("v.new", mixing, (pairs, sources), value),
        part("k.new", f"{seen}, {every} source state_size -> {keyed}", (pairs, earlier), key),
        part("predicted", reading, (key, state), value),
        part("writing", f"{keyed}, {valued} -> {every} state_size head_dim", (key, value), state),
        part("reading", reading, (key, state), value),
        part("within", mixing, (pairs, sources), value),
    )


def _decode_step(tape: Tape, inputs: DeltaInputs, of: Sizes) -> Tensor:
    """The scan of one token a sequence: a state decays, is read by the key, corrected, and read by the query.

    flash-linear-attention, ops/gated_delta_rule/fused_recurrent.py; a state is read and written once for all of this.
    transformers writes both products out as sums of elements, of which a counter of FLOPs knows none.
    """
    scanned = tape.activation("attention/scan", of.values, inputs.gate.dtype)
    before, after = states(of)
    asked = Tensor("attention/k", (of.batch, of.seq, of.heads, of.state), inputs.gate.dtype)
    einsum = "batch seq heads state_size, batch heads head_dim state_size -> batch seq heads head_dim"
    names = ("predicted", "reading") if is_fused(tape) else ()
    parts = tuple(Contraction(name, NO_KERNEL, (asked, before), (scanned,), einsum=einsum) for name in names)
    operands = (inputs.query, inputs.key, inputs.value, inputs.decay, inputs.rate, before)
    tape.record(FusedScan("attention/scan", replace(SCAN, pass_=DECODE), operands, (scanned, after), parts=parts))
    if is_fused(tape):
        return _fused_norm(tape, scanned, inputs.gate, of)
    return gated_norm(tape, scanned, inputs.gate)


# --- the gated delta rule operator by operator, as transformers runs it without other kernels ---

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
    scan = _scan_operands(tape, inputs, of)
    values, keys, seen = _within_chunks(scan)
    scanned = _scan_chunks(scan, values, keys, seen)
    if tape.cache:
        tape.record(Pointwise("attention/cache", COPY, (states(of)[0],), (states(of)[1],), flops=0))
    laid = tape.pointwise(
        "attention/scan.copy", scanned, dims=of.values, dtype=inputs.gate.dtype, kernel=COPY, add=True
    )
    return gated_norm(tape, laid, inputs.gate)


def _scan_operands(tape: Tape, inputs: DeltaInputs, of: Sizes) -> DeltaScan:
    """Everything of each head, in fp32 and contiguous; queries and keys of length 1; padded to whole chunks."""
    wide = []
    for tensor in (inputs.query, inputs.key, inputs.value, inputs.rate, inputs.decay):
        shared = of.groups in tensor.dims and of.groups.symbol != of.heads.symbol
        per_head = repeated(tape, tensor, f"{tensor.name}.repeat", of) if shared else tensor
        name = f"{tensor.name}.wide"
        wide.append(tape.pointwise(name, per_head, dtype=WIDE, kernel=COPY, add=True))
    query, key, value, rate, decay = wide
    query = tape.pointwise("attention/q.scaled", _unit_length(tape, "attention/q.unit", query))
    key = _unit_length(tape, "attention/k.unit", key)

    def padded(x: Tensor) -> Tensor:
        width = tuple(dim for dim in x.dims if dim not in of.of_heads)
        return copied(tape, x, f"{x.name}.pad", (of.batch, of.heads, of.chunks, of.chunk, *width))

    query, key, value, rate, decay = map(padded, (query, key, value, rate, decay))
    return DeltaScan(tape, of, query, key, value, rate, tape.pointwise("attention/decay.sum", decay))


def _unit_length(tape: Tape, name: str, x: Tensor) -> Tensor:
    """x over the root of the sum of its squares in the last dim (l2norm)."""
    square = tape.pointwise(f"{name}.square", x, saves=[x])
    total = tape.pointwise(f"{name}.sum", square, dims=x.dims[:-1], kernel=REDUCTION)
    inverse = tape.pointwise(f"{name}.rsqrt", total, saves=["out"])
    return weighed(tape, name, x, inverse)


def _within_chunks(scan: DeltaScan) -> tuple[Tensor, Tensor, Tensor]:
    """Values and keys that tokens write as if their chunk began with no state; and how tokens of a chunk see others.

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
    return _solve(scan, "attention/v.new", system, values), _solve(scan, "attention/k.new", system, decayed), seen


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
        rows = " ".join(dim.name for dim in right.dims[:-2])
        chunk, of_width = right.dims[-2].name, width.name
        einsum = f"{rows} {chunk} {of_width}, {rows} {source.name} {of_width} -> {rows} {chunk} {source.name}"
        operands = (right.gradient, again)
        name = f"{self.name}.system_gradient"
        return (
            Pointwise(f"{self.name}.gradient", self.kernel, (system, self.output.gradient), (right.gradient,)),
            Contraction(name, matmul(self.output.dtype), operands, (system.gradient,), einsum=einsum),
        )


def _solve(scan: DeltaScan, name: str, system: Tensor, right: Tensor) -> Tensor:
    """The solution of a triangular system for a right side; solution and system are saved."""
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

        def fewer(dim: Dim) -> Dim:
            return Dim(dim.name, dim.symbol - 1) if dim.name == "chunks" else dim

        inputs = tuple(replace(tensor, dims=tuple(map(fewer, tensor.dims))) for tensor in plain.inputs)
        return ButOneChunk(plain.name, plain.kernel, inputs, plain.outputs, einsum=einsum, whole=plain)


def _loop_product(scan: DeltaScan, name: str, einsum: str, operands: tuple[Tensor, Tensor], *but_one: Tensor) -> Tensor:
    tape = scan.tape
    dtype = tape.precision.compute if tape.precision.autocast else WIDE
    narrow = tuple(tape.cast(operand, dtype) for operand in operands)
    names = tuple(cast.name for cast, plain in zip(narrow, operands, strict=True) if plain in but_one)
    table = {dim.name: dim for operand in operands for dim in operand.dims}
    dims = tuple(table[index] for index in terms(einsum)[2])
    result, account = tape.activation(f"attention/{name}", dims, dtype), f"attention/{name}"
    kernel = matmul(dtypes.rate(dtype))
    return tape.record(LoopProduct(account, kernel, narrow, (result,), narrow, einsum=einsum, but_one=names))


def _scan_chunks(scan: DeltaScan, values: Tensor, keys: Tensor, seen: Tensor) -> Tensor:
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
    predicted = _loop_product(loop, "predicted", f"{reading} -> {out}", (keys, state), state)
    new = loop.tape.pointwise("attention/v.corrected", values, predicted, dtype=WIDE, add=True)
    between = _loop_product(loop, "reading", f"{reading} -> {out}", (query, state), state)
    earlier = replace(new, dims=(of.batch, of.heads, of.chunks, of.source, of.head_dim), view_of=new.storage)
    inner = "batch heads chunks chunk source, batch heads chunks source head_dim"
    within = _loop_product(loop, "within", f"{inner} -> {out}", (seen, earlier))
    writing = "batch heads chunks chunk state_size, batch heads chunks chunk head_dim"
    _loop_product(loop, "writing", f"{writing} -> batch heads chunks state_size head_dim", (key, new), key, new)
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
    """The weight by which the norm of the gated result multiplies each head."""
    return tape.weight(Parameter(NORM, elementwise=True), (head_dim,))


def of_heads(tape: Tape, of: Sizes) -> tuple[Tensor, Tensor]:
    """Learned tensors of each head: the bias of its steps of time, and its decay."""
    return learned(tape, "dt_bias", of.heads), learned(tape, "a_log", of.heads)
