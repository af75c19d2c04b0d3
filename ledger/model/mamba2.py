"""The mixer of Mamba-2: a state of each head that decays from token to token, in kernels made for its scan.

Dao and Gu 2024, arXiv 2405.21060, section 6; what serves keeps the state and the window of the convolution.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import sympy

from ledger.model.causes import Module, Parameter
from ledger.model.contraction import Contraction
from ledger.model.dims import Dim
from ledger.model.elementwise import Pointwise
from ledger.model.norms import over_rms
from ledger.model.operations import ONE
from ledger.model.recurrent import (
    CONVOLUTION,
    SILU,
    FusedScan,
    Sizes,
    convolved,
    copied,
    decodes,
    depthwise,
    filters,
    is_fused,
    learned,
    lower,
    repeated,
    sizes,
    states,
    viewed,
    weighed,
    window,
)
from ledger.model.tape import Tape
from ledger.model.tensors import Tensor, product
from ledger.spec.kernel_classes import COPY, DECODE, NO_KERNEL, NORM_FORWARD, SCAN
from ledger.spec.plan import Attention, Norm

IN, OUT = Module("attention", "in"), Module("attention", "out")


def mamba2(tape: Tape, x: Tensor, spec: Attention, _: Norm) -> Tensor:
    """Projection, convolution, scan, norm of the gated result, projection; result (batch seq d_model)."""
    of = sizes(tape)
    wide = 2 * of.heads.symbol * of.head_dim.symbol + 2 * of.groups.symbol * of.state.symbol + of.heads.symbol
    einsum = "batch seq d_model, projected d_model -> batch seq projected"
    joint = tape.linear(IN, einsum, x, bias=spec.qkv_bias, sizes=(Dim("projected", wide),))
    run = _decode_step if decodes(tape) else _fused_scan if is_fused(tape) else operators
    narrow = tape.cast(run(tape.inside("core"), joint, spec, of), joint.dtype)
    einsum = "batch seq heads head_dim, d_model heads head_dim -> batch seq d_model"
    return tape.linear(OUT, einsum, narrow, bias=spec.out_bias)


def _fused_scan(tape: Tape, joint: Tensor, spec: Attention, of: Sizes) -> Tensor:
    """Convolution, scan and norm in one call, which saves the projection, what was scanned and the norm's statistics.

    mamba_ssm, ops/triton/ssd_combined.py, MambaSplitConv1dScanCombinedFn; its output projection outside, as
    Megatron-Core calls it (ssm/mamba_mixer.py). Backward convolves again, and rebuilds scores and states of chunks.
    """
    channels = tape.activation("attention/in.channels", (of.batch, of.seq, of.channels), joint.dtype)
    convolved_channels = replace(channels, name=str(CONVOLUTION))
    filter_weights = filters(tape, channels, spec)
    weight = norm_weight(tape, of)
    parts = (depthwise((channels, *filter_weights), convolved_channels, spec), *_scan_products(joint.dtype, of))
    scanned = tape.activation("attention/scan", of.values, joint.dtype)
    normed = tape.activation(str(NORM), of.values, joint.dtype)
    rstd = Tensor(f"{NORM}.rstd", of.shared[:3], WIDE, "statistic")
    waiting = (window(tape, channels), states(of)) if tape.cache else ()
    learned_here = (*filter_weights, *of_heads(tape, of), weight)
    begun = replace(
        states(of)[1], name="attention/scan.states", dims=of.chunked(of.values)[:2] + states(of)[0].dims[1:]
    )
    return tape.record(
        FusedScan(
            "attention/scan.combined",
            SCAN,
            (joint, *learned_here, *(tensors[0] for tensors in waiting)),
            (normed, replace(scanned, role="statistic"), rstd, *(tensors[1] for tensors in waiting)),
            (joint, *learned_here, replace(scanned, role="statistic"), rstd),
            parts=parts,
            rebuilt=parts[:3],
            between=(convolved_channels, begun, begun, _scores(of)),
        )
    )


def _scores(of: Sizes) -> Tensor:
    dims = (of.batch, of.chunks, of.groups, of.chunk, of.source)
    return Tensor("attention/scores", dims, WIDE)


def _scan_products(dtype: str, of: Sizes) -> tuple[Contraction, ...]:
    """Scores of each group, states of chunks; then what tokens read of their chunk, and of the state before it.

    States are handed on from chunk to chunk element by element.
    """
    rows = (of.batch, of.chunks)
    half = lower(of.chunk.symbol)

    def tensor(name: str, *dims: Dim) -> Tensor:
        return Tensor(f"attention/{name}", (*rows, *dims), dtype)

    read, written = tensor("c", of.groups, of.chunk, of.state), tensor("b", of.groups, of.source, of.state)
    added, values = tensor("b", of.heads, of.chunk, of.state), tensor("x", of.heads, of.chunk, of.head_dim)
    states_ = tensor("states", of.heads, of.head_dim, of.state)
    pairs, earlier = tensor("pairs", of.heads, of.chunk, of.source), tensor("x", of.heads, of.source, of.head_dim)
    start = "batch chunks heads"
    in_groups = "batch chunks state_groups"
    return (
        Contraction(
            "scores", NO_KERNEL, (read, written), (_scores(of),), density=half,
            einsum=f"{in_groups} chunk state_size, {in_groups} source state_size -> {in_groups} chunk source",
        ),
        Contraction(
            "states", NO_KERNEL, (values, added), (states_,),
            einsum=f"{start} chunk head_dim, {start} chunk state_size -> {start} head_dim state_size",
        ),
        Contraction(
            "within", NO_KERNEL, (pairs, earlier), (values,), density=half,
            einsum=f"{start} chunk source, {start} source head_dim -> {start} chunk head_dim",
        ),
        Contraction(
            "reading", NO_KERNEL, (added, states_), (values,),
            einsum=f"{start} chunk state_size, {start} head_dim state_size -> {start} chunk head_dim",
        ),
    )  # fmt: skip


def _decode_step(tape: Tape, joint: Tensor, spec: Attention, of: Sizes) -> Tensor:
    """The scan of one token a sequence: a state decays, takes the token up, and is read by it.

    mamba_ssm, ops/triton/selective_state_update.py; a state is read and written once for all of this.
    """
    inputs = inputs_of(tape, joint, spec, of)
    scanned = tape.activation("attention/scan", of.values, joint.dtype)
    before, after = states(of)
    read = Tensor("attention/c", (of.batch, of.seq, of.heads, of.state), joint.dtype)
    einsum = "batch seq heads state_size, batch heads head_dim state_size -> batch seq heads head_dim"
    reading = Contraction("reading", NO_KERNEL, (read, before), (scanned,), einsum=einsum)
    operands = (inputs.values, inputs.written, inputs.read, inputs.step, *of_heads(tape, of), before)
    kernel = replace(SCAN, pass_=DECODE)
    tape.record(FusedScan("attention/scan", kernel, operands, (scanned, after), parts=(reading,)))
    if not is_fused(tape):
        return gated_norm(tape, scanned, inputs, of)
    weight = norm_weight(tape, of)
    return tape.pointwise(str(NORM), scanned, inputs.gate, weight, dtype=joint.dtype, kernel=NORM_FORWARD, flops=12)


# --- the scan operator by operator, as transformers runs it without other kernels ---

NORM = Module("attention", "gated_norm")
WIDE = "fp32"


@dataclass(frozen=True)
class Inputs:
    """The inputs of a scan: the gate and the steps of time, and what was convolved."""

    gate: Tensor
    step: Tensor
    values: Tensor
    written: Tensor
    read: Tensor


def inputs_of(tape: Tape, joint: Tensor, spec: Attention, of: Sizes) -> Inputs:
    """The gate, what is convolved and the steps of time are parts of the projection."""
    streams = (of.batch, of.seq, of.channels)
    parts = {"attention/in.gate": of.values, "attention/in.channels": streams, "attention/in.step": of.of_heads}
    gate, channels, step = tape.views_of_parts(joint, parts)
    convolved_channels = convolved(tape, channels, spec)
    names = {"attention/x": of.values, "attention/b": of.shared, "attention/c": of.shared}
    return Inputs(gate, step, *tape.views_of_parts(convolved_channels, names))


def of_heads(tape: Tape, of: Sizes) -> tuple[Tensor, ...]:
    """Learned tensors of each head: the bias of its steps of time, its decay, and what goes around the scan."""
    return tuple(learned(tape, name, of.heads) for name in ("dt_bias", "a_log", "d"))


@dataclass(frozen=True)
class Scan:
    """The tape of a scan, its dims, the dtype of its products, and its operands in chunks and in fp32."""

    tape: Tape
    of: Sizes
    values: Tensor  # batch chunks chunk heads head_dim, times the step
    written: Tensor  # batch chunks chunk heads state
    read: Tensor
    decay: Tensor  # batch heads chunks chunk: logarithms, of each token
    so_far: Tensor  # their sums from the beginning of a chunk on

    def product(self, name: str, einsum: str, left: Tensor, right: Tensor, density: sympy.Expr = ONE) -> Tensor:
        """A product of two results in fp32, or in what autocast makes of it."""
        dtype = "" if self.tape.precision.autocast else WIDE
        return self.tape.contract(Module("attention", name), einsum, left, right, density=density, dtype=dtype)


def operators(tape: Tape, joint: Tensor, spec: Attention, of: Sizes) -> Tensor:
    """Chunks by themselves, the states between them, what each chunk reads of those, and the norm of it all."""
    inputs = inputs_of(tape, joint, spec, of)
    scan, skipped = _scan_operands(tape, inputs, of)
    within = _within_chunks(scan)
    states_begun = _chunk_states(scan)
    if tape.cache:
        tape.record(Pointwise("attention/cache", COPY, (states(of)[0],), (states(of)[1],), flops=0))
    between = _read_states(scan, states_begun)
    both = tape.pointwise("attention/scan.add", within, between, add=True)
    laid = copied(tape, both, "attention/scan.copy", of.chunked(of.values))
    return gated_norm(tape, tape.pointwise("attention/scan", laid, skipped, add=True), inputs, of)


def _scan_operands(tape: Tape, inputs: Inputs, of: Sizes) -> tuple[Scan, Tensor]:
    """Steps of time through softplus, all in fp32, padded to whole chunks; and what goes around the scan (`D`)."""
    bias, rate, skip = of_heads(tape, of)
    bias = tape.cast(bias, inputs.step.dtype)
    added = tape.pointwise("attention/step.add", inputs.step, bias, add=True)
    added = tape.cast(added, WIDE) if tape.precision.autocast else added
    positive = tape.pointwise("attention/step.softplus", added, flops=4, saves=[added])
    step = tape.pointwise("attention/step", positive, saves=[positive])  # clamped
    wide = tape.cast(inputs.values, WIDE)
    written, read = (
        repeated(tape, tape.cast(shared, WIDE), f"{shared.name}.repeat", of) for shared in (inputs.written, inputs.read)
    )
    around = copied(tape, wide, "attention/skip.pad", of.chunked(wide.dims))
    skipped = weighed(tape, "attention/skip", around, skip)
    values = weighed(tape, "attention/x.step", wide, tape.cast(step, WIDE))
    rate = tape.cast(rate, WIDE)
    rate = tape.pointwise("attention/a.negative", tape.pointwise("attention/a.exp", rate, flops=4, saves=["out"]))
    decay = weighed(tape, "attention/decay", tape.cast(step, WIDE), rate)
    values, decay, written, read = (
        copied(tape, tensor, f"{tensor.name}.pad", of.chunked(tensor.dims)) for tensor in (values, decay, written, read)
    )
    decay = viewed(decay, (of.batch, of.heads, of.chunks, of.chunk))
    so_far = tape.pointwise("attention/decay.sum", decay)
    return Scan(tape, of, values, written, read, decay, so_far), skipped


def _pair_decay(tape: Tape, decay: Tensor, name: str, earlier: Dim) -> Tensor:
    """exp of the sums of decays from each place to each later one; others are masked, first by 0, then by -inf."""
    dims = (*decay.dims, earlier)
    marks = [Tensor(f"{name}.mask.{n}", dims[-2:], "bool", "mask", decay.split) for n in range(2)]
    filled = tape.pointwise(f"{name}.fill", decay, dims=dims, saves=marks[:1])
    summed = tape.pointwise(f"{name}.sum", filled)
    masked = tape.pointwise(f"{name}.mask", summed, saves=marks[1:])
    return tape.pointwise(name, masked, flops=4, saves=["out"])


def _within_chunks(scan: Scan) -> Tensor:
    """Tokens of a chunk that read each other, as attention does (batch chunks heads chunk head_dim)."""
    tape, of = scan.tape, scan.of
    pairs = _pair_decay(tape, scan.decay, "attention/pairs", of.source)
    rows = (of.batch, of.chunks, of.heads)
    read = copied(tape, scan.read, "attention/scores.left", (*rows, of.chunk, of.state))
    written = copied(tape, scan.written, "attention/scores.right", (*rows, of.source, of.state))
    half = lower(of.chunk.symbol)
    einsum = "batch chunks heads chunk state_size, batch chunks heads source state_size"
    scores = scan.product("scores", f"{einsum} -> batch chunks heads chunk source", read, written, half)
    decayed = tape.pointwise("attention/scores.decayed", scores, pairs, saves=[scores, pairs])
    values = copied(tape, scan.values, "attention/within.right", (*rows, of.source, of.head_dim))
    einsum = "batch chunks heads chunk source, batch chunks heads source head_dim"
    return scan.product("within", f"{einsum} -> batch chunks heads chunk head_dim", decayed, values, half)


def _chunk_states(scan: Scan) -> Tensor:
    """The state that each chunk begins with, from what each adds to it (batch passes heads head_dim state)."""
    tape, of = scan.tape, scan.of
    decay_to_end = tape.pointwise("attention/decay.left", scan.so_far, add=True)
    decay_to_end = tape.pointwise("attention/decay.to_end", decay_to_end, flops=4, saves=["out"])
    rows = (of.batch, of.chunks, of.heads)
    decayed = weighed(tape, "attention/b.decayed", scan.written, decay_to_end)
    written = copied(tape, decayed, "attention/states.left", (*rows, of.state, of.chunk))
    values = copied(tape, scan.values, "attention/states.right", (*rows, of.chunk, of.head_dim))
    einsum = "batch chunks heads state_size chunk, batch chunks heads chunk head_dim"
    added = scan.product("states", f"{einsum} -> batch chunks heads state_size head_dim", written, values)
    one_more = of.chunks.symbol + 1
    passes, earlier = Dim("passes", one_more), Dim("earlier", one_more)
    joined = copied(tape, added, "attention/states.first", (of.batch, passes, of.heads, of.head_dim, of.state))
    ends = copied(tape, scan.so_far, "attention/decay.ends", (of.batch, of.heads, passes))
    between = _pair_decay(tape, ends, "attention/between", earlier)
    earlier_states = copied(
        tape, joined, "attention/passing.right", (of.batch, of.heads, earlier, of.head_dim, of.state)
    )
    einsum = "batch heads passes earlier, batch heads earlier head_dim state_size"
    out = "batch heads passes head_dim state_size"
    return scan.product("passing", f"{einsum} -> {out}", between, earlier_states, lower(one_more))


def _read_states(scan: Scan, states: Tensor) -> Tensor:
    """Readings of the state that a chunk begins with, decayed until each token (batch chunks heads chunk head_dim)."""
    tape, of = scan.tape, scan.of
    rows = (of.batch, of.chunks, of.heads)
    until = tape.pointwise("attention/decay.until", scan.so_far, flops=4, saves=["out"])
    read = copied(tape, scan.read, "attention/reading.left", (*rows, of.chunk, of.state))
    begun = copied(tape, states, "attention/reading.right", (*rows, of.state, of.head_dim))
    einsum = "batch chunks heads chunk state_size, batch chunks heads state_size head_dim"
    reading = scan.product("reading", f"{einsum} -> batch chunks heads chunk head_dim", read, begun)
    return weighed(tape, "attention/reading.decayed", reading, until)


def gated_norm(tape: Tape, scanned: Tensor, inputs: Inputs, of: Sizes) -> Tensor:
    """RMSNorm within a group of heads, of the result times the SiLU of its gate (transformers, MambaRMSNormGated)."""
    gate = tape.cast(inputs.gate, WIDE)
    active = tape.pointwise("attention/gate.silu", gate, kernel=SILU, flops=8, saves=[gate])
    cut = viewed(scanned, of.values)
    gated = tape.pointwise("attention/gate", cut, active, saves=[scanned, active])
    width = product(of.heads.symbol, of.head_dim.symbol, 1 / of.groups.symbol)
    grouped = viewed(gated, (of.batch, of.seq, of.groups, Dim("group_width", width)))
    normed = viewed(over_rms(tape, str(NORM), grouped, 1), of.values)
    return weighed(tape, f"{NORM}.weigh", normed, norm_weight(tape, of))


def norm_weight(tape: Tape, of: Sizes) -> Tensor:
    """The weight by which the norm of the gated result multiplies all heads."""
    return tape.weight(Parameter(NORM, elementwise=True), (of.heads, of.head_dim), 2)
