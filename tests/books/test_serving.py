"""Plans that serve: cache, weights read, steps and sequences in flight, each against sums done by hand."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from random import Random
from typing import Any

import pytest

import ledger
from ledger.books.serving import lengths
from ledger.books.serving.floor import weights_read
from ledger.books.serving.passes import decode_shape, served_roles
from ledger.books.serving.steady import Service
from ledger.books.serving.totals import bytes_per_sequence, one_device, reads
from ledger.books.serving.verdict import request_time
from ledger.books.totals import kv_cache
from ledger.books.what_if.solve import solve
from ledger.course.subjects import as_served, one_prompt
from ledger.numbers import with_unit
from ledger.spec.load import load_plan
from ledger.spec.plan import Attention, Lengths, Serve

PLAN = """
spec: ledger/1
plan: a service
accelerator: h200-sxm
cluster: {{devices: {devices}, devices_per_node: 8}}
model: {model}
precision: {precision}
parallelism: {{data: {data}, tensor: {tensor}, pipeline: {pipeline}, expert: {expert}}}
serve: {{prompt: {prompt}, output: {output}, concurrency: {concurrency}}}
"""
STATED: dict[str, Any] = {
    "model": "llama-3-8b",
    "precision": "bf16-true",
    "data": 1,
    "tensor": 1,
    "pipeline": 1,
    "expert": 1,
    "prompt": "8000 tokens",
    "output": "192 tokens",
    "concurrency": 1,
}


def text(**stated: Any) -> str:
    """A plan that serves, of these words."""
    given = STATED | stated
    return PLAN.format(**given, devices=given["data"] * given["tensor"] * given["pipeline"])


def totals(**stated: Any) -> dict[str, Any]:
    """Its totals."""
    return dict(ledger.compile(text(**stated)).totals)


@pytest.mark.parametrize(("model", "gibibytes"), [("gpt-oss-20b", 12.8), ("gpt-oss-120b", 60.8)])
def test_experts_in_a_format_of_their_own_are_as_large_as_their_checkpoint(model: str, gibibytes: float) -> None:
    """gpt-oss model card (arXiv 2508.10925, table 1): checkpoints with experts in MXFP4 and all else in bf16."""
    formats = "{base: bf16-true, weights: {base: bf16, experts: mxfp4}}"
    found = totals(model=model, precision=formats)["memory.weights"]
    assert round(found / 2**30, 1) == gibibytes
    whole = totals(model=model)["memory.weights"]
    assert (
        found
        < totals(model=model, precision="{base: bf16-true, weights: {base: bf16, experts: mxfp8}}")["memory.weights"]
        < whole
    )


def service(**stated: Any) -> Service:
    """Its books."""
    plan = load_plan(text(**stated))
    return Service(plan, served_roles(plan))


# Layers x elements a token x tokens that wait x 2 B, at 8192 tokens.
CACHES = {
    "llama-3-8b": 32 * 2 * 8 * 128 * 8192 * 2,
    "mistral-7b": 32 * 2 * 8 * 128 * 4096 * 2,  # a window of 4096
    "gemma-3-27b": (52 * 1024 + 10 * 8192) * 2 * 16 * 128 * 2,  # five of six layers have a window of 1024
    "deepseek-v3": 61 * (512 + 64) * 8192 * 2,  # a latent and the rotated key (DeepSeek-V3, section 4.2)
    "gpt-oss-20b": (12 * 128 + 12 * 8192) * 2 * 8 * 64 * 2,
    "llama-4-scout": 48 * 2 * 8 * 128 * 8192 * 2,
}


@pytest.mark.parametrize("model", CACHES)
def test_the_cache_is_what_attention_keeps(model: str) -> None:
    """Bytes of a sequence: latents of latent attention, no more than windows hold, key and value heads of the rest."""
    assert totals(model=model)["serve.cache.bytes_per_sequence"] == CACHES[model]


def test_heads_are_cut_over_tensor_and_latents_are_not() -> None:
    """A device of a tensor-parallel group keeps its heads' part of the cache, and all of a cache of latents."""
    whole = {model: totals(model=model, tensor=8) for model in ("llama-3-8b", "deepseek-v3")}
    shares = {
        name: found["serve.cache.bytes_per_sequence"] / found["serve.cache.per_device"] for name, found in whole.items()
    }
    assert shares == {"llama-3-8b": 8, "deepseek-v3": 1}


