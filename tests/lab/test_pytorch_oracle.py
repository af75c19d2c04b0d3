"""The judge itself: what PyTorch counts and saves, against published sizes and closed forms.

FLOPs and bytes were measured with torch 2.13.0 and transformers 5.23 on meta and fake cuda tensors.
"""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction

import pytest
import torch

from ledger.lab.observed.one_device import BEFORE, FlopCounts, flop_counts, parameter_count, saved_bytes, saved_storages
from ledger.lab.reference.cuda_guard import install_cuda_guard
from ledger.lab.reference.workload import Workload
from ledger.lab.transformers.config import NoReferenceError, with_layers
from ledger.spec.plan import Kernels, Model, Precision, Recompute
from tests.lab.reference_plans import (
    AUTOCAST,
    BF16,
    FP32,
    GPT2_SMALL,
    LLAMA_2_7B,
    LLAMA_3_8B,
    LLAMA_3_70B,
    gpt2,
    llama,
    rotary,
)

# Small sizes, no two products alike: batch, sequence, tokens; then per model.
b, s, V = 3, 37, 211
n = b * s
h, a, kv, e, f = 102, 6, 3, 24, 272
q, k = a * e, kv * e
SMALL_LLAMA = llama(h, rotary(a, kv, e), f, V, 2)
H, A, F = 120, 5, 448
CEIL32 = 64  # efficient attention pads its row sums to 32 rows: 37 become 64


@pytest.mark.parametrize(
    ("model", "published"),
    [
        (LLAMA_3_8B, 8_030_261_248),  # safetensors index of meta-llama/Meta-Llama-3-8B
        (LLAMA_3_70B, 70_553_706_496),  # safetensors index of meta-llama/Meta-Llama-3-70B
        (LLAMA_2_7B, 6_738_415_616),  # safetensors index of meta-llama/Llama-2-7b-hf
        (GPT2_SMALL, 124_439_808),  # openai-community/gpt2
    ],
)
def test_parameters_are_the_published_ones(model: Model, published: int) -> None:
    """The configuration made from a model is the model that was published."""
    assert parameter_count(model) == published


@pytest.mark.parametrize(
    ("model", "seq_len", "attention", "forward", "step"),
    [
        (LLAMA_3_8B, 8192, "flash", 158_140_695_838_720, 492_014_273_560_576),
        pytest.param(LLAMA_3_8B, 8192, "math", 158_140_695_838_720, 474_422_087_516_160, marks=pytest.mark.long),
        pytest.param(LLAMA_3_8B, 8192, "eager", 158_140_695_838_720, 474_422_087_516_160, marks=pytest.mark.long),
        (LLAMA_3_8B, 8192, "efficient", 158_140_695_838_720, 492_014_273_560_576),
        pytest.param(LLAMA_3_70B, 8192, "flash", 1_314_637_949_698_048, 4_031_874_779_316_224, marks=pytest.mark.long),
        pytest.param(LLAMA_3_70B, 8192, "math", 1_314_637_949_698_048, 3_943_913_849_094_144, marks=pytest.mark.long),
        pytest.param(LLAMA_2_7B, 4096, "flash", 62_921_270_886_400, 193_161_859_170_304, marks=pytest.mark.long),
        pytest.param(LLAMA_2_7B, 4096, "math", 62_921_270_886_400, 188_763_812_659_200, marks=pytest.mark.long),
        (GPT2_SMALL, 1024, "flash", 291_648_307_200, 894_272_274_432),
        (GPT2_SMALL, 1024, "math", 291_648_307_200, 874_944_921_600),
    ],
)
def test_flop_counter_of_whole_models(model: Model, seq_len: int, attention: str, forward: int, step: int) -> None:
    """Every matmul of a real model is counted once, and flash attention's backward as five matmuls."""
    counted = flop_counts(Workload(model, Kernels(attention=attention), BF16, 1, seq_len))
    assert (counted.forward, counted.step) == (forward, step)


def test_flop_counts_of_one_layer_from_shapes() -> None:
    """What the counter sees is 2mkn per matmul, forward once and backward twice, and scores in full."""
    weights = h * q + 2 * h * k + q * h + 3 * h * f
    scores = 2 * a * b * s * s * e  # q k^T; the product with v is as large
    one = flop_counts(Workload(with_layers(SMALL_LLAMA, 1), Kernels(attention="eager"), BF16, b, s))
    two = flop_counts(Workload(with_layers(SMALL_LLAMA, 2), Kernels(attention="eager"), BF16, b, s))
    forward = 2 * n * weights + 2 * scores
    assert FlopCounts(two.forward - one.forward, two.backward - one.backward) == FlopCounts(forward, 2 * forward)


