"""The cache of a sequence, and the FLOPs of a prompt and of one further token, as transformers itself has them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

import ledger
from ledger.books.serving.passes import ServedRole, Shape, decode_shape, prompt_shape, served_roles
from ledger.lab.transformers.config import transformers_config
from ledger.model.fsdp_units import OUTPUT
from ledger.model.operations import total
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


def _model(name: str) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    config = transformers_config(load_model(name))
    config._attn_implementation = "eager"
    config._experts_implementation = "batched_mm"  # FlopCounterMode has no formula of grouped_mm
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()


def _run(model: Any, tokens: int, cache: Any) -> None:
    import torch

    with torch.no_grad():
        model(
            torch.zeros(1, tokens, dtype=torch.long, device="meta"),
            use_cache=True,
            logits_to_keep=1,
            **{"cache_params" if model.config.model_type == "mamba2" else "past_key_values": cache},
        )


@pytest.mark.parametrize("name", MODELS)
def test_the_cache_is_that_of_transformers(name: str) -> None:
    """Bytes of keys and values, or of latents, that transformers allocates for a sequence, at two lengths."""
    from transformers import StaticCache

    model = _model(name)
    for tokens in LENGTHS:
        if tokens > (load_model(name).learned_positions or tokens):
            continue
        cache = StaticCache(config=model.config, max_cache_len=tokens)
        _run(model, tokens, cache)
        held = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
        found = ledger.compile(PLAN.format(model=name, prompt=tokens - 100, output=100)).totals
        assert found["serve.cache.bytes_per_sequence"] == held


@pytest.mark.parametrize("name", RECURRENT)
def test_states_are_those_of_transformers(name: str) -> None:
    """States in fp32 of a bf16 model, windows in bf16, and what layers of full attention keep beside them."""
    from transformers import DynamicCache

    model = _model(name)
    for tokens in LENGTHS:
        cache, held = DynamicCache(config=model.config), 0
        _run(model, tokens, cache)
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


def _counted(role: ServedRole, phase: Any, shape: Shape) -> int:
    """FLOPs of all products of a pass, with masked scores, as FlopCounterMode counts them."""
    found = Fraction(0)
    for unit in phase.units:
        value = role.value(role.scored(shape) if unit.name == OUTPUT else shape)
        found += Fraction(value(unit.count * total(one.counted() for one in unit.forward)))
    return int(found)


def _flops(name: str) -> tuple[list[int], list[int]]:
    """FLOPs of a prompt and of one token after it: of our operations, and as torch counts them of transformers."""
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import DynamicCache

    plan = load_plan(PLAN.format(model=name, prompt=PROMPT, output=2))
    role, model = served_roles(plan)[0], _model(name)
    assert plan.serve is not None
    cache, seen = DynamicCache(config=model.config), []
    for tokens in (PROMPT, 1):
        with FlopCounterMode(display=False) as counter:
            _run(model, tokens, cache)
        seen.append(counter.get_total_flops())
    prefill = _counted(role, role.prefill, prompt_shape(plan.serve, PROMPT))
    decode = _counted(role, role.decode, decode_shape(plan.serve, Fraction(1)))
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