def test_a_device_has_a_head_of_the_cache_at_least() -> None:
    """Four key-value heads over eight devices: each has a copy of one, so that a device keeps an eighth of twice four.

    The matrices of keys and values are there twice in all, everything else is an eighth; what the model computes and
    keeps, copies left out, is what it was.
    """
    whole, few, many = (totals(model="qwen3-30b-a3b", tensor=degree) for degree in (1, 4, 8))
    kept = whole["serve.cache.bytes_per_sequence"]
    assert [found["serve.cache.per_device"] * 4 for found in (few, many)] == [kept, kept]
    assert many["serve.cache.bytes_per_sequence"] == kept
    assert (many["flops.prefill"], many["flops.decode"]) == (whole["flops.prefill"], whole["flops.decode"])
    copies = 48 * 2 * 2048 * 4 * 128  # matrices of keys and values of all layers, once more over eight devices
    layer = 2048 * 128 + 2 * 2048 + 2 * 128  # the router and norms, whole on each device
    whole_on_each = 48 * layer + 2048
    cut = (whole["parameters"] - whole_on_each + copies) / 8
    assert many["parameters.per_device"] == whole_on_each + cut


def test_a_format_of_the_cache_sets_its_bytes() -> None:
    """A cache in fp8 takes half of one in bf16, whatever weights are kept in."""
    narrow = totals(precision="{base: bf16-true, cache: fp8_e4m3}")
    assert narrow["serve.cache.bytes_per_sequence"] * 2 == CACHES["llama-3-8b"]
    assert narrow["memory.weights"] == totals()["memory.weights"]


# Llama 3 8B: 32 layers of q, k, v, o and three matrices, two norms, the last norm and the head; of the embedding a row.
LAYER = 4096 * (4096 + 1024 + 1024 + 4096) + 3 * 4096 * 14336
DENSE = 2 * (32 * (LAYER + 2 * 4096) + 4096 + 128256 * 4096 + 4096)


def test_decoding_reads_every_weight_of_a_dense_model() -> None:
    """All matrices and norms once, and one row of the embedding for one sequence."""
    assert totals()["serve.weights_read"] == DENSE


def test_tensor_parallelism_divides_the_weights_that_are_read() -> None:
    """Matrices are cut over the devices; norms, and the row that is looked up, are whole on each."""
    whole = 2 * (32 * 2 * 4096 + 4096 + 4096)
    assert totals(tensor=8)["serve.weights_read"] == whole + (DENSE - whole) / 8


def test_experts_are_read_as_far_as_tokens_reach_them() -> None:
    """64 sequences of Qwen3 30B-A3B reach 128 (1 - (1 - 8/128)^64) = 125.9 of 128 experts of each of 48 layers."""
    hit = 128 * (1 - (1 - 8 / 128) ** 64)
    assert round(hit, 1) == 125.9
    experts = 48 * hit * 3 * 2048 * 768 / 2
    layer = 2048 * (32 + 4 + 4 + 32) * 128 / 2 + 2048 * 128 + 2 * 2048 + 2 * 128
    ends = 151936 * 2048 / 2 + 2048 + 64 * 2048
    one = {"model": "qwen3-30b-a3b", "tensor": 2, "prompt": "1 tokens", "output": "2 tokens"}
    few = service(**one).at(64)
    assert few.mixed > 0  # the others' prompts are in the way, so that fewer decode at once; all of them here:
    alone = totals(**one, concurrency=1)
    assert alone["serve.weights_read"] == pytest.approx(
        2 * (48 * (8 * 3 * 2048 * 768 / 2 + layer) + ends - 63 * 2048), rel=1e-9
    )
    read = _read_by(service(**one), 64)
    assert read == pytest.approx(2 * (experts + 48 * layer + ends), rel=1e-9)


def _read_by(one: Service, sequences: int) -> float:
    weights, _ = reads(one.roles[0], decode_shape(one.serve, Fraction(sequences)))
    return float(weights)


def test_experts_over_devices_are_reached_by_the_tokens_of_all() -> None:
    """With experts split over eight replicas, each device reads an eighth of those that the tokens of all reach."""
    one = {"model": "qwen3-30b-a3b", "prompt": "1 tokens", "output": "2 tokens"}
    apart = _read_by(service(**one, data=8, expert=8, concurrency=8), 8)
    together = _read_by(service(**one), 64)
    others = _read_by(service(**one), 8)  # weights that are no experts', and rows of eight sequences
    hit = {count: 48 * 128 * (1 - (1 - 8 / 128) ** count) * 3 * 2048 * 768 * 2 for count in (8, 64)}
    assert apart == pytest.approx(others - hit[8] + hit[64] / 8, rel=1e-9)
    assert together > apart