def recomputed(model: Model, seq_len: int, batch: int = 1) -> int:
    """FLOPs that full checkpointing adds to a step."""
    work = Workload(model, Kernels(), BF16, batch, seq_len)
    return flop_counts(replace(work, recompute=Recompute("full"))).step - flop_counts(work).step


@pytest.mark.long
def test_recomputation_stops_at_the_last_saved_tensor() -> None:
    """Full checkpointing is not one more forward: a Llama layer's down projection is not repeated."""
    skipped = 2 * 8192 * 14336 * 4096
    head = 2 * 8192 * 4096 * 128_256
    assert recomputed(LLAMA_3_8B, 8192) == 158_140_695_838_720 - head - 32 * skipped


def test_recomputation_stops_there_in_every_layer() -> None:
    """A Llama of two layers does not repeat its two down projections; GPT-2 repeats all that its layers do."""
    forward = flop_counts(Workload(SMALL_LLAMA, Kernels(), BF16, b, s)).forward
    assert recomputed(SMALL_LLAMA, s, b) == forward - 2 * n * h * V - 2 * 2 * n * h * f
    assert recomputed(GPT2_SMALL, 1024) == 291_648_307_200 - 2 * 1024 * 768 * 50_257


RNG = 24  # flash: two 8-byte words of state, and one that is unused
EFFICIENT_RNG = 16  # seed and offset
LLAMA_FLASH = 4 * n * q + 4 * n * k + 4 * a * n + RNG
CAST_LLAMA = 2 * (2 * h * q + 2 * h * k + 3 * h * f)
# Under autocast the norm's output is cast once per matmul that reads it (5 times), not once: 10nh instead of 4nh.
LLAMA_ROWS = [
    ("flash", "fused", "fused", BF16, 8 * n * h + LLAMA_FLASH + 8 * n * f + 8 * n),
    ("flash", "eager", "fused", BF16, 16 * n * h + LLAMA_FLASH + 8 * n * f + 8 * n),
    ("flash", "fused", "eager", BF16, 8 * n * h + LLAMA_FLASH + 10 * n * f + 8 * n),
    ("eager", "eager", "fused", BF16, 16 * n * h + 8 * n * q + 8 * n * f + 8 * n + 6 * a * b * s**2),
    ("math", "fused", "fused", BF16, 8 * n * h + 14 * n * q + 8 * n * f + 8 * n + 4 * a * b * s**2),
    (
        "efficient",
        "fused",
        "fused",
        BF16,
        8 * n * h + 8 * n * q + 8 * n * f + 8 * n + 4 * a * b * CEIL32 + EFFICIENT_RNG,
    ),
    ("eager", "fused", "fused", FP32, 16 * n * h + 16 * n * q + 16 * n * f + 8 * n + 4 * a * b * s**2),
    ("math", "fused", "fused", FP32, 16 * n * h + 16 * n * q + 16 * n * f + 8 * n + 4 * a * b * s**2),
    ("flash", "fused", "fused", AUTOCAST, 18 * n * h + LLAMA_FLASH + 8 * n * f + 8 * n + CAST_LLAMA),
    ("flash", "eager", "fused", AUTOCAST, 26 * n * h + LLAMA_FLASH + 8 * n * f + 8 * n + CAST_LLAMA),
]


@pytest.mark.parametrize(("attention", "norm", "activation", "precision", "per_layer"), LLAMA_ROWS)
def test_saved_by_a_llama_layer(
    attention: str, norm: str, activation: str, precision: Precision, per_layer: int
) -> None:
    """Each kernel saves what it really saves; parameters are excluded and their casts are not."""
    kernels = Kernels(attention=attention, norm=norm, activation=activation)
    assert saved_bytes(Workload(SMALL_LLAMA, kernels, precision, b, s)).per_layer == per_layer


