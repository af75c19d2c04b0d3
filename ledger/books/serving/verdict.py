"""The verdict on a plan that serves: does it fit, does it keep up, what limits a token, what stands behind it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from ledger.books.results import EXCESS, UNANSWERED, UNANSWERED_AT_MOST, UNDER_LOAD, Check, KernelTime, Number, Verdict
from ledger.books.serving import lengths
from ledger.books.serving.memory import Held
from ledger.books.serving.passes import ServedRole, decode_shape, host_seconds, mean_prompt_shape, stage_seconds, sums
from ledger.books.serving.steady import Service, steady_shape
from ledger.books.verdict import MOSTLY, expectations, measured_share, reserved_check
from ledger.model import dtypes
from ledger.numbers import with_unit
from ledger.spec.plan import Plan

HOST = "host"  # what limits a device that waits for its host


@dataclass(frozen=True)
class RequestTime:
    """Seconds of one device for one request, by what limits them, and the share that the request's prompt takes."""

    by_limit: Mapping[str, float]
    prompts: float

    @property
    def limit(self) -> str:
        """What limits most of the seconds."""
        return max(self.by_limit, key=lambda name: self.by_limit[name])


def request_time(service: Service, served: ServedRole) -> RequestTime:
    """A request's chunks of a prompt, each with the tokens of others beside it, and its share of steps without one.

    An engine at work has `engines / requests_per_second` seconds for each; what its steps with chunks leave of them are
    steps that only decode.
    """
    state, prompt = service.stated, mean_prompt_shape(service.serve)
    chunks = float(lengths.mean_chunks(service.serve).count)
    decoding = decode_shape(service.serve, Fraction(state.decoding_peers))
    chunk_rows = served.mixed_rows(prompt, decoding) if state.decoding_peers else served.rows(served.prefill, prompt)
    meanwhile = (
        _seconds_by_limit(served, served.rows(served.decode, decoding), state.decoding_peers)
        if state.decoding_peers
        else {}
    )
    steps = (
        max(0.0, state.engines / state.requests_per_second - chunks * state.chunk_step_seconds)
        / state.decode_step_seconds
    )
    with_chunk = _seconds_by_limit(served, chunk_rows, state.decoding_peers + 1)
    without = _seconds_by_limit(served, served.rows(served.decode, steady_shape(service)), state.decoding_peers + 1)
    limits = dict.fromkeys((*with_chunk, *without))
    by_limit = {name: chunks * with_chunk.get(name, 0.0) + steps * without.get(name, 0.0) for name in limits}
    prompt_seconds = chunks * max(0.0, sum(with_chunk.values()) - sum(meanwhile.values()))
    return RequestTime(by_limit, prompt_seconds / sum(by_limit.values()))


def _seconds_by_limit(served: ServedRole, rows: Sequence[KernelTime], sequences: float) -> dict[str, float]:
    """Seconds of a step by what limits its kernels and transfers, and those in which its device waits for the host."""
    seconds = dict(sums(rows, lambda row: float(row.seconds)))
    waits = stage_seconds(served.plan, rows) - sum(seconds.values()) + host_seconds(served.plan, sequences)
    return {**seconds, HOST: max(0.0, waits)}


WORDS = {
    "memory": "memory bandwidth",
    "compute": "compute",
    "network": "transfers between devices",
    HOST: "the host that prepares each step",
}
HALF = 0.5  # of the seconds: where prompts take more, the verdict says so
NEARLY = 1.05  # of the first token of a prompt alone, up to which that of the load is not told beside it
PAID = "cost.per_million_tokens"


def verdict(
    plan: Plan, totals: Mapping[str, Number], devices: Sequence[Held], rows: Sequence[KernelTime], spent: RequestTime
) -> Verdict:
    """The plan judged against its device, its requests, its own expectations, and the evidence behind its prices.

    `spent`: the seconds of a request on the device whose kernels these `rows` are.
    """
    fits = totals["memory.reserved"] <= totals["memory.capacity"]
    decoding = [row for row in rows if row.when == "decode"]
    sheets = by_data_sheet(decoding)
    checks = (
        *_memory_checks(plan, totals, devices),
        *_arrival_checks(plan, totals),
        *_work_checks(plan, totals, decoding, sheets),
        *expectations(plan, totals),
    )
    judged = Verdict(fits, bottleneck(spent), measured_share(sheets), "", checks, sheets)
    return replace(judged, headline=_headline(totals, judged))


def by_data_sheet(rows: Sequence[KernelTime]) -> float:
    """The share of a token's seconds that no measured curve prices."""
    seconds = sum(float(row.seconds) * row.times for row in rows)
    return sum(float(row.seconds) * row.times for row in rows if not row.calibrated) / seconds if seconds else 1.0