def test_quantised_weights_are_read_as_they_are_stored() -> None:
    """int4: half a byte, and an fp16 scale and a zero point for each 128; norms, embedding and head stay in bf16."""
    found = totals(precision="{base: bf16-true, weights: {base: int4}}")
    each = Fraction(1, 2) + Fraction(2, 128) + Fraction(1, 2) / 128
    assert found["serve.weights_read"] == 32 * LAYER * each + 2 * (32 * 2 * 4096 + 4096 + 128256 * 4096 + 4096)


@pytest.mark.parametrize("model", ["llama-3-8b", "mistral-7b", "qwen3-30b-a3b", "deepseek-v3", "gpt-oss-20b"])
def test_plans_that_train_say_what_their_model_reads_and_keeps(model: str) -> None:
    """`kv_cache` and the weights of `decode.time_per_token` are those of the passes of a service, for a micro-batch."""
    run = "run={seq_len: 4096, micro_batch: 2, global_batch: 128}"
    stated = [f"model={model}", "kernels={attention: eager}", run, "parallelism.zero=0", "precision=bf16-true"]
    plan = load_plan("8b", stated)
    one = one_device(as_served(plan, one_prompt(plan.run.seq_len)))
    weights, _ = reads(one, decode_shape(one.plan.serve or Serve(*2 * (Lengths.alike(1),)), Fraction(2)))
    assert float(weights_read(plan)) == pytest.approx(float(weights), rel=1e-12)
    kept = bytes_per_sequence(as_served(plan, one_prompt(plan.run.seq_len - 1)))
    assert kv_cache(plan) == 2 * kept


def test_64_sequences_of_a_mixture_take_the_bytes_that_they_reach() -> None:
    """Qwen3 30B-A3B at tensor 2 on H200: 11.3 ms a token at the bandwidth that kernels reach, 6000 tokens waiting."""
    text = """
spec: ledger/1
plan: Qwen3 30B-A3B served by two H200
accelerator: h200-sxm
cluster: {devices: 2, devices_per_node: 8}
model: qwen3-30b-a3b
precision: bf16-true
optimizer: sgd
parallelism: {data: 1, tensor: 2}
run: {seq_len: 6000, micro_batch: 64, global_batch: 64}
"""
    hit = 128 * (1 - (1 - 8 / 128) ** 64)
    layer = hit * 3 * 2048 * 768 + 2048 * 128 * (32 + 4 + 4 + 32) + 2048 * 128 + 2 * 2048 + 2 * 128
    weights = 2 * (48 * layer + 151936 * 2048 + 2048 + 64 * 2048)
    cache = 64 * 48 * 2 * 4 * 128 * 6000 * 2
    compiled = ledger.compile(text)
    reached = next(c for c in compiled.plan.accelerator.calibration if str(c.what) == "elementwise").parameters["b"]
    expected = (weights + cache) / (2 * reached * 4.8e12)
    assert compiled.totals["decode.time_per_token"] == pytest.approx(expected, rel=1e-6)
    assert expected == pytest.approx(11.3e-3, rel=0.01)


# --- lengths --------------------------------------------------------------------------------------

KINDS = {"full": {}, "window": {"window": 5}, "chunk": {"chunk": 7}}


def _attention(**stated: Any) -> Attention:
    return Attention(heads=1, kv_heads=1, head_dim=1, **stated)


