"""Prefill and decoding of a plan at the roof of its data sheet: the passes of a service, as the books price them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from ledger.books.results import KernelTime
from ledger.books.serving.lengths import kept_tokens
from ledger.books.serving.memory import held, held_bytes
from ledger.books.serving.passes import ServedRole, Shape, prompt_shape, served_roles
from ledger.books.serving.plans import as_served, one_prompt
from ledger.books.serving.totals import bytes_per_sequence
from ledger.course.answers import Figure, Found, Grid, Plot
from ledger.course.asks import InferenceAsk
from ledger.model import dtypes
from ledger.spec.plan import Plan


@dataclass(frozen=True)
class ForwardPass:
    """Matmul FLOPs and bytes of a pass, and its seconds with each kernel at the roof of the data sheet."""

    flops: float
    bytes: float
    seconds: float

    @property
    def intensity(self) -> float:
        """FLOPs for each byte."""
        return self.flops / self.bytes


def inference(ask: InferenceAsk) -> Found:
    """Decoding at each batch size, prefill of the context, the cache; latency against throughput as a curve."""
    plan = as_served(ask.plan, one_prompt(ask.context))
    single, prompt = decode(plan, 1), prefill(plan)
    whole, ridge = bytes_per_sequence(as_served(ask.plan, one_prompt(ask.context - 1))), _ridge(plan)
    figures = (
        Figure("kv_cache", f"keys and values of {ask.context} tokens", whole, "B"),
        Figure("weights", "weights on a device", _held(plan, 1)[0], "B"),
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
        one, each = decode(plan, batch), sum(_held(plan, batch))
        fits = each <= plan.accelerator.memory_labelled
        rows.append((batch, one.intensity, one.seconds, batch / one.seconds, each, fits))
        points.append((batch / one.seconds, one.seconds, f"{batch}" if fits else f"{batch}, does not fit"))
    columns = (
        ("sequences", "1"),
        ("intensity", "FLOP/B"),
        ("a token of each", "s"),
        ("all together", "tokens/s"),
        ("held by a device", "B"),
        ("fits", "yes"),
    )
    title = "Decoding: time of a token against throughput, by the number of sequences"
    curve = Plot(title, ("tokens a second, all sequences", "tokens/s"), ("time of one token", "s"), tuple(points))
    return Found(figures, Grid("Decoding at the roof of the data sheet", columns, tuple(rows)), curve)


def decode(plan: Plan, batch: int) -> ForwardPass:
    """One token of each of `batch` sequences over all replicas, whose cache has the tokens of a prompt."""
    each = Fraction(batch, plan.parallelism.data * plan.parallelism.pipeline)
    tokens = _prompt(plan)
    shape = Shape(each, Fraction(1), each, *(2 * (lambda attention: Fraction(kept_tokens(attention, tokens)),)))
    return _pass(plan, lambda one: one.rows(one.decode, shape))


def prefill(plan: Plan) -> ForwardPass:
    """All tokens of one prompt at once."""
    shape = prompt_shape(plan.serve, _prompt(plan)) if plan.serve else None
    return _pass(plan, lambda one: one.rows(one.prefill, shape) if shape else ())


def _prompt(plan: Plan) -> int:
    return plan.serve.prompt.longest if plan.serve else 0


def _pass(plan: Plan, rows_of: Callable[[ServedRole], Sequence[KernelTime]]) -> ForwardPass:
    """A pass through all stages; FLOPs and bytes of the devices of one stage after the other."""
    flops = moved = seconds = 0.0
    for one in served_roles(plan):
        stages = len(one.role.stages)
        for row in rows_of(one):
            flops += stages * row.flops * row.times
            moved += stages * row.bytes * row.times
            seconds += stages * float(row.roofline) * row.times
    return ForwardPass(flops, moved, seconds)


def _held(plan: Plan, batch: int) -> tuple[int, int]:
    """Bytes of weights, and of the cache of so many sequences, on the device that has most of both."""
    devices = held(served_roles(plan), batch)
    each = [(held_bytes(one.weights), held_bytes(one.cache(Fraction(0)))) for one in devices]
    return max(each, key=sum)


def _ridge(plan: Plan) -> float:
    return plan.accelerator.peak[dtypes.rate(plan.precision.multiplies)] / plan.accelerator.bandwidth


def _bound(run: ForwardPass, ridge: float) -> str:
    return "compute" if run.intensity >= ridge else "memory"
