"""Prefill and decoding: the forward operations of the model's own layers, with one token or with all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import sympy

from ledger.arithmetic.values import Amount
from ledger.books.compiled_roles import Whole, whole
from ledger.course.answers import Figure, Found, Grid, Plot
from ledger.course.asks import InferenceAsk
from ledger.model import dtypes
from ledger.model.contraction import Contraction
from ledger.model.dims import Dim, dim
from ledger.model.fsdp_units import LOSS, wrapped
from ledger.model.operations import Operation
from ledger.model.tensors import Tensor
from ledger.spec.kernel_classes import NO_KERNEL
from ledger.spec.plan import Group, Plan

SCORES = "batch kv_heads share head_dim, batch cached kv_heads head_dim -> batch kv_heads share cached"
CONTEXT = "batch kv_heads share cached, batch cached kv_heads head_dim -> batch kv_heads share head_dim"


@dataclass(frozen=True)
class ForwardPass:
    """Work of one forward pass, and its seconds when each operation runs at the roof of the data sheet."""

    flops: float
    bytes: float
    seconds: float

    @property
    def intensity(self) -> float:
        """FLOPs for each byte."""
        return self.flops / self.bytes


def inference(ask: InferenceAsk) -> Found:
    """Decoding at each batch size, prefill of the context, the cache; latency against throughput as a curve."""
    plan = ask.plan
    single, prompt = decode(plan, ask.context, 1), prefill(plan, ask.context)
    weights = _weights(plan)
    each = int(cache_bytes(plan, ask.context, 1))
    ridge = plan.accelerator.peak[dtypes.rate(plan.precision.multiplies)] / plan.accelerator.bandwidth
    figures = (
        Figure("kv_cache", f"keys and values of {ask.context} tokens", each, "B", "2*L*K*E*bytes*tokens*batch"),
        Figure("weights", "weights", weights, "B"),
        Figure("ridge", f"what {plan.accelerator.title} needs", ridge, "FLOP/B", "peak/bandwidth"),
        Figure("decode.intensity", "decoding, one sequence", single.intensity, "FLOP/B"),
        Figure("decode.bound", "decoding is limited by", _bound(single, ridge)),
        Figure("decode.time", "a token, one sequence", single.seconds, "s"),
        Figure("prefill.intensity", "prefill of the context", prompt.intensity, "FLOP/B"),
        Figure("prefill.bound", "prefill is limited by", _bound(prompt, ridge)),
        Figure("prefill.time", "prefill of the context", prompt.seconds, "s"),
    )
    rows, points = [], []
    for batch in ask.batches:
        one = decode(plan, ask.context, batch)
        held = weights + each * batch
        fits = held <= plan.accelerator.memory_labelled
        rows.append((batch, one.intensity, one.seconds, batch / one.seconds, held, fits))
        points.append((batch / one.seconds, one.seconds, f"{batch}" if fits else f"{batch}, does not fit"))
    columns = (
        ("sequences", "1"),
        ("intensity", "FLOP/B"),
        ("a token of each", "s"),
        ("all together", "tokens/s"),
        ("held", "B"),
        ("fits", "yes"),
    )
    title = "Decoding: time of a token against throughput, by the number of sequences"
    curve = Plot(title, ("tokens a second, all sequences", "tokens/s"), ("time of one token", "s"), tuple(points))
    return Found(figures, Grid("Decoding at the roof of the data sheet", columns, tuple(rows)), curve)


def _bound(run: ForwardPass, ridge: float) -> str:
    return "compute" if run.intensity >= ridge else "memory"


def decode(plan: Plan, context: int, batch: int) -> ForwardPass:
    """One token of each of `batch` sequences, with `context` tokens of each in the cache."""
    model = whole(sized(plan, 1, batch))
    return _run(plan, model, [*_forward(model), *_cached(plan, context)])


def prefill(plan: Plan, tokens: int) -> ForwardPass:
    """All tokens of one prompt at once."""
    model = whole(sized(plan, tokens, 1))
    return _run(plan, model, list(_forward(model)))


def sized(plan: Plan, tokens: int, batch: int) -> Plan:
    """The plan with sequences of another length, so many at once."""
    return replace(plan, run=replace(plan.run, seq_len=tokens, micro_batch=batch))


def _run(plan: Plan, model: Whole, work: list[tuple[sympy.Expr, Operation]]) -> ForwardPass:
    """Each operation at the larger of its compute and its traffic."""
    flops = moved = seconds = 0.0
    peak, bandwidth = plan.accelerator.peak[dtypes.rate(plan.precision.multiplies)], plan.accelerator.bandwidth
    for count, operation in work:
        amounts = operation.useful(), operation.vector(), operation.traffic()
        matmul, other, traffic = (float(model.value(count * amount)) for amount in amounts)
        flops += matmul + other
        moved += traffic
        seconds += max(matmul / peak + other / plan.accelerator.vector, traffic / bandwidth)
    return ForwardPass(flops, moved, seconds)


def _forward(model: Whole) -> Iterator[tuple[sympy.Expr, Operation]]:
    """The operations of every unit but the loss, with how often each runs."""
    for unit in model.units:
        if unit.name != LOSS:
            yield from ((unit.count, operation) for operation in unit.forward)


# --- the cache ----------------------------------------------------------------------------------


def _keys(plan: Plan, group: Group, tokens: int) -> Tensor:
    """The cached keys of one layer; its values are as many."""
    suffix = group.name if len(plan.model.groups) > 1 else ""
    batch, kv_heads, head_dim = (dim(name, suffix) for name in ("batch", "kv_heads", "head_dim"))
    return Tensor("keys", (batch, Dim("cached", sympy.Integer(tokens)), kv_heads, head_dim), plan.precision.activations)


def cache_bytes(plan: Plan, tokens: int, batch: int) -> Amount:
    """Keys and values of all layers."""
    value = whole(sized(plan, tokens, batch)).value
    return sum(2 * group.repeat * value(_keys(plan, group, tokens).bytes()) for group in plan.model.groups)


def _cached(plan: Plan, tokens: int) -> Iterator[tuple[sympy.Expr, Operation]]:
    """Scores and context of one new query over the cache, which is read once for all query heads that share it."""
    for group in plan.model.groups:
        keys = _keys(plan, group, tokens)
        batch, cached, kv_heads, head_dim = keys.dims
        share = Dim("share", sympy.Integer(group.attention.heads // group.attention.kv_heads))
        query = Tensor("query", (batch, kv_heads, share, head_dim), keys.dtype)
        scores = Tensor("scores", (batch, kv_heads, share, cached), keys.dtype)
        count = sympy.Integer(group.repeat)
        yield count, Contraction("decode/scores", NO_KERNEL, (query, keys), (scores,), einsum=SCORES)
        yield count, Contraction("decode/context", NO_KERNEL, (scores, keys), (query,), einsum=CONTEXT)


def _weights(plan: Plan) -> int:
    """Bytes of the weights, a shared one once."""
    model = whole(plan)
    return int(
        sum(model.value(count * weight.bytes()) for _, count, weights in wrapped(model.units) for weight in weights)
    )