def _sees(kind: str, position: int) -> int:
    """Keys that the query at a position (from 1) attends to."""
    return {"full": position, "window": min(5, position), "chunk": (position - 1) % 7 + 1}[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_means_over_tokens_are_exact(kind: str) -> None:
    """Closed forms of what queries attend to, against a count one by one, over two lengths and a shared prefix."""
    prompts = ((11, Fraction(1, 4)), (23, Fraction(3, 4)))
    serve = Serve(Lengths(prompts), Lengths(((9, Fraction(1, 2)), (4, Fraction(1, 2)))), 1, None, prefix=3, chunk=8)
    attention = _attention(**KINDS[kind])
    seen = sum(share * sum(_sees(kind, at) for at in range(4, prompt + 1)) for prompt, share in prompts)
    new = sum(share * (prompt - 3) for prompt, share in prompts)
    assert lengths.attended_in_prompts(serve, attention) == seen / new
    decoded = sum(
        share * sum(_sees(kind, prompt + step) for step in range(1, output)) / 2
        for prompt, share in prompts
        for output in (9, 4)
    )
    assert lengths.attended_in_decoding(serve, attention) == decoded / (Fraction(13, 2) - 1)


def test_chunks_read_what_came_before_them() -> None:
    """20 new tokens in chunks of 8 are three passes, which read all that waits, or what a window still sees."""
    serve = Serve(Lengths.alike(23), Lengths.alike(2), 1, None, prefix=3, chunk=8)
    size = Fraction(20, 3)
    whole = (3 + size) + (3 + 2 * size) + (3 + 3 * size)
    assert lengths.read_in_prompt(serve, _attention(), 23) == whole / 3
    assert lengths.read_in_prompt(serve, _attention(window=5), 23) == (3 + 4 + 4) / Fraction(3) + size


def test_a_distribution_of_one_length_is_that_length() -> None:
    """Shares of equal lengths change nothing."""
    half = "[{length: 8000 tokens, share: 50 %}, {length: 8000 tokens, share: 50 %}]"
    assert totals(prompt=half) == totals()


# --- sequences in flight --------------------------------------------------------------------------


def test_one_sequence_waits_for_nobody() -> None:
    """Alone, a token takes a pass that decodes one sequence, and the rate is that of its whole life."""
    one = service()
    state = one.at(1)
    assert state.time_per_token == pytest.approx(one.decoding(1).through)
    assert state.residence == pytest.approx(one.ttft + 191 * state.time_per_token, rel=0.01)
    assert state.tokens_per_second == pytest.approx(192 / state.residence)


@pytest.mark.parametrize("load", [1, 7, 64, 4000])
def test_an_answer_is_its_first_token_waiting_and_the_others(load: int) -> None:
    """What a sequence takes is a first token of an empty service, what the load adds to it, and 191 further tokens."""
    found = totals(concurrency=load)
    parts = found["serve.ttft"] + found["serve.waiting"] + 191 * found["serve.time_per_token"]
    assert parts == pytest.approx(found["serve.residence"], rel=1e-9)
    assert found["serve.waiting"] < 0.5 * found["serve.ttft"] if load < 8 else found["serve.waiting"] > 0


@pytest.mark.parametrize(
    ("prompt", "output", "load"), [(8000, 192, 1), (8000, 192, 64), (100, 400, 64), (8000, 8, 2000)]
)
def test_seconds_of_requests_are_those_of_the_device(prompt: int, output: int, load: int) -> None:
    """What a request's prompt and tokens take of a busy device is the time between two answers, whatever the load."""
    one = service(prompt=f"{prompt} tokens", output=f"{output} tokens", concurrency=load)
    spent = request_time(one, one.roles[0])
    assert sum(spent.by_limit.values()) == pytest.approx(1 / one.stated.requests_per_second, rel=1e-6)


def test_what_prompts_take_is_said_where_it_is_most() -> None:
    """Long prompts with two tokens of output: nearly all of the time, which compute limits; short ones: not a word."""
    long, short = (
        ledger.compile(text(prompt=f"{prompt} tokens", output=f"{output} tokens"))
        for prompt, output in ((8000, 2), (9, 900))
    )
    share = long.totals["serve.ttft"] / long.totals["serve.residence"]
    assert share > 0.9
    assert long.verdict.bottleneck == f"compute; prompts take {with_unit(share, '%')} of the time"
    assert short.verdict.bottleneck == "memory bandwidth"


def test_an_engine_that_waits_for_its_host_says_so() -> None:
    """A small model in an engine whose host takes 10 ms a step is limited by the host."""
    plan = text().replace("serve:", "stack: vllm-2024\nserve:")
    found = ledger.compile(plan, overrides=("stack.engine.step=10 ms",))
    assert found.verdict.bottleneck == "the host that prepares each step"


def test_more_in_flight_is_never_less_in_all() -> None:
    """Tokens a second of all sequences grow with their number until prompts fill every step, then stay."""
    one = service(prompt="2000 tokens", output="100 tokens")
    rates = [one.at(2.0**power).tokens_per_second for power in range(14)]
    assert all(after >= before * (1 - 1e-9) for before, after in pairwise(rates))
    assert rates[-1] == pytest.approx(rates[-2])


def test_replicas_multiply_what_one_gives() -> None:
    """Twice the devices as replicas, with twice the sequences, give twice the tokens at the same pace."""
    one, two = totals(concurrency=8), totals(data=2, concurrency=16)
    assert two["serve.tokens_per_second"] == pytest.approx(2 * one["serve.tokens_per_second"])
    assert two["serve.time_per_token"] == pytest.approx(one["serve.time_per_token"])


def test_requests_that_arrive_keep_sequences_in_flight() -> None:
    """Little's law: as many in flight as arrive in a second, times the seconds that each stays."""
    given = text().replace("concurrency: 1", "arrival_rate: 3 requests/s")
    found = ledger.compile(given).totals
    assert found["serve.concurrency"] == pytest.approx(3 * found["serve.residence"], rel=1e-4)
    assert found["serve.requests_per_second"] == pytest.approx(3, rel=1e-4)


def test_more_requests_than_are_answered_are_said() -> None:
    """A service that does not keep up is no service that does, however many wait."""
    given = text().replace("concurrency: 1", "arrival_rate: 3000 requests/s")
    compiled = ledger.compile(given)
    assert "does not keep up" in compiled.verdict.headline
    assert [check.status for check in compiled.verdict.checks if check.name == "arrivals"] == ["fail"]
    assert compiled.totals["serve.requests_per_second"] < 3000


def test_the_most_sequences_fill_the_memory() -> None:
    """The largest concurrency fits, and one more on each replica does not."""
    most = totals()["serve.concurrency.max"]
    full, beyond = (totals(concurrency=count) for count in (most, most + 1))
    assert full["memory.reserved"] <= full["memory.capacity"] < beyond["memory.reserved"]


@pytest.mark.parametrize(("stack", "share", "most"), [("vllm-2025", 0.9, 256), ("sglang-2025", 0.88, 0)])
def test_an_engine_takes_what_it_is_set_to(stack: str, share: float, most: int) -> None:
    """Its share of the device's memory, and no more sequences than it decodes in a step; what is beyond is said."""
    given = text(model="llama-2-7b", prompt="100 tokens", output="100 tokens") + f"stack: {stack}\n"
    found = ledger.compile(given).totals
    each = 2 * 32 * 32 * 128 * 2 * 200
    held = share * found["memory.capacity"] - (found["memory.reserved"] - each)
    assert found["serve.concurrency.max"] == (most or pytest.approx(held / each, rel=0.05))
    beyond = ledger.compile(given.replace("concurrency: 1", f"concurrency: {found['serve.concurrency.max'] + 4}"))
    assert beyond.totals["serve.excess"] == 4
    assert f"takes {with_unit(found['serve.concurrency.max'], '1')} of its sequences at once" in beyond.verdict.headline
    assert [check.status for check in beyond.verdict.checks if check.name == "concurrency"] == ["fail"]


def test_no_more_sequences_are_found_than_an_engine_takes() -> None:
    """`fits` asks that of solve, and so does every search of layouts."""
    plan = load_plan(text(prompt="100 tokens", output="100 tokens") + "stack: vllm-2025\n")
    assert solve(plan, "serve.concurrency").value == 256


def simulated(rate: float, parts: list[tuple[float, float]], seed: int = 3, count: int = 400_000) -> float:
    """The mean wait of requests at random times for one server (Lindley's recursion); parts: (seconds, share)."""
    random = Random(seed)  # noqa: S311 - not for secrets
    seconds, shares = zip(*parts, strict=True)
    wait = whole = 0.0
    for taken in random.choices(seconds, shares, k=count):
        whole += wait
        wait = max(0.0, wait + taken - random.expovariate(rate))
    return whole / count


@pytest.mark.parametrize("rate", [0.5, 1.5])
@pytest.mark.parametrize(
    ("prompt", "shares"),
    [("8000 tokens", {1: 1.0}), ("[{length: 2000 tokens, share: 0.8}, {length: 16000 tokens, share: 0.2}]", {})],
)
def test_requests_at_random_wait_as_in_a_simulation(rate: float, prompt: str, shares: dict[int, float]) -> None:
    """An engine takes one prompt after the other, in as many steps as it has chunks of 2048 tokens."""
    given = text(prompt=prompt, model="qwen3-8b").replace("concurrency: 1", f"arrival_rate: {rate} requests/s")
    service = ledger.compile(given).service
    assert service is not None
    taken = service.stated.chunk_step_seconds
    parts = [(4 * taken, 1.0)] if shares else [(taken, 0.8), (8 * taken, 0.2)]
    assert service.queue == pytest.approx(simulated(rate, parts), rel=0.1)
    found = ledger.compile(given).totals
    loaded = found["serve.ttft"] + found["serve.waiting"] + found["serve.queue"]
    assert found["serve.ttft.under_load"] == pytest.approx(loaded)


def test_requests_that_are_not_all_answered_wait_ever_longer() -> None:
    """A queue that grows has no mean, and a first token under such a load has none."""
    found = ledger.compile(text().replace("concurrency: 1", "arrival_rate: 3000 requests/s")).totals
    assert {"serve.queue", "serve.ttft.under_load"} & set(found) == set()


def test_dollars_follow_from_devices_and_tokens() -> None:
    """A million output tokens cost the hours of all devices that they take."""
    found = totals(concurrency=16)
    price = load_plan(text()).assumptions.price
    assert price is not None
    hours = 1e6 / found["serve.tokens_per_second"] / 3600
    assert found["cost.per_million_tokens"] == pytest.approx(hours * price.per_device_hour)


def test_stages_hold_their_layers() -> None:
    """Two stages hold half of the layers' weights and cache each, and a token passes both."""
    one, two = totals(), totals(pipeline=2)
    assert two["serve.cache.per_device"] * 2 == one["serve.cache.per_device"]
    assert one["serve.time_per_token"] < two["serve.time_per_token"] < 1.1 * one["serve.time_per_token"]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ("serve.concurrency=null", "neither `concurrency` nor `arrival_rate`"),
        ("optimizer=adamw", "`optimizer` is of training"),
        ("parallelism.context=2", "`parallelism.context` is not modelled"),
        ("serve.prefix=9000 tokens", "serve.prefix = 9000"),
        ("kernels={attention: eager}", "eager attention writes scores"),
        ("precision={base: bf16-true, compute: nvfp4}", "flash attention cannot run in nvfp4"),
        ("serve.speculative=200", "serve.speculative = 200 tokens a step, and an answer has 191 after its first"),
        ("run={seq_len: 8}", "it trains or it serves"),
        ("model={parameters: 7e9}", "cannot be served"),
    ],
)
def test_what_serving_lacks_is_a_problem_with_a_place(changed: str, said: str) -> None:
    """What a plan that serves cannot state is refused, in words."""
    with pytest.raises(ledger.SpecError) as caught:
        load_plan(text(), [changed])
    assert any(said in problem.message for problem in caught.value.problems)


