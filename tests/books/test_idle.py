"""Settings of kernels and software that change nothing of a plan are told, and no others."""

from __future__ import annotations

from dataclasses import replace

import pytest

import ledger
from ledger.books.compiled import Compiled
from ledger.books.what_if.idle import idle_settings, said_in_vain
from ledger.spec.library import default_library

ALONE = ("cluster.devices=1", "parallelism={}", "run.micro_batch=1", "run.global_batch=1", "expect=[]")
EAGER = "stack={base: pytorch-fsdp2-2025, kernels: {norm: eager}}"


def in_vain(spec: str, *settings: str) -> list[str]:
    """The keys that a plan states in vain, and why."""
    told = said_in_vain(ledger.compile(spec, settings))
    return [message.message.replace("`", "").replace(" has no effect", "") for message in told]


@pytest.mark.parametrize(
    ("spec", "settings", "told"),
    [
        # a class of kernels that the model has none of, by the rule that knows why, or by the figures
        ("8b", ["kernels.experts=eager"], ["kernels.experts: no layer of the model has experts"]),
        ("8b", ["kernels.residual=fused"], ["kernels.residual: without it the plan has the same figures"]),
        ("8b", ["kernels.weighing=results"], ["kernels.weighing: with activation the plan has the same figures"]),
        ("8b", ["kernels.router=fused"], ["kernels.router: without it the plan has the same figures"]),
        ("8b", ["kernels.attention=flash_repeated", "model.layers.0.attention.kv_heads=32"],
         ["kernels.attention: without it the plan has the same figures"]),
        ("resnet-50", ["kernels.norm=eager"], ["kernels.norm: without it the plan has the same figures"]),
        # eager modules call one kernel for LayerNorm
        ("gpt2", ["kernels.norm=eager"], ["kernels.norm: without it the plan has the same figures"]),
        ("gpt2", [EAGER], ["stack.kernels.norm: without it the plan has the same figures"]),
        # what a plan says of kernels stands before what its stack says
        ("8b", [EAGER, "kernels.norm=fused"], ["stack.kernels.norm: without it the plan has the same figures"]),
        # software: without a pipeline nothing is sent, and with no recomputation nothing is rebuilt
        ("8b", [*ALONE, "recompute=none", "stack={base: pytorch-fsdp2-2025, checkpoint: whole}"],
         ["stack.checkpoint: without it the plan has the same figures"]),
        ("8b", [*ALONE, "stack={base: pytorch-fsdp2-2025, prefetch: 1000}"],
         ["stack.prefetch: with every other value the plan has the same figures"]),
        ("serve-70b", ["stack.checkpoint=whole"],
         ["stack.checkpoint: without it the plan has the same figures"]),
    ],
)  # fmt: skip
def test_what_changes_no_figure_is_told(spec: str, settings: list[str], told: list[str]) -> None:
    """By a key of kernels, of a stack's kernels, of the software, and of a plan that serves."""
    assert in_vain(spec, *settings) == told


@pytest.mark.parametrize(
    ("spec", "settings"),
    [
        ("8b", ["kernels.norm=fused"]),  # what the stack says already, but eager would be another plan
        ("gpt2", ["kernels.norm=operators"]),
        ("gpt2", ["kernels.residual=fused"]),
        ("8b", ["kernels={loss: chunked, loss_chunks: 8}"]),  # as many parts as the kernel takes by itself
        ("mixtral-8x7b", ["kernels.experts=grouped_mm"]),
        ("8b", [*ALONE, "recompute=full", "stack={base: pytorch-fsdp2-2025, checkpoint: whole}"]),
        ("8b", ["stack={base: pytorch-fsdp2-2025, replay: {recorded: true}, judge: pytorch}"]),  # no figures are theirs
        ("serve-70b", ["kernels.attention=flash"]),
    ],
)
def test_what_some_value_would_change_is_not(spec: str, settings: list[str]) -> None:
    """A value that is the stack's own is a choice where another one moves a figure; so is what other verbs read."""
    assert in_vain(spec, *settings) == []


def test_no_plan_of_the_library_is_told_of_what_its_stack_says() -> None:
    """Stacks name kernels that models lack: only what a plan itself states counts."""
    names = default_library().names("plan")
    assert len(names) > 5
    for name in names:
        assert in_vain(name) == [], name
    assert in_vain("gpt2", "stack=peft-trainer-2025") == []  # eager norms and experts


def test_nothing_is_said_twice() -> None:
    """A key that a rule has told of is not told of again by its figures."""
    compiled = ledger.compile("8b", ["kernels.scan=eager"])
    assert [warning.rule for warning in said_in_vain(compiled)] == ["kernels_find_their_parts"]
    assert idle_settings(compiled) == ()
    untold = replace(compiled, plan=replace(compiled.plan, warnings=()))
    assert [str(problem.where) for problem in idle_settings(untold)] == ["--set kernels.scan=eager:1:20"]


# --- LayerNorm, written out ---

GPT2 = ("gpt2", (*ALONE, "recompute=none", "precision=bf16-true", "stack=pytorch-fsdp2-2025"))
TENSOR = 2 * 1024 * 768  # bytes of one sequence's stream in bf16


def decoder_norm(compiled: Compiled, phase: str) -> float:
    """Bytes that the first norm of each layer moves in a pass."""
    rows = compiled.roles[0].kernels
    return sum(row.bytes for row in rows if row.account.startswith("decoder/attention_norm") and row.when == phase)


def test_a_layer_norm_that_is_written_out_moves_more() -> None:
    """Of 1024 x 768 numbers in bf16 the kernel reads one tensor and writes one; single operators move 31 of them.

    Beside the cast of the stream to fp32: a mean 2, two differences 4 each, a square 4, a mean of it 2, the product
    with what is centred 4, those with weight and bias 4 each, a cast back 3. Rows and weights are a thousandth.
    """
    name, settings = GPT2
    assert decoder_norm(ledger.compile(name, settings), "forward") == pytest.approx(2 * TENSOR, rel=5e-3)
    written = ledger.compile(name, (*settings, "kernels.norm=operators"))
    assert decoder_norm(written, "forward") == pytest.approx(31 * TENSOR, rel=5e-3)


def test_eager_modules_have_one_kernel_for_it() -> None:
    """A LayerNorm of a module in Python is PyTorch's one kernel, unless the model writes it out as Cohere's do."""
    name, settings = GPT2
    eager = (*settings, "kernels.norm=eager")
    assert decoder_norm(ledger.compile(name, eager), "forward") == pytest.approx(2 * TENSOR, rel=5e-3)
    wide = ledger.compile(name, (*eager, "model.norm.wide=true"))
    assert decoder_norm(wide, "forward") == pytest.approx(31 * TENSOR, rel=5e-3)
    (warning,) = idle_settings(ledger.compile("gpt2", ["kernels.norm=eager"]))
    assert warning.help == "leave it out, or `operators`"