CAST_GPT2 = 2 * (4 * H * H + 2 * H * F)
GPT2_ROWS = [
    # Korthikanti et al. 2022, eq. 2: 34 n h + 5 a s n with F = 4H, and the LayerNorms' fp32 mean and rstd on top
    ("eager", "fused", BF16, 18 * n * H + 4 * n * F + 5 * A * b * s**2 + 16 * n),
    ("flash", "fused", BF16, 18 * n * H + 4 * n * F + 4 * A * n + 16 * n + RNG),
    ("flash", "eager", BF16, 18 * n * H + 10 * n * F + 4 * A * n + 16 * n + RNG),
    ("math", "fused", BF16, 24 * n * H + 4 * n * F + 9 * A * b * s**2 + 16 * n),
    ("eager", "fused", FP32, 34 * n * H + 8 * n * F + 9 * A * b * s**2 + 16 * n),
    ("flash", "fused", AUTOCAST, 22 * n * H + 4 * n * F + 4 * A * n + 16 * n + RNG + CAST_GPT2),
    ("eager", "fused", AUTOCAST, 22 * n * H + 4 * n * F + 7 * A * b * s**2 + 16 * n + CAST_GPT2),
]


@pytest.mark.parametrize(("attention", "activation", "precision", "per_layer"), GPT2_ROWS)
def test_saved_by_a_gpt2_layer(attention: str, activation: str, precision: Precision, per_layer: int) -> None:
    """Dropout masks take one byte, LayerNorm two fp32 numbers a row, and the softmax what its dtype says."""
    kernels = Kernels(attention=attention, activation=activation)
    assert saved_bytes(Workload(gpt2(H, A, F, V, 2), kernels, precision, b, s)).per_layer == per_layer


def test_saved_outside_the_layers() -> None:
    """The loss keeps one fp32 copy of the logits; ids, labels and rotary tables are packed too."""
    norm_and_head = 4 * n * h + 4 * n
    loss = 4 * n * V + 8 * n + 4  # log-probabilities, shifted labels, total weight
    tokens, tables = 8 * n, 2 * 2 * s * e
    outside = saved_bytes(Workload(SMALL_LLAMA, Kernels(), BF16, b, s)).outside
    assert outside == norm_and_head + loss + tokens + tables


def test_itemised_storages_add_up() -> None:
    """The storages of one layer are the difference of three and two layers: none is shared, none is lost."""
    three = saved_storages(Workload(with_layers(SMALL_LLAMA, 3), Kernels(), BF16, b, s))
    difference = saved_bytes(Workload(SMALL_LLAMA, Kernels(), BF16, b, s))
    assert sum(storage.bytes for storage in three if storage.layer == 1) == difference.per_layer
    assert sum(storage.bytes for storage in three) == difference.total(3)
    assert [storage.users for storage in three if storage.layer == BEFORE] == [("EmbeddingBackward0.indices",)]


@pytest.mark.parametrize(
    ("model", "last"),
    [
        (SMALL_LLAMA, "MmBackward0.self"),  # the down projection's input: checkpointing stops before the matmul
        (gpt2(H, A, F, V, 2), "NativeDropoutBackward0.result1"),  # a mask, after it: nothing is skipped
        (gpt2(H, A, F, V, 2, dropout=Fraction(0)), "AddmmBackward0.mat1"),
    ],
)
def test_last_storage_of_a_layer(model: Model, last: str) -> None:
    """Where recomputation of a checkpointed layer stops follows from what is saved last."""
    storages = saved_storages(Workload(model, Kernels(), BF16, b, s))
    first_layer = [storage for storage in storages if storage.layer == 0]
    assert first_layer[-1].users == (last,)


def test_a_model_without_a_class_is_named() -> None:
    """A verdict must not come from a class that lacks part of the plan; the message says which part."""
    strange = replace(SMALL_LLAMA, learned_positions=64, head_bias=True)
    lacking = re.escape("LlamaForCausalLM, does not have embedding.learned_positions = 64, head.bias = True")
    with pytest.raises(NoReferenceError, match=lacking):
        parameter_count(strange)


def test_backward_on_fake_cuda_tensors() -> None:
    """With the guard, a machine without CUDA runs a backward pass on fake CUDA tensors."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    install_cuda_guard()
    with FakeTensorMode(), torch.autograd.set_multithreading_enabled(False):
        weight = torch.zeros(5, 7, device="cuda", requires_grad=True)
        (weight @ weight.T).sum().backward()
    assert weight.grad.shape == (5, 7)
    assert weight.grad.device.type == "cuda"
