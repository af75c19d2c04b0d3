"""Models of blocks before PyTorch: transformers' ResNet, and networks of one's own, built from their steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode
from transformers import ResNetConfig, ResNetForImageClassification
from transformers.initialization import no_init_weights

import ledger
from ledger.evidence.verdicts import DIFFERS, EXPLAINED, ComparedFigure, total
from ledger.lab.reference import model as reference
from ledger.lab.reference.checkpoints import BlockModel
from ledger.lab.reference.cuda_guard import install_cuda_guard
from ledger.lab.reference.modules import imaginary_gpu
from ledger.lab.verification.suites import Depth, verify
from ledger.spec.load import load_plan

OWN = str(Path(__file__).with_name("own_blocks.yaml"))
RESNET = "specs/resnet-50.yaml"
ONE = ("cluster.devices=1", "parallelism.data=1")
PUBLISHED = 25_557_032  # torchvision, ResNet50_Weights.IMAGENET1K_V1, num_params
WEIGHTS = {"fp32": torch.float32, "bf16-autocast": torch.float32, "bf16-true": torch.bfloat16}


@contextmanager
def resnet_50(dtype: torch.dtype) -> Iterator[ResNetForImageClassification]:
    """transformers' ResNet-50 with a thousand classes on a GPU that is not there, in training."""
    install_cuda_guard()
    before = torch.get_default_dtype()
    with imaginary_gpu(), FakeTensorMode():
        torch.set_default_dtype(dtype)
        try:
            with torch.device("cuda"), no_init_weights():
                built = ResNetForImageClassification(ResNetConfig(num_labels=1000))
        finally:
            torch.set_default_dtype(before)
        yield built.train()


def ran(built: Any, images: int, *, autocast: bool) -> dict[str, int]:
    """Parameters, FLOPs of both passes, and bytes of each storage once that autograd packs, weights left out."""
    dtype = next(built.parameters()).dtype
    own = {tensor.untyped_storage()._cdata for tensor in (*built.parameters(), *built.buffers())}
    packed: dict[int, torch.Tensor] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        packed[tensor.untyped_storage()._cdata] = tensor
        return tensor

    pixels = torch.zeros(images, 3, 224, 224, device="cuda", dtype=dtype)
    classes = torch.zeros(images, dtype=torch.long, device="cuda")
    hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda one: one)
    narrow = torch.autocast("cuda", torch.bfloat16, enabled=autocast)
    with FlopCounterMode(display=False) as forward, hooks, narrow:
        loss = torch.nn.functional.cross_entropy(built(pixels).logits.float(), classes)
    with FlopCounterMode(display=False) as backward:
        loss.backward()
    saved = sum(tensor.untyped_storage().nbytes() for place, tensor in packed.items() if place not in own)
    flops = forward.get_total_flops()
    return {
        "parameters": sum(one.numel() for one in built.parameters()),
        "flops.counter.forward": flops,
        "flops.counter.step": flops + backward.get_total_flops(),
        "saved.total": saved,
    }


@pytest.mark.parametrize(("precision", "images"), [("fp32", 1), ("bf16-autocast", 1), ("bf16-true", 3), ("fp32", 32)])
def test_resnet_50_is_what_transformers_runs(precision: str, images: int) -> None:
    """Parameters, FLOPs and saved bytes of ResNetForImageClassification, of one image and of many."""
    with resnet_50(WEIGHTS[precision]) as built:
        seen = ran(built, images, autocast=precision == "bf16-autocast")
    sizes = (f"run.micro_batch={images}", f"run.global_batch={images}", f"precision={precision}")
    totals = ledger.compile(RESNET, [*ONE, *sizes]).totals
    assert {key: int(totals[key]) for key in seen} == seen
    assert seen["parameters"] == PUBLISHED


def figures(path: str, *changes: str) -> dict[str, ComparedFigure]:
    """What PyTorch says of a plan with changes, by account."""
    plan = load_plan(path, list(changes))
    return {figure.account: figure for figure in verify(plan, Depth(), "", lambda _: None).verdicts}


def assert_equal(found: dict[str, ComparedFigure]) -> None:
    """Every count is that of PyTorch, and the memory of a step as near as it must be."""
    counted = {account: one for account, one in found.items() if not account.startswith("memory.")}
    assert counted.keys() >= {"parameters", "saved.total", "flops.forward.matmul", "flops.backward.matmul"}
    for one in counted.values():
        assert (one.account, one.found) == (one.account, one.predicted)
    moments = [one for one in found.values() if one.account.startswith("memory.")]
    assert moments
    assert not [one.account for one in moments if one.status == DIFFERS]


@pytest.mark.parametrize(
    "changes",
    [(), ("precision=fp32",), ("precision=bf16-true", "optimizer=momentum"), ("recompute=full",)],
    ids=["autocast", "fp32", "bf16", "rebuilt"],
)
def test_a_network_of_ones_own_is_built_from_its_steps(changes: tuple[str, ...]) -> None:
    """Depthwise and grouped filters, batch norm over groups, pooling, sums in place; parts whose input is saved."""
    assert_equal(figures(OWN, *changes))


def test_resnet_from_its_steps_is_that_of_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge's modules of steps against the ledger, whose figures are those of transformers' class."""
    monkeypatch.setattr(reference, "is_of_a_family", lambda _: False)
    sizes = ("run.micro_batch=2", "run.global_batch=2")
    assert_equal(figures(RESNET, *ONE, *sizes))
    plan = load_plan(RESNET)
    with torch.device("meta"):
        assert isinstance(reference.reference_model(plan.model, plan.kernels, "meta", torch.float32), BlockModel)


def test_resnet_is_judged_by_its_own_class() -> None:
    """A step of transformers' ResNet on fake tensors: counts are equal and every difference has its cause."""
    found = figures(RESNET, *ONE, "run.micro_batch=2", "run.global_batch=4")
    assert_equal(found)
    explained = [one for one in found.values() if one.account.startswith("memory.")]
    assert all(one.status == EXPLAINED for one in explained), [(o.account, total(o.causes)) for o in explained]
