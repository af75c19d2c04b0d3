"""Parts that a plan writes out before modules made of their einsums; windows before PyTorch's convolutions."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.books.evaluate import exact
from ledger.evidence.verdicts import ComparedFigure, total
from ledger.lab.verification.suites import Depth, verify
from ledger.model.einsum_kernels import SizedDims, convolution, letter
from ledger.spec.load import load_plan

PLAN = str(Path(__file__).with_name("own_attention.yaml"))


def figures(**changes: str) -> tuple[ComparedFigure, ...]:
    """What PyTorch says of the plan with changes."""
    plan = load_plan(PLAN, [f"{key.replace('__', '.')}={value}" for key, value in changes.items()])
    return verify(plan, Depth(), "", lambda _: None).verdicts


@pytest.mark.parametrize(
    "changes",
    [{}, {"precision": "bf16-autocast", "run__micro_batch": "1", "run__global_batch": "1"}, {"kernels__norm": "eager"}],
    ids=["plain", "autocast, one sequence", "eager norms"],
)
def test_attention_and_recurrence_as_einsums_are_what_pytorch_runs(changes: dict[str, str]) -> None:
    """An architecture of no framework: parameters, FLOPs and saved bytes are equal."""
    found = figures(**changes)
    assert {figure.account for figure in found} >= {"parameters", "saved.total", "flops.forward.matmul"}
    counted = [figure for figure in found if not figure.account.startswith("memory.")]
    assert [(f.account, (f.predicted or 0) + total(f.causes)) for f in counted] == [
        (f.account, f.found) for f in counted
    ]


@pytest.mark.parametrize(
    ("einsum", "sizes", "made"),
    [
        (
            "n (2*h+r-3) (2*w+s-3) c, r s c k -> n h w k",
            {"n": 2, "h": 14, "w": 14, "c": 3, "k": 8, "r": 7, "s": 7},
            {"x": (2, 3, 27, 27), "weight": (8, 3, 7, 7), "stride": 2, "padding": 3},
        ),
        (
            "n (h+r-1) (w+s-1) c, r s c k -> n h w k",
            {"n": 2, "h": 9, "w": 11, "c": 6, "k": 5, "r": 3, "s": 3},
            {"x": (2, 6, 9, 11), "weight": (5, 6, 3, 3), "padding": 1},
        ),
        (
            "n (h+2*r-2) (w+2*s-2) g c, r s g c k -> n h w g k",
            {"n": 2, "h": 9, "w": 11, "g": 3, "c": 4, "k": 5, "r": 3, "s": 3},
            {"x": (2, 12, 9, 11), "weight": (15, 4, 3, 3), "padding": 2, "dilation": 2, "groups": 3},
        ),
        (
            "batch (seq+tap-3) channel, channel tap -> batch seq channel",
            {"batch": 2, "seq": 96, "channel": 5, "tap": 4},
            {"x": (2, 5, 93), "weight": (5, 1, 4), "padding": 3, "groups": 5},
        ),
    ],
    ids=["strided", "padded", "groups, dilated", "depthwise"],
)
def test_windows_count_as_convolutions(einsum: str, sizes: dict[str, int], made: dict[str, object]) -> None:
    """FlopCounterMode on meta tensors: forward and gradient of the input; of the weight, over the groups it repeats."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    shapes = (made.pop("x"), made.pop("weight"))
    x, weight = (torch.empty(shape, device="meta", requires_grad=True) for shape in shapes)  # type: ignore[arg-type]
    run = torch.nn.functional.conv1d if x.ndim == 3 else torch.nn.functional.conv2d
    with FlopCounterMode(display=False) as forward:
        y = run(x, weight, **made)
    with FlopCounterMode(display=False) as both:
        y.sum().backward()
    step = convolution(einsum, "asked", SizedDims(sizes, "bf16"), ("activation", "weight"))
    value = exact({letter(name): size for name, size in sizes.items()})
    of_input, of_weight = (value(gradient.counted()) for gradient in step.gradients())
    assert value(step.counted()) == forward.get_total_flops()
    assert of_input == forward.get_total_flops()
    assert of_weight * int(made.get("groups", 1)) == both.get_total_flops() - of_input  # type: ignore[call-overload]
