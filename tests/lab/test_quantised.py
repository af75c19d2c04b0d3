"""Quantised linear layers in PyTorch: torch._scaled_mm takes what the ledger counts, and saves as many bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from ledger.lab.observed.one_device import one_device_step, saved_bytes
from ledger.lab.reference.fused import QuantisedLinear, quantise_layers
from ledger.lab.reference.workload import workload
from ledger.lab.transformers.config import NoReferenceError
from ledger.spec.load import load_precision
from tests.model import plans

RECIPES = ("fp8-delayed", "fp8-current", "fp8-tensorwise", "fp8-rowwise", "fp8-block", "mxfp8", "nvfp4")
# Every side a multiple of 32, and none of 128 but the width of the stream: blocks and padding show.
SIZES = plans.layer(
    {**plans.LLAMA, "d_model": 384}, attention={"heads": 6, "kv_heads": 3, "head_dim": 32}, mlp={"d_ff": 544}
)
PARTS: plans.Mapped = {
    "model": SIZES,
    "accelerator": "b200",
    "kernels": {"attention": "flash", "optimizer": "foreach"},
    "run": {"seq_len": 48, "micro_batch": 2, "global_batch": 2},
}


@pytest.mark.parametrize("name", RECIPES)
def test_saved_bytes(name: str) -> None:
    """Copies, scales and their padding are saved byte for byte, in each layer and in all."""
    compiled = plans.compiled(**PARTS, precision=name)
    found = saved_bytes(workload(compiled.plan))
    assert compiled.totals["saved.per_layer.decoder"] == found.per_layer
    assert compiled.totals["saved.total"] == found.total(2)


@pytest.mark.parametrize("name", RECIPES)
def test_memory_of_a_step(name: str) -> None:
    """Copies of weights and amax buffers stay from step to step, and the peak of backward has what it has."""
    compiled = plans.compiled(**PARTS, precision=name)
    (role,) = compiled.roles
    found = one_device_step(workload(compiled.plan))
    moments = {moment.name: moment.total for moment in role.moments}
    rotary, loss = 2 * 16 * 4, 4  # transformers keeps inverse frequencies, and the loss is still there
    assert moments["optimizer"] == pytest.approx(found.moments["optimizer"].requested - rotary - loss, abs=64)
    for name_of_moment in ("backward/decoder", "backward/decoder/end"):  # autograd holds what backward was given
        assert moments[name_of_moment] == pytest.approx(found.moments[name_of_moment].requested, rel=7e-3)


@pytest.mark.parametrize("name", [name for name in RECIPES if name != "nvfp4"])  # a byte of two counts as one element
def test_flops_of_a_layer(name: str) -> None:
    """Three products of a layer, each counted by torch as the ledger counts a contraction."""
    recipe = load_precision(name).matmul
    assert recipe is not None
    tokens, inner, out = 96, 384, 544
    with torch.device("meta"):
        linear = QuantisedLinear(torch.nn.Linear(inner, out, bias=False, dtype=torch.bfloat16), recipe)
        x = torch.empty(tokens, inner, dtype=torch.bfloat16, requires_grad=True)
        with FlopCounterMode(display=False) as counter:
            linear(x).sum().backward()
    assert counter.get_total_flops() == 3 * 2 * tokens * inner * out


def test_what_is_not_modelled_is_refused() -> None:
    """A recipe that quantises the head, or one layout alone, is not judged by layers that do neither."""
    recipe = load_precision("fp8-current").matmul
    assert recipe is not None
    layers = torch.nn.ModuleList([torch.nn.Linear(32, 32)])
    for other in (replace(recipe, keep=("router",)), replace(recipe, layouts="one")):
        with pytest.raises(NoReferenceError):
            quantise_layers(layers, layers, other)
