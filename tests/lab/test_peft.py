"""Adapters of the reference model: peft's own, where it is installed."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from ledger.lab.reference.model import freeze, reference_model, workload
from ledger.lab.transformers.config import NoReferenceError
from ledger.spec.load import load_plan
from ledger.spec.plan import Kernels, Lora, Train


def test_adapters_are_those_of_peft_where_it_is_installed() -> None:
    """The judge is then peft's code on fake tensors, in the dtype of the model."""
    layer = pytest.importorskip("peft.tuners.lora.layer")
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


def test_formats_by_part_have_no_judge() -> None:
    """PyTorch's reference is built in one dtype, and says so where a plan has several."""
    plan = load_plan("8b", ["precision.weights={base: bf16, norms: fp32}"])
    with pytest.raises(NoReferenceError, match="builds a model in one dtype"):
        workload(plan)
