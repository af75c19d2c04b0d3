"""The cache of a sequence, and the FLOPs of a prompt and of one further token, as transformers itself has them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

import ledger
from ledger.books.compiled import Compiled
from ledger.books.serving.passes import decode_shape, prompt_shape, served_roles
from ledger.lab.verification import served
from ledger.lab.verification.served import pass_products, run_forward_pass, serving_model
from ledger.lab.verification.suites import Depth, verify
from ledger.spec.load import load_model, load_plan

PLAN = """
spec: ledger/1
plan: a service
accelerator: h200-sxm
cluster: {{devices: 1, devices_per_node: 8}}
model: {model}
precision: bf16-true
kernels: {{scan: eager}}
serve: {{prompt: {prompt} tokens, output: {output} tokens, concurrency: 1, chunk: {prompt} tokens}}
"""
# Full, windowed, chunked, latent and shared heads; experts, sinks, learned positions.
MODELS = (
    *("llama-2-7b", "llama-3-8b", "mistral-7b", "gemma-2-9b", "gemma-3-27b", "qwen2.5-7b", "qwen3-8b", "qwen3-30b-a3b"),
    *("gpt-oss-20b", "gpt2", "pythia-6.9b", "mixtral-8x7b", "deepseek-v3", "llama-4-scout"),
)
# Layers with a state of fp32 and a window of the convolution before it, which no number of tokens makes larger.
RECURRENT = ("mamba2-2.7b", "qwen3-next-80b-a3b")
LENGTHS = (1000, 8192)


@pytest.mark.parametrize("name", MODELS)
def test_the_cache_is_that_of_transformers(name: str) -> None:
    """Bytes of keys and values, or of latents, that transformers allocates for a sequence, at two lengths."""
    from transformers import StaticCache

    model = serving_model(load_model(name))
    for tokens in LENGTHS:
        if tokens > (load_model(name).learned_positions or tokens):
            continue
        cache = StaticCache(config=model.config, max_cache_len=tokens)
        run_forward_pass(model, tokens, cache)
        held = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
        found = ledger.compile(PLAN.format(model=name, prompt=tokens - 100, output=100)).totals
        assert found["serve.cache.bytes_per_sequence"] == held


@pytest.mark.parametrize("name", RECURRENT)
def test_states_are_those_of_transformers(name: str) -> None:
    """States in fp32 of a bf16 model, windows in bf16, and what layers of full attention keep beside them."""
    from transformers import DynamicCache

    model = serving_model(load_model(name))
    for tokens in LENGTHS:
        cache, held = DynamicCache(config=model.config), 0
        run_forward_pass(model, tokens, cache)
        for layer in cache.layers:
            if hasattr(layer, "recurrent_states"):
                held += sum(each.nbytes for each in (*layer.conv_states.values(), *layer.recurrent_states.values()))
            else:
                held += layer.keys.nbytes + layer.values.nbytes
        found = ledger.compile(PLAN.format(model=name, prompt=tokens - 100, output=100)).totals
        assert found["serve.cache.bytes_per_sequence"] == held


# Latent attention decodes in another form here than in transformers, which expands the cache for every token.
COUNTED = (
    *("llama-3-8b", "mistral-7b", "gemma-2-9b", "gemma-3-27b", "qwen2.5-7b", "qwen3-8b", "gpt2", "pythia-6.9b"),
    *("mixtral-8x7b", "qwen3-30b-a3b", "gpt-oss-20b", *RECURRENT),
)
EXPANDED = "deepseek-v3"
PROMPT = 600


def _flops(name: str) -> tuple[list[int], list[int]]:
    """FLOPs of a prompt and of one token after it: of our operations, and as torch counts them of transformers."""
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import DynamicCache

    plan = load_plan(PLAN.format(model=name, prompt=PROMPT, output=2))
    role, model = served_roles(plan)[0], serving_model(load_model(name))
    assert plan.serve is not None
    cache, seen = DynamicCache(config=model.config), []
    for tokens in (PROMPT, 1):
        with FlopCounterMode(display=False) as counter:
            run_forward_pass(model, tokens, cache)
        seen.append(counter.get_total_flops())
    prefill = pass_products(role, role.prefill, prompt_shape(plan.serve, PROMPT))
    decode = pass_products(role, role.decode, decode_shape(plan.serve, Fraction(1)))
    return [prefill, decode], seen


@pytest.mark.parametrize("name", COUNTED)
def test_flops_are_those_of_transformers(name: str) -> None:
    """A prompt, and one token after it, cost the FLOPs that torch counts of the model with a cache of its own."""
    found, seen = _flops(name)
    assert found == seen


def test_latents_of_a_prompt_are_expanded_as_in_transformers() -> None:
    """A prompt of latent attention costs the same; a further token less, as no cached latent is expanded for it."""
    found, seen = _flops(EXPANDED)
    assert found[0] == seen[0]
    assert found[1] < seen[1]


def _said(name: str, *overrides: str) -> dict[str, str]:
    """The outcome of each figure that `ledger verify` compares of a service."""
    plan = load_plan(PLAN.format(model=name, prompt=PROMPT, output=200), overrides)
    return {one.account: one.status for one in verify(plan, Depth(), "", lambda _: None).verdicts}


FIGURES = ("parameters", served.CACHE, served.PREFILL, served.DECODE, served.READ)


@pytest.mark.parametrize(
    "name", ["gemma-3-27b", "gpt-oss-20b", "gpt2", "mixtral-8x7b", "mamba2-2.7b", "qwen3-next-80b-a3b"]
)
def test_verify_compares_a_service_with_transformers(name: str) -> None:
    """Few layers stand for all: parameters, cache, both passes and what a token reads are equal, whatever the kind."""
    assert _said(name) == dict.fromkeys(FIGURES, "equal")


def test_what_transformers_does_otherwise_is_not_compared() -> None:
    """Latents are expanded for each token there, or all experts run: FLOPs are left out with the reason, no more."""
    equal = dict.fromkeys(FIGURES, "equal")
    assert _said("deepseek-v3") == {**equal, served.DECODE: "not checked"}
    assert _said("llama-4-scout") == {**equal, served.PREFILL: "not checked", served.DECODE: "not checked"}


def test_a_shared_prefix_and_formats_are_judged_too() -> None:
    """A prefix is in the cache before a prompt is counted; int4 weights and an fp8 cache are as many elements."""
    formats = ("precision={base: bf16-true, weights: {base: int4}, cache: fp8_e4m3}", "serve.prefix=100 tokens")
    assert _said("llama-3-8b", *formats) == dict.fromkeys(FIGURES, "equal")


def test_lengths_that_differ_are_judged_at_the_longest() -> None:
    """One sequence runs, so a distribution is judged at its longest, in one pass, and the record says so."""
    drawn = "serve.prompt=[{length: 100 tokens, share: 50 %}, {length: 400 tokens, share: 50 %}]"
    plan = load_plan(PLAN.format(model="gpt2", prompt=300, output=100), (drawn, "serve.chunk=64 tokens"))
    found = verify(plan, Depth(), "", lambda _: None)
    assert found.agrees
    assert [note.split(",")[0] for note in found.judged_as] == [
        "serve.prompt = 400 tokens",
        "serve.chunk = the whole prompt",
    ]


def test_a_wrong_cache_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """One element too many differs."""

    def wrong(compiled: Compiled) -> dict[str, int]:
        return {served.CACHE: served.predicted_cache_elements(compiled)[served.CACHE] + 1}

    changed = [replace(one, tells=wrong) if one.accounts == served.CACHE else one for one in served.JUDGES]
    monkeypatch.setattr(served, "JUDGES", changed)
    assert _said("gpt2")[served.CACHE] == "differs"