def bottleneck(spent: RequestTime) -> str:
    """What limits most of the seconds, and how many of them prompts take where that is over half."""
    prompts = f"; prompts take {with_unit(spent.prompts, '%')} of the time" if spent.prompts > HALF else ""
    return f"{WORDS[spent.limit]}{prompts}"


def _headline(totals: Mapping[str, Number], judged: Verdict) -> str:
    sizes = f"{with_unit(totals['memory.reserved'], 'B')} of {with_unit(totals['memory.capacity'], 'B')}"
    parts = [f"{'fits' if judged.fits else 'does not fit'}: {sizes}"]
    if not keeps_up(totals):
        parts.append("does not keep up with its requests")
    elif beyond_engine(totals):
        parts.append(f"takes {with_unit(totals['serve.concurrency.max'], '1')} of its sequences at once")
    elif judged.fits:
        gap = with_unit(totals["serve.time_per_token"], "s")
        parts.append(f"first token after {first_token(totals)}, then one every {gap}")
        parts.append(f"{with_unit(totals['serve.tokens_per_second'], 'token/s')}{cost(totals)}")
    parts.append(f"limited by {judged.bottleneck}")
    return "; ".join(parts) + ("" if judged.evidence == "calibrated" else f"; {judged.evidence}")


def first_token(totals: Mapping[str, Number]) -> str:
    """Seconds to the first token under the plan's load, and those of a prompt alone where these are others."""
    unloaded = totals["serve.ttft"]
    if UNDER_LOAD not in totals:  # at the edge of what is answered
        return f"an ever longer wait under this load ({with_unit(unloaded, 's')} alone)"
    if totals[UNDER_LOAD] <= NEARLY * unloaded:
        return with_unit(unloaded, "s")
    return f"{with_unit(totals[UNDER_LOAD], 's')} under this load ({with_unit(unloaded, 's')} alone)"


def cost(totals: Mapping[str, Number]) -> str:
    """What a million output tokens cost, after a comma; empty where no price is known."""
    return f", {with_unit(totals[PAID], 'USD')} a million output tokens" if PAID in totals else ""


def beyond_engine(totals: Mapping[str, Number]) -> bool:
    """Whether more sequences are in flight than the engine takes at once, though memory is there for them."""
    return totals[EXCESS] > 0 and totals["memory.reserved"] <= totals["memory.capacity"]


def keeps_up(totals: Mapping[str, Number]) -> bool:
    """Whether requests that arrive are answered as fast as they come, by the sequences that an engine takes at once."""
    return UNANSWERED not in totals or (totals[UNANSWERED] <= UNANSWERED_AT_MOST and not beyond_engine(totals))


def _memory_checks(plan: Plan, totals: Mapping[str, Number], devices: Sequence[Held]) -> Iterator[Check]:
    yield reserved_check(plan, totals, max(devices, key=lambda device: device.reserved).peak.title)
    weights, capacity = float(totals["memory.weights"]), float(totals["memory.capacity"])
    status = "pass" if weights <= capacity else "fail"
    yield Check("state", "Weights per device", status, with_unit(weights, "B"))
    most, asked = int(totals["serve.concurrency.max"]), float(totals["serve.concurrency"])
    status = "pass" if asked <= most else "fail"
    detail = f"{with_unit(most, '1')} at once at most, with whole outputs"
    yield Check("concurrency", "Sequences in flight", status, with_unit(asked, "1"), detail)


def _arrival_checks(plan: Plan, totals: Mapping[str, Number]) -> Iterator[Check]:
    """Whether requests are answered as fast as they arrive, where a plan says how fast that is."""
    if plan.serve is not None and plan.serve.arrival_rate is not None:
        status = "pass" if keeps_up(totals) else "fail"
        figure = with_unit(plan.serve.arrival_rate, "requests/s")
        detail = f"answered {with_unit(totals['serve.requests_per_second'], 'requests/s')}"
        yield Check("arrivals", "Requests that arrive", status, figure, detail)


def _work_checks(
    plan: Plan, totals: Mapping[str, Number], rows: Sequence[KernelTime], sheets: float
) -> Iterator[Check]:
    yield Check("parameters", "Parameters", "pass", with_unit(totals["parameters"], "1"))
    moved = sum(row.bytes * row.times for row in rows)
    intensity = sum(row.flops * row.times for row in rows) / moved if moved else 0.0
    ridge = plan.accelerator.peak[dtypes.rate(plan.precision.compute)] / plan.accelerator.bandwidth
    detail = f"the device needs {with_unit(ridge, 'FLOP/B')} to compute at its peak"
    yield Check("intensity", "Arithmetic intensity of decoding", "pass", with_unit(intensity, "FLOP/B"), detail)
    evidence = f"measurements and published figures price {with_unit(1 - sheets, '%')} of the seconds of a token"
    status = "pass" if sheets <= MOSTLY else "warn"
    yield Check("evidence", "Evidence behind the estimate", status, measured_share(sheets), evidence)
