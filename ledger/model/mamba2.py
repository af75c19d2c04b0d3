"""The mixer of Mamba-2: a state of each head that decays from token to token, in kernels made for its scan.

Dao and Gu 2024, arXiv 2405.21060, section 6; what serves keeps the state and the window of the convolution.
"""

from __future__ import annotations

from dataclasses import replace

from ledger.model.contraction import Contraction
from ledger.model.dims import Dim
from ledger.model.fused_scan import FusedScan
from ledger.model.mamba2_operators import NORM, WIDE, gated_norm, inputs_of, norm_weight, of_heads, operators
from ledger.model.modules import Module
from ledger.model.recurrent import (
    CONVOLUTION,
    Sizes,
    decodes,
    depthwise,
    filters,
    is_fused,
    lower,
    sizes,
    states,
    window,
)
from ledger.model.tape import Tape
from ledger.model.tensors import Tensor
from ledger.spec.kernel_classes import DECODE, NO_KERNEL, NORM_FORWARD, SCAN
from ledger.spec.plan import Attention, Norm

IN, OUT = Module("attention", "in"), Module("attention", "out")


def mamba2(tape: Tape, x: Tensor, spec: Attention, _: Norm) -> Tensor:
    """Projection, convolution, scan, norm of the gated result, projection; result (batch seq d_model)."""
    of = sizes(tape)
    wide = 2 * of.heads.symbol * of.head_dim.symbol + 2 * of.groups.symbol * of.state.symbol + of.heads.symbol
    einsum = "batch seq d_model, projected d_model -> batch seq projected"
    joint = tape.linear(IN, einsum, x, bias=spec.qkv_bias, sizes=(Dim("projected", wide),))
    run = _decoded if decodes(tape) else _fused if is_fused(tape) else operators
    narrow = tape.cast(run(tape.inside("core"), joint, spec, of), joint.dtype)
    einsum = "batch seq heads head_dim, d_model heads head_dim -> batch seq d_model"
    return tape.linear(OUT, einsum, narrow, bias=spec.out_bias)


def _fused(tape: Tape, joint: Tensor, spec: Attention, of: Sizes) -> Tensor:
    """Convolution, scan and norm in one call, which saves the projection, what was scanned and the norm's statistics.

    mamba_ssm, ops/triton/ssd_combined.py, MambaSplitConv1dScanCombinedFn; its output projection outside, as
    Megatron-Core calls it (ssm/mamba_mixer.py). Backward convolves again, and rebuilds scores and states of chunks.
    """
    channels = tape.activation("attention/in.channels", (of.batch, of.seq, of.channels), joint.dtype)
    made = replace(channels, name=str(CONVOLUTION))
    own = filters(tape, channels, spec)
    weight = norm_weight(tape, of)
    parts = (depthwise((channels, *own), made, spec), *_products(joint.dtype, of))
    scanned = tape.activation("attention/scan", of.values, joint.dtype)
    normed = tape.activation(str(NORM), of.values, joint.dtype)
    rstd = Tensor(f"{NORM}.rstd", of.shared[:3], WIDE, "statistic")
    waiting = (window(tape, channels), states(of)) if tape.cache else ()
    learned_here = (*own, *of_heads(tape, of), weight)
    begun = replace(
        states(of)[1], name="attention/scan.states", dims=of.chunked(of.values)[:2] + states(of)[0].dims[1:]
    )
    return tape.record(
        FusedScan(
            "attention/scan.combined",
            SCAN,
            (joint, *learned_here, *(each[0] for each in waiting)),
            (normed, replace(scanned, role="statistic"), rstd, *(each[1] for each in waiting)),
            (joint, *learned_here, replace(scanned, role="statistic"), rstd),
            parts=parts,
            rebuilt=parts[:3],
            between=(made, begun, begun, _scores(of)),
        )
    )


def _scores(of: Sizes) -> Tensor:
    dims = (of.batch, of.chunks, of.groups, of.chunk, of.source)
    return Tensor("attention/scores", dims, WIDE)


def _products(dtype: str, of: Sizes) -> tuple[Contraction, ...]:
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


def _decoded(tape: Tape, joint: Tensor, spec: Attention, of: Sizes) -> Tensor:
    """Of the next token of each sequence: its state decays, takes the token up, and is read by it.

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
