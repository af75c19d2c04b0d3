"""Linear attention by the gated delta rule: the state of a head decays, and what it says of a key is corrected.

Yang et al. 2025, arXiv 2412.06464, section 3; with a convolution before it and a gate after it in Qwen3-Next.
"""

from __future__ import annotations

from dataclasses import replace

from ledger.model.contraction import Contraction
from ledger.model.delta_operators import (
    NORM,
    WIDE,
    DeltaInputs,
    delta_operators,
    gated_norm,
    norm_weight,
    of_heads,
)
from ledger.model.dims import Dim
from ledger.model.fused_scan import FusedScan
from ledger.model.modules import Module
from ledger.model.operations import ONE
from ledger.model.recurrent import Sizes, convolved, copied, decodes, is_fused, lower, sizes, states, weighed
from ledger.model.tape import Tape
from ledger.model.tensors import Tensor
from ledger.spec.kernel_classes import DECODE, NO_KERNEL, NORM_BACKWARD, NORM_FORWARD, SCAN
from ledger.spec.plan import Attention, Norm

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
    inputs = _inputs(inner, joint, gates, spec, of)
    run = _decoded if decodes(tape) else _fused if is_fused(tape) else delta_operators
    einsum = "batch seq heads head_dim, d_model heads head_dim -> batch seq d_model"
    return tape.linear(OUT, einsum, run(inner, inputs, of), bias=spec.out_bias)


def _inputs(tape: Tape, joint: Tensor, gates: Tensor, spec: Attention, of: Sizes) -> DeltaInputs:
    """Parts of the projections are copied out, since those of a group of heads lie together; all but gates convolved.

    transformers, Qwen3NextGatedDeltaNet.forward.
    """
    names = {"attention/in.q": of.shared, "attention/in.k": of.shared, "attention/in.v": of.values}
    taken = (
        *tape.taken(joint, names | {"attention/in.gate": of.values}),
        *tape.taken(gates, {"attention/in.rate": of.of_heads, "attention/in.step": of.of_heads}),
    )
    *parts, gate, rate, step = (copied(tape, part, f"{part.name}.copy") for part in taken)
    mixed = tape.joined("attention/channels", parts, (of.batch, of.seq, of.channels))
    made = convolved(tape, mixed, spec)
    query, key, value = tape.taken(made, {"attention/q": of.shared, "attention/k": of.shared, "attention/v": of.values})
    written = tape.pointwise("attention/rate", rate, flops=4, saves=["out"])  # sigmoid
    return DeltaInputs(made, query, key, value, gate, _decay(tape, step, of), written)


def _decay(tape: Tape, step: Tensor, of: Sizes) -> Tensor:
    """The logarithm by which a state decays with each token, in fp32."""
    bias, rate = of_heads(tape, of)
    added = tape.pointwise("attention/step.add", tape.cast(step, WIDE), bias, dtype=WIDE, add=True)
    positive = tape.pointwise("attention/step.softplus", added, flops=4, saves=[added])
    rate = tape.pointwise("attention/a.exp", tape.cast(rate, WIDE), flops=4, saves=["out"])
    return weighed(tape, "attention/decay", positive, tape.pointwise("attention/a.negative", rate))


def _fused(tape: Tape, inputs: DeltaInputs, of: Sizes) -> Tensor:
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
    parts = _products(dtype, of)
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


def _products(dtype: str, of: Sizes) -> tuple[Contraction, ...]:
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


def _decoded(tape: Tape, inputs: DeltaInputs, of: Sizes) -> Tensor:
    """Of the next token of each sequence: its state decays, is read by the key, corrected, and read by the query.

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