@pytest.mark.parametrize("attention", [Attention(heads=1), Attention(heads=1, window=40), Attention(heads=1, chunk=64)])
@pytest.mark.parametrize(("prefix", "prompt", "chunk"), [(0, 1000, 128), (30, 1000, 7), (39, 100, 200), (500, 777, 10)])
def test_what_chunks_of_a_prompt_read_is_the_sum_over_them(
    attention: Attention, prefix: int, prompt: int, chunk: int
) -> None:
    """In as many turns as Euclid's algorithm takes, so that a prompt of any length is answered at once."""
    serve = Serve(prompt=Lengths.alike(prompt), output=Lengths.alike(2), concurrency=1, prefix=prefix, chunk=chunk)
    passes = lengths.chunks(serve, prompt)
    starts = [prefix + index * passes.size for index in range(int(passes.count))]
    read = sum(_read_after(start, attention) + passes.size for start in starts)
    assert lengths.read_in_prompt(serve, attention, prompt) == read / passes.count


def _read_after(before: Fraction | int, attention: Attention) -> Fraction | int:
    """Of so many tokens, those whose keys a pass that follows them reads."""
    if attention.chunk:
        return before % attention.chunk
    return min(before, attention.window - 1) if attention.window else before


def test_what_a_long_prompt_reads_is_answered_at_once() -> None:
    """2**50 tokens in chunks of three: the loop over them would not end."""
    serve = Serve(prompt=Lengths.alike(2**50), output=Lengths.alike(2), concurrency=1, chunk=3)
    mean = lengths.read_in_prompt(serve, Attention(heads=1), 2**50)
    assert mean == pytest.approx(2**49, rel=1e-9)


def test_an_answer_that_does_not_fit_says_so() -> None:
    """Where memory was no condition; and that a model was made for fewer tokens."""
    notes = ledger.solve("serve-70b", "serve.prompt", ["serve.ttft < 60 s"]).notes
    assert any(note.startswith("it does not fit: ") for note in notes)
    assert "the model was made for 8192 tokens" in notes
