"""Adapters of the reference model: peft's own, where it is installed."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from ledger.books.compiler import compile_plan
from ledger.lab.observed.one_device import saved_storages
from ledger.lab.reference.model import freeze, reference_model
from ledger.lab.reference.workload import workload
from ledger.lab.transformers.config import NoReferenceError
from ledger.lab.verification.checks import one_device
from ledger.lab.verification.depth import with_counts
from ledger.spec.load import load_plan
from ledger.spec.plan import Kernels, Lora, Train


def installed() -> None:
    """Skips where peft is not there; where it is, it is imported as the judge does, without Transformer Engine."""
    pytest.importorskip("ledger.lab.reference.trained")


def test_adapters_are_those_of_peft_where_it_is_installed() -> None:
    """The judge is then peft's code on fake tensors, in the dtype of the model."""
    installed()
    layer = import_module("peft.tuners.lora.layer")
    model = load_plan("8b").model
    cut = replace(model, groups=(replace(model.groups[0], repeat=1),))
    with FakeTensorMode():
        built = reference_model(cut, Kernels(), "cpu", torch.bfloat16)
        freeze(built, Train("lora", lora=Lora(4, ("q", "down"), 0.1)))
    assert sum(isinstance(module, layer.Linear) for module in built.modules()) == 2
    assert {parameter.dtype for parameter in built.parameters()} == {torch.bfloat16}
    learned = [name for name, parameter in built.named_parameters() if parameter.requires_grad]
    assert {name.split(".")[-3] for name in learned} == {"lora_A", "lora_B"}
    assert torch.get_default_dtype() == torch.float32


def test_trained_parameters_are_those_that_peft_prints() -> None:
    """A rank for each target (peft's `rank_pattern`), and the count of `print_trainable_parameters`."""
    installed()
    peft = import_module("peft")
    plan = load_plan("8b", ["train={lora: {rank: {q: 8, v: 4, down: 2}}}"])
    model = with_counts(plan.model, [2])
    with FakeTensorMode():
        built = reference_model(model, Kernels(), "cpu", torch.bfloat16)
        freeze(built, plan.train)
        trained, everything = peft.PeftModel.get_nb_trainable_parameters(built)
    compiled = compile_plan(replace(plan, model=model))
    assert compiled.totals["parameters.trainable"] == trained
    assert compiled.totals["parameters"] == everything


@pytest.mark.parametrize("precision", ["qlora-peft", "qlora-bf16"])
def test_saved_bytes_of_a_quantised_model_are_those_of_bitsandbytes(precision: str) -> None:
    """`Linear4bit` multiplies in bf16 and hands on what it was given: with norms in fp32, fp32 waits for backward.

    Both formats of scales, ranks of their own, dropout, and every kind of matrix of a layer.
    """
    installed()
    pytest.importorskip("bitsandbytes")
    changes = [f"precision={precision}", "stack=peft-trainer-2025", "parallelism={data: 64}", "recompute=none"]
    ranks = "{q: 16, k: 8, v: 8, out: 4, gate: 4, up: 4, down: 2}"
    plan = load_plan("8b", [*changes, f"train={{lora: {{rank: {ranks}, dropout: 0.1}}}}", "run.seq_len=512"])
    small = replace(plan, model=with_counts(plan.model, [2]))
    storages = saved_storages(workload(small))
    found = sum(storage.bytes for storage in storages if storage.layer == 1)
    assert compile_plan(small).totals["saved.per_layer.decoder"] == found


def test_memory_of_a_quantised_step_is_not_judged() -> None:
    """bitsandbytes' kernels bring matrices back within themselves, which is said in the place of a figure."""
    plan = load_plan("8b", ["precision=qlora-bf16", "train={lora: {rank: 8, targets: [q]}}", "parallelism={data: 64}"])
    with pytest.raises(NoReferenceError, match="bring matrices back within themselves"):
        one_device(plan)


def test_formats_by_part_have_no_judge() -> None:
    """PyTorch's reference is built in one dtype, and says so where a plan has several."""
    plan = load_plan("8b", ["precision.weights={base: bf16, norms: fp32}"])
    with pytest.raises(NoReferenceError, match="builds a model in one dtype"):
        workload(plan)
