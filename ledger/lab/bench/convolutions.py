"""Convolutions of ResNet-50 by pass and by memory layout, beside matrix products of the same sizes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.functional import conv2d

from ledger.lab.bench.cases import BenchCase, DeviceLimits
from ledger.lab.bench.rig import BenchKind, Rig, bytes_of, timed_builds
from ledger.lab.bench.timing import TimedWork

# (channels in and out, side of the window, stride, side of the image it reads): the first of each kind of ResNet-50's
# stages (He et al. 2016, table 1), with the stride in the 3 x 3 window as torchvision and transformers have it.
WINDOWS = (
    (3, 64, 7, 2, 224),
    (64, 64, 3, 1, 56),
    (256, 64, 1, 1, 56),
    (128, 128, 3, 2, 56),
    (512, 128, 1, 1, 28),
    (256, 256, 3, 1, 14),
    (1024, 512, 1, 1, 14),
    (512, 512, 3, 1, 7),
)
CUDA_IMAGES, CPU_IMAGES = 128, 2
# How images lie: as PyTorch gives them (n c h w), or with the channels of a pixel beside each other.
FORMATS = {"convolution": torch.contiguous_format, "convolution, channels last": torch.channels_last}
LAYOUTS = ("forward", "input_gradient", "weight_gradient")


def cases(limits: DeviceLimits) -> Iterator[BenchCase]:
    """Windows x memory formats x passes, in the first dtype; two windows, as images come, in a first look.

    m, n and k are those of the product that such a pass is: images and positions, channels, channels and window.
    """
    windows = WINDOWS[1:3] if limits.quick else WINDOWS
    images = CUDA_IMAGES if limits.type == "cuda" else CPU_IMAGES
    for kernel in list(FORMATS)[: 1 if limits.quick else None]:
        for window in windows:
            for layout in LAYOUTS[: 1 if window[0] == WINDOWS[0][0] else None]:  # no gradient of pixels is asked for
                yield _case(kernel, layout, images, window, limits.dtypes[0])


def _case(kernel: str, layout: str, images: int, window: tuple[int, ...], dtype: str) -> BenchCase:
    read, written, side, stride, image = window
    positions, inner = images * (image // stride) ** 2, read * side * side
    m, n, k = {
        "forward": (positions, written, inner),
        "input_gradient": (positions, inner, written),
        "weight_gradient": (written, inner, positions),
    }[layout]
    sizes = {"images": images, "channels": read, "filters": written, "window": side, "stride": stride, "image": image}
    keys = {"layout": layout, "m": m, "n": n, "k": k, "dtype": dtype, "kernel": kernel, **sizes}
    return BenchCase("convolution", f"matmul.{dtype}", keys)


def build(case: BenchCase, rig: Rig) -> TimedWork:
    """One pass of a convolution over rotated images, filters and gradients."""
    dtype, layout, form = str(case.keys["dtype"]), str(case.keys["layout"]), FORMATS[str(case.keys["kernel"])]
    images, read, written, side, stride, image = case.sizes(
        "images", "channels", "filters", "window", "stride", "image"
    )
    shapes = ((images, read, image, image), (written, read, side, side), (images, written, *[image // stride] * 2))

    def make() -> list[Any]:
        return [rig.random_tensor(*shape, dtype=dtype).to(memory_format=form) for shape in shapes]

    sets = rig.rotated_buffers(make, bytes_of(dtype, *shapes))
    if layout == "forward":
        return TimedWork(lambda index: conv2d(*sets[index][:2], stride=stride, padding=side // 2), len(sets))
    gradient_mask = [layout == "input_gradient", layout == "weight_gradient", False]

    def backward(index: int) -> Any:
        pixels, filters, upstream = sets[index]
        return torch.ops.aten.convolution_backward(
            *(upstream, pixels, filters, None),
            *([stride] * 2, [side // 2] * 2, [1, 1], False, [0, 0], 1, gradient_mask),
        )

    return TimedWork(backward, len(sets))


CONVOLUTION = BenchKind("convolution", cases, timed_builds(build, power=True))
