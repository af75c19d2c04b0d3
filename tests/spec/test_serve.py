"""What a plan serves, and what follows from its stack where it does not say."""

from __future__ import annotations

import pytest

from ledger.spec.load import load_plan
from ledger.spec.problems import SpecError


@pytest.mark.parametrize(
    ("settings", "chunk"),
    [
        (("stack=vllm-2025",), 8192),  # its max_num_batched_tokens
        (("stack=serving",), 2048),
        (("stack=vllm-2025", "serve.chunk=1024 tokens"), 1024),
    ],
)
def test_a_step_takes_what_the_engine_takes_where_nothing_is_said(settings: tuple[str, ...], chunk: int) -> None:
    """A stated chunk wins; else the engine's own limit on a step, else a common one."""
    plan = load_plan("serve-70b", settings)
    assert plan.serve is not None
    assert plan.serve.chunk == chunk


def test_a_step_takes_some_tokens() -> None:
    """None at all would leave prompts unread."""
    with pytest.raises(SpecError, match=r"serve\.chunk"):
        load_plan("serve-70b", ("serve.chunk=0 tokens",))


def test_a_step_yields_a_token_at_least() -> None:
    """A share below one would say that decoding loses tokens."""
    with pytest.raises(SpecError, match=r"`0\.5` is too small"):
        load_plan("serve-70b", ("serve.speculative=0.5",))


@pytest.mark.parametrize("cache", ["int4", "nvfp4", "mxfp4"])
def test_caches_that_nobody_timed_are_warned_of(cache: str) -> None:
    """Their kernel brings four bits back, which takes time; of caches in a byte and more there are timings."""
    (warning,) = load_plan("serve-70b", (f"precision.cache={cache}",)).warnings
    assert warning.message == f"attention over a cache in {cache} was timed by nobody: it is priced as one in bf16"
    assert load_plan("serve-70b", ("precision.cache=int8",)).warnings == ()


def test_sequences_beyond_the_model_are_warned_of() -> None:
    """Llama 3 was made for 8192 tokens: a prompt of 8000 and 512 of output are more."""
    (warning,) = load_plan("serve-70b", ("serve.prompt=8000 tokens",)).warnings
    assert warning.message == "prompt and output have 8512 tokens, but the model was made for 8192"
    assert load_plan("serve-70b").warnings == ()


@pytest.mark.parametrize("part", ["optimizer", "cluster", "precision", "model", "stack", "accelerator"])
def test_what_a_part_starts_from_is_set_with_the_part(part: str) -> None:
    """A base has been read when single values are set, so that setting it would change nothing."""
    with pytest.raises(SpecError, match=f"`{part}.base`: what a part starts from is set with the part"):
        load_plan("8b", (f"{part}.base=other",))


def test_a_stack_of_training_says_nothing_of_an_engine() -> None:
    """A warning at its name, of no stack that serves."""
    (warning,) = load_plan("serve-70b", ("stack=pytorch-fsdp2-2025",)).warnings
    assert "says nothing of an engine" in warning.message
    assert load_plan("serve-70b", ("stack=serving",)).warnings == ()


def test_an_engine_trains_nothing() -> None:
    """It has no backward pass."""
    with pytest.raises(SpecError, match="vllm-2025 is an engine that serves, and this plan trains"):
        load_plan("8b", ("stack=vllm-2025",))


def test_what_only_training_heeds_is_warned_of() -> None:
    """A loss, an update, an assumed share of the peak: nothing of a service follows from them."""
    settings = ("kernels.loss=chunked", "kernels.optimizer=fused", "assumptions.mfu=0.3")
    told = [warning.message for warning in load_plan("serve-70b", settings).warnings]
    assert sorted(told) == sorted(f"`{one.partition('=')[0]}` has no effect: this plan serves" for one in settings)
    weights = "precision.weights={base: bf16, adapters: fp32, experts: fp32}"
    told = [warning.message for warning in load_plan("serve-70b", (weights,)).warnings]
    assert told == [
        "`precision.weights.adapters` has no effect: this plan serves",
        "`precision.weights.experts` has no effect: the model has no experts",
    ]
